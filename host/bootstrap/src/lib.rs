//! Bootstrap of a job: its PEs find each other, exchange addresses and keys, and learn of lost PEs.
//!
//! The PEs of a job are threads of one process ([`Threads`]), or processes that are connected to a [`Server`]
//! ([`Tcp`]). [`from_env`] decides which, from the settings and the variables of launchers. `rushmem run` hosts the
//! server itself. Other jobs run it in the process of a PE; the other PEs find it with a [`UniqueId`], which they
//! receive through a launcher or an [`Exchange`] of the application.
//!
//! The runtime uses all of them through [`Bootstrap`]. All are driven by the same state machine, so they behave and
//! fail alike. Every call has a deadline, and its error names the missing PEs.
#![deny(unsafe_code)]

mod auth;
mod client;
mod connect;
mod deadline;
mod dial;
mod discover;
mod epoch;
mod error;
mod exchange;
mod id;
mod interface;
mod job;
mod launcher;
mod messages;
mod observer;
mod pulse;
mod refusals;
mod replies;
mod resolve;
mod server;
mod stopped;
mod threads;
mod traffic;
mod user;
mod watch;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

pub use self::auth::{Role, Token, nonce};
pub use self::client::{Member, Tcp};
pub use self::connect::{
    JoinedJob, LocalPes, from_env, is_first_on_node, is_launched, launch_method, n_pes, with_id,
};
pub use self::epoch::Epoch;
pub use self::error::{BEFORE_JOINING, END, Error, Failure, MAX_PES, PeerLost, START, VACANT};
pub use self::exchange::{Exchange, ExchangeError, agree_on_id};
pub use self::id::UniqueId;
pub use self::interface::{Interface, address_towards, interfaces, node_ips};
pub use self::messages::{OnMessage, PeerMessage};
pub use self::observer::{Observer, ServerEvent};
pub use self::resolve::resolve;
pub use self::server::{Server, ServerOptions};
pub use self::threads::Threads;
pub use self::traffic::Traffic;
pub use self::user::check_same_user;
pub use rushmem_base::Pes;

/// A callback for lost PEs, which runs on a dedicated thread.
pub type OnPeerLost = Box<dyn FnMut(PeerLost) + Send>;

/// The contributions of all PEs to an allgather, in PE order. PEs in one process share them. Those of PEs outside the
/// current epoch are empty.
pub type Gathered = Arc<Vec<Vec<u8>>>;

/// A PE's connection to the other PEs of its job.
///
/// All PEs must make the same collective calls in the same order. The tags of the calls are compared to check this. The
/// first failure of a job (a lost PE, a mismatch, a passed deadline) is final: every later collective call returns the
/// same failure.
///
/// A job whose PEs form epochs with [`Bootstrap::form_epoch`] survives lost PEs. A loss then fails collective
/// calls only until the PEs that are alive have formed the next epoch. All other failures stay final, and so does the
/// loss of a PE that exits the whole job or that runs its server.
pub trait Bootstrap: Send + Sync {
    /// Returns the index of this PE in its job, from 0.
    fn pe(&self) -> u32;

    /// Returns the number of PEs in the job.
    fn n_pes(&self) -> u32;

    /// Returns the default time limit of collective calls.
    fn timeout(&self) -> Duration;

    /// Returns how many calls and bytes this PE has exchanged so far.
    fn traffic(&self) -> Traffic;

    /// Returns whether this process replaces a lost one. It repeats the collective calls of the start without the other
    /// PEs, with the contributions that they and its predecessor made, and then waits for the epoch that takes it in.
    fn replaces(&self) -> bool {
        false
    }

    /// Returns the contributions to the allgather `tag` of the start of the job, if this process [replaces] a lost one and has
    /// not repeated that call yet.
    ///
    /// [replaces]: Bootstrap::replaces
    fn recall(&self, tag: &str) -> Option<Gathered> {
        let _ = tag;
        None
    }

    /// Returns the job's secret, with which its processes authenticate each other. Jobs of threads have none.
    fn token(&self) -> Option<&Token> {
        None
    }

    /// Sends `mine` to every PE, and returns the contributions of all PEs in PE order. Collective.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: a PE was lost, is in another call, has left, or did not arrive `within` the deadline.
    /// - [`Error::TooLarge`]: `mine` is larger than [`wire::part_limit`].
    /// - [`Error::Left`]: this PE has already left the job.
    /// - [`Error::NoAnswer`]: the server did not answer.
    fn allgather_within(&self, tag: &str, mine: &[u8], within: Duration) -> Result<Gathered, Error>;

    /// Blocks until every PE has called this with the same tag. Collective.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: a PE was lost, is in another call, has left, or did not arrive `within` the deadline.
    /// - [`Error::Left`]: this PE has already left the job.
    /// - [`Error::NoAnswer`]: the server did not answer.
    fn barrier_within(&self, tag: &str, within: Duration) -> Result<(), Error>;

    /// Agrees with all PEs that are alive on who is alive. Collective over them.
    ///
    /// The first epoch of a job needs all its PEs. From then on, the loss of a PE is survivable: it fails the collective
    /// calls that PEs are in and all later ones, until each PE that is alive has called this. The calls after it are
    /// collective over the PEs of the epoch. PEs that are lost or finish while others wait here are not in it. Processes
    /// that replace lost ones are, if they wait here when the last of the others makes the call, the epoch before had no such PE,
    /// and all `admits`; nobody waits for them.
    ///
    /// When the call returns, the callback for lost PEs has handled all losses before the epoch.
    ///
    /// A collective call has the same outcome on all PEs that are alive. So after a loss, they all form the epoch between
    /// the same calls.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: a PE is in another call, did not arrive `within` the deadline, or has left before the first
    ///   epoch, or the job has failed for good.
    /// - [`Error::Left`]: this PE has already left the job.
    /// - [`Error::NoAnswer`]: the server did not answer.
    fn form_epoch(&self, admits: bool, within: Duration) -> Result<Epoch, Error>;

    /// Calls [`Bootstrap::form_epoch`], with processes that replace lost PEs.
    ///
    /// # Errors
    ///
    /// - The errors of [`Bootstrap::form_epoch`].
    fn form_epoch_within(&self, within: Duration) -> Result<Epoch, Error> {
        self.form_epoch(true, within)
    }

    /// Calls [`Bootstrap::allgather_within`] with the default deadline.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: a PE was lost, is in another call, has left, or did not arrive in time.
    /// - [`Error::TooLarge`]: `mine` is larger than [`wire::part_limit`].
    /// - [`Error::Left`]: this PE has already left the job.
    /// - [`Error::NoAnswer`]: the server did not answer.
    fn allgather(&self, tag: &str, mine: &[u8]) -> Result<Gathered, Error> {
        self.allgather_within(tag, mine, self.timeout())
    }

    /// Calls [`Bootstrap::barrier_within`] with the default deadline.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: a PE was lost, is in another call, has left, or did not arrive in time.
    /// - [`Error::Left`]: this PE has already left the job.
    /// - [`Error::NoAnswer`]: the server did not answer.
    fn barrier(&self, tag: &str) -> Result<(), Error> {
        self.barrier_within(tag, self.timeout())
    }

    /// Leaves the job with an error. The other PEs see this PE as lost, for the given reason.
    fn abort(&self, reason: &str);

    /// Exits the whole job with `code`. The other PEs and the launcher see this PE as lost, with that code. The runtime
    /// of each PE then exits with it.
    fn exit(&self, code: u8);

    /// Sets the callback for lost PEs: those that die, abort, or leave without [`Bootstrap::finish`].
    ///
    /// PEs that were lost before this call are reported, too. The callback runs on a dedicated thread, and is not
    /// called after this PE has left the job.
    ///
    /// # Errors
    ///
    /// - [`Error::CallbackExists`]: the callback is already set.
    /// - [`Error::Thread`]: the system cannot start a thread.
    fn on_peer_lost(&self, callback: OnPeerLost) -> Result<(), Error>;

    /// Sends a message to another PE. Not collective, and allowed during a collective call.
    ///
    /// Messages from one PE to another arrive in order. A message to a PE that has left or was lost is dropped.
    ///
    /// # Errors
    ///
    /// - [`Error::TooLarge`]: the message is longer than [`wire::MESSAGE_LIMIT`].
    /// - [`Error::NoPe`]: the job has no PE `to`.
    /// - [`Error::Left`]: this PE has already left the job.
    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Error>;

    /// Sets the callback for messages to this PE. Messages that have already arrived are delivered first.
    ///
    /// The callback is not called after this PE has left the job.
    ///
    /// # Errors
    ///
    /// - [`Error::CallbackExists`]: the callback is already set.
    fn on_message(&self, callback: OnMessage) -> Result<(), Error>;

    /// Leaves the job without an error. Every PE must call this before it drops its connection, or it counts as lost.
    ///
    /// Does not wait for the other PEs, except in the process that runs the job's server.
    ///
    /// # Errors
    ///
    /// - [`Error::NoAnswer`]: the server did not confirm within the deadline.
    /// - [`Error::Failed`]: the launcher was lost.
    fn finish(&self) -> Result<(), Error>;
}

#[cfg(test)]
mod tests;
