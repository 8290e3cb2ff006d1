//! A connection of a virtual machine.

use super::Error;
use super::interrupts::EventFiles;
use super::message::{
    DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, RegionAccess, RegionInfo, SetIrqs, Version, command, flag,
    irq, split,
};
use super::socket::{MAX_DATA, MAX_FILES, Message, receive, transmit};
use crate::BAR_BYTES;
use crate::config_space::{self, Identity};
use crate::eq::{Interrupts, VECTORS};
use crate::function::{Count, Function, Region};
use crate::guest::{GuestMemory, MapError};
use bytemuck::bytes_of;
use rushmem_mlx5::prm::CmdOpcode;
use rushmem_softnic::Nic;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Regions and interrupts have the indices of VFIO for PCI.
const REGIONS: u32 = 9;
const BAR0: u32 = 0;
const CONFIG: u32 = 7;
const IRQS: u32 = 5;
const MSI_X: u32 = 2;

const READ: u32 = 1;
const WRITE: u32 = 1 << 1;

/// Bit of [`DmaUnmap::flags`]: everything is unmapped.
const UNMAP_ALL: u32 = 1 << 1;

/// The payload of a reply, or the error number of a refusal.
type Reply = Result<Vec<u8>, Errno>;

pub(super) struct Session {
    memory: Arc<GuestMemory>,
    interrupts: Arc<EventFiles>,
    function: Function,
}

impl Session {
    /// Creates a session in which the client maps its memory into `memory`.
    pub(super) fn new(nic: Arc<Nic>, identity: Identity, memory: Arc<GuestMemory>) -> Session {
        let interrupts = Arc::new(EventFiles::new());
        let function = Function::new(nic, identity, Arc::clone(&memory), Arc::clone(&interrupts) as _);
        Session { memory, interrupts, function }
    }

    /// Serves until the client disconnects. Returns how often each command was executed and refused.
    pub(super) fn run(mut self, socket: &UnixStream) -> Result<BTreeMap<CmdOpcode, Count>, Error> {
        while let Some(message) = receive(socket)? {
            let header = message.header;
            if header.flags & flag::TYPE != 0 {
                return Err(Error::Message("a reply without a request"));
            }
            let reply = self.answer(message);
            if let Err(error) = reply {
                tracing::debug!(command = header.command, %error, "request refused");
            }
            if header.flags & flag::NO_REPLY == 0 {
                transmit(socket, &encode(header, reply))?;
            }
        }
        Ok(self.function.counts().clone())
    }

    fn answer(&mut self, message: Message) -> Reply {
        let Message { header, payload, files } = message;
        match header.command {
            command::VERSION => version(&payload),
            command::DMA_MAP => self.map(&payload, files),
            command::DMA_UNMAP => self.unmap(&payload),
            command::DEVICE_GET_INFO => device_info(),
            command::DEVICE_GET_REGION_INFO => region_info(&payload),
            command::DEVICE_GET_IRQ_INFO => irq_info(&payload),
            command::DEVICE_SET_IRQS => self.set_irqs(&payload, files),
            command::REGION_READ => self.read(&payload),
            command::REGION_WRITE => self.write(&payload),
            command::DEVICE_RESET => {
                self.function.reset();
                Ok(Vec::new())
            }
            _ => Err(Errno::NOTSUP),
        }
    }

    /// Maps memory of the virtual machine. A range without a file, or that the function may not write, is reserved: it
    /// belongs to registers of other devices, or to a ROM.
    fn map(&self, payload: &[u8], mut files: VecDeque<OwnedFd>) -> Reply {
        let (DmaMap { flags, offset, address, size, .. }, _) = split(payload).ok_or(Errno::INVAL)?;
        let mapped = match files.pop_front().filter(|_| flags & (READ | WRITE) == READ | WRITE) {
            Some(file) => self.memory.map(address, file, offset, size),
            None => self.memory.reserve(address, size),
        };
        mapped.map_err(errno)?;
        Ok(Vec::new())
    }

    fn unmap(&self, payload: &[u8]) -> Reply {
        let (unmap, _): (DmaUnmap, _) = split(payload).ok_or(Errno::INVAL)?;
        match unmap.flags {
            0 => self.memory.unmap(unmap.address, unmap.size).map_err(errno)?,
            UNMAP_ALL if (unmap.address, unmap.size) == (0, 0) => self.memory.clear(),
            _ => return Err(Errno::INVAL),
        }
        Ok(bytes_of(&unmap).to_vec())
    }

    fn read(&self, payload: &[u8]) -> Reply {
        let (access, _): (RegionAccess, _) = split(payload).ok_or(Errno::INVAL)?;
        let (region, len) = region(&access)?;
        let mut reply = bytes_of(&access).to_vec();
        let start = reply.len();
        reply.resize(start + len, 0);
        self.function.read(region, access.offset, &mut reply[start..]);
        Ok(reply)
    }

    fn write(&mut self, payload: &[u8]) -> Reply {
        let (access, data): (RegionAccess, _) = split(payload).ok_or(Errno::INVAL)?;
        let (region, len) = region(&access)?;
        self.function.write(region, access.offset, data.get(..len).ok_or(Errno::INVAL)?);
        Ok(bytes_of(&access).to_vec())
    }

    fn set_irqs(&self, payload: &[u8], files: VecDeque<OwnedFd>) -> Reply {
        let (set, data): (SetIrqs, _) = split(payload).ok_or(Errno::INVAL)?;
        if set.index != MSI_X {
            // The other kinds of interrupts do not exist, so only removing them succeeds.
            return if set.count == 0 { Ok(Vec::new()) } else { Err(Errno::INVAL) };
        }
        if set.flags & irq::ACTION_TRIGGER == 0 {
            return Err(Errno::NOTSUP);
        }
        let end = set.start.checked_add(set.count).filter(|end| *end <= VECTORS.into());
        let vectors = set.start..end.ok_or(Errno::INVAL)?;
        match set.flags & (irq::DATA_NONE | irq::DATA_BOOL | irq::DATA_EVENTFD) {
            irq::DATA_NONE if set.count == 0 => self.interrupts.clear(),
            irq::DATA_NONE => vectors.for_each(|vector| self.interrupts.raise(vector as u16)),
            irq::DATA_BOOL => {
                let data = data.get(..set.count as usize).ok_or(Errno::INVAL)?;
                let chosen = vectors.zip(data).filter(|(_, chosen)| **chosen != 0);
                chosen.for_each(|(vector, _)| self.interrupts.raise(vector as u16));
            }
            irq::DATA_EVENTFD => {
                // An interrupt without a file is removed.
                let mut files = files.into_iter();
                for vector in vectors {
                    self.interrupts.set(vector as usize, files.next())?;
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(Vec::new())
    }
}

fn errno(error: MapError) -> Errno {
    match error {
        MapError::System(errno) => errno,
        MapError::Overlap => Errno::EXIST,
        MapError::Unknown => Errno::NOENT,
        MapError::Range | MapError::Cut => Errno::INVAL,
    }
}

/// Encodes a reply with its header.
fn encode(to: Header, reply: Reply) -> Vec<u8> {
    let (flags, error, payload) = match reply {
        Ok(payload) => (flag::REPLY, 0, payload),
        Err(errno) => (flag::REPLY | flag::ERROR, errno.raw_os_error() as u32, Vec::new()),
    };
    let len = (size_of::<Header>() + payload.len()) as u32;
    [bytes_of(&Header { len, flags, error, ..to }), &payload].concat()
}

fn version(payload: &[u8]) -> Reply {
    let (asked, _): (Version, _) = split(payload).ok_or(Errno::INVAL)?;
    if asked.major != 0 {
        return Err(Errno::NOTSUP);
    }
    let own = Version { major: 0, minor: asked.minor.min(1) };
    let text = format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{MAX_FILES},\"max_data_xfer_size\":{MAX_DATA},\"pgsizes\":4096}}}}\0"
    );
    Ok([bytes_of(&own), text.as_bytes()].concat())
}

fn device_info() -> Reply {
    let info = DeviceInfo {
        argsz: size_of::<DeviceInfo>() as u32,
        flags: 0b11,
        num_regions: REGIONS,
        num_irqs: IRQS,
    };
    Ok(bytes_of(&info).to_vec())
}

fn region_info(payload: &[u8]) -> Reply {
    let (asked, _): (RegionInfo, _) = split(payload).ok_or(Errno::INVAL)?;
    let (flags, size) = match asked.index {
        BAR0 => (READ | WRITE, BAR_BYTES),
        CONFIG => (READ | WRITE, config_space::BYTES as u64),
        index if index < REGIONS => (0, 0),
        _ => return Err(Errno::INVAL),
    };
    let argsz = size_of::<RegionInfo>() as u32;
    let info = RegionInfo { argsz, flags, index: asked.index, cap_offset: 0, size, offset: 0 };
    Ok(bytes_of(&info).to_vec())
}

fn irq_info(payload: &[u8]) -> Reply {
    let (asked, _): (IrqInfo, _) = split(payload).ok_or(Errno::INVAL)?;
    let (flags, count) = match asked.index {
        MSI_X => (0b1001, VECTORS.into()),
        index if index < IRQS => (0, 0),
        _ => return Err(Errno::INVAL),
    };
    let info = IrqInfo { argsz: size_of::<IrqInfo>() as u32, flags, index: asked.index, count };
    Ok(bytes_of(&info).to_vec())
}

/// Returns the region of an access, and its length.
fn region(access: &RegionAccess) -> Result<(Region, usize), Errno> {
    let (region, size) = match access.region {
        BAR0 => (Region::Bar0, BAR_BYTES),
        CONFIG => (Region::Config, config_space::BYTES as u64),
        _ => return Err(Errno::INVAL),
    };
    let end = access.offset.checked_add(access.count.into());
    let fits = end.is_some_and(|end| end <= size) && access.count as usize <= MAX_DATA;
    if fits { Ok((region, access.count as usize)) } else { Err(Errno::INVAL) }
}
