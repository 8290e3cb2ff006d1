//! The communication sanitizer of a job, which translates the steps of PEs, streams and GPU threads into requests to
//! the engine of `rushmem-sanitizer`.
//!
//! One engine watches all PEs of a job. If PEs are threads, they share it, and its lock orders their steps. If they are
//! processes of one machine, the engine is in the process of PE 0, and all of them write their requests to one queue,
//! which orders the steps. Each process maps its own addresses to memory.
//!
//! | module | holds |
//! |---|---|
//! | `addresses` | memory by address or offset |
//! | `link` | the link from a PE to the engine |
//! | `queue` | orders the requests of all processes |
//! | `client`, `server` | the connection of a process to the engine |
//! | `pe` | the steps of the host of a PE |
//! | `stream` | the order of launches on a stream |
//! | `launch`, `observer` | the lanes of a launch, and their barriers |
//! | `lane` | the steps of a lane, which is one GPU thread |
//! | `polls` | loops that read a word until it changes |
//! | `deadlock` | detection of waits that can never be satisfied |
//! | `report` | the findings of a job, at its end |

mod addresses;
mod client;
mod deadlock;
mod lane;
mod launch;
mod link;
mod observer;
mod pe;
mod polls;
mod queue;
mod report;
mod server;
mod stream;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use rushmem_base::{boot_id, lock};
use rushmem_bootstrap::Bootstrap;
use rushmem_error::{Error, Result};
use rushmem_sanitizer::JobState;

use self::link::Link;
use self::server::Server;

pub use self::addresses::Addresses;
pub use self::launch::LaunchWatch;
pub use self::observer::LaunchObserver;
pub use self::pe::{Knowledge, PeWatch, Seen};
pub use self::report::{check_report, check_supported};
pub use self::stream::StreamWatch;

/// One process's part of a job's communication sanitizer.
#[derive(Debug)]
pub struct Sanitizer {
    link: Link,
    /// The race detection engine, if it runs in this process.
    engine: Option<Arc<Mutex<JobState>>>,
    /// Serves the engine to the other processes of the job. `None` if PEs are threads, or the engine runs elsewhere.
    server: Mutex<Option<Server>>,
    /// Callbacks that abort the waits of the PEs in this process when a deadlock is found.
    ends: Mutex<Vec<JobEnd>>,
    /// Whether the waits of this process's PEs have been aborted.
    is_over: AtomicBool,
}

/// Callback that aborts the waits of a PE. Its argument is the reason.
struct JobEnd(Box<dyn Fn(&str) + Send>);

impl fmt::Debug for JobEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobEnd")
    }
}

impl Sanitizer {
    /// Creates the sanitizer of a job whose PEs are threads of this process.
    pub fn of_threads(n_pes: u32) -> Arc<Self> {
        let engine = Arc::new(Mutex::new(JobState::new(n_pes)));
        Self::new(Link::here(Arc::clone(&engine)), Some(engine), None)
    }

    /// Creates this process's part of the sanitizer of a job whose PEs are processes. Collective.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if the PEs are on several machines, or cannot reach PE 0.
    /// - [`Error::Bootstrap`] if a PE does not arrive.
    pub fn of_process(pe: &dyn Bootstrap) -> Result<Arc<Self>> {
        let engine = (pe.pe() == 0).then(|| Arc::new(Mutex::new(JobState::new(pe.n_pes()))));
        let (server, name, first) = match &engine {
            Some(engine) => {
                let (server, name, client) = Server::start(Arc::clone(engine), pe.n_pes())?;
                (Some(server), name, Some(client))
            }
            None => (None, String::new(), None),
        };
        let mine = [boot_id().unwrap_or_default(), name].join(" ");
        let all = pe.allgather("the exchange of the sanitizer's socket", mine.as_bytes())?;
        let machine_of = |theirs: &[u8]| theirs.split(|byte| *byte == b' ').next().map(<[u8]>::to_vec);
        if all.iter().any(|theirs| machine_of(theirs) != machine_of(mine.as_bytes())) {
            let why = "it watches PEs of one machine; run all of them here".into();
            return Err(Error::Unavailable { what: "the sanitizer".into(), why });
        }
        let client = match first {
            Some(client) => client,
            None => {
                let first = all.first().map(|first| String::from_utf8_lossy(first)).unwrap_or_default();
                server::connect(first.split_once(' ').map_or("", |(_, name)| name))?
            }
        };
        pe.barrier("the connections of the sanitizer")?;
        Ok(Self::new(Link::there(client, pe.pe(), pe.n_pes()), engine, server))
    }

    fn new(link: Link, engine: Option<Arc<Mutex<JobState>>>, server: Option<Server>) -> Arc<Self> {
        Arc::new(Self {
            link,
            engine,
            server: Mutex::new(server),
            ends: Mutex::default(),
            is_over: AtomicBool::new(false),
        })
    }

    fn on_deadlock(&self, end: JobEnd) {
        lock(&self.ends).push(end);
    }
}
