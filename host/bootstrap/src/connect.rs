//! Connects this process to its job, by the launch method that `discover` has chosen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::client::{LINGER, Member, Tcp};
use crate::discover::{self, Decision, LaunchMethod, decide};
use crate::error::{Error, MAX_PES};
use crate::id::{Side, UniqueId};
use crate::launcher::{PePosition, pmix};
use crate::server::{Server, ServerOptions};
use crate::threads::Threads;
use rushmem_base::lock;
use rushmem_config::Config;

/// The PEs of a job that run in this process.
pub enum LocalPes {
    /// This process is a single PE.
    Process(Tcp),
    /// All PEs of the job are threads of this process, with one connection each.
    Threads(Vec<Threads>),
}

/// The PEs of a job that run in this process, and how the process has joined the job.
pub struct JoinedJob {
    /// Connections of the PEs in this process.
    pub pes: LocalPes,
    /// Why this launch method was chosen, for messages.
    pub why: String,
    /// Rank of the PE on its node, and number of PEs on that node, if the launcher provides them.
    pub local: Option<(u32, u32)>,
}

/// This process's rank and job ID, as obtained from its launcher. Cached, since a process can exchange data with its
/// launcher only once but may run several jobs.
struct Session {
    position: PePosition,
    id: UniqueId,
    /// The server of all jobs that use this ID, if it runs in this process.
    server: Option<Arc<Server>>,
}

static SESSIONS: Mutex<BTreeMap<String, Session>> = Mutex::new(BTreeMap::new());

/// Joins the job for which a launcher started this process. Without a launcher, starts a job of `config.pes` threads.
///
/// `build_id` identifies the build of this process. All PEs of a job must have the same.
///
/// # Errors
///
/// - [`Error::Launch`]: the variables of launchers are incomplete or contradict each other, or the launcher offers its
///   processes no way to exchange addresses.
/// - [`Error::NotStarted`]: the setting `bootstrap` names a launcher that did not start this process.
/// - [`Error::TooManyPes`]: the job has more than [`MAX_PES`] PEs.
/// - [`Error::Exchange`]: the exchange through the launcher failed.
/// - [`Error::Id`], [`Error::Token`]: the id or token is invalid.
/// - [`Error::Loopback`], [`Error::Interface`], [`Error::Listen`]: the server's address is unusable.
/// - Any error of [`Tcp::join`].
pub fn from_env(config: &Config, build_id: String) -> Result<JoinedJob, Error> {
    let Decision { method, why } = decide(config, &build_id, &|name| std::env::var(name).ok())?;
    tracing::info!("PEs are {}: {why}", name(&method));
    let found = |pes, local| JoinedJob { pes, why: why.clone(), local };
    let timeout = config.bootstrap_timeout;
    match method {
        LaunchMethod::Threads => check_number(config.pes.get())
            .map(|()| found(LocalPes::Threads(Threads::job(config.pes.get(), timeout)), None)),
        LaunchMethod::Rushmem(member) => {
            let local = config.local_pe.zip(config.local_pes.map(|pes| pes.get()));
            Ok(found(LocalPes::Process(Tcp::join(*member)?), local))
        }
        method => {
            let mut sessions = lock(&SESSIONS);
            let key = format!("{method:?}");
            if !sessions.contains_key(&key) {
                let (position, id) = exchange_id(method, config)?;
                let server = serve(id, position.pe, position.n_pes, config)?;
                sessions.insert(key.clone(), Session { position, id, server });
            }
            let Session { position, id, server } = &sessions[&key];
            let (position, member) = (*position, member(*id, position.pe, position.n_pes, build_id, timeout));
            let server = server.clone();
            drop(sessions);
            Ok(found(LocalPes::Process(join(member, server)?), position.local))
        }
    }
}

/// Returns the launch method of this process and why it was chosen, for `rushmem info`. Does not join a job.
///
/// # Errors
///
/// - [`Error::Launch`]: the variables of launchers are incomplete or contradict each other.
/// - [`Error::NotStarted`]: the setting `bootstrap` names a launcher that did not start this process.
/// - [`Error::Token`]: the token is invalid.
pub fn launch_method(config: &Config) -> Result<(&'static str, String), Error> {
    let decision = decide(config, "", &|name| std::env::var(name).ok())?;
    Ok((name(&decision.method), decision.why))
}

/// Returns whether a launcher or an ID makes this process one PE of a job with several processes. Does not join the
/// job.
///
/// # Errors
///
/// - [`Error::Launch`]: the variables of launchers are incomplete or contradict each other.
/// - [`Error::NotStarted`]: the setting `bootstrap` names a launcher that did not start this process.
/// - [`Error::Token`]: the token is invalid.
pub fn is_launched(config: &Config) -> Result<bool, Error> {
    let decision = decide(config, "", &|name| std::env::var(name).ok())?;
    Ok(!matches!(decision.method, LaunchMethod::Threads))
}

/// Returns the number of PEs of the job. Does not join the job.
///
/// Programs can use it to choose the size of the heap. `None` means that only the launcher's server knows the number:
/// the launcher speaks PMIx and is neither Open MPI nor Slurm.
///
/// ```
/// # use rushmem_bootstrap::n_pes;
/// # use rushmem_config::Config;
/// let mut config = Config::default();
/// config.set("pes", "4")?;
/// assert_eq!(n_pes(&config)?, Some(4)); // no launcher
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// - [`Error::Launch`]: the variables of launchers are incomplete or contradict each other.
/// - [`Error::NotStarted`]: the setting `bootstrap` names a launcher that did not start this process.
/// - [`Error::Token`]: the token is invalid.
pub fn n_pes(config: &Config) -> Result<Option<u32>, Error> {
    discover::n_pes(config, &|name| std::env::var(name).ok())
}

/// Returns whether this process is the first one of its job on this node.
///
/// Programs can use it to print something once per node. The answer is derived from `RUSHMEM_LOCAL_PE`, or from the
/// variables of torchrun, Open MPI, Hydra, MVAPICH and Slurm. Without any of them, it is `true`. Does not join a job.
///
/// ```
/// # use rushmem_bootstrap::is_first_on_node;
/// # use rushmem_config::Config;
/// let mut config = Config::default();
/// config.local_pe = Some(1);
/// assert!(!is_first_on_node(&config));
/// ```
pub fn is_first_on_node(config: &Config) -> bool {
    discover::is_first_on_node(config, &|name| std::env::var(name).ok())
}

/// Joins the job of `id` as PE `pe` of `n_pes`. Also runs the job's server if this process is to listen at the ID's
/// address.
///
/// # Errors
///
/// - [`Error::TooManyPes`]: `n_pes` is above [`MAX_PES`].
/// - [`Error::NoPe`]: `pe` is not below `n_pes`.
/// - [`Error::Loopback`]: the server listens on a loopback address of another machine.
/// - [`Error::Listen`]: this process cannot listen on the address in the id.
/// - Any error of [`Tcp::join`].
pub fn with_id(
    id: UniqueId,
    pe: u32,
    n_pes: u32,
    config: &Config,
    build_id: String,
) -> Result<JoinedJob, Error> {
    let server = serve(id, pe, n_pes, config)?;
    let job = join(member(id, pe, n_pes, build_id, config.bootstrap_timeout), server)?;
    let why = "the program provides a unique id".into();
    Ok(JoinedJob { pes: LocalPes::Process(job), why, local: None })
}

fn name(method: &LaunchMethod) -> &'static str {
    match method {
        LaunchMethod::Threads => "threads of this process",
        LaunchMethod::Rushmem(_) => "processes of `rushmem run`",
        LaunchMethod::Id { .. } => "processes with a unique id",
        LaunchMethod::Pmi(_) | LaunchMethod::Pmix => "processes of a launcher for MPI",
        LaunchMethod::Torchrun(_) => "processes of torchrun",
    }
}

/// Creates the ID of a job that a launcher for MPI started, and listens where all its PEs can connect.
fn create_id(config: &Config) -> Result<UniqueId, Error> {
    match discover::is_on_one_node(&|name| std::env::var(name).ok()) {
        true => UniqueId::with_config(config),
        false => UniqueId::for_nodes(config),
    }
}

/// Determines the position of this process and the unique ID of its job, through the launcher if necessary.
fn exchange_id(method: LaunchMethod, config: &Config) -> Result<(PePosition, UniqueId), Error> {
    match method {
        LaunchMethod::Id { id, pe, n_pes } => Ok((PePosition { pe, n_pes, local: None }, id)),
        LaunchMethod::Pmi(pmi) => pmi.exchange_id(config.bootstrap_timeout, || create_id(config)),
        LaunchMethod::Pmix => {
            let copy = config.clone();
            pmix::exchange_id(config.bootstrap_timeout, move || create_id(&copy))
        }
        LaunchMethod::Torchrun(torchrun) => torchrun.exchange_id(config),
        LaunchMethod::Threads | LaunchMethod::Rushmem(_) => unreachable!("this launch method has no id"),
    }
}

/// Rejects more than [`MAX_PES`] PEs: the job's state alone could then exhaust the memory.
fn check_number(n_pes: u32) -> Result<(), Error> {
    if n_pes <= MAX_PES { Ok(()) } else { Err(Error::TooManyPes { n_pes }) }
}

fn serve(id: UniqueId, pe: u32, n_pes: u32, config: &Config) -> Result<Option<Arc<Server>>, Error> {
    check_number(n_pes)?;
    if pe >= n_pes {
        return Err(Error::NoPe { pe, n_pes });
    }
    match id.side(pe)? {
        Side::Joins => Ok(None),
        Side::Serves(listener) => {
            let (listen, token) = (id.addr(), id.token());
            tracing::info!("PE {pe} listens at {listen} for the job's {n_pes} PEs");
            let options = ServerOptions {
                n_pes,
                host: Some(pe),
                token,
                listen,
                exit_wait: Duration::ZERO,
                heartbeat: config.heartbeat.0,
            };
            Server::on(listener, options).map(|server| Some(Arc::new(server)))
        }
    }
}

fn member(id: UniqueId, pe: u32, n_pes: u32, build_id: String, timeout: Duration) -> Member {
    let (server, token) = (id.addr().to_string(), id.token());
    Member { server, token, pe, n_pes, build_id, timeout, retry: id.may_listen_later() }
}

fn join(member: Member, server: Option<Arc<Server>>) -> Result<Tcp, Error> {
    match (Tcp::join(member), server) {
        (Ok(tcp), Some(server)) => Ok(tcp.hosting(server)),
        (Err(error), Some(server)) => {
            // Keep the server running until the other PEs have received the reason.
            server.wait_for_pes(server.job(), LINGER);
            Err(error)
        }
        (outcome, None) => outcome,
    }
}
