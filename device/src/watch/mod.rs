//! Hooks of the communication sanitizer and of the timeline: a call tells the lane's [`Watcher`] what it does.
//!
//! A hook stands at a public call. Calls inside of that call are silent, until its `Call` is dropped. A hook that
//! releases precedes the step that others can see. A hook that acquires follows the step that has seen it.
//!
//! | file | used |
//! |---|---|
//! | `native.rs` | natively, in debug builds and with the feature `sanitize`: tells the watcher |
//! | `ring.rs` | on GPUs, with the feature `trace`: writes to the ring of the block, for the timeline |
//! | `off.rs` | elsewhere: empty functions |

#[cfg_attr(
    all(not(target_arch = "nvptx64"), any(debug_assertions, feature = "sanitize")),
    path = "native.rs"
)]
#[cfg_attr(
    all(not(target_arch = "nvptx64"), not(any(debug_assertions, feature = "sanitize"))),
    path = "off.rs"
)]
#[cfg_attr(all(target_arch = "nvptx64", feature = "trace"), path = "ring.rs")]
#[cfg_attr(all(target_arch = "nvptx64", not(feature = "trace")), path = "off.rs")]
mod imp;

pub use crate::event::{
    Blocks, Change, Collective, Completion, Event, Meeting, Operation, Order, Ordering, Part, PeRange,
    Posting, Watcher,
};
pub use imp::ENABLED;
pub(crate) use imp::{
    Ticket, call, collective, each, grid, kernel_begins, kernel_ends, lead, lead_own, note, ticket, waits,
};
