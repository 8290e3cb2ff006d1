//! Point-to-point synchronisation: signals, waits for words, and locks.

mod signal;
mod wait_until;

mod shadow;

mod lock;

mod membership;

pub use lock::Lock;
pub use shadow::Shadowed;
pub use signal::{SignalOp, SignalUpdate};
pub use wait_until::{Cmp, WaitWords};
