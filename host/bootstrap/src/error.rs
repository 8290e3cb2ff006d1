//! Errors of bring-up and of the calls between the PEs of a job.

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

/// The largest number of PEs in a job.
pub const MAX_PES: u32 = 1 << 16;

use rushmem_base::{Pes, THREAD_ADVICE};
use rushmem_config::BootstrapKind;

/// A PE, or the launcher, that left the job before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLost {
    /// The PE; `None` for the launcher. Without the launcher, no PE learns of the loss of another.
    pub pe: Option<u32>,
    /// The reason, as part of a sentence: `killed by SIGKILL`, `aborted: out of memory`.
    pub reason: String,
    /// The exit code, if the PE ended the whole job with [`Bootstrap::exit`](super::Bootstrap::exit).
    pub exit: Option<u8>,
}

impl fmt::Display for PeerLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pe {
            Some(pe) => write!(f, "PE {pe} was lost: {}", self.reason),
            None => write!(f, "the job's launcher was lost: {}", self.reason),
        }
    }
}

/// The name of the last collective call of a job. The texts of errors say that a PE in this call has ended.
pub const END: &str = "the end of the job";

/// The last words of the loss of a PE that ended before it joined the job, after a comma. Launchers repeat them.
pub const BEFORE_JOINING: &str = " before it joined the job";

/// Returns the time of several attempts to connect, as part of a sentence.
fn tried(waited: Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(" (tried for {waited:?})") }
}

/// Returns the remedy for a launcher that cannot be reached.
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

/// Returns the name of a call for users: without the kind, which stands before a name in backticks.
fn shown(call: &str) -> &str {
    call.split('`').nth(1).unwrap_or(call)
}

/// Writes the calls of the PEs, as parts of a sentence.
fn calls_of_pes(calls: &[(String, Pes)]) -> String {
    let one = |(call, pes): &(String, Pes)| match (shown(call), pes.0.len()) {
        (END, 1) => format!("{pes} has already ended"),
        (END, _) => format!("{pes} have already ended"),
        (call, _) => format!("{pes} in {call}"),
    };
    calls.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The failure that ended the collective calls of a job. All PEs get the same failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
        /// The call.
        call: String,
        /// The time that the other PEs waited.
        waited: Duration,
        /// The PEs that did not arrive.
        missing: Pes,
        /// The number of PEs in the job.
        n_pes: u32,
    },
    /// A PE called `finish` while another PE still makes collective calls.
    #[error("{pes} called finish() before {}; every PE must take part in this call", shown(call))]
    Left {
        /// The call.
        call: String,
        /// The PEs that have left.
        pes: Pes,
    },
    /// The processes of one job run different builds.
    #[error(
        "two different builds in one job: PE {first_pe} is build {first_build}, PE {pe} is build {build}; \
         start the same program everywhere"
    )]
    Builds {
        /// The PE that joined first.
        first_pe: u32,
        /// The build of that PE.
        first_build: String,
        /// The first PE with a different build.
        pe: u32,
        /// The build of this PE.
        build: String,
    },
}

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The collective calls of the job have failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A call of a PE that has already left the job.
    #[error("{call}: this PE has already left the job")]
    Left {
        /// The call.
        call: String,
    },
    /// A second callback for lost peers, or for messages.
    #[error("this callback is already set")]
    CallbackExists,
    /// A job with more PEs than are possible.
    #[error("a job has at most {} PEs, and this one asks for {n_pes}; lower the number of PEs", MAX_PES)]
    TooManyPes {
        /// The number of PEs.
        n_pes: u32,
    },
    /// A PE number that is not in the job.
    #[error("there is no PE {pe}: the job has {n_pes}, numbered from 0")]
    NoPe {
        /// The number.
        pe: u32,
        /// The number of PEs in the job.
        n_pes: u32,
    },
    /// More bytes than one call may carry.
    #[error("{call}: {bytes} bytes exceed the limit of {limit} bytes per PE; exchange a handle instead")]
    TooLarge {
        /// The call.
        call: String,
        /// The number of bytes.
        bytes: usize,
        /// The largest number of bytes.
        limit: usize,
    },
    /// The launcher cannot be reached.
    #[error("cannot reach the job's launcher at {server}{}: {source}; {}", tried(*.waited), reach_advice(.source))]
    Connect {
        /// The address of the launcher.
        server: String,
        /// The time spent on attempts.
        waited: Duration,
        /// The last error of the system.
        source: std::io::Error,
    },
    /// The launcher refused this process.
    #[error("the job's launcher at {server} refused this process: {reason}")]
    Refused {
        /// The address of the launcher.
        server: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// The process at the launcher's address is another program, or speaks another version of the protocol.
    #[error("the process at {server} is not this job's launcher: {why}")]
    NotLauncher {
        /// The address.
        server: String,
        /// The observed difference.
        why: String,
    },
    /// The other side closed the connection during the handshake.
    #[error("the process at {server} closed the connection before it proved to be this job's launcher")]
    Closed {
        /// The address.
        server: String,
    },
    /// The launcher did not answer before the deadline.
    #[error("the job's launcher at {server} did not answer {call} within {waited:?}")]
    NoAnswer {
        /// The address of the launcher.
        server: String,
        /// The call.
        call: String,
        /// The time spent waiting.
        waited: Duration,
    },
    /// A server cannot listen on its address.
    #[error("cannot listen on {addr}: {source}; give another address or port")]
    Listen {
        /// The address.
        addr: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The environment variables of launchers are incomplete or contradict each other.
    #[error("cannot tell how this process was started: {why}")]
    Launch {
        /// The variables at fault and the remedy.
        why: String,
    },
    /// The setting `bootstrap` names a launcher that did not start this process.
    #[error("RUSHMEM_BOOTSTRAP={kind}, but {why}")]
    NotStarted {
        /// The value of the setting.
        kind: BootstrapKind,
        /// The missing variable and the remedy.
        why: String,
    },
    /// Bytes or text that are not a valid unique id.
    #[error("not a valid unique id: {why}")]
    Id {
        /// The reason.
        why: String,
    },
    /// The address in an id is a loopback address of another machine.
    #[error(
        "the job's server listens at {addr}, and other machines cannot reach this loopback address; set \
         RUSHMEM_BOOTSTRAP_INTERFACE to an interface on a network that all machines share"
    )]
    Loopback {
        /// The address.
        addr: String,
    },
    /// The requested network interface does not exist.
    #[error("RUSHMEM_BOOTSTRAP_INTERFACE: there is no `{wanted}`{family}; there are {there}")]
    Interface {
        /// The requested name or address.
        wanted: String,
        /// The requested kind of address, as part of a sentence; empty for any kind.
        family: &'static str,
        /// The existing interfaces with their addresses.
        there: String,
    },
    /// The system does not list its network interfaces.
    #[error("cannot list the network interfaces: {0}")]
    Interfaces(std::io::Error),
    /// The exchange of the unique id through the launcher or the application failed.
    #[error("{by}: {why}")]
    Exchange {
        /// The means of exchange.
        by: String,
        /// The reason and the remedy.
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
        /// The name of the thread.
        name: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl Error {
    /// Replaces the name of the call `from` by `to`, which users know.
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
    fn calls_have_names_that_users_know() {
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
    fn an_unreachable_launcher_has_a_remedy() {
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
