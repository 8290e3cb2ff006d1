//! Hooks of the communication sanitizer and of the timeline, by which a call reports what it does to the lane's
//! [`Watcher`].
//!
//! Hooks are placed in public calls. Calls nested in such a call are silent until its `Call` is dropped. A hook that
//! releases precedes the step that others can see; a hook that acquires follows the step that has seen it.
//!
//! | file | used |
//! |---|---|
//! | `native.rs` | natively, in debug builds and with the feature `sanitize`: reports to the watcher |
//! | `ring.rs` | on GPUs, with the feature `trace`: writes to the ring of the block, for the timeline |
//! | `off.rs` | elsewhere: empty functions. The other files use it for hooks that they ignore |

#[cfg(all(not(target_arch = "nvptx64"), any(debug_assertions, feature = "sanitize")))]
#[path = "native.rs"]
mod imp;
#[cfg(all(target_arch = "nvptx64", feature = "trace"))]
#[path = "ring.rs"]
mod imp;
#[allow(dead_code, unreachable_pub, reason = "the other files have items of their own in place of some")]
mod off;
#[cfg(all(not(target_arch = "nvptx64"), not(any(debug_assertions, feature = "sanitize"))))]
use off as imp;
#[cfg(all(target_arch = "nvptx64", not(feature = "trace")))]
use off as imp;

pub use crate::event::{
    Access, Blocks, Change, Collective, Completion, Event, Meeting, Operation, Order, Ordering, Part,
    PeRange, Posting, Watcher,
};
pub use imp::ENABLED;
pub(crate) use imp::{
    Ticket, call, collective, each, grid, kernel_begins, kernel_ends, lead, lead_own, load, note, sees,
    store, ticket, waits,
};
