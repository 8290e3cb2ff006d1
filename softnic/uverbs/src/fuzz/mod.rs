//! Fuzz targets for the calls of programs. No input may crash the library or leave the device unusable.

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

/// Length in bytes of the arena: the memory of a simulated program, with its calls and all that they refer to.
const ARENA_LEN: usize = 1 << 16;
/// Offset in the arena at which calls are built.
const CALL: usize = 0;
/// Offset in the arena from which inputs and outputs are placed.
const DATA: usize = 4096;

/// All methods that the device has, as object type and number, and some that do not exist.
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
    (object::DEVICE, abi::DATA_DIRECT_PATH),
];

/// An opened device, with the memory of the simulated program that uses it.
struct Bed {
    opened: OpenDevice,
    arena: &'static HostBuffer,
}

/// Returns the device that all runs of a fuzz target share.
fn device() -> Arc<Device> {
    static DEVICE: OnceLock<Arc<Device>> = OnceLock::new();
    Arc::clone(DEVICE.get_or_init(|| Arc::new(Device::new(0, Arc::new(Settings::default())))))
}

thread_local! {
    /// Arena of this thread's runs. It is leaked, because an adapter may access it after a run.
    static MEMORY: &'static HostBuffer = Box::leak(Box::new(HostBuffer::new(ARENA_LEN)));
}

/// Value of an ioctl attribute in a fuzzed call.
enum Value<'a> {
    /// A number stored in the attribute itself.
    Number(u64),
    /// Input bytes, which are copied to this offset of the arena and passed by address.
    At(usize, &'a [u8]),
    /// Address of an output buffer at this offset of the arena.
    Room(usize),
}

impl Bed {
    fn new() -> Bed {
        Bed::with(device())
    }

    fn with(device: Arc<Device>) -> Bed {
        let file = sys::memory_file(true).expect("memory files are there");
        Bed { opened: OpenDevice::new(device, file), arena: MEMORY.with(|arena| *arena) }
    }

    fn address(&self, offset: usize) -> u64 {
        self.arena.as_ptr() as u64 + offset as u64
    }

    /// Executes the ioctl whose header and attributes are `call`.
    fn raw(&mut self, call: &[u8]) -> Result<(), Errno> {
        let len = call.len().min(DATA - CALL);
        self.arena.write(CALL as u64, &call[..len]).expect("inside of the arena");
        let call = Call::read(self.address(CALL))?;
        crate::ioctl::execute(&mut self.opened, &call)
    }

    /// Executes a call with these attributes: ID, length, value.
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

    /// Creates a context and the objects that most calls refer to: a PD and a doorbell page.
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

    /// Returns the port state reported by QUERY_PORT.
    fn port_state(&mut self) -> Result<u8, Errno> {
        let attrs = [(0, 8, Value::Number(1)), (1, 48, Value::Room(DATA))];
        self.call(object::DEVICE, 2, &attrs)?;
        let mut port = abi::QueryPort::default();
        self.arena.read(DATA as u64, bytemuck::bytes_of_mut(&mut port)).expect("inside of the arena");
        Ok(port.state)
    }
}

/// Reader of fuzzer input, which supplies zeros once the input is used up.
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
/// inside and outside of mapped memory. Checks that the device still responds afterwards.
pub fn calls(data: &[u8]) {
    let mut source = Source(data);
    let mut bed = Bed::new();
    if source.byte() & 7 != 0 {
        bed.prepare().expect("a context and a page are there");
    }
    // The tail of the data supplies the contents of inputs.
    let end = data.len().min(2048);
    bed.arena.write(DATA as u64, &data[data.len() - end..]).expect("inside of the arena");
    while !source.0.is_empty() {
        let (object, method) = METHODS[usize::from(source.byte()) % METHODS.len()];
        let count = source.byte() & 15;
        let attrs: Vec<_> = (0..count).map(|_| attribute(&mut source)).collect();
        // Any result is valid.
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
    let offset = DATA + usize::from(source.half()) % (ARENA_LEN - DATA - 1024);
    let value = match source.byte() % 8 {
        0 | 1 => Value::Number(u64::from(source.byte()) & 7),
        2 => Value::Number(u64::from_ne_bytes(source.take())),
        3 => Value::Number(u64::MAX - u64::from(source.byte())),
        // Write commands are below 64.
        4 => Value::Number(u64::from(source.half()) & 63),
        _ => Value::Room(offset),
    };
    // An inline value could be the address of mapped memory, to which a call would rightly write. So values stay where
    // nothing is mapped.
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

/// Handles `data` as a datagram of RDMA netlink.
pub fn netlink(data: &[u8]) {
    crate::netlink::fuzz(&device(), data);
}

/// Parses `data` as the inputs of the connection manager from peers and other processes.
pub fn messages(data: &[u8]) {
    crate::cm::fuzz::messages(data);
}
