//! Hooks of the communication sanitizer: a call tells the lane's [`Watcher`] what it does.
//!
//! A hook stands at a public call. Calls inside of that call are silent, until its `Call` is dropped. A hook that
//! releases precedes the step that others can see. A hook that acquires follows the step that has seen it.
//!
//! The hooks are real natively, in debug builds and with the feature `sanitize`. Elsewhere they are empty functions.

#[cfg_attr(
    all(not(target_arch = "nvptx64"), any(debug_assertions, feature = "sanitize")),
    path = "native.rs"
)]
#[cfg_attr(
    not(all(not(target_arch = "nvptx64"), any(debug_assertions, feature = "sanitize"))),
    path = "off.rs"
)]
mod imp;

pub use crate::event::{
    Blocks, Change, Collective, Completion, Event, Meeting, Operation, Order, Ordering, Part, PeRange,
    Posting, Watcher,
};
pub use imp::ENABLED;
pub(crate) use imp::{Ticket, call, collective, each, grid, lead, lead_own, note, ticket, waits};
