//! Support for forked children that use devices opened by their parent.
//!
//! The adapter is a thread of the parent, which a child lacks. So a child sends its calls to the parent, which executes
//! them with the child's memory and descriptors. The socket address contains a random number that the child inherits:
//! [`prepare`] draws it before a fork. Doorbell pages are shared memory and need no call.
//!
//! As with a kernel, objects belong to the opened device and outlive a child. A child can use them as long as its
//! parent has the device open.

use crate::errno::Errno;
use crate::per_process::PerProcess;
use crate::sys::{self, Identity};
use crate::user::{self, Handed, OtherProcess};
use bytemuck::{Pod, Zeroable};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Maximum number of ancestors that serve a process.
const MAX_ANCESTORS: usize = 8;

/// Random numbers in the socket addresses of this process's ancestors, oldest first. 0 marks a free entry. Children
/// inherit the array.
static ADDRESSES: [AtomicU64; MAX_ANCESTORS] = [const { AtomicU64::new(0) }; MAX_ANCESTORS];

/// Functions through which a process serves its devices to forked children.
pub(crate) struct Devices {
    /// Whether this process has any devices.
    pub(crate) any: fn() -> bool,
    /// Executes a call on the device with this identity, whose arguments are at this address of the child. Returns
    /// `None` if this process does not have the device.
    pub(crate) call: fn(Identity, u64) -> Option<Result<(), Errno>>,
}

static DEVICES: OnceLock<Devices> = OnceLock::new();

/// Random number in this process's socket address, or `None` if the service could not be started.
static SERVICE: PerProcess<Option<u64>> = PerProcess::new();

/// Sockets connected to ancestors, by the random number in the ancestor's address.
static CONNECTIONS: PerProcess<Mutex<Vec<(u64, UnixStream)>>> = PerProcess::new();

/// Call that a child sends to its parent.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Request {
    device: Identity,
    /// Address of the call's arguments in the child's memory.
    at: u64,
}

/// Response to a call, followed by `files` descriptors.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Answer {
    error: i32,
    files: u32,
}

/// Value of [`Answer::error`] if the process does not have the device.
const UNKNOWN_DEVICE: i32 = -1;

/// Serves this process's devices to children forked from now on.
pub(crate) fn share(devices: Devices) {
    if DEVICES.set(devices).is_ok() {
        sys::before_fork(prepare);
    }
}

/// Starts the service before the first fork of a process with devices.
extern "C" fn prepare() {
    if DEVICES.get().is_some_and(|devices| (devices.any)()) {
        let prepared = std::panic::catch_unwind(|| SERVICE.current(start));
        if prepared.is_err() {
            tracing::error!("forked children cannot use the devices");
        }
    }
}

fn address(number: u64) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("rushmem-fork/{number:016x}"))
}

/// Starts the thread that serves children. Publishes and returns the random number in its socket address.
fn start() -> Option<u64> {
    let started = || -> std::io::Result<(u64, &AtomicU64)> {
        let free = ADDRESSES.iter().find(|number| number.load(Ordering::Relaxed) == 0);
        let free = free.ok_or(std::io::ErrorKind::OutOfMemory)?;
        let number = getrandom::u64().map_err(|_| std::io::ErrorKind::Other)? | 1;
        let listener = UnixListener::bind_addr(&address(number)?)?;
        std::thread::Builder::new().name("rushmem-fork".into()).spawn(move || listen(&listener))?;
        Ok((number, free))
    };
    match started() {
        Ok((number, free)) => {
            free.store(number, Ordering::Relaxed);
            Some(number)
        }
        Err(error) => {
            tracing::error!(%error, "forked children cannot use the devices");
            None
        }
    }
}

fn listen(listener: &UnixListener) {
    for stream in listener.incoming().filter_map(Result::ok) {
        let child = sys::peer(stream.as_raw_fd()).and_then(|pid| OtherProcess::new(pid).ok());
        if let Some(child) = child {
            let serve = move || serve(stream, &Arc::new(child));
            // Without the thread, the child gets an error.
            let _ = std::thread::Builder::new().name("rushmem-child".into()).spawn(serve);
        }
    }
}

/// Executes a child's calls until it disconnects.
fn serve(mut stream: UnixStream, child: &Arc<OtherProcess>) {
    let mut request = Request::zeroed();
    while stream.read_exact(bytemuck::bytes_of_mut(&mut request)).is_ok() {
        let Request { device, at } = request;
        let (done, files) =
            user::on_behalf_of(child, || DEVICES.get().and_then(|devices| (devices.call)(device, at)));
        let error = match done {
            None => UNKNOWN_DEVICE,
            Some(Ok(())) => 0,
            Some(Err(Errno(error))) => error,
        };
        let answer = Answer { error, files: files.len() as u32 };
        let bytes = [bytemuck::bytes_of(&answer), bytemuck::cast_slice::<Handed, u8>(&files)].concat();
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Executes a call to a device opened by an ancestor, or returns `None` if no ancestor has it.
pub(crate) fn call(device: Identity, at: u64) -> Option<Result<(), Errno>> {
    let own = SERVICE.existing().copied().flatten();
    let mut connections = CONNECTIONS.current(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let numbers = ADDRESSES.iter().map(|number| number.load(Ordering::Relaxed));
    let ancestors: Vec<u64> = numbers.filter(|number| *number != 0 && Some(*number) != own).collect();
    ancestors.into_iter().rev().find_map(|number| {
        let known = connections.iter().position(|(other, _)| *other == number);
        let index = match known {
            Some(index) => index,
            None => {
                connections.push((number, UnixStream::connect_addr(&address(number).ok()?).ok()?));
                connections.len() - 1
            }
        };
        let asked = ask(&mut connections[index].1, Request { device, at });
        if asked.is_err() {
            connections.swap_remove(index);
        }
        asked.unwrap_or_else(|error| Some(Err(error.into())))
    })
}

/// Sends a call to an ancestor, and receives its response and descriptors.
fn ask(stream: &mut UnixStream, request: Request) -> std::io::Result<Option<Result<(), Errno>>> {
    stream.write_all(bytemuck::bytes_of(&request))?;
    let mut answer = Answer::zeroed();
    stream.read_exact(bytemuck::bytes_of_mut(&mut answer))?;
    let mut files = vec![Handed::zeroed(); answer.files as usize];
    stream.read_exact(bytemuck::cast_slice_mut(&mut files))?;
    let ancestor = sys::peer(stream.as_raw_fd());
    let taken = files.iter().try_for_each(|file| {
        let fd = sys::reopen(ancestor.ok_or(Errno::ENODEV)?, file.fd)?;
        user::write_value(file.at, &(fd as u32))
    });
    Ok(match answer.error {
        UNKNOWN_DEVICE => None,
        0 => Some(taken),
        error => Some(Err(Errno(error))),
    })
}
