//! The communication sanitizer of a job: it turns what PEs, streams and lanes tell into requests to the engine.
//!
//! One engine watches all PEs of a job, which are threads of this process. So the addresses of their memory are known to it,
//! and one lock gives their steps an order.
//!
//! | module | holds |
//! |---|---|
//! | `addresses` | the memory behind an address or an offset |
//! | `request` | requests to the engine, as plain data |
//! | `state` | the engine, and the meetings and tokens of the job |
//! | `link` | the way from a PE to the engine |
//! | `pe` | the steps of the host of a PE |
//! | `stream` | the order of launches on a stream |
//! | `launch` | the lanes of a launch, and their barriers |
//! | `lane` | the steps of a lane |
//! | `deadlock` | the search for waits that cannot end |
//! | `report` | the findings of a job, at its end |

mod addresses;
mod deadlock;
mod lane;
mod launch;
mod link;
mod pe;
mod report;
mod request;
mod state;
mod stream;

use std::fmt;
use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_sanitizer::MeetingId;

use self::link::Link;
use self::state::State;

pub(crate) use self::addresses::Addresses;
pub(crate) use self::launch::{LaunchObserver, LaunchWatch};
pub(crate) use self::pe::{Knowledge, PeWatch, Seen};
pub(crate) use self::report::{check_supported, report};
pub(crate) use self::stream::StreamWatch;

/// The meeting of all hosts.
const HOSTS: MeetingId = MeetingId(0);

/// The sanitizer of a job.
#[derive(Debug)]
pub(crate) struct Sanitizer {
    link: Link,
    /// The functions that end the waits of PEs.
    ends: Mutex<Vec<JobEnd>>,
}

/// A function that ends the waits of a PE.
struct JobEnd(Box<dyn Fn(&str) + Send>);

impl fmt::Debug for JobEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobEnd")
    }
}

impl Sanitizer {
    /// Creates the sanitizer of a job of `n_pes` PEs.
    pub(crate) fn new(n_pes: u32) -> Arc<Self> {
        let link = Link::Here(Arc::new(Mutex::new(State::new(n_pes))));
        Arc::new(Self { link, ends: Mutex::default() })
    }

    /// Adds a function that ends the waits of a PE.
    fn on_deadlock(&self, end: JobEnd) {
        lock(&self.ends).push(end);
    }
}
