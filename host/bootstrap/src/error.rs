//! Errors of starting a job, and of the calls between its PEs.

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

/// Largest number of PEs in a job.
pub const MAX_PES: u32 = 1 << 16;

use rushmem_base::{Pes, THREAD_ADVICE};
use rushmem_config::BootstrapKind;

/// A PE, or the launcher, that left the job without finishing it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerLost {
    /// PE that was lost, or `None` if the launcher was. Once the launcher is lost, PEs no longer learn about the losses
    /// of other PEs.
    pub pe: Option<u32>,
    /// Why the PE or the launcher was lost, as part of a sentence: `killed by SIGKILL`, `aborted: out of memory`.
    pub reason: String,
    /// Exit code, if the PE exited the whole job with [`Bootstrap::exit`](super::Bootstrap::exit).
    pub exit: Option<u8>,
    /// Whether the job continues without the PE: it has formed an epoch, and the PE neither exited the whole job nor ran
    /// its server.
    pub survivable: bool,
}

impl PeerLost {
    /// Returns whether the process of the PE only reserved its number (setting `vacant_pes`), so this is no failure.
    pub fn is_vacant(&self) -> bool {
        self.reason.ends_with(VACANT)
    }
}

impl fmt::Display for PeerLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pe {
            Some(pe) => write!(f, "PE {pe} was lost: {}", self.reason),
            None => write!(f, "the job's launcher was lost: {}", self.reason),
        }
    }
}

/// Name of the last collective call of a job. Error messages describe a PE in this call as finished.
pub const END: &str = "the end of the job";

/// Tag of the barrier that is the last collective call before the first epoch.
pub const START: &str = "the start of the job";

/// Reason in [`PeerLost`] of a process that waits to replace a lost one.
pub(crate) const NONE_LEFT: &str = "no PE is left that could take its process in";

/// Reason with which the process of a vacant PE (setting `vacant_pes`) aborts. See [`PeerLost::is_vacant`].
pub const VACANT: &str = "no process has joined as this PE yet";

/// End of the reason in [`PeerLost`] for a PE that exited before it joined the job. Launchers use the same text.
pub const BEFORE_JOINING: &str = " before it joined the job";

/// Formats the time spent on attempts to connect, as part of a sentence.
fn tried(waited: Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(" (tried for {waited:?})") }
}

/// Returns advice for a launcher that cannot be reached.
fn reach_advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => {
            "bring up the network interface of this address (`ip link set lo up` for 127.0.0.1 and ::1)"
        }
        ErrorKind::HostUnreachable => "check the route and the firewall between the nodes",
        ErrorKind::TimedOut => "check that no firewall drops the packets, and that the launcher still runs",
        _ => "check that the launcher still runs",
    }
}

/// Returns the name of a call as users know it: the text in backticks, without the kind of call before it.
fn shown(call: &str) -> &str {
    call.split('`').nth(1).unwrap_or(call)
}

/// Formats which PEs are in which call, as part of a sentence.
fn calls_of_pes(calls: &[(String, Pes)]) -> String {
    let one = |(call, pes): &(String, Pes)| match (shown(call), pes.0.len()) {
        (END, 1) => format!("{pes} has already ended"),
        (END, _) => format!("{pes} have already ended"),
        (call, _) => format!("{pes} in {call}"),
    };
    calls.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The failure of a job's collective calls. All PEs get the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// A PE or the launcher was lost.
    #[error("{0}")]
    Lost(PeerLost),
    /// PEs are in different collective calls.
    #[error(
        "PEs disagree on their next collective call: {}; every PE must make the same calls in the same order",
        calls_of_pes(calls)
    )]
    Mismatch {
        /// Each call, with the PEs that are in it.
        calls: Vec<(String, Pes)>,
    },
    /// Some PEs did not enter the call before the deadline.
    #[error(
        "{missing} of {n_pes} did not arrive at {} within {waited:?}; check what they are doing, or raise \
         bootstrap_timeout",
        shown(call)
    )]
    Missing {
        /// Kind and tag of the call that some PEs did not enter.
        call: String,
        /// How long the other PEs waited.
        waited: Duration,
        /// PEs that did not enter the call before the deadline.
        missing: Pes,
        /// Number of PEs in the job.
        n_pes: u32,
    },
    /// A PE called `finish` while another PE is still making collective calls.
    #[error("{pes} called finish() before {}; every PE must take part in this call", shown(call))]
    Left {
        /// Kind and tag of the collective call that can no longer complete.
        call: String,
        /// PEs that have left the job by calling `finish`.
        pes: Pes,
    },
    /// The processes of one job run different builds.
    #[error(
        "two different builds in one job: PE {first_pe} is build {first_build}, PE {pe} is build {build}; \
         start the same program everywhere"
    )]
    Builds {
        /// PE that joined first.
        first_pe: u32,
        /// Build ID of the PE that joined first.
        first_build: String,
        /// First PE with a different build.
        pe: u32,
        /// Build ID of the first PE that differs.
        build: String,
    },
}

impl Failure {
    /// Returns whether the job continues once its PEs have formed the next epoch. Any other failure is final.
    pub fn is_survivable(&self) -> bool {
        matches!(self, Failure::Lost(lost) if lost.survivable)
    }

    /// Records this failure in `current`, where the first failure counts unless it is survivable and this one is final.
    /// Returns the failure that counts.
    pub(crate) fn record(self, current: &mut Option<Failure>) -> &Failure {
        if current.as_ref().is_some_and(|first| first.is_survivable() && !self.is_survivable()) {
            *current = None;
        }
        current.get_or_insert(self)
    }
}

/// Why a process could not join a job, or why a call between its PEs failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The collective calls of the job have failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A call by a PE that has already left the job.
    #[error("{call}: this PE has already left the job")]
    Left {
        /// Kind and tag of the rejected call.
        call: String,
    },
    /// The callback for lost PEs, or for messages, is already set.
    #[error("this callback is already set")]
    CallbackExists,
    /// A job with more than [`MAX_PES`] PEs.
    #[error("a job has at most {} PEs, and this one asks for {n_pes}; lower the number of PEs", MAX_PES)]
    TooManyPes {
        /// Requested number of PEs.
        n_pes: u32,
    },
    /// A PE number that is not in the job.
    #[error("there is no PE {pe}: the job has {n_pes}, numbered from 0")]
    NoPe {
        /// Requested PE number.
        pe: u32,
        /// Number of PEs in the job.
        n_pes: u32,
    },
    /// A contribution or a message has more bytes than one call may carry.
    #[error("{call}: {bytes} bytes exceed the limit of {limit} bytes per PE; exchange a handle instead")]
    TooLarge {
        /// Name of the call that was given too many bytes.
        call: String,
        /// Size of the contribution or message, in bytes.
        bytes: usize,
        /// Limit, in bytes.
        limit: usize,
    },
    /// The launcher cannot be reached.
    #[error("cannot reach the job's launcher at {server}{}: {source}; {}", tried(*.waited), reach_advice(.source))]
    Connect {
        /// Address of the launcher.
        server: String,
        /// How long this process has tried to connect.
        waited: Duration,
        /// Error of the last attempt to connect.
        source: std::io::Error,
    },
    /// The launcher refused this process.
    #[error("the job's launcher at {server} refused this process: {reason}")]
    Refused {
        /// Address of the launcher.
        server: String,
        /// Why the launcher refused this process, and what to do about it.
        reason: String,
    },
    /// The process at the launcher's address is another program, or speaks another version of the protocol.
    #[error("the process at {server} is not this job's launcher: {why}")]
    NotLauncher {
        /// Address at which the other program answered.
        server: String,
        /// What shows that the program is not the launcher.
        why: String,
    },
    /// The other side closed the connection during the handshake.
    #[error("the process at {server} closed the connection before it proved to be this job's launcher")]
    Closed {
        /// Address of the process that closed the connection.
        server: String,
    },
    /// The launcher did not answer before the deadline.
    #[error("the job's launcher at {server} did not answer {call} within {waited:?}")]
    NoAnswer {
        /// Address of the launcher.
        server: String,
        /// What this process waited for: the name of a call, or the launcher's greeting.
        call: String,
        /// How long this process has waited.
        waited: Duration,
    },
    /// A server cannot listen on its address.
    #[error("cannot listen on {addr}: {source}; give another address or port")]
    Listen {
        /// Address on which the server cannot listen, with its port.
        addr: String,
        /// Error of the system call that failed.
        source: std::io::Error,
    },
    /// The environment variables of launchers are incomplete or contradict each other.
    #[error("cannot tell how this process was started: {why}")]
    Launch {
        /// Which variables are missing or contradictory, and what to do about it.
        why: String,
    },
    /// The setting `bootstrap` names a launcher that did not start this process.
    #[error("RUSHMEM_BOOTSTRAP={kind}, but {why}")]
    NotStarted {
        /// Launcher that the setting `bootstrap` names.
        kind: BootstrapKind,
        /// Which variable of the launcher is missing, and what to do about it.
        why: String,
    },
    /// Bytes or text that are not a valid unique id.
    #[error("not a valid unique id: {why}")]
    Id {
        /// What is wrong with the bytes or the text.
        why: String,
    },
    /// The address in an ID is a loopback address of another machine.
    #[error(
        "the job's server listens at {addr}, and other machines cannot reach this loopback address; set \
         RUSHMEM_BOOTSTRAP_INTERFACE to an interface on a network that all machines share"
    )]
    Loopback {
        /// Loopback address in the ID, with its port.
        addr: String,
    },
    /// The requested network interface does not exist.
    #[error("RUSHMEM_BOOTSTRAP_INTERFACE: there is no `{wanted}`{family}; there are {there}")]
    Interface {
        /// Name or address of the interface that the settings ask for.
        wanted: String,
        /// Requested address family, as part of a sentence. Empty for any family.
        family: &'static str,
        /// List of the existing interfaces with their addresses.
        there: String,
    },
    /// The system call that lists the network interfaces failed.
    #[error("cannot list the network interfaces: {0}")]
    Interfaces(std::io::Error),
    /// The exchange of the unique id through the launcher or the application failed.
    #[error("{by}: {why}")]
    Exchange {
        /// Launcher or application that should have carried the ID, as part of a sentence.
        by: String,
        /// Why the exchange failed, and what to do about it.
        why: String,
    },
    /// A setting in the file or the environment is invalid.
    #[error(transparent)]
    Config(#[from] Box<rushmem_config::Error>),
    /// Text that is not a job token.
    #[error("a job's token must be 64 hexadecimal digits (32 random bytes)")]
    Token,
    /// The system provides no random bytes.
    #[error("cannot get random bytes from the system: {0}")]
    Random(String),
    /// The system cannot start a thread.
    #[error("cannot start the thread `{name}`: {source}; {THREAD_ADVICE}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// Error of the attempt to start the thread.
        source: std::io::Error,
    },
}

impl Error {
    /// Renames the call `from` to `to`, for callers whose users know another name.
    #[must_use]
    pub fn with_call(mut self, from: &str, to: &str) -> Self {
        let rename = |call: &mut String| {
            if shown(call) == from {
                to.clone_into(call);
            }
        };
        match &mut self {
            Self::Failed(Failure::Mismatch { calls }) => calls.iter_mut().for_each(|(call, _)| rename(call)),
            Self::Failed(Failure::Missing { call, .. } | Failure::Left { call, .. })
            | Self::Left { call }
            | Self::TooLarge { call, .. }
            | Self::NoAnswer { call, .. } => rename(call),
            _ => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_shown_by_user_visible_names() {
        let calls = [("allgather `collective call 9`".into(), 0), (format!("barrier `{END}`"), 1)];
        let calls = calls.map(|(call, pe)| (call, Pes(vec![pe]))).to_vec();
        let error = Error::Failed(Failure::Mismatch { calls }).with_call("collective call 9", "alloc");
        let text = error.to_string();
        assert!(text.contains("call: PE 0 in alloc, PE 1 has already ended; every PE"), "{text}");
        let call = "allgather `collective call 2`".to_string();
        let missing =
            Failure::Missing { call, waited: Duration::from_secs(1), missing: Pes(vec![1]), n_pes: 2 };
        let text = Error::Failed(missing).with_call("collective call 2", "free").to_string();
        assert!(text.starts_with("PE 1 of 2 did not arrive at free within 1s"), "{text}");
    }

    #[test]
    fn unreachable_launcher_comes_with_advice() {
        let connect = |waited, source: std::io::Error| Error::Connect {
            server: "127.0.0.1:9".into(),
            waited: Duration::from_secs(waited),
            source,
        };
        let down = connect(0, ErrorKind::NetworkUnreachable.into()).to_string();
        assert!(down.starts_with("cannot reach the job's launcher at 127.0.0.1:9: "), "{down}");
        assert!(down.contains("`ip link set lo up`"), "{down}");
        let gone = connect(3, ErrorKind::ConnectionRefused.into()).to_string();
        assert!(gone.contains("127.0.0.1:9 (tried for 3s): "), "{gone}");
        assert!(gone.ends_with("; check that the launcher still runs"), "{gone}");
    }
}
