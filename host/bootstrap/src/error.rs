//! What can go wrong among the PEs of a job.

use std::fmt;
use std::time::Duration;

use rushmem_config::BootstrapKind;

/// A PE, or the launcher, that left the job before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLost {
    /// The PE; `None` for the launcher, without which no PE hears of another.
    pub pe: Option<u32>,
    /// How it was lost, as part of a sentence: `killed by SIGKILL`, `aborted: out of memory`.
    pub reason: String,
    /// The code with which it ended the whole job, if it did so by [`Bootstrap::exit`](super::Bootstrap::exit).
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

/// PEs for people: `PE 3`, `PEs 0-2, 5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pes(pub Vec<u32>);

impl fmt::Display for Pes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for &pe in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(pe) => *last = pe,
                _ => ranges.push((pe, pe)),
            }
        }
        f.write_str(if self.0.len() == 1 { "PE " } else { "PEs " })?;
        for (i, (first, last)) in ranges.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

/// The failure that ended a job's collective calls, for every PE alike.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A PE or the launcher is gone.
    #[error("{0}")]
    Lost(PeerLost),
    /// PEs are in different collective calls.
    #[error(
        "PEs disagree on their next collective call: {}; every PE must make the same calls in the same order",
        calls.iter().map(|(call, pes)| format!("{pes} in {call}")).collect::<Vec<_>>().join(", ")
    )]
    Mismatch {
        /// Each call with the PEs that are in it.
        calls: Vec<(String, Pes)>,
    },
    /// PEs did not come in time.
    #[error(
        "{missing} of {n_pes} did not arrive at {call} within {waited:?}; see what they do, or raise bootstrap_timeout"
    )]
    Missing {
        /// The call.
        call: String,
        /// How long the others have waited.
        waited: Duration,
        /// Who did not come.
        missing: Pes,
        /// PEs in the job.
        n_pes: u32,
    },
    /// A PE has left in good order while another still makes collective calls.
    #[error("{pes} called finish() before {call}, in which every PE must take part")]
    Left {
        /// The call.
        call: String,
        /// Who has left.
        pes: Pes,
    },
    /// Processes of one job were built from different sources.
    #[error(
        "two different builds in one job: PE {first_pe} is build {first_build}, PE {pe} is build {build}; \
         start the same program everywhere"
    )]
    Builds {
        /// The first PE that came.
        first_pe: u32,
        /// Its build.
        first_build: String,
        /// The first PE that differs.
        pe: u32,
        /// Its build.
        build: String,
    },
}

/// What can go wrong in a call of this module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The job has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A collective call after this PE's own finish or abort.
    #[error("{call} after this PE has left the job")]
    Left {
        /// The call.
        call: String,
    },
    /// A second callback for lost peers, or for letters.
    #[error("there is a callback for this already")]
    Watched,
    /// More PEs than a job can have.
    #[error(
        "a job has at most {} PEs, and this one asks for {n_pes}; lower the number of PEs",
        crate::MAX_PES
    )]
    TooManyPes {
        /// The number of PEs.
        n_pes: u32,
    },
    /// A letter to a PE that does not exist.
    #[error("there is no PE {pe}: the job has {n_pes}, numbered from 0")]
    NoPe {
        /// To whom it was to go.
        pe: u32,
        /// The PEs of the job.
        n_pes: u32,
    },
    /// More bytes than an allgather may carry.
    #[error("{call}: {bytes} bytes, more than the {limit} that each PE may give; exchange a handle instead")]
    TooLarge {
        /// The call.
        call: String,
        /// Bytes that were given.
        bytes: usize,
        /// Bytes that may be given.
        limit: usize,
    },
    /// No connection to the launcher.
    #[error(
        "cannot reach the job's launcher at {server} (tried for {waited:?}): {source}; is it still running?"
    )]
    Connect {
        /// Its address.
        server: String,
        /// How long it was tried.
        waited: Duration,
        /// What the system said last.
        source: std::io::Error,
    },
    /// The launcher does not let this process in.
    #[error("the job's launcher at {server} refused this process: {reason}")]
    Refused {
        /// Its address.
        server: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Who answered is not the job's launcher, or not of this protocol.
    #[error("what listens at {server} is not this job's launcher: {why}")]
    Stranger {
        /// The address.
        server: String,
        /// What was seen.
        why: String,
    },
    /// The connection was closed before both sides had proved themselves.
    #[error("what listens at {server} closed the connection before it proved to be this job's launcher")]
    Closed {
        /// The address.
        server: String,
    },
    /// The launcher does not answer.
    #[error("the job's launcher at {server} gave no answer to {call} within {waited:?}")]
    Silent {
        /// Its address.
        server: String,
        /// The call.
        call: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The launcher cannot listen.
    #[error("cannot listen on {addr}: {source}; give another address or port")]
    Listen {
        /// The address.
        addr: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Variables of the launcher that make no sense together.
    #[error("how this process was started is not clear: {why}")]
    Launch {
        /// What is missing or contradicts, and what to do.
        why: String,
    },
    /// The setting that says how PEs meet asks for what is not there.
    #[error("RUSHMEM_BOOTSTRAP={kind}, but {why}")]
    NotStarted {
        /// What was asked for.
        kind: BootstrapKind,
        /// What is missing.
        why: String,
    },
    /// Something that is no unique id.
    #[error("this is no unique id of a job: {why}")]
    Id {
        /// What is wrong with it.
        why: String,
    },
    /// The address of an id is that of another machine's loopback interface.
    #[error(
        "the job's PEs meet at {addr}, which only the machine of PE 0 can reach: have PE 0 listen on a network that \
         all machines share, by RUSHMEM_BOOTSTRAP_INTERFACE"
    )]
    Loopback {
        /// The address.
        addr: String,
    },
    /// A network interface that is not there.
    #[error("RUSHMEM_BOOTSTRAP_INTERFACE: there is no `{wanted}`{family}; there are {there}")]
    Interface {
        /// The name or address that was asked for.
        wanted: String,
        /// What kind of address it is to have.
        family: &'static str,
        /// Those that there are.
        there: String,
    },
    /// The system does not tell its network interfaces.
    #[error("cannot list the network interfaces: {0}")]
    Interfaces(std::io::Error),
    /// The launcher, or the application's own means of exchange, failed.
    #[error("{by}: {why}")]
    Exchange {
        /// By what the PEs were to learn of each other.
        by: String,
        /// What went wrong, and what to do.
        why: String,
    },
    /// Settings of file or environment are wrong.
    #[error(transparent)]
    Config(#[from] Box<rushmem_config::Error>),
    /// A job's secret that is not one.
    #[error("a job's token must be 64 hexadecimal digits (32 random bytes)")]
    Token,
    /// The system has no random bytes.
    #[error("cannot make a token: no random bytes from the system: {0}")]
    Random(String),
    /// The system gave no thread.
    #[error("cannot start the thread `{name}`: {source}")]
    Thread {
        /// What it was for.
        name: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_pes() {
        assert_eq!(Pes(vec![3]).to_string(), "PE 3");
        assert_eq!(Pes(vec![0, 1, 2, 5, 7, 8]).to_string(), "PEs 0-2, 5, 7-8");
        assert_eq!(Pes(vec![u32::MAX, 0]).to_string(), "PEs 4294967295, 0");
    }
}
