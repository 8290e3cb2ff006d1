//! The device files `/dev/infiniband/umad*`, by which libibumad and infiniband-diags query the subnet with management
//! datagrams (MADs).
//!
//! A program writes a MAD to the file and reads the response. The subnet is a model of this process's devices with the
//! switch between them: see [`rushmem_softnic::subnet`]. Adapters of other processes are not part of it. Each response
//! is ready when the write returns. The file is a pipe with a byte for each response, which makes it readable.

mod abi;

use crate::device::{Device, PKEYS, PortAddress};
use crate::errno::Errno;
use crate::events::{Channel, Kind};
use crate::node;
use crate::per_process::PerProcess;
use crate::process::{self, current};
use crate::settings::LinkLayer;
use crate::sys::{self, Identity};
use crate::sysfs;
use crate::user;
use abi::{Agent, Header, MAD, OLD_HEADER, Register, Register2};
use rushmem_softnic::mad::{HAS_EXTENDED_SPEEDS, at};
use rushmem_softnic::subnet::{self, Adapter, Subnet};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of agents of a file, as in the kernel.
const MAX_AGENTS: usize = 32;

struct File {
    fd: RawFd,
    device: Arc<Device>,
    /// Pipe that the program has open. It holds a byte for each response in `ready`.
    answers: Arc<Channel>,
    /// Responses that the program has not read, each with its header.
    ready: VecDeque<Vec<u8>>,
    /// Registered agents, by ID.
    agents: [Option<Agent>; MAX_AGENTS],
    /// Whether the program uses headers with a P_Key index.
    has_pkey_index: bool,
    used: bool,
}

/// Open files of this process.
static FILES: PerProcess<Mutex<BTreeMap<Identity, File>>> = PerProcess::new();

fn files() -> MutexGuard<'static, BTreeMap<Identity, File>> {
    FILES.current(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `run` with the file of a descriptor. Returns `None` for any other descriptor, including one opened elsewhere.
fn with_file<T>(fd: RawFd, run: impl FnOnce(&mut File) -> T) -> Option<T> {
    FILES.existing()?;
    let identity = sys::identity(fd)?;
    files().get_mut(&identity).map(run)
}

/// Opens the file of a device and returns its descriptor.
pub(crate) fn open(index: u32, flags: libc::c_int) -> Result<RawFd, Errno> {
    let device = current().devices().get(index as usize).ok_or(Errno::ENOENT)?;
    let (answers, fd) = Channel::new(Kind::Fixed)?;
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
        ready: VecDeque::new(),
        agents: [None; MAX_AGENTS],
        has_pkey_index: false,
        used: false,
    };
    files().insert(identity, file);
    Ok(fd)
}

/// Returns the device number of an open umad file, as `stat` reports it.
pub(crate) fn open_number(fd: RawFd) -> Option<libc::dev_t> {
    with_file(fd, |file| node::umad_number(file.device.index))
}

/// Drops the file of a descriptor that `open` returned, before it is closed.
pub(crate) fn close(fd: RawFd) {
    if with_file(fd, |file| file.fd == fd) == Some(true) {
        if let Some(identity) = sys::identity(fd) {
            files().remove(&identity);
        }
        // Unmarking cannot fail for a descriptor that was marked.
        let _ = process::mark(fd, false);
    }
}

/// Executes an ioctl on a umad file, with its argument at address `at`. Returns `None` for any other descriptor.
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

/// Handles a MAD of `len` bytes that a program writes to a umad file. Returns `None` for any other descriptor.
pub(crate) fn write(fd: RawFd, at: u64, len: usize) -> Option<Result<(), Errno>> {
    with_file(fd, |file| file.send(at, len))
}

/// Returns the subnet of some devices.
fn subnet_of(devices: &[Arc<Device>]) -> Result<Subnet, Errno> {
    let adapter = |device: &Arc<Device>| -> Result<Adapter, Errno> {
        let place: PortAddress = device.place()?;
        let port = device.port(place);
        Ok(Adapter {
            description: sysfs::description(&device.name()),
            guid: u64::from_be_bytes(device.guid()),
            lid: port.lid,
            is_up: port.state == crate::abi::port_state::ACTIVE,
            capabilities: port.port_cap_flags | HAS_EXTENDED_SPEEDS,
            stats: device.stats(),
        })
    };
    Ok(Subnet {
        adapters: devices.iter().map(adapter).collect::<Result<_, _>>()?,
        has_switch: devices.iter().all(|device| device.settings.link == LinkLayer::InfiniBand),
        model: devices.first().map(|device| device.settings.model).unwrap_or_default(),
        pkeys: PKEYS.to_vec(),
        pkey_entries: PKEYS.len() as u16,
        guid_entries: 1,
    })
}

/// Result of reading a umad file.
pub(crate) enum Read {
    /// Number of bytes read.
    Done(usize),
    /// No response is queued, so the caller must wait.
    Wait,
}

/// Reads a response into `room` bytes at address `at`. Returns `None` for any other descriptor.
pub(crate) fn read(fd: RawFd, at: u64, room: usize) -> Option<Result<Read, Errno>> {
    with_file(fd, |file| file.receive(at, room))
}

impl File {
    fn register(&mut self, agent: Agent) -> Result<u32, Errno> {
        if agent.qpn > 1 || agent.is_of_subnet() != (agent.qpn == 0) {
            return Err(Errno::EINVAL);
        }
        // Ethernet ports have no QP0.
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
        let mut bytes = [0; size_of::<Header>()];
        user::read(at, &mut bytes[..header_len])?;
        let mut header: Header = user::prefix(&bytes[..header_len]);
        let mut mad = [0; MAD];
        user::read(at + header_len as u64, &mut mad[..len - header_len])?;
        let agent = self.agents.get(header.id as usize).copied().flatten().ok_or(Errno::EINVAL)?;
        let subnet = subnet_of(current().devices())?;
        let (from, lid) = (self.device.index as usize, u16::from_be(header.lid));
        let is_own = mad[at::CLASS] == agent.class;
        let answer = is_own.then(|| subnet::answer(&subnet, from, lid, &mad)).flatten();
        let answer = answer.unwrap_or_else(|| {
            // On timeout, the program gets its own MAD's header back.
            header.status = libc::ETIMEDOUT as u32;
            mad[..abi::MAD_HEADER].to_vec()
        });
        header.length = (header_len + answer.len()) as u32;
        if !self.answers.send(&[0]) {
            return Err(Errno::ENOMEM);
        }
        self.ready.push_back([&bytemuck::bytes_of(&header)[..header_len], &answer].concat());
        Ok(())
    }

    /// Copies the first response to the program. If it is longer than a MAD and than `room`, it stays queued, and the
    /// program gets its length and its first bytes.
    fn receive(&mut self, at: u64, room: usize) -> Result<Read, Errno> {
        let Some(answer) = self.ready.front() else {
            return if sys::is_nonblocking(self.fd) { Err(Errno::EAGAIN) } else { Ok(Read::Wait) };
        };
        let header_len = if self.has_pkey_index { size_of::<Header>() } else { OLD_HEADER };
        let (len, start) = (answer.len(), answer.len().min(header_len + MAD));
        if room < start {
            return Err(Errno::EINVAL);
        }
        if room < len {
            user::write(at, &answer[..start])?;
            return Err(Errno::ENOSPC);
        }
        user::write(at, answer)?;
        self.ready.pop_front();
        self.answers.take_back_one();
        Ok(Read::Done(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn an_answer_that_does_not_fit_stays() {
        let (answers, fd) = Channel::new(Kind::Fixed).unwrap();
        let device = Arc::new(Device::new(0, Arc::new(Settings::default())));
        let long = (0..1000).map(|i| i as u8).collect::<Vec<_>>();
        let ready = VecDeque::from([long.clone(), vec![7; 100]]);
        assert!(answers.send(&[0, 0]));
        let agents = [None; MAX_AGENTS];
        let mut file = File { fd, device, answers, ready, agents, has_pkey_index: true, used: true };
        let mut buffer = vec![0u8; 2000];
        let mut read = |room| {
            file.receive(buffer.as_mut_ptr() as u64, room).map(|read| match read {
                Read::Done(len) => buffer[..len].to_vec(),
                Read::Wait => vec![],
            })
        };
        assert_eq!(read(319), Err(Errno::EINVAL), "less than a datagram");
        assert_eq!(read(320), Err(Errno::ENOSPC));
        assert_eq!(read(999), Err(Errno::ENOSPC));
        assert_eq!(read(1000), Ok(long));
        assert!(sys::is_ready(fd));
        assert_eq!(read(320), Ok(vec![7; 100]));
        assert!(!sys::is_ready(fd));
        assert_eq!(read(320), Ok(vec![]));
        sys::set_nonblocking(fd).unwrap();
        assert_eq!(read(320), Err(Errno::EAGAIN));
        sys::close(fd);
    }
}
