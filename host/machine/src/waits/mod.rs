//! The waits of a job, for a user who asks why it does not go on.
//!
//! A signal SIGUSR1 or a passed deadline makes a PE ask PE 0. PE 0 collects the waits of all PEs by messages, and prints them
//! once. The service thread of each PE answers, so the hosts and the kernels may all wait.
//!
//! | module | holds |
//! |---|---|
//! | `known` | the waits of this PE, as it knows them |
//! | `live` | the file for `rushmem top` |
//! | `protocol` | the messages between the PEs |
//! | `report` | the part of a PE, driven by its service thread |
//! | `signal` | the handler of SIGUSR1 |

mod known;
mod live;
mod protocol;
mod report;
mod signal;

pub use self::known::Known;
pub use self::report::{Waits, is_waits_message};
pub use self::signal::listen;
