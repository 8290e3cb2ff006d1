//! The engine, which stands in for the hardware: one thread per adapter that executes what programs post.
//!
//! The thread repeats a [pass](core::Core::pass): it scans the UAR pages for doorbells, processes received packets, and
//! lets each QP in the run queue send a burst. A pass holds the lock on the adapter's state, which commands take between
//! passes. Without work, the thread polls for a while and then sleeps until an [alarm](alarm), a packet or the next timer.

pub(crate) mod alarm;
pub(crate) mod clock;
mod contexts;
pub(crate) mod core;
pub(crate) mod doorbells;
mod failure;
pub(crate) mod thread;
