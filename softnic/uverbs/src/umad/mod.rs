//! Management datagrams of programs: `/dev/infiniband/umad0`, by which libibumad and the tools of infiniband-diags ask the subnet.
//!
//! A program writes a datagram to the file and reads the answer. The subnet is a model: see [`subnet`]. Each answer is ready when
//! the write returns.
//!
//! | file | does |
//! |---|---|
//! | `abi` | structures and numbers of the file |
//! | `subnet` | the devices and the switch between them, and which of them a datagram reaches |
//! | `agent` | answers of a node |

mod abi;
mod agent;
mod subnet;

use crate::device::Device;
use crate::errno::Errno;
use crate::events::{Channel, Kind};
use crate::per_process::PerProcess;
use crate::process::{self, current};
use crate::settings::LinkLayer;
use crate::sys::{self, Identity};
use crate::user;
use abi::{Agent, Header, MAD, OLD_HEADER, Register, Register2};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use subnet::Subnet;

/// Most agents of a file, as in the kernel.
const MAX_AGENTS: usize = 32;

/// An opened file.
struct File {
    fd: RawFd,
    device: Arc<Device>,
    /// The program reads answers from it.
    answers: Arc<Channel>,
    /// The program's registrations, by number.
    agents: [Option<Agent>; MAX_AGENTS],
    /// Whether headers have the index of a partition key.
    has_pkey_index: bool,
    used: bool,
}

/// The files of this process.
static FILES: PerProcess<Mutex<BTreeMap<Identity, File>>> = PerProcess::new();

fn files() -> MutexGuard<'static, BTreeMap<Identity, File>> {
    FILES.current(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs code with the file of a descriptor. Returns `None` if it is no such file, opened in this process.
fn with_file<T>(fd: RawFd, run: impl FnOnce(&mut File) -> T) -> Option<T> {
    FILES.existing()?;
    let identity = sys::identity(fd)?;
    files().get_mut(&identity).map(run)
}

/// Opens the file of a device and returns its descriptor.
pub(crate) fn open(index: u32, flags: libc::c_int) -> Result<RawFd, Errno> {
    let device = current().devices().get(index as usize).ok_or(Errno::ENOENT)?;
    let (answers, fd) = Channel::new(Kind::Packets)?;
    if flags & libc::O_CLOEXEC == 0 {
        sys::keep_on_exec(fd)?;
    }
    if flags & libc::O_NONBLOCK != 0 {
        sys::set_nonblocking(fd)?;
    }
    process::mark(fd, true)?;
    let identity = answers.identity();
    let file = File {
        fd,
        device: Arc::clone(device),
        answers,
        agents: [None; MAX_AGENTS],
        has_pkey_index: false,
        used: false,
    };
    files().insert(identity, file);
    Ok(fd)
}

/// Returns the device number of the file that a descriptor is open on.
pub(crate) fn open_number(fd: RawFd) -> Option<libc::dev_t> {
    with_file(fd, |file| process::umad_number(file.device.index))
}

/// Forgets the file of the descriptor that `open` returned, before it is closed.
pub(crate) fn close(fd: RawFd) {
    if with_file(fd, |file| file.fd == fd) == Some(true) {
        if let Some(identity) = sys::identity(fd) {
            files().remove(&identity);
        }
        // A descriptor that was marked can be unmarked.
        let _ = process::mark(fd, false);
    }
}

/// Executes an ioctl with an argument at address `at`. Returns `None` if it is not for such a file.
pub(crate) fn ioctl(fd: RawFd, request: u32, at: u64) -> Option<Result<(), Errno>> {
    if !abi::ioctl::ALL.contains(&request) {
        return None;
    }
    with_file(fd, |file| match request {
        abi::ioctl::REGISTER_AGENT => {
            let given: Register = user::read_value(at)?;
            let id = file.register(Agent { qpn: given.qpn, class: given.mgmt_class })?;
            user::write_value(at, &id)
        }
        abi::ioctl::REGISTER_AGENT2 => {
            let given: Register2 = user::read_value(at)?;
            let qpn = u8::try_from(given.qpn).map_err(|_| Errno::EINVAL)?;
            let id = file.register(Agent { qpn, class: given.mgmt_class })?;
            user::write_value(at, &id)
        }
        abi::ioctl::UNREGISTER_AGENT => {
            let id: u32 = user::read_value(at)?;
            let agent = file.agents.get_mut(id as usize).and_then(Option::take);
            agent.map(|_| ()).ok_or(Errno::EINVAL)
        }
        _ if file.used => Err(Errno::EINVAL),
        _ => {
            file.has_pkey_index = true;
            Ok(())
        }
    })
}

/// Takes a datagram of `len` bytes at address `at`. Returns `None` if `fd` is no such file.
pub(crate) fn write(fd: RawFd, at: u64, len: usize) -> Option<Result<(), Errno>> {
    with_file(fd, |file| file.send(at, len))
}

impl File {
    fn register(&mut self, agent: Agent) -> Result<u32, Errno> {
        if agent.qpn > 1 || agent.is_of_subnet() != (agent.qpn == 0) {
            return Err(Errno::EINVAL);
        }
        // An Ethernet port has no queue pair 0.
        if agent.qpn == 0 && self.device.settings.link == LinkLayer::Ethernet {
            return Err(Errno::EPROTONOSUPPORT);
        }
        self.used = true;
        let free = self.agents.iter().position(Option::is_none).ok_or(Errno::ENOMEM)?;
        self.agents[free] = Some(agent);
        Ok(free as u32)
    }

    fn send(&mut self, at: u64, len: usize) -> Result<(), Errno> {
        let header_len = if self.has_pkey_index { size_of::<Header>() } else { OLD_HEADER };
        if len < header_len + abi::MAD_HEADER || len > header_len + MAD {
            return Err(Errno::EINVAL);
        }
        self.used = true;
        let mut bytes = [0; size_of::<Header>() + MAD];
        user::read(at, &mut bytes[..header_len])?;
        let mut header: Header = user::prefix(&bytes[..header_len]);
        let mut mad = [0; MAD];
        user::read(at + header_len as u64, &mut mad[..len - header_len])?;
        let agent = self.agents.get(header.id as usize).copied().flatten().ok_or(Errno::EINVAL)?;
        let subnet = Subnet::of(current().devices())?;
        let answer = subnet.answer(self.device.index, agent, u16::from_be(header.lid), &mad);
        let answer_len = match &answer {
            Some(answer) => {
                mad = *answer;
                MAD
            }
            // The program gets the header of its own datagram back.
            None => {
                header.status = libc::ETIMEDOUT as u32;
                abi::MAD_HEADER
            }
        };
        header.length = (header_len + answer_len) as u32;
        bytes[..header_len].copy_from_slice(&bytemuck::bytes_of(&header)[..header_len]);
        bytes[header_len..header_len + answer_len].copy_from_slice(&mad[..answer_len]);
        match self.answers.send(&bytes[..header_len + answer_len]) {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }
}
