//! Reports what every PE of a job waits for, to a user who asks why the job is stuck.
//!
//! On SIGUSR1, or after a passed deadline, a PE asks PE 0 for a report. PE 0 collects the waits of all PEs by messages
//! and prints them once. Service threads exchange these messages, so the report works while all hosts and kernels are
//! blocked.
//!
//! | module | holds |
//! |---|---|
//! | `known` | the waits of this PE, from its own state |
//! | `live` | the file that `rushmem top` reads |
//! | `protocol` | the messages between the PEs, as a state machine |
//! | `report` | connects `protocol` to the bootstrap; driven by the service thread |
//! | `signal` | the SIGUSR1 handler |

mod known;
mod live;
mod protocol;
mod report;
mod signal;

pub use self::known::Known;
pub use self::report::{Waits, is_waits_message};
pub use self::signal::listen;
