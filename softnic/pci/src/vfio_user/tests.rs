//! A client of the protocol, as QEMU is one.

use super::message::{
    DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, RegionAccess, RegionInfo, SetIrqs, Version, command, flag,
    irq, split,
};
use super::*;
use crate::driver::adapter;
use crate::guest::GuestMemory;
use bytemuck::{Pod, bytes_of};
use rushmem_softnic::{FunctionType, Memory, Model};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::JoinHandle;

const IDENTITY: Identity = Identity { model: Model::Cx7, function: FunctionType::Virtual, infiniband: true };
const PAGE: u64 = 4096;

struct Client {
    socket: UnixStream,
    server: JoinHandle<Result<BTreeMap<CmdOpcode, Count>, Error>>,
}

fn message(command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let len = (size_of::<Header>() + payload.len()) as u32;
    [bytes_of(&Header { id: 7, command, len, flags, error: 0 }), payload].concat()
}

fn access(region: u32, offset: u64, count: u32, data: &[u8]) -> Vec<u8> {
    [bytes_of(&RegionAccess { offset, region, count }), data].concat()
}

impl Client {
    fn new() -> Client {
        Client::with_memory(Arc::default())
    }

    fn with_memory(memory: Arc<GuestMemory>) -> Client {
        let (socket, other) = UnixStream::pair().unwrap();
        let run = move || session::Session::new(adapter(), IDENTITY, memory).run(&other);
        Client { socket, server: std::thread::spawn(run) }
    }

    fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        let sent = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::empty());
        assert_eq!(sent, Ok(bytes.len()));
    }

    /// Sends a request, and returns the payload of the reply, or its error number.
    fn ask(&mut self, command: u16, payload: &[u8], files: &[BorrowedFd<'_>]) -> Result<Vec<u8>, u32> {
        self.send(&message(command, 0, payload), files);
        let mut head = [0; size_of::<Header>()];
        self.socket.read_exact(&mut head).unwrap();
        let header: Header = bytemuck::pod_read_unaligned(&head);
        assert_eq!((header.id, header.command, header.flags & flag::TYPE), (7, command, flag::REPLY));
        let mut payload = vec![0; header.len as usize - head.len()];
        self.socket.read_exact(&mut payload).unwrap();
        if header.flags & flag::ERROR != 0 { Err(header.error) } else { Ok(payload) }
    }

    fn get<T: Pod>(&mut self, command: u16, request: &T) -> Result<T, u32> {
        self.ask(command, bytes_of(request), &[]).map(|reply| split(&reply).unwrap().0)
    }
}

/// Returns messages of a client that makes no mistake, for the corpus.
pub(crate) fn valid_messages() -> Vec<Vec<u8>> {
    let version = [bytes_of(&Version { major: 0, minor: 1 }), b"{}\0"].concat();
    let map = DmaMap { argsz: 32, flags: 3, offset: 0, address: 0, size: PAGE };
    let unmap = DmaUnmap { argsz: 24, flags: 2, address: 0, size: 0 };
    let flags = irq::DATA_NONE | irq::ACTION_TRIGGER;
    let set = SetIrqs { argsz: 20, flags, index: 2, start: 0, count: 1 };
    let all = [
        message(command::VERSION, 0, &version),
        message(command::DEVICE_GET_INFO, 0, &[0; 16]),
        message(command::DEVICE_GET_REGION_INFO, 0, &[0; 32]),
        message(command::DEVICE_GET_IRQ_INFO, 0, &[0; 16]),
        message(command::DMA_MAP, 0, bytes_of(&map)),
        message(command::DEVICE_SET_IRQS, 0, bytes_of(&set)),
        message(command::REGION_READ, 0, &access(0, 0x1000, 8, &[])),
        message(command::REGION_WRITE, flag::NO_REPLY, &access(7, 4, 2, &[6, 0])),
        message(command::DMA_UNMAP, 0, bytes_of(&unmap)),
        message(command::DEVICE_RESET, 0, &[]),
    ];
    vec![all.concat(), all[6].clone(), [&all[7][..], &all[9]].concat()]
}

#[test]
fn a_client_learns_what_the_device_is() {
    let mut client = Client::new();
    let version = [bytes_of(&Version { major: 0, minor: 1 }), b"{}\0"].concat();
    let reply = client.ask(command::VERSION, &version, &[]).unwrap();
    assert!(reply.len() > 4 && reply.ends_with(b"}}\0"));
    let info = client
        .get(command::DEVICE_GET_INFO, &DeviceInfo { argsz: 16, flags: 0, num_regions: 0, num_irqs: 0 });
    let info = info.unwrap();
    assert_eq!((info.flags, info.num_regions, info.num_irqs), (3, 9, 5));
    let region = |index| RegionInfo { argsz: 32, flags: 0, index, cap_offset: 0, size: 0, offset: 0 };
    let bar = client.get(command::DEVICE_GET_REGION_INFO, &region(0)).unwrap();
    assert_eq!((bar.flags, bar.size), (3, crate::BAR_BYTES));
    assert_eq!(client.get(command::DEVICE_GET_REGION_INFO, &region(1)).unwrap().size, 0);
    assert!(client.get(command::DEVICE_GET_REGION_INFO, &region(9)).is_err());
    let irq = |index| IrqInfo { argsz: 16, flags: 0, index, count: 0 };
    assert_eq!(client.get(command::DEVICE_GET_IRQ_INFO, &irq(2)).unwrap().count, 64);
    let config = client.ask(command::REGION_READ, &access(7, 0, 4, &[]), &[]).unwrap();
    assert_eq!(config[16..], [0xb3, 0x15, 0x1e, 0x10]);
    drop(client.socket);
    assert!(client.server.join().unwrap().is_ok());
}

#[test]
fn mistakes_are_refused_with_their_number() {
    let mut client = Client::new();
    let invalid = Err(Errno::INVAL.raw_os_error() as u32);
    assert_eq!(client.ask(99, &[], &[]), Err(Errno::NOTSUP.raw_os_error() as u32));
    assert_eq!(client.ask(command::REGION_READ, &[0; 3], &[]), invalid);
    for (region, offset, count) in
        [(1, 0, 4), (0, u64::MAX, 4), (0, crate::BAR_BYTES - 2, 4), (0, 0, u32::MAX)]
    {
        assert_eq!(client.ask(command::REGION_READ, &access(region, offset, count, &[]), &[]), invalid);
    }
    assert_eq!(client.ask(command::REGION_WRITE, &access(0, 0, 8, &[0; 4]), &[]), invalid);
    let flags = irq::DATA_EVENTFD | irq::ACTION_TRIGGER;
    let set = SetIrqs { argsz: 20, flags, index: 2, start: 60, count: 5 };
    assert_eq!(client.ask(command::DEVICE_SET_IRQS, bytes_of(&set), &[]), invalid);
}

#[test]
fn a_broken_message_ends_the_connection() {
    let client = Client::new();
    client.send(bytes_of(&Header { id: 1, command: 1, len: u32::MAX, flags: 0, error: 0 }), &[]);
    assert!(matches!(client.server.join().unwrap(), Err(Error::Message(_))));
}

#[test]
fn files_become_memory_and_interrupts() {
    let mut client = Client::new();
    let memory = tempfile::tempfile().unwrap();
    memory.set_len(PAGE).unwrap();
    let map = DmaMap { argsz: 32, flags: 3, offset: 0, address: 0x1000, size: PAGE };
    assert_eq!(client.ask(command::DMA_MAP, bytes_of(&map), &[memory.as_fd()]), Ok(vec![]));
    let again = client.ask(command::DMA_MAP, bytes_of(&map), &[memory.as_fd()]);
    assert_eq!(again, Err(Errno::EXIST.raw_os_error() as u32));
    // A range without a file is not memory, but mapping it succeeds.
    let rom = DmaMap { address: 0x10_0000, ..map };
    assert_eq!(client.ask(command::DMA_MAP, bytes_of(&rom), &[]), Ok(vec![]));

    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let set = |flags, count| SetIrqs { argsz: 20, flags, index: 2, start: 1, count };
    let install = set(irq::DATA_EVENTFD | irq::ACTION_TRIGGER, 1);
    assert_eq!(client.ask(command::DEVICE_SET_IRQS, bytes_of(&install), &[event.as_fd()]), Ok(vec![]));
    let trigger = set(irq::DATA_NONE | irq::ACTION_TRIGGER, 1);
    assert_eq!(client.ask(command::DEVICE_SET_IRQS, bytes_of(&trigger), &[]), Ok(vec![]));
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&event, &mut count), Ok(8));
    assert_eq!(u64::from_ne_bytes(count), 1);
    // An event without a file removes the interrupt.
    assert_eq!(client.ask(command::DEVICE_SET_IRQS, bytes_of(&install), &[]), Ok(vec![]));
    client.ask(command::DEVICE_SET_IRQS, bytes_of(&trigger), &[]).unwrap();
    assert_eq!(rustix::io::read(&event, &mut count), Err(Errno::AGAIN));
}

#[test]
fn memory_is_unmapped() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(2 * PAGE).unwrap();
    let memory = Arc::new(GuestMemory::default());
    let mut client = Client::with_memory(Arc::clone(&memory));
    let map = || memory.map(PAGE, &file, 0, 2 * PAGE).unwrap();
    let unmap = DmaUnmap { argsz: 24, flags: 0, address: PAGE, size: 2 * PAGE };
    let mut ask = |unmap: DmaUnmap| client.ask(command::DMA_UNMAP, bytes_of(&unmap), &[]).map(|_| ());
    let refused = |errno: Errno| Err(errno.raw_os_error() as u32);
    let is_mapped = || memory.read(PAGE, &mut [0; 8]).is_ok();
    map();
    assert_eq!(ask(DmaUnmap { size: PAGE, ..unmap }), refused(Errno::INVAL));
    assert_eq!(ask(DmaUnmap { address: 4 * PAGE, ..unmap }), refused(Errno::NOENT));
    assert_eq!(ask(DmaUnmap { flags: 2, ..unmap }), refused(Errno::INVAL));
    assert!(is_mapped());
    assert_eq!(ask(unmap), Ok(()));
    assert!(!is_mapped());
    map();
    assert_eq!(ask(DmaUnmap { flags: 2, address: 0, size: 0, ..unmap }), Ok(()));
    assert!(!is_mapped());
}

#[test]
fn a_stale_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic");
    drop(UnixListener::bind(&path).unwrap());
    let server = Server::bind(&path).unwrap();
    assert!(matches!(Server::bind(&path), Err(Error::Bind { .. })));
    drop(server);
    assert!(!path.exists());
}
