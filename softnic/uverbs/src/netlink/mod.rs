//! RDMA netlink, by which libibverbs finds devices and the tool `rdma` of iproute2 shows them.
//!
//! A program's socket is of the netlink protocol for messages between programs, in which any program may respond. So
//! the kernel binds it, queues the responses and wakes the program. Only sending needs interposition.
//!
//! | file | does |
//! |---|---|
//! | `abi` | numbers of the protocol |
//! | `message` | messages and their attributes |
//! | `devices` | answers about devices |
//! | `resources` | answers about the objects of all processes |

mod abi;
mod devices;
mod message;
mod resources;

use crate::device::Device;
use crate::errno::Errno;
use crate::per_process::PerProcess;
use crate::process::{self, current};
use crate::sys;
use abi::{Header, flag, message as kind};
use message::{Request, Writer};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;

/// Maximum length of a program's datagram, in bytes.
pub(crate) const MAX_REQUEST: usize = 1 << 16;

/// Maximum length of the responses in a datagram, in bytes. They fit into the buffers of libmnl and libnl.
const MAX_DATAGRAM: usize = 3 << 10;

/// Maximum length of all responses to a datagram, in bytes. They fit into a socket's queue.
const MAX_ANSWERS: usize = 128 << 10;

/// Set once the process has opened an RDMA netlink socket.
static OPENED: PerProcess<()> = PerProcess::new();

/// Opens an RDMA netlink socket. `kind` has the socket type and its flags.
pub(crate) fn open(kind: libc::c_int) -> Result<RawFd, Errno> {
    let fd = sys::socket(libc::AF_NETLINK, kind, libc::NETLINK_USERSOCK);
    if fd < 0 {
        return Err(Errno::last());
    }
    process::mark(fd, true).inspect_err(|_| {
        sys::close(fd);
    })?;
    OPENED.current(|| ());
    Ok(fd)
}

/// Whether `fd` is an RDMA netlink socket, opened by this process or inherited. The kernel is asked, so a forked child
/// needs no table.
pub(crate) fn is(fd: RawFd) -> bool {
    process::may_be_device(fd) && sys::is_netlink(fd, libc::NETLINK_USERSOCK)
}

/// Unmarks an RDMA netlink socket before it is closed, except in a vfork child, which shares this memory but not the
/// descriptors.
pub(crate) fn close(fd: RawFd) {
    if OPENED.existing().is_some() && is(fd) {
        // Unmarking cannot fail for a descriptor that was marked.
        let _ = process::mark(fd, false);
    }
}

/// Handles a datagram that a program sends on an RDMA netlink socket, and queues the responses.
pub(crate) fn send(fd: RawFd, datagram: &[u8]) -> Result<(), Errno> {
    let port = sys::netlink_port(fd)?;
    let sender = sys::owned(sys::socket(
        libc::AF_NETLINK,
        libc::SOCK_RAW | libc::SOCK_CLOEXEC,
        libc::NETLINK_USERSOCK,
    ))?;
    for datagram in packed(answers(current().devices(), port, datagram)) {
        sys::send_netlink(sender.as_raw_fd(), port, &datagram)?;
    }
    Ok(())
}

/// Returns the responses to a datagram from the program at `port`.
fn answers(devices: &[Arc<Device>], port: u32, datagram: &[u8]) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    for request in Request::split(datagram) {
        let result = match request.has(flag::REQUEST) && request.header.kind >= kind::MIN {
            true => answer(devices, port, &request, &mut answers),
            false => Ok(Answered::One),
        };
        // The end of a list also acknowledges its request.
        if result.is_err() || request.has(flag::ACK) && result == Ok(Answered::One) {
            answers.push(Writer::result(&request, port, result.map(drop)));
        }
    }
    answers
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    One,
    List,
}

/// Appends the responses to a request.
fn answer(
    devices: &[Arc<Device>],
    port: u32,
    request: &Request,
    answers: &mut Vec<Vec<u8>>,
) -> Result<Answered, Errno> {
    let Header { kind, .. } = request.header;
    if kind >> 10 != abi::DEVICES {
        return Err(Errno::EINVAL);
    }
    let lists = request.has(flag::DUMP);
    let flags = if lists { flag::MULTI } else { 0 };
    let mut len = 0;
    for body in devices::answer(devices, request, kind & 0x3ff, lists)? {
        let mut writer = Writer::answer(&request.header, port, kind, flags);
        writer.append(&body);
        let answer = writer.finish();
        len += answer.len();
        if len > MAX_ANSWERS {
            tracing::warn!("a list of RDMA netlink is too long for a socket's queue: the rest is left out");
            break;
        }
        answers.push(answer);
    }
    if lists {
        answers.push(Writer::done(&request.header, port));
        return Ok(Answered::List);
    }
    Ok(Answered::One)
}

/// Packs messages into datagrams.
fn packed(messages: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut datagrams: Vec<Vec<u8>> = Vec::new();
    for message in messages {
        match datagrams.last_mut() {
            Some(last) if last.len() + message.len() <= MAX_DATAGRAM => last.extend(message),
            _ => datagrams.push(message),
        }
    }
    datagrams
}

/// Handles arbitrary bytes as a datagram, and checks that each response is a message.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz(device: &Arc<Device>, datagram: &[u8]) {
    for answer in answers(std::slice::from_ref(device), 7, datagram) {
        assert_eq!(Request::split(&answer).count(), 1);
    }
}

/// Returns requests of libibverbs and of `rdma`, for all devices and for the first.
#[cfg(test)]
pub(crate) fn examples() -> Vec<Vec<u8>> {
    use abi::{attribute, command};
    let request = |command, flags, fill: fn(&mut Writer)| {
        let head = Header { sequence: 1, ..Header::default() };
        let mut writer = Writer::answer(&head, 0, abi::kind(command), flag::REQUEST | flags);
        fill(&mut writer);
        writer.finish()
    };
    let device = |writer: &mut Writer| writer.u32(attribute::DEV_INDEX, 0);
    let port = |writer: &mut Writer| {
        writer.u32(attribute::DEV_INDEX, 0);
        writer.u32(attribute::PORT_INDEX, 1);
    };
    vec![
        request(command::GET, flag::DUMP, |_| {}),
        request(command::GET, flag::ACK, device),
        request(command::PORT_GET, flag::ACK, port),
        request(command::SYS_GET, 0, |_| {}),
        request(command::GET_CHARDEV, 0, |writer| {
            writer.text(attribute::CHARDEV_TYPE, "uverbs");
            writer.u32(attribute::DEV_INDEX, 0);
        }),
        request(command::RES_GET, flag::ACK, device),
        request(command::RES_QP_GET, flag::DUMP, device),
        request(command::STAT_GET, flag::ACK, port),
        request(command::SET, flag::ACK, device),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use abi::{attribute, command};

    fn devices() -> Vec<Arc<Device>> {
        let addresses = vec![[127, 64, 1, 2].into(), [127, 64, 1, 3].into()];
        let settings = Arc::new(Settings { devices: 2, addresses, ..Settings::default() });
        (0..2).map(|index| Arc::new(Device::new(index, Arc::clone(&settings)))).collect()
    }

    /// Returns the type of each response, and the error code after its header.
    fn kinds(datagram: &[u8]) -> Vec<(u16, i32)> {
        let all = answers(&devices(), 7, datagram);
        let number = |bytes: &[u8]| i32::from_ne_bytes(bytes[16..20].try_into().unwrap());
        let kind = |bytes: &Vec<u8>| {
            let request = Request::split(bytes).next().unwrap();
            assert_eq!((request.header.port, request.header.sequence), (7, 1));
            let kind = request.header.kind;
            (kind, if kind == message::ERROR { number(bytes) } else { 0 })
        };
        all.iter().map(kind).collect()
    }

    use abi::message;

    #[test]
    fn lists_end_and_single_answers_are_acknowledged() {
        let [list, one, ..] = &examples()[..] else { panic!() };
        let get = abi::kind(command::GET);
        assert_eq!(kinds(list), [(get, 0), (get, 0), (message::DONE, 0)]);
        assert_eq!(kinds(one), [(get, 0), (message::ERROR, 0)]);
        assert_eq!(kinds(&[one.clone(), list.clone()].concat()).len(), 5);
    }

    #[test]
    fn devices_nodes_and_counters_are_described() {
        let examples = examples();
        let text = |example: usize, id| {
            let all = answers(&devices(), 7, &examples[example]);
            Request::split(&all[0]).next().unwrap().text(id).map(str::to_owned)
        };
        assert_eq!(text(0, attribute::DEV_NAME).as_deref(), Some("mlx5_0"));
        assert_eq!(text(1, attribute::FW_VERSION).as_deref(), Some("28.43.1014"));
        assert_eq!(text(2, attribute::NDEV_NAME).as_deref(), Some("lo"));
        assert_eq!(text(4, attribute::CHARDEV_NAME).as_deref(), Some("uverbs0"));
        let all = answers(&devices(), 7, &examples[7]);
        assert!(String::from_utf8_lossy(&all[0]).contains("local_ack_timeout_err"));
    }

    #[test]
    fn other_requests_get_the_errors_of_the_kernel() {
        let request = |kind, flags: u16, device| {
            let head = Header { sequence: 1, ..Header::default() };
            let mut writer = Writer::answer(&head, 0, kind, flag::REQUEST | flags);
            writer.u32(attribute::DEV_INDEX, device);
            kinds(&writer.finish())
        };
        let error = |number: i32| vec![(message::ERROR, -number)];
        let known = abi::kind;
        assert_eq!(request(known(command::SET), 0, 0), error(libc::EOPNOTSUPP));
        assert_eq!(request(known(command::RES_CM_ID_GET), flag::DUMP, 0), error(libc::EOPNOTSUPP));
        assert_eq!(request(known(command::GET), 0, 2), error(libc::EINVAL), "there are two devices");
        assert_eq!(request(known(command::PORT_GET), 0, 0), error(libc::EINVAL), "a port is missing");
        assert_eq!(request(known(command::SYS_GET), flag::DUMP, 0), error(libc::EINVAL));
        assert_eq!(request(known(99), 0, 0), error(libc::EINVAL));
        assert_eq!(request(4 << 10, 0, 0), error(libc::EINVAL), "another client");
        assert_eq!(request(message::DONE, 0, 0), []);
    }

    #[test]
    fn answers_fit_into_buffers() {
        let messages = vec![vec![1; 1000]; 7];
        let lens: Vec<_> = packed(messages).iter().map(Vec::len).collect();
        assert_eq!(lens, [3000, 3000, 1000]);
    }

    #[test]
    fn a_socket_gets_its_answers() {
        let fd = open(libc::SOCK_RAW | libc::SOCK_CLOEXEC).unwrap();
        assert!(is(fd));
        send(fd, &examples()[3]).unwrap();
        let answer = crate::events::tests::read(fd, 4096);
        let request = Request::split(&answer).next().unwrap();
        assert_eq!(request.header.kind, abi::kind(command::SYS_GET));
        close(fd);
        assert!(!is(fd));
        sys::close(fd);
    }
}
