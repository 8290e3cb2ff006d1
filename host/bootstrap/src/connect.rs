//! Connects this process to its job, in the way that was decided.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::client::{LINGER, Member, Tcp};
use crate::discover::{self, Decision, LaunchMethod, decide};
use crate::error::Error;
use crate::id::{Side, UniqueId};
use crate::launcher::{PePosition, pmix};
use crate::server::{Server, ServerOptions};
use crate::threads::Threads;
use rushmem_base::lock;
use rushmem_config::Config;

/// The largest number of PEs in a job.
pub const MAX_PES: u32 = 1 << 16;

/// The PEs of a job that live in this process.
pub enum Job {
    /// This process is one PE.
    Process(Tcp),
    /// This process is the whole job; one connection for each of its threads.
    Threads(Vec<Threads>),
}

/// What was found.
pub struct Found {
    /// The job.
    pub job: Job,
    /// Why its PEs come together in this way.
    pub why: String,
    /// One line for the user, if this looks like a job of a launcher that we cannot join: each of its processes is a
    /// job of its own. Only its first process has it, so that it is said once.
    pub warning: Option<String>,
    /// Number of the PE among those of its node, and how many those are, if the launcher has said so.
    pub local: Option<(u32, u32)>,
}

/// What a launcher has said. It says it once in the life of a process, which may run several jobs.
struct Session {
    place: PePosition,
    id: UniqueId,
    /// The server of all these jobs, in the process of PE 0.
    server: Option<Arc<Server>>,
}

static SESSIONS: Mutex<BTreeMap<String, Session>> = Mutex::new(BTreeMap::new());

/// Joins the job that a launcher started this process for, or makes one of `config.pes` threads.
///
/// `build_id` is what this process was built from; all PEs of a job must have the same.
///
/// # Errors
///
/// [`Error::Launch`] if the variables of launchers are incomplete or contradict each other; [`Error::NotStarted`] if
/// the settings ask for another one; [`Error::Exchange`] if the launcher fails; else as [`Tcp::join`].
pub fn from_env(config: &Config, build_id: String) -> Result<Found, Error> {
    let Decision { way, why, warning } = decide(config, &build_id, &|name| std::env::var(name).ok())?;
    tracing::info!("PEs are {}: {why}", name(&way));
    if let Some(warning) = &warning {
        tracing::warn!("{warning}");
    }
    let found = |job, local| Found { job, why: why.clone(), warning: warning.clone(), local };
    let timeout = config.bootstrap_timeout;
    match way {
        LaunchMethod::Threads => check_number(config.pes.get())
            .map(|()| found(Job::Threads(Threads::job(config.pes.get(), timeout)), None)),
        LaunchMethod::Rushmem(member) => {
            let local = config.local_pe.zip(config.local_pes.map(|pes| pes.get()));
            Ok(found(Job::Process(Tcp::join(*member)?), local))
        }
        way => {
            let mut sessions = lock(&SESSIONS);
            let key = format!("{way:?}");
            if !sessions.contains_key(&key) {
                let (place, id) = meet(way, config)?;
                let server = serve(id, place.pe, place.n_pes)?;
                sessions.insert(key.clone(), Session { place, id, server });
            }
            let Session { place, id, server } = &sessions[&key];
            let (place, member) = (*place, member(*id, place.pe, place.n_pes, build_id, timeout));
            let server = server.clone();
            drop(sessions);
            Ok(found(Job::Process(join(member, server)?), place.local))
        }
    }
}

/// How the PEs of a job of this process would meet, and why; for `rushmem info`.
pub fn survey(config: &Config) -> Result<(&'static str, String), Error> {
    let decision = decide(config, "", &|name| std::env::var(name).ok())?;
    Ok((name(&decision.way), decision.why))
}

/// True unless a launcher says that this process is not the first that it has started on this node: for programs of which each
/// process of a node would say the same. By `RUSHMEM_LOCAL_PE`, or else by the variables of torchrun, Open MPI, Hydra, MVAPICH
/// and Slurm. Joins nothing.
///
/// ```
/// # use rushmem_bootstrap::is_first_here;
/// # use rushmem_config::Config;
/// let mut config = Config::default();
/// config.local_pe = Some(1);
/// assert!(!is_first_here(&config));
/// ```
pub fn is_first_here(config: &Config) -> bool {
    discover::is_first_here(config, &|name| std::env::var(name).ok())
}

/// Joins the job of `id` as PE `pe` of `n_pes`, and has its server if it is due to this process.
///
/// # Errors
///
/// [`Error::NoPe`] for a number that is too large, [`Error::Loopback`] for an id of another machine; else as
/// [`Tcp::join`].
pub fn with_id(id: UniqueId, pe: u32, n_pes: u32, config: &Config, build_id: String) -> Result<Found, Error> {
    let server = serve(id, pe, n_pes)?;
    let job = join(member(id, pe, n_pes, build_id, config.bootstrap_timeout), server)?;
    let why = "the program has given a unique id".into();
    Ok(Found { job: Job::Process(job), why, warning: None, local: None })
}

fn name(way: &LaunchMethod) -> &'static str {
    match way {
        LaunchMethod::Threads => "threads of this process",
        LaunchMethod::Rushmem(_) => "processes of `rushmem run`",
        LaunchMethod::Id { .. } => "processes with a unique id",
        LaunchMethod::Pmi(_) | LaunchMethod::Pmix => "processes of a launcher for MPI",
        LaunchMethod::Torchrun(_) => "processes of torchrun",
    }
}

/// Learns place and id from whoever knows them.
fn meet(way: LaunchMethod, config: &Config) -> Result<(PePosition, UniqueId), Error> {
    match way {
        LaunchMethod::Id { id, pe, n_pes } => Ok((PePosition { pe, n_pes, local: None }, id)),
        LaunchMethod::Pmi(pmi) => pmi.meet(config.bootstrap_timeout, || UniqueId::with_config(config)),
        LaunchMethod::Pmix => {
            let copy = config.clone();
            pmix::meet(config.bootstrap_timeout, move || UniqueId::with_config(&copy))
        }
        LaunchMethod::Torchrun(torchrun) => torchrun.meet(config),
        LaunchMethod::Threads | LaunchMethod::Rushmem(_) => unreachable!("these have no id"),
    }
}

/// Refuses a number of PEs for which the job's state alone would fill the memory.
fn check_number(n_pes: u32) -> Result<(), Error> {
    if n_pes <= MAX_PES { Ok(()) } else { Err(Error::TooManyPes { n_pes }) }
}

fn serve(id: UniqueId, pe: u32, n_pes: u32) -> Result<Option<Arc<Server>>, Error> {
    check_number(n_pes)?;
    if pe >= n_pes {
        return Err(Error::NoPe { pe, n_pes });
    }
    match id.side(pe)? {
        Side::Joins => Ok(None),
        Side::Serves(listener) => {
            let (listen, token) = (id.addr(), id.token());
            tracing::info!("PE {pe} listens at {listen} for the job's {n_pes} PEs");
            let options = ServerOptions { n_pes, host: Some(pe), token, listen, exit_wait: Duration::ZERO };
            Server::on(listener, options).map(|server| Some(Arc::new(server)))
        }
    }
}

fn member(id: UniqueId, pe: u32, n_pes: u32, build_id: String, timeout: Duration) -> Member {
    let (server, token) = (id.addr().to_string(), id.token());
    Member { server, token, pe, n_pes, build_id, timeout, retry: id.is_awaited() }
}

fn join(member: Member, server: Option<Arc<Server>>) -> Result<Tcp, Error> {
    match (Tcp::join(member), server) {
        (Ok(tcp), Some(server)) => Ok(tcp.hosting(server)),
        (Err(error), Some(server)) => {
            // The others are told why before the server goes.
            server.wait_for_pes(server.job(), LINGER);
            Err(error)
        }
        (outcome, None) => outcome,
    }
}
