//! How the PEs of a job find each other, exchange addresses and keys, and hear of each other's death.
//!
//! A job's PEs are either threads of one process ([`Threads`]) or processes ([`Tcp`], whose other end is a [`Server`]);
//! [`from_env`] tells which. The server is that of `rushmem run`, or lives in the process of a PE: then a [`UniqueId`]
//! tells the others where, and a launcher of other people or an [`Exchange`] of the application carries it to them.
//! All are used through [`Bootstrap`], and all follow one state machine, so that a job behaves and fails alike.
//!
//! Nothing here waits for ever: each call has a deadline, and an error names the PEs that did not come.
#![deny(unsafe_code)]

mod auth;
mod client;
mod connect;
mod deadline;
mod dial;
mod discover;
mod error;
mod exchange;
mod id;
mod interface;
mod job;
mod launcher;
mod messages;
mod observer;
mod refusals;
mod server;
mod threads;
mod watch;
pub mod wire;

use std::time::Duration;

pub use self::auth::{Role, Token, nonce};
pub use self::client::{Member, Tcp};
pub use self::connect::{Found, Job, MAX_PES, from_env, is_first_here, survey, with_id};
pub use self::error::{Error, Failure, PeerLost, Pes};
pub use self::exchange::{Exchange, ExchangeError, agree_on_id};
pub use self::id::UniqueId;
pub use self::messages::{OnMessage, PeerMessage};
pub use self::observer::{Event, Observer};
pub use self::server::{Server, ServerOptions};
pub use self::threads::Threads;

/// Called with each PE that was lost, from a thread of its own.
pub type OnPeerLost = Box<dyn FnMut(PeerLost) + Send>;

/// One PE's connection to the other PEs of its job.
///
/// All PEs make the same collective calls in the same order; the tag of each call proves it. The first failure of a
/// job (a lost PE, a mismatch, a passed deadline) is its last word: every later collective call returns it again.
pub trait Bootstrap: Send + Sync {
    /// The number of this PE, from 0.
    fn pe(&self) -> u32;

    /// The number of PEs in the job.
    fn n_pes(&self) -> u32;

    /// The deadline of calls that do not give their own.
    fn timeout(&self) -> Duration;

    /// The job's secret, with which its processes prove to each other who they are; `None` where PEs are threads, or where
    /// they have none.
    fn token(&self) -> Option<&Token> {
        None
    }

    /// Gives `mine` to every PE and returns what each one gave, in the order of their numbers. Collective.
    ///
    /// # Errors
    ///
    /// [`Failure`] if a PE was lost, is in a call with another tag, has left, or does not arrive `within` the
    /// deadline; [`Error::TooLarge`] if `mine` is larger than [`wire::part_limit`].
    fn allgather_within(&self, tag: &str, mine: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, Error>;

    /// Returns when every PE has called it with this tag. Collective; errors as [`Bootstrap::allgather_within`].
    fn barrier_within(&self, tag: &str, within: Duration) -> Result<(), Error>;

    /// [`Bootstrap::allgather_within`] the deadline of the configuration.
    fn allgather(&self, tag: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.allgather_within(tag, mine, self.timeout())
    }

    /// [`Bootstrap::barrier_within`] the deadline of the configuration.
    fn barrier(&self, tag: &str) -> Result<(), Error> {
        self.barrier_within(tag, self.timeout())
    }

    /// Tells all other PEs that this one gives up, and why. They see it as lost.
    fn abort(&self, reason: &str);

    /// Tells all other PEs and the launcher that this one ends the job with `code`. They see it as lost, with the code,
    /// and are expected to end with it.
    fn exit(&self, code: u8);

    /// Has `callback` called, from a thread of its own, for each PE that dies, aborts, or leaves without
    /// [`Bootstrap::finish`]; also for those lost before this call. Not called after this PE's own finish.
    ///
    /// # Errors
    ///
    /// [`Error::Watched`] if there is a callback already.
    fn on_peer_lost(&self, callback: OnPeerLost) -> Result<(), Error>;

    /// Sends a letter to another PE, whatever that one is doing. Letters of one PE to another arrive in order; one to a
    /// PE that has left or was lost is not delivered.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if it is longer than [`wire::MESSAGE_LIMIT`], [`Error::NoPe`] if there is no such PE,
    /// [`Error::Left`] after this PE's own finish.
    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Error>;

    /// Has `callback` called with each letter to this PE, those that came before this call first. Not called after
    /// this PE's own finish.
    ///
    /// # Errors
    ///
    /// [`Error::Watched`] if there is a callback already.
    fn on_message(&self, callback: OnMessage) -> Result<(), Error>;

    /// Leaves the job in good order. Every PE must call it; it does not wait for the others. Dropping a connection
    /// without it means that this PE was lost.
    ///
    /// # Errors
    ///
    /// If the server does not confirm it within the deadline.
    fn finish(&self) -> Result<(), Error>;
}

#[cfg(test)]
mod tests;
