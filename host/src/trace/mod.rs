//! The timeline of a job: it turns what PEs, streams, lanes and NICs do into spans.
//!
//! | module | holds |
//! |---|---|
//! | `pe` | the calls of the host of a PE |
//! | `launch` | the launches of a stream |
//! | `lane`, `observer` | the calls of a lane; the lanes of a launch |
//! | `gpu` | the calls of kernels on a GPU |
//! | `nic` | the work of a software ConnectX |
//! | `offsets` | the symmetric offsets behind addresses on the wire |
//! | `files` | the timeline files of this process |
//! | `report` | the file and the tables of a job, at its end |

mod files;
mod gpu;
mod lane;
mod launch;
mod nic;
mod observer;
mod offsets;
mod pe;
mod report;

pub(crate) use self::files::TraceFile;
pub(crate) use self::gpu::{RingMemory, RingSize};
pub(crate) use self::launch::{LaunchTrace, StreamTrace};
pub(crate) use self::nic::NicTrace;
pub(crate) use self::observer::TraceObserver;
pub(crate) use self::offsets::WireRange;
pub(crate) use self::pe::PeTrace;
pub(crate) use self::report::{JobTrace, has_timeline};
