//! Hand-written commands of `/dev/infiniband/rdma_cm`: older ones that librdmacm no longer uses on this device, and
//! invalid ones.

mod common;
mod mlx5;

use mlx5::inside;
use std::ffi::CStr;
use std::io;

const NODE: &CStr = c"/dev/infiniband/rdma_cm";
const TCP: u16 = 0x0106;
const UDP: u16 = 0x0111;

/// An open file of `/dev/infiniband/rdma_cm`.
struct Cm(i32);

impl Cm {
    fn open() -> Cm {
        // SAFETY: a C string and a number.
        let fd = unsafe { libc::open(NODE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        Cm(fd)
    }

    /// Writes a command with this input and a response buffer of `room` bytes.
    fn command(&self, number: u32, input: &[u8], room: usize) -> Result<(), i32> {
        let mut bytes = number.to_ne_bytes().to_vec();
        bytes.extend((input.len() as u16).to_ne_bytes());
        bytes.extend((room as u16).to_ne_bytes());
        bytes.extend(input);
        self.write(&bytes)
    }

    fn write(&self, bytes: &[u8]) -> Result<(), i32> {
        // SAFETY: all of the bytes.
        let put = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(put) {
            Ok(put) => {
                assert_eq!(put, bytes.len());
                Ok(())
            }
            Err(_) => Err(io::Error::last_os_error().raw_os_error().unwrap()),
        }
    }

    /// Writes a command whose first member is the address of its response, and returns the response.
    fn ask<const N: usize>(&self, number: u32, input: &[u8]) -> Result<[u8; N], i32> {
        let answer = [0; N];
        let input = [&(answer.as_ptr() as u64).to_ne_bytes(), input].concat();
        self.command(number, &input, N)?;
        // The compiler cannot see that the library has filled it.
        Ok(std::hint::black_box(answer))
    }

    fn create(&self, uid: u64, ps: u16) -> u32 {
        let answer = Box::new([0u8; 4]);
        let mut input = uid.to_ne_bytes().to_vec();
        input.extend((answer.as_ptr() as u64).to_ne_bytes());
        input.extend(ps.to_ne_bytes());
        input.extend([0; 6]);
        self.command(0, &input, 4).unwrap();
        u32::from_ne_bytes(*std::hint::black_box(answer))
    }

    /// Destroys an identifier. Returns how many events it reported.
    fn destroy(&self, id: u32) -> u32 {
        u32::from_ne_bytes(self.ask(1, &[id.to_ne_bytes(), [0; 4]].concat()).unwrap())
    }

    fn event(&self) -> Result<[u8; 336], i32> {
        self.ask(12, &[])
    }

    /// Resolves an address and its route.
    fn resolve(&self, id: u32, to: &[u8; 28]) {
        let input = [&[0; 28][..], to, &id.to_ne_bytes(), &2000u32.to_ne_bytes()].concat();
        self.command(3, &input, 0).unwrap();
        assert_eq!(kind(&self.event().unwrap()), (0, 0), "ADDR_RESOLVED");
        self.command(4, &[id.to_ne_bytes(), 2000u32.to_ne_bytes()].concat(), 0).unwrap();
        assert_eq!(kind(&self.event().unwrap()), (2, 0), "ROUTE_RESOLVED");
    }

    fn is_readable(&self) -> bool {
        let mut fd = libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut fd, 1, 0) == 1 }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Returns the type and the status of an event.
fn kind(event: &[u8; 336]) -> (u32, i32) {
    (word(event, 12), word(event, 16) as i32)
}

/// Returns an IPv4 address padded to the length of an IPv6 address.
fn address(ip: [u8; 4], port: [u8; 2]) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port);
    bytes[4..8].copy_from_slice(&ip);
    bytes
}

/// Returns connection parameters with this private data.
fn parameters(private: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 272];
    bytes[8..8 + private.len()].copy_from_slice(private);
    bytes[264] = private.len() as u8;
    bytes[271] = 1;
    bytes
}

#[test]
fn older_commands_connect_and_refuse() {
    inside("older_commands_connect_and_refuse", &[], |_| {
        let cm = Cm::open();
        let listener = cm.create(1, TCP);
        let bind = [&[0; 8][..], &address([127, 0, 0, 1], [0, 0]), &listener.to_ne_bytes()].concat();
        cm.command(2, &bind, 0).unwrap();
        let route: [u8; 208] = cm.ask(5, &[listener.to_ne_bytes(), [0; 4]].concat()).unwrap();
        let source: [u8; 28] = route[136..164].try_into().unwrap();
        assert_eq!((&source[4..8], route[196]), (&[127, 0, 0, 1][..], 1));
        assert!(route[..8] != [0; 8] && source[2..4] != [0, 0], "a device and a port");
        cm.command(7, &[listener.to_ne_bytes(), [0; 4]].concat(), 0).unwrap();

        let active = cm.create(2, TCP);
        cm.resolve(active, &address([127, 0, 0, 1], [source[2], source[3]]));
        let route: [u8; 208] = cm.ask(5, &[active.to_ne_bytes(), [0; 4]].concat()).unwrap();
        assert_eq!(word(&route, 192), 1, "one path");
        assert_eq!(route[8..24], route[24..40], "from the adapter to itself");
        let mut connect = parameters(b"hello");
        connect.extend([active.to_ne_bytes(), [0; 4]].concat());
        cm.command(6, &connect, 0).unwrap();
        let event = cm.event().unwrap();
        assert_eq!((kind(&event), event[0]), ((4, 0), 1), "CONNECT_REQUEST of the listener");
        assert_eq!((&event[28..33], event[284]), (&b"hello"[..], 56));
        let passive = word(&event, 8);
        let mut reject = [passive.to_ne_bytes(), [2, 0, 0, 0]].concat();
        reject.extend([&b"no"[..], &[0; 254]].concat());
        cm.command(9, &reject, 0).unwrap();
        let event = cm.event().unwrap();
        assert_eq!((kind(&event), event[0]), ((8, 28), 2), "REJECTED by the program");
        assert_eq!(&event[28..31], b"no\0");
        assert_eq!([passive, active, listener].map(|id| cm.destroy(id)), [0, 3, 1]);
    });
}

#[test]
fn an_older_command_joins_a_group() {
    inside("an_older_command_joins_a_group", &[], |_| {
        let cm = Cm::open();
        let id = cm.create(1, UDP);
        let group = address([239, 77, 2, 2], [0, 0]);
        cm.resolve(id, &address([127, 0, 0, 1], [0, 9]));
        let input = [&7u64.to_ne_bytes()[..], &group, &id.to_ne_bytes()].concat();
        let member: [u8; 4] = cm.ask(16, &input).unwrap();
        let event = cm.event().unwrap();
        assert_eq!((kind(&event), event[0]), ((12, 0), 7), "MULTICAST_JOIN of the membership");
        assert_eq!((word(&event, 20), &event[40..44]), (0xff_ffff, &[239, 77, 2, 2][..]));
        let reported: [u8; 4] = cm.ask(17, &[member, [0; 4]].concat()).unwrap();
        assert_eq!(u32::from_ne_bytes(reported), 1);
        assert_eq!(cm.ask::<4>(17, &[member, [0; 4]].concat()), Err(libc::ENOENT), "it has left");
        assert_eq!(cm.destroy(id), 3);
    });
}

#[test]
fn wrong_commands_are_refused() {
    inside("wrong_commands_are_refused", &[], |_| {
        let cm = Cm::open();
        // SAFETY: plain numbers, for which zero is a value, and room for one.
        let stat = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            assert_eq!(libc::fstat(cm.0, &raw mut stat), 0);
            stat
        };
        assert_eq!(stat.st_mode & libc::S_IFMT, libc::S_IFCHR);
        let id = cm.create(1, TCP);
        let with_id = [id.to_ne_bytes(), [0; 4]].concat();
        let refused = [
            (cm.write(&[0; 7]), libc::EINVAL),
            (cm.write(&[0, 0, 0, 0, 24, 0, 4, 0]), libc::EINVAL),
            (cm.command(0, &[0; 24], 4), libc::EINVAL),
            (cm.command(99, &[], 0), libc::EINVAL),
            (cm.command(13, &[0; 24], 0), libc::ENOSYS),
            (cm.command(10, &999u32.to_ne_bytes(), 0), libc::ENOENT),
            (cm.command(10, &id.to_ne_bytes(), 0), libc::EINVAL),
            (cm.command(4, &with_id, 0), libc::EINVAL),
            (cm.command(5, &[&[0; 8][..], &with_id].concat(), 208), libc::EFAULT),
            (cm.command(5, &[&[0; 8][..], &with_id].concat(), 4), libc::ENOSPC),
        ];
        for (i, (result, error)) in refused.into_iter().enumerate() {
            assert_eq!(result, Err(error), "command {i}");
        }
        let foreign = [&[0; 8][..], &address([198, 51, 100, 7], [0, 9]), &id.to_ne_bytes()].concat();
        assert_eq!(cm.command(2, &foreign, 0), Err(libc::EADDRNOTAVAIL));
        let other = Cm::open();
        assert_eq!(other.command(4, &with_id, 0), Err(libc::EINVAL), "an identifier of another file");
        // SAFETY: takes numbers only.
        assert_eq!(unsafe { libc::fcntl(cm.0, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
        assert!(!cm.is_readable());
        assert_eq!(cm.event(), Err(libc::EAGAIN));
        cm.resolve(id, &address([127, 0, 0, 1], [0, 9]));
        // SAFETY: closes what this test has opened.
        assert_eq!(unsafe { libc::close(cm.0) }, 0);
        assert_eq!(cm.event(), Err(libc::EBADF));
    });
}

#[test]
fn infiniband_ports_have_no_addresses() {
    inside("infiniband_ports_have_no_addresses", &["--link", "ib"], |_| {
        let cm = Cm::open();
        let id = cm.create(1, TCP);
        let bind = [&[0; 8][..], &address([127, 0, 0, 1], [0, 0]), &id.to_ne_bytes()].concat();
        assert_eq!(cm.command(2, &bind, 0), Err(libc::ENODEV));
    });
}

fn bind_ip(id: u32, ip: [u8; 4], port: [u8; 2]) -> Vec<u8> {
    [&[0; 8][..], &address(ip, port), &id.to_ne_bytes()].concat()
}

impl Cm {
    /// Binds an identifier to a loopback port and listens with this backlog. Returns the port.
    fn listen(&self, id: u32, backlog: u32) -> [u8; 2] {
        self.command(2, &bind_ip(id, [127, 0, 0, 1], [0, 0]), 0).unwrap();
        let route: [u8; 208] = self.ask(5, &[id.to_ne_bytes(), [0; 4]].concat()).unwrap();
        self.command(7, &[id.to_ne_bytes(), backlog.to_ne_bytes()].concat(), 0).unwrap();
        [route[138], route[139]]
    }

    /// Requests a connection to a loopback port.
    fn connect(&self, uid: u64, port: [u8; 2]) -> u32 {
        let id = self.create(uid, TCP);
        self.resolve(id, &address([127, 0, 0, 1], port));
        let connect = [parameters(b""), [id.to_ne_bytes(), [0; 4]].concat()].concat();
        self.command(6, &connect, 0).unwrap();
        id
    }
}

#[test]
fn ports_are_bound_with_the_errors_of_linux() {
    inside("ports_are_bound_with_the_errors_of_linux", &[], |_| {
        let cm = Cm::open();
        let (first, second) = (cm.create(1, TCP), cm.create(2, TCP));
        let port = cm.listen(first, 0);
        let bind = |ip| cm.command(2, &bind_ip(second, ip, port), 0);
        assert_eq!(bind([127, 0, 0, 1]), Err(libc::EADDRINUSE), "the same address");
        assert_eq!(bind([0, 0, 0, 0]), Err(libc::EADDRNOTAVAIL), "an address that covers the other");
        assert_eq!(bind([127, 0, 0, 2]), Ok(()));
        let all = cm.create(3, TCP);
        cm.command(2, &bind_ip(all, [0; 4], [0, 0]), 0).unwrap();
        let route: [u8; 208] = cm.ask(5, &[all.to_ne_bytes(), [0; 4]].concat()).unwrap();
        let covered = bind_ip(cm.create(4, TCP), [127, 0, 0, 1], [route[138], route[139]]);
        assert_eq!(cm.command(2, &covered, 0), Err(libc::EADDRNOTAVAIL), "an address that is covered");
    });
}

#[test]
fn the_backlog_counts_requests_that_are_not_read() {
    inside("the_backlog_counts_requests_that_are_not_read", &[], |_| {
        let cm = Cm::open();
        let port = cm.listen(cm.create(1, TCP), 1);
        for uid in [2, 3] {
            cm.connect(uid, port);
            let event = cm.event().unwrap();
            assert_eq!((kind(&event), event[0]), ((4, 0), 1), "CONNECT_REQUEST for {uid}");
        }
        // A file per side, as in two programs.
        let other = Cm::open();
        other.connect(4, port);
        other.connect(5, port);
        let event = other.event().unwrap();
        assert_eq!((kind(&event), event[0]), ((8, 28), 5), "REJECTED, because a request waits already");
    });
}

#[test]
fn a_process_keeps_the_name_that_its_peers_watch() {
    inside("a_process_keeps_the_name_that_its_peers_watch", &[], |_| {
        // Concurrent tests have adapters in the same namespace.
        let own = || {
            let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            let opened = files.filter_map(|file| std::fs::read_link(file.path()).ok()).collect::<Vec<_>>();
            let sockets = std::fs::read_to_string("/proc/self/net/unix").unwrap();
            let of_adapters = sockets.lines().filter(|line| line.contains("@rushmem-rdmacm/adapter/127.64."));
            let inodes = of_adapters.filter_map(|line| line.split_whitespace().nth(6).map(str::to_owned));
            inodes
                .filter(|inode| opened.iter().any(|file| file.ends_with(format!("socket:[{inode}]"))))
                .collect::<Vec<_>>()
        };
        let cm = Cm::open();
        // The adapter is started, stopped and started again.
        let id = cm.create(1, TCP);
        cm.listen(id, 0);
        let first = own();
        cm.destroy(id);
        let port = cm.listen(cm.create(2, TCP), 0);
        // A message wakes the thread that polls the socket.
        cm.connect(3, port);
        assert_eq!(kind(&cm.event().unwrap()), (4, 0), "CONNECT_REQUEST");
        assert!(
            !first.is_empty() && first.iter().all(|inode| own().contains(inode)),
            "{first:?}, {:?}",
            own()
        );
    });
}
