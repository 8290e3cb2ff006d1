//! The RDMA connection manager, `/dev/infiniband/rdma_cm`, through which librdmacm finds peers by IP address and
//! connects queue pairs.
//!
//! A program writes commands to the file and reads events from it. The managers of different processes exchange the
//! messages of the InfiniBand communication manager between their adapters, as management datagrams in RoCEv2 packets.
//!
//! | file | does |
//! |---|---|
//! | `abi`, `request`, `address` | structures of the commands; input and answer of a command; socket addresses |
//! | `state`, `port` | identifiers, event files and events; the adapters that they use |
//! | `commands`, `connection`, `multicast`, `attributes` | commands about identifiers and addresses; connections; groups; queries |
//! | `incoming`, `worker` | messages and timeouts; the thread that waits for them |
//! | `mad`, `header` | the messages, and the IP addresses in them |
//! | `names` | finds the adapter of this machine that listens on a port |

mod abi;
mod address;
mod attributes;
mod commands;
mod connection;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod header;
mod incoming;
mod mad;
mod multicast;
mod names;
mod port;
mod request;
mod state;
mod worker;

use crate::abi::RDMA_CM_DEVICE;
use crate::errno::Errno;
use crate::per_process::PerProcess;
use crate::process;
use crate::sys;
use crate::user;
use abi::command;
use state::{Closed, State};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use worker::Inbox;

/// How long the descriptor of a closed file stays open if threads have waited for its events.
const CLOSING: Duration = Duration::from_secs(1);
/// Maximum length of a command, in bytes.
const MAX_COMMAND: usize = 4096;

pub(crate) fn device_number() -> libc::dev_t {
    let (major, minor) = RDMA_CM_DEVICE;
    libc::makedev(major, minor)
}

pub(crate) struct Cm {
    state: Mutex<State>,
    inbox: Arc<Inbox>,
}

static CURRENT: PerProcess<Result<Cm, Errno>> = PerProcess::new();

/// What the caller of `write` must do after a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The command was processed.
    Taken,
    /// The program waits for an event.
    Wait,
}

/// Opens `/dev/infiniband/rdma_cm`, and returns the file descriptor.
pub(crate) fn open(close_on_exec: bool) -> Result<RawFd, Errno> {
    let cm = CURRENT.current(Cm::new).as_ref().map_err(|error| *error)?;
    let fd = cm.state().open(close_on_exec)?;
    process::mark(fd, true)?;
    Ok(fd)
}

/// Returns whether `fd` is an open file of the connection manager in this process.
pub(crate) fn is(fd: RawFd) -> bool {
    existing().is_some_and(|cm| cm.state().file_of(fd).is_some())
}

/// Closes a file of the connection manager and destroys its identifiers, if `fd` is such a file. Returns whether the
/// descriptor stays open for now.
///
/// A thread that has just read an event may be about to wait for the next one. In the kernel it would then wait
/// forever. The descriptor stays open for a second, so such a thread waits on it until then, instead of failing or
/// waiting on another file that gets the same descriptor.
pub(crate) fn close(fd: RawFd) -> bool {
    let Some(cm) = existing() else { return false };
    let mut state = cm.state();
    let stays = match state.close(fd, Instant::now() + CLOSING) {
        Closed::Nothing => return false,
        Closed::Now => false,
        Closed::Later => true,
    };
    drop(state);
    // Closing it a second later costs only a descriptor.
    stays && cm.start().inspect(|()| cm.inbox.ring()).is_ok()
}

/// Executes a command of `len` bytes at address `at`. Returns `None` if `fd` is not a file of the connection manager.
pub(crate) fn write(fd: RawFd, at: u64, len: usize) -> Option<Result<Done, Errno>> {
    let cm = existing()?;
    let file = cm.state().file_of(fd)?;
    let result = cm.execute(fd, file, at, len);
    tracing::trace!(fd, ?result, "rdma_cm");
    Some(result)
}

fn existing() -> Option<&'static Cm> {
    CURRENT.existing()?.as_ref().ok()
}

impl Cm {
    fn new() -> Result<Cm, Errno> {
        Ok(Cm { state: Mutex::new(State::new()), inbox: Arc::new(Inbox::new()?) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute(&'static self, fd: RawFd, file: u64, at: u64, len: usize) -> Result<Done, Errno> {
        let header: abi::Header =
            if len < size_of::<abi::Header>() { return Err(Errno::EINVAL) } else { user::read_value(at)? };
        let given = usize::from(header.len);
        if given > MAX_COMMAND || given + size_of::<abi::Header>() > len {
            return Err(Errno::EINVAL);
        }
        let mut input = vec![0; given];
        user::read(at + size_of::<abi::Header>() as u64, &mut input)?;
        let request = request::Request { file, command: header.command, input: &input, room: header.room };
        // Read without the command table, since it may have to wait.
        if header.command == command::GET_EVENT {
            let mut state = self.state();
            return match state.next_event(&request) {
                Err(Errno::EAGAIN) if !sys::is_nonblocking(fd) => {
                    state.waits_for(file);
                    Ok(Done::Wait)
                }
                taken => taken.map(|()| Done::Taken),
            };
        }
        let result = commands::execute(self, &request);
        tracing::trace!(command = header.command, ?result, "command of rdma_cm");
        result.map(|()| Done::Taken)
    }
}
