//! The timeline of a job, which records what PEs, streams, GPU threads and NICs do as spans.
//!
//! | module | holds |
//! |---|---|
//! | `pe` | the calls of the host of a PE |
//! | `launch` | the launches of a stream |
//! | `lane`, `observer` | the calls of a lane, which is one GPU thread; the lanes of a launch |
//! | `gpu` | the calls of kernels on a GPU |
//! | `nic` | the work of a software ConnectX |
//! | `offsets` | translates addresses on the wire to symmetric offsets |
//! | `files` | the timeline files of this process |
//! | `report` | writes the file and prints the tables of a job |

mod files;
mod gpu;
mod lane;
mod launch;
mod nic;
mod observer;
mod offsets;
mod pe;
mod report;

pub use self::files::TraceFile;
pub use self::gpu::{RingMemory, RingSize};
pub use self::launch::{LaunchTrace, StreamTrace};
pub use self::nic::NicTrace;
pub use self::observer::TraceObserver;
pub use self::offsets::WireRange;
pub use self::pe::PeTrace;
pub use self::report::{JobTrace, has_timeline};
