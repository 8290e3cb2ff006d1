//! The UDP socket of the fabric. It is non-blocking, and transfers many datagrams per system call.
#![allow(unsafe_code, reason = "system calls that take arrays of messages")]

use super::batch::{Batch, Entry};
use super::offload::{self, Control};
use crate::address::{Ip, LAST_LID, ip_of_lid};
use crate::roce::{self, MAX_PACKET, PORT};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashSet;
use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Maximum number of datagrams per system call.
const BURST: usize = 64;
/// Requested size of the socket buffers, in bytes. Without privileges, the kernel grants less.
const SOCKET_BUFFER: usize = 8 << 20;
/// Size of the buffer for one incoming datagram, in bytes.
const SLOT: usize = MAX_PACKET.next_multiple_of(64);
/// Size of the buffer for one incoming message of several datagrams, in bytes.
const LARGE_SLOT: usize = 1 << 16;
const LARGE_BURST: usize = 16;
/// Length of the socket address of a datagram, in bytes.
const NAME_LEN: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;
/// Length of the IPv4 and UDP headers, in bytes.
const IP_AND_UDP: usize = 20 + 8;
/// Length of the largest packet without its payload, in bytes: IPv4, UDP, BTH, RETH, immediate and CRC.
const OVERHEAD: u32 = 20 + 8 + 12 + 16 + 4 + 4;

/// The bound UDP socket of an adapter, with the buffers for its system calls.
pub(crate) struct UdpLink {
    socket: Socket,
    local: SocketAddrV4,
    slots: Vec<u8>,
    /// Size of the buffer for each incoming message, in bytes.
    slot: usize,
    incoming: Messages,
    outgoing: Messages,
    /// Number of datagrams in each message of the current `sendmmsg` call.
    groups: Vec<usize>,
    /// Whether one message may carry several datagrams to a software adapter.
    segments: bool,
    /// Addresses of the peers known to be software adapters.
    software: HashSet<SocketAddrV4>,
    /// Number of datagrams that were sent in one message with others.
    pub(crate) segmented: u64,
    /// Datagrams that exceeded the MTU of the link since the last [`UdpLink::take_too_long`].
    too_long: Vec<TooLong>,
    /// Whether a datagram that exceeds the MTU has been logged.
    warned: bool,
}

/// A datagram that the system has refused because it exceeds the MTU of the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooLong {
    pub(crate) to: SocketAddrV4,
    /// QPN to which the datagram was addressed.
    pub(crate) dest_qpn: u32,
}

/// The arrays passed to `sendmmsg` and `recvmmsg`. Each message header points to its socket address and its I/O vector.
struct Messages {
    names: Box<[libc::sockaddr_in]>,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    controls: Box<[Control]>,
}

// SAFETY: the pointers refer to heap memory of the same object or its owner, or to buffers that each call sets just
// before it uses them.
unsafe impl Send for Messages {}

impl Messages {
    fn new() -> Messages {
        // SAFETY: these are plain C structs for which all zeroes is a valid value.
        let (name, vector, header): (libc::sockaddr_in, libc::iovec, libc::mmsghdr) =
            unsafe { (zeroed(), zeroed(), zeroed()) };
        let mut messages = Messages {
            names: vec![name; BURST].into(),
            vectors: vec![vector; BURST].into(),
            headers: vec![header; BURST].into(),
            controls: vec![Control::EMPTY; BURST].into(),
        };
        for i in 0..BURST {
            let header = &mut messages.headers[i].msg_hdr;
            header.msg_name = (&raw mut messages.names[i]).cast();
            header.msg_namelen = NAME_LEN;
            header.msg_iov = &raw mut messages.vectors[i];
            header.msg_iovlen = 1;
        }
        messages
    }
}

impl UdpLink {
    /// Binds the UDP socket. Returns `None` if `ip` disables the fabric.
    pub(crate) fn bind(ip: Ip, port: u16) -> io::Result<Option<UdpLink>> {
        let (socket, local) = match ip {
            Ip::LoopbackOnly => return Ok(None),
            Ip::Addr(ip) => bind_addr(ip, port)?,
            Ip::AnyLoopback => bind_any_loopback(port)?,
        };
        let (segments, merges) = (offload::sends(socket.as_fd()), offload::receives(socket.as_fd()));
        tracing::debug!(%local, segments, merges, "segmentation offload");
        let (slot, burst) = if merges { (LARGE_SLOT, LARGE_BURST) } else { (SLOT, BURST) };
        let (mut incoming, outgoing) = (Messages::new(), Messages::new());
        let mut slots = vec![0; burst * slot];
        for (vector, bytes) in incoming.vectors.iter_mut().zip(slots.chunks_exact_mut(slot)) {
            *vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: slot };
        }
        Ok(Some(UdpLink {
            socket,
            local,
            slots,
            slot,
            incoming,
            outgoing,
            groups: Vec::new(),
            segments,
            software: HashSet::new(),
            segmented: 0,
            too_long: Vec::new(),
            warned: false,
        }))
    }

    pub(crate) fn segments(&self) -> bool {
        self.segments
    }

    /// Records that the peer is a software adapter, which accepts segmented messages.
    pub(crate) fn note_software(&mut self, peer: SocketAddrV4) {
        self.software.insert(peer);
    }

    pub(crate) fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// Sends the datagrams of the batch until the kernel accepts no more, and removes them. Returns the number of
    /// datagrams that failed.
    pub(crate) fn send(&mut self, batch: &mut Batch) -> u64 {
        let mut failed = 0;
        while !batch.is_empty() {
            match self.send_some(batch) {
                Ok(sent) => batch.drop_front(sent),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted => {}
                    // The link cannot segment datagrams, or they do not fit.
                    _ if self.groups.first().is_some_and(|first| *first > 1) => {
                        tracing::debug!(%error, "no more segmentation offload");
                        self.segments = false;
                    }
                    _ => {
                        if error.raw_os_error() == Some(libc::EMSGSIZE) {
                            self.note_too_long(batch);
                        }
                        // Dropped like a lost packet, so retransmission has to recover it.
                        tracing::debug!(%error, to = %batch.entries[0].peer, "datagram refused by the kernel");
                        batch.drop_front(1);
                        failed += 1;
                    }
                },
            }
        }
        failed
    }

    /// Records that the first datagram of the batch exceeds the MTU of its link. Logs a warning the first time.
    fn note_too_long(&mut self, batch: &Batch) {
        let Entry { peer, bytes, .. } = &batch.entries[0];
        let packet = &batch.arena[bytes.clone()];
        if !std::mem::replace(&mut self.warned, true) {
            let (len, mtu) = (packet.len() + IP_AND_UDP, link_mtu(*self.local.ip(), *peer).unwrap_or(0));
            tracing::warn!(
                "packets of {len} bytes to {} are lost: the link has an MTU of {mtu} bytes now, less than when the \
                 QP was connected; raise the MTU of the network interface, or start the job again",
                peer.ip()
            );
        }
        if let Ok(packet) = roce::parse(packet) {
            self.too_long.push(TooLong { to: *peer, dest_qpn: packet.bth.dest_qpn });
        }
    }

    /// Removes and returns the datagrams that exceeded the MTU of their link since the last call.
    pub(crate) fn take_too_long(&mut self) -> Vec<TooLong> {
        std::mem::take(&mut self.too_long)
    }

    fn send_some(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let count = batch.len().min(BURST);
        let Batch { arena, entries } = batch;
        let Messages { names, vectors, headers, controls } = &mut self.outgoing;
        self.groups.clear();
        let mut begin = 0;
        while begin < count {
            let Entry { peer, bytes, .. } = &entries[begin];
            let splits = self.segments && self.software.contains(peer);
            let size = if splits { group(&entries[begin..count]) } else { 1 };
            for (vector, entry) in vectors[begin..].iter_mut().zip(&entries[begin..begin + size]) {
                let bytes = &mut arena[entry.bytes.clone()];
                *vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            }
            let number = self.groups.len();
            names[number] = sockaddr(*peer);
            let header = &mut headers[number].msg_hdr;
            header.msg_iov = &raw mut vectors[begin];
            header.msg_iovlen = size as _;
            (header.msg_control, header.msg_controllen) = (std::ptr::null_mut(), 0);
            if size > 1 {
                // SAFETY: the controls are heap memory of `self`, like the headers.
                unsafe { controls[number].announce(header, bytes.len() as u16) };
            }
            self.groups.push(size);
            begin += size;
        }
        let number = self.groups.len() as u32;
        // SAFETY: the first `number` headers point to names, vectors and controls of `self`, and the vectors to bytes
        // of the arena.
        let sent = unsafe {
            libc::sendmmsg(self.socket.as_raw_fd(), headers.as_mut_ptr(), number, libc::MSG_DONTWAIT)
        };
        match usize::try_from(sent) {
            Ok(sent) => {
                let sent = &self.groups[..sent];
                self.segmented += sent.iter().filter(|size| **size > 1).sum::<usize>() as u64;
                Ok(sent.iter().sum())
            }
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Receives a burst of datagrams and calls `each` with their senders. Returns the number of messages received,
    /// which may carry several datagrams each.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(SocketAddrV4, &[u8])) -> usize {
        let (slot, burst) = (self.slot, self.slots.len() / self.slot);
        let Messages { names, headers, controls, .. } = &mut self.incoming;
        for (header, control) in headers[..burst].iter_mut().zip(controls) {
            header.msg_hdr.msg_namelen = NAME_LEN;
            // SAFETY: the controls are heap memory of `self`, like the headers.
            unsafe { control.expect(&mut header.msg_hdr) };
        }
        // SAFETY: the first `burst` headers point to names, vectors and controls of `self`, and the vectors to slots of
        // `self`, which never move.
        let got = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                burst as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let got = usize::try_from(got).unwrap_or(0);
        for (i, header) in headers[..got].iter().enumerate() {
            let bytes = &self.slots[i * slot..][..(header.msg_len as usize).min(slot)];
            let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let ip = Ipv4Addr::from(u32::from_be(names[i].sin_addr.s_addr));
            let peer = SocketAddrV4::new(ip, u16::from_be(names[i].sin_port));
            // SAFETY: the system has filled the first `got` messages, and the controls are alive.
            let len = unsafe { offload::announced(&header.msg_hdr) }.unwrap_or(slot);
            if !truncated {
                bytes
                    .chunks(len)
                    .filter(|packet| packet.len() <= MAX_PACKET)
                    .for_each(|packet| each(peer, packet));
            }
        }
        got
    }

    /// Returns a handle that waits for this socket without borrowing it.
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter(self.socket.as_raw_fd())
    }
}

/// The descriptor of a socket to wait for. It does not keep the socket open, and waiting for a closed one is harmless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter(RawFd);

impl Waiter {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Waiter {
        Waiter(fd.as_raw_fd())
    }

    pub(crate) fn fd(self) -> RawFd {
        self.0
    }
}

/// Returns the largest RoCE path MTU, in bytes, for which packets to `peer` are not fragmented.
///
/// Returns `None` if 256 bytes do not fit or there is no route to `peer`.
pub(crate) fn path_mtu(local: Ipv4Addr, peer: SocketAddrV4) -> Option<u32> {
    let room = link_mtu(local, peer)?;
    [4096, 2048, 1024, 512, 256].into_iter().find(|mtu| mtu + OVERHEAD <= room)
}

/// Returns the MTU of the route to `peer` according to the system, in bytes.
fn link_mtu(local: Ipv4Addr, peer: SocketAddrV4) -> Option<u32> {
    let probe = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).ok()?;
    probe.bind(&SocketAddr::from((local, 0)).into()).ok()?;
    probe.connect(&SocketAddr::V4(peer).into()).ok()?;
    let mut mtu: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is an int and `len` says so.
    let rc = unsafe {
        libc::getsockopt(
            probe.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU,
            (&raw mut mtu).cast(),
            &raw mut len,
        )
    };
    u32::try_from(mtu).ok().filter(|_| rc == 0)
}

fn bind_addr(ip: Ipv4Addr, port: u16) -> io::Result<(Socket, SocketAddrV4)> {
    // On 127/8, a conflict is resolved by another address, and the port stays the well-known one.
    let tries = if ip.is_loopback() || port == 0 { 1 } else { 1024 };
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in (port..=u16::MAX).take(tries) {
        match open(SocketAddrV4::new(ip, port)) {
            Ok(bound) => return Ok(bound),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Binds an unused address in 127/8 that corresponds to a LID. The candidates depend on the time and the process ID.
fn bind_any_loopback(port: u16) -> io::Result<(Socket, SocketAddrV4)> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut seed = crate::rng::Rng::new(now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32);
    let port = if port == 0 { PORT } else { port };
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..64 {
        let bits = seed.next_u64();
        let lid = 1 + (bits % u64::from(LAST_LID)) as u16;
        let Some(ip) = ip_of_lid(lid) else { continue };
        match open(SocketAddrV4::new(ip, port)) {
            Ok(bound) => return Ok(bound),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn open(addr: SocketAddrV4) -> io::Result<(Socket, SocketAddrV4)> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SocketAddr::V4(addr).into())?;
    socket.set_nonblocking(true)?;
    socket.set_multicast_if_v4(addr.ip())?;
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set_option(&socket, libc::SOL_SOCKET, force, SOCKET_BUFFER as libc::c_int).is_err() {
            set_option(&socket, libc::SOL_SOCKET, plain, SOCKET_BUFFER as libc::c_int)?;
        }
    }
    // Without fragmentation the kernel's IP header is predictable, which the invariant CRC needs.
    set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
    let local = match socket.local_addr()?.as_socket_ipv4() {
        Some(local) => local,
        None => return Err(io::ErrorKind::AddrNotAvailable.into()),
    };
    Ok((socket, local))
}

/// Returns how many of the first `entries` fit into one message: all to the same peer and of the same length, except
/// that the last one may be shorter.
fn group(entries: &[Entry]) -> usize {
    let Some(first) = entries.first() else { return 0 };
    let len = first.bytes.len();
    let most = (offload::MAX_BYTES / len.max(1)).clamp(1, offload::MAX_SEGMENTS).min(entries.len());
    let fits = |entry: &Entry| entry.peer == first.peer && (1..=len).contains(&entry.bytes.len());
    let size =
        entries[1..most].iter().take_while(|entry| fits(entry) && entry.bytes.len() == len).count() + 1;
    size + usize::from(size < most && fits(&entries[size]))
}

fn set_option(socket: &Socket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the option is an int, and the length says so.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn sockaddr(addr: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: addr.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*addr.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lens: &[(u8, usize)]) -> Batch {
        let mut batch = Batch::default();
        for (i, (host, len)) in lens.iter().enumerate() {
            let peer = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, *host), PORT);
            batch.push((1, peer), *len).fill(i as u8);
        }
        batch
    }

    #[test]
    fn a_message_carries_datagrams_of_one_length_to_one_peer() {
        let size = |lens: &[(u8, usize)]| group(&batch(lens).entries);
        assert_eq!(size(&[(1, 100)]), 1);
        assert_eq!(size(&[(1, 100), (1, 100), (1, 100), (2, 100)]), 3);
        assert_eq!(size(&[(1, 100), (1, 100), (1, 40), (1, 40)]), 3, "a shorter one is the last one");
        assert_eq!(size(&[(1, 40), (1, 100)]), 1);
        assert_eq!(size(&[(1, 100), (2, 40)]), 1);
        assert_eq!(size(&[(1, 4132); 64]), 15);
        assert_eq!(size(&[(1, 16); 80]), offload::MAX_SEGMENTS);
    }

    #[test]
    fn datagrams_arrive_one_by_one_with_and_without_offload() {
        for (segments, merges) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut links = [1, 2].map(|_| UdpLink::bind(Ip::AnyLoopback, 0).unwrap().unwrap());
            let [from, to] = &mut links;
            from.note_software(to.local());
            from.segments &= segments;
            if !merges {
                set_option(&to.socket, libc::SOL_UDP, libc::UDP_GRO, 0).unwrap();
            }
            let lens = [1000, 1000, 1000, 7, 4132, 4132, 16, 16, 16, 1000];
            let mut sent = Batch::default();
            for (i, len) in lens.iter().enumerate() {
                sent.push((1, to.local()), *len).fill(i as u8);
            }
            assert_eq!((from.send(&mut sent), sent.len()), (0, 0));
            let (mut got, mut messages) = (Vec::new(), 0);
            while got.len() < lens.len() {
                messages += to.receive(|peer, bytes| {
                    assert_eq!(peer, from.local());
                    got.push(bytes.to_vec());
                });
            }
            let expected: Vec<Vec<u8>> =
                lens.iter().enumerate().map(|(i, len)| vec![i as u8; *len]).collect();
            assert_eq!(got, expected, "{segments} {merges}");
            // Datagrams of the same length share a message.
            let offload = segments && merges && offload::sends(from.socket.as_fd());
            assert_eq!(messages, if offload { 4 } else { lens.len() }, "{segments} {merges}");
        }
    }
}
