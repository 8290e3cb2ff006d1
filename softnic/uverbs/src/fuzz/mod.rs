//! Calls made of any bytes, for fuzzers: none may crash, and none may leave the device unusable.

use crate::abi::{self, command, driver_data, object};
use crate::attrs::Call;
use crate::device::Device;
use crate::errno::Errno;
use crate::open_device::OpenDevice;
use crate::settings::Settings;
use crate::sys;
use rushmem_softnic::{HostBuffer, Memory};
use std::sync::{Arc, OnceLock};

#[cfg(test)]
mod tests;

/// Bytes of the arena, which holds the calls and all memory that they name.
const ARENA: usize = 1 << 16;
/// Address at which calls are built.
const CALL: usize = 0;
/// Address of inputs and outputs.
const DATA: usize = 4096;

/// Every method that there is, and some that are not.
const METHODS: &[(u16, u16)] = &[
    (object::DEVICE, 0),
    (object::DEVICE, 2),
    (object::DEVICE, 3),
    (object::DEVICE, 4),
    (object::DEVICE, 5),
    (object::DEVICE, 6),
    (object::DEVICE, 9),
    (object::PD, 0),
    (object::CQ, 0),
    (object::CQ, 1),
    (object::QP, 0),
    (object::QP, 1),
    (object::MR, 0),
    (object::MR, 1),
    (object::MR, 2),
    (object::MR, 3),
    (object::MR, 4),
    (object::DM, 0),
    (object::DM, 1),
    (object::PD, 0x1000),
    (object::ASYNC_EVENT, 0),
    (object::DEVX, 0x1000),
    (object::DEVX, 0x1002),
    (object::DEVX, 0x1003),
    (object::DEVX_OBJ, 0x1000),
    (object::DEVX_OBJ, 0x1001),
    (object::DEVX_OBJ, 0x1002),
    (object::DEVX_OBJ, 0x1003),
    (object::DEVX_OBJ, 0x1004),
    (object::DEVX_UMEM, 0x1000),
    (object::DEVX_UMEM, 0x1001),
    (object::UAR, 0x1000),
    (object::UAR, 0x1001),
    (object::UAR, 1),
    (object::XRCD, 0),
    (0x3fff, 7),
];

/// An opened device and the memory of its program.
struct Bed {
    opened: OpenDevice,
    arena: &'static HostBuffer,
}

/// Returns the one device of all runs.
fn device() -> Arc<Device> {
    static DEVICE: OnceLock<Arc<Device>> = OnceLock::new();
    Arc::clone(DEVICE.get_or_init(|| Arc::new(Device::new(0, Arc::new(Settings::default())))))
}

thread_local! {
    /// The one arena of this thread's runs. It stays: an adapter may look at it when a run has ended.
    static MEMORY: &'static HostBuffer = Box::leak(Box::new(HostBuffer::new(ARENA)));
}

/// The value of an attribute.
enum Value<'a> {
    /// The number itself.
    Number(u64),
    /// Bytes in the arena, from this offset.
    At(usize, &'a [u8]),
    /// Room in the arena.
    Room(usize),
}

impl Bed {
    fn new() -> Bed {
        let file = sys::memory_file(true).expect("memory files are there");
        Bed { opened: OpenDevice::new(device(), file), arena: MEMORY.with(|arena| *arena) }
    }

    fn address(&self, offset: usize) -> u64 {
        self.arena.as_ptr() as u64 + offset as u64
    }

    /// Makes a call with these bytes.
    fn raw(&mut self, call: &[u8]) -> Result<(), Errno> {
        let len = call.len().min(DATA - CALL);
        self.arena.write(CALL as u64, &call[..len]).expect("inside of the arena");
        let call = Call::read(self.address(CALL))?;
        crate::ioctl::execute(&mut self.opened, &call)
    }

    /// Makes a call of these attributes: number, length, value.
    fn call(&mut self, object: u16, method: u16, attrs: &[(u16, u16, Value)]) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        let count = attrs.len() as u16;
        [24 + 16 * count, object, method, count].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        bytes.extend([0; 16]);
        for (id, len, value) in attrs {
            let value = match *value {
                Value::Number(number) => number,
                Value::At(offset, data) => {
                    self.arena.write(offset as u64, data).expect("inside of the arena");
                    self.address(offset)
                }
                Value::Room(offset) => self.address(offset),
            };
            [*id, *len, 1, 0].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
            bytes.extend(value.to_ne_bytes());
        }
        self.raw(&bytes)
    }

    /// Gets a context, and what most calls refer to: a protection domain, a doorbell page.
    fn prepare(&mut self) -> Result<(), Errno> {
        let request = abi::ContextRequest { flags: 1, max_cqe_version: 1, lib_caps: 3, ..Default::default() };
        let request = bytemuck::bytes_of(&request).to_owned();
        let context = [
            (0, 4, Value::Room(DATA)),
            (1, 8, Value::Room(DATA + 8)),
            (driver_data::IN, request.len() as u16, Value::At(DATA + 64, &request)),
            (driver_data::OUT, 72, Value::Room(DATA + 128)),
        ];
        self.call(object::DEVICE, 3, &context)?;
        let pd = [
            (2, 8, Value::Number(command::ALLOC_PD)),
            (0, 8, Value::Number(0)),
            (1, 4, Value::Room(DATA)),
            (driver_data::OUT, 4, Value::Room(DATA + 8)),
        ];
        self.call(object::DEVICE, 0, &pd)?;
        let page = [
            (0x1000, 0, Value::Number(0)),
            (0x1001, 8, Value::Number(1)),
            (0x1002, 8, Value::Room(DATA)),
            (0x1003, 4, Value::Room(DATA + 8)),
            (0x1004, 4, Value::Room(DATA + 16)),
        ];
        self.call(object::UAR, 0x1000, &page)
    }

    /// Returns the port's state, as QUERY_PORT reports it.
    fn port_state(&mut self) -> Result<u8, Errno> {
        let attrs = [(0, 8, Value::Number(1)), (1, 48, Value::Room(DATA))];
        self.call(object::DEVICE, 2, &attrs)?;
        let mut port = abi::QueryPort::default();
        self.arena.read(DATA as u64, bytemuck::bytes_of_mut(&mut port)).expect("inside of the arena");
        Ok(port.state)
    }
}

/// Takes bytes from the front, or zeroes if none are left.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let len = N.min(self.0.len());
        bytes[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        bytes
    }

    fn byte(&mut self) -> u8 {
        u8::from_ne_bytes(self.take())
    }

    fn half(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }
}

/// Opens a device and makes calls with valid parts, chosen by `data`: methods, attributes, small handles, and addresses
/// inside and outside of mapped memory. Checks that the device still answers afterwards.
pub fn calls(data: &[u8]) {
    let mut source = Source(data);
    let mut bed = Bed::new();
    if source.byte() & 7 != 0 {
        bed.prepare().expect("a context and a page are there");
    }
    // The content of inputs comes from the end of the data.
    let end = data.len().min(2048);
    bed.arena.write(DATA as u64, &data[data.len() - end..]).expect("inside of the arena");
    while !source.0.is_empty() {
        let (object, method) = METHODS[usize::from(source.byte()) % METHODS.len()];
        let count = source.byte() & 15;
        let attrs: Vec<_> = (0..count).map(|_| attribute(&mut source)).collect();
        // Any result is right.
        let _ = bed.call(object, method, &attrs);
    }
    drop(bed);
    let mut bed = Bed::new();
    bed.prepare().expect("the device still gives contexts");
    assert_eq!(bed.port_state(), Ok(abi::port_state::ACTIVE));
}

fn attribute(source: &mut Source) -> (u16, u16, Value<'static>) {
    let id = u16::from(source.byte());
    let id = id & 0xf | (id & 0x10) << 8;
    let len = match source.byte() {
        len @ 0..200 => len.into(),
        _ => source.half(),
    };
    let offset = DATA + usize::from(source.half()) % (ARENA - DATA - 1024);
    let value = match source.byte() % 8 {
        0 | 1 => Value::Number(u64::from(source.byte()) & 7),
        2 => Value::Number(u64::from_ne_bytes(source.take())),
        3 => Value::Number(u64::MAX - u64::from(source.byte())),
        // Commands of the old kind are below 64.
        4 => Value::Number(u64::from(source.half()) & 63),
        _ => Value::Room(offset),
    };
    // A number that is the address of something mapped would let a call write there, as it should; so that a long
    // number stays where nothing can be.
    let value = match value {
        Value::Number(number) if number > 0xffff => Value::Number(number | 0xffff << 48),
        value => value,
    };
    (id, len, value)
}

/// Opens a device and makes one call with `data` as its header and attributes. Addresses in it are invalid.
pub fn headers(data: &[u8]) {
    let mut data = data.to_owned();
    for value in data.iter_mut().skip(24 + 8 + 6).step_by(16) {
        *value |= 0xf0;
    }
    let mut bed = Bed::new();
    let _ = bed.raw(&data);
    bed.prepare().expect("a context and a page are there");
    let _ = bed.raw(&data);
    assert_eq!(bed.port_state(), Ok(abi::port_state::ACTIVE));
}

/// Answers `data` as a datagram of RDMA netlink.
pub fn netlink(data: &[u8]) {
    crate::netlink::fuzz(&device(), data);
}

/// Parses what a peer or another process of the machine may send to the connection manager.
pub fn messages(data: &[u8]) {
    crate::cm::fuzz::messages(data);
}
