//! `torchrun`: it tells each process its place in variables, and gives it no secret.
//!
//! On one machine, PE 0 hands the id to the others over a Unix socket, whose both ends the kernel vouches for: only
//! processes of the same user meet. On several, all must have the same token, and PE 0 listens at `MASTER_ADDR`.
#![allow(unsafe_code, reason = "asks the system for the user of a socket")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::ToSocketAddrs;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::PePosition;
use crate::auth::Token;
use crate::error::Error;
use crate::id::UniqueId;
use rushmem_config::Config;

/// Pause between two attempts.
const RETRY: Duration = Duration::from_millis(10);

/// How long one connection may take to say a few bytes.
const MOMENT: Duration = Duration::from_secs(5);

/// What the variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Torchrun {
    pub(crate) pe: u32,
    pub(crate) n_pes: u32,
    pub(crate) local_pe: u32,
    pub(crate) local_pes: u32,
    pub(crate) addr: String,
    pub(crate) port: u16,
    /// Run and restart, which tell two jobs apart that follow each other on the same port.
    pub(crate) run: String,
}

impl Torchrun {
    /// This process's place, and the job's id.
    pub(crate) fn meet(&self, config: &Config) -> Result<(PePosition, UniqueId), Error> {
        let place =
            PePosition { pe: self.pe, n_pes: self.n_pes, local: Some((self.local_pe, self.local_pes)) };
        let id = if self.local_pes == self.n_pes { self.meet_here(config)? } else { self.meet_afar(config)? };
        Ok((place, id))
    }

    /// By an address and a secret that all have.
    fn meet_afar(&self, config: &Config) -> Result<UniqueId, Error> {
        let Some(token) = &config.token else {
            return Err(fail(format!(
                "WORLD_SIZE={} and LOCAL_WORLD_SIZE={} make a job of several nodes, which needs a secret: export the \
                 same RUSHMEM_TOKEN (openssl rand -hex 32) on all of them",
                self.n_pes, self.local_pes
            )));
        };
        let after =
            self.port.checked_add(1).ok_or_else(|| fail("there is no port after MASTER_PORT".into()))?;
        let port = if config.bootstrap_port == 0 { after } else { config.bootstrap_port };
        let bad = |why: String| fail(format!("MASTER_ADDR={}: {why}", self.addr));
        let mut addrs =
            (self.addr.as_str(), port).to_socket_addrs().map_err(|error| bad(error.to_string()))?;
        let addr = addrs.next().ok_or_else(|| bad("it has no address".into()))?;
        Ok(UniqueId::with_token(addr, &Token::from_hex(token.reveal())?))
    }

    /// By a Unix socket.
    fn meet_here(&self, config: &Config) -> Result<UniqueId, Error> {
        let (name, within) = (self.name(), config.bootstrap_timeout);
        if self.pe != 0 {
            return ask(&name, within);
        }
        let id = UniqueId::with_config(config)?;
        let listener = SocketAddr::from_abstract_name(&name).and_then(|name| UnixListener::bind_addr(&name));
        let listener = listener.map_err(|error| {
            fail(format!("cannot meet the other processes of MASTER_PORT={} here: {error}", self.port))
        })?;
        let others = self.n_pes - 1;
        // Beside the job's server, which the others come to when they know the id.
        let thread = "rushmem-torchrun";
        let body = move || hand_out(&listener, &id, others, within);
        let spawned = std::thread::Builder::new().name(thread.into()).spawn(body);
        spawned.map_err(|source| Error::Thread { name: thread, source })?;
        Ok(id)
    }

    /// The socket's name: that of this user's job.
    fn name(&self) -> Vec<u8> {
        let job = format!("{} {} {} {} {}", uid(), self.addr, self.port, self.n_pes, self.run);
        let digest: String = Sha256::digest(job).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("rushmem-torchrun-{digest}").into_bytes()
    }
}

fn fail(why: String) -> Error {
    Error::Exchange { by: "torchrun".into(), why }
}

/// Gives the id to so many processes of this user.
fn hand_out(listener: &UnixListener, id: &UniqueId, mut others: u32, within: Duration) {
    let begin = Instant::now();
    if let Err(error) = listener.set_nonblocking(true) {
        return tracing::error!("the job's id cannot be given to other processes: {error}");
    }
    while others > 0 && begin.elapsed() < within {
        let given = listener.accept().and_then(|(stream, _)| give(stream, id));
        match given {
            Ok(()) => others -= 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(RETRY),
            Err(error) => tracing::warn!("a process did not take the job's id: {error}"),
        }
    }
}

fn give(mut stream: UnixStream, id: &UniqueId) -> io::Result<()> {
    same_user(&stream)?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(MOMENT))?;
    stream.write_all(&id.to_bytes())
}

/// Gets the id from PE 0, which may come later.
fn ask(name: &[u8], within: Duration) -> Result<UniqueId, Error> {
    let begin = Instant::now();
    let once = || -> io::Result<[u8; UniqueId::BYTES]> {
        let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        same_user(&stream)?;
        stream.set_read_timeout(Some(MOMENT))?;
        let mut id = [0; UniqueId::BYTES];
        stream.read_exact(&mut id)?;
        Ok(id)
    };
    loop {
        match once() {
            Ok(id) => return UniqueId::from_bytes(&id),
            Err(error)
                if begin.elapsed() + RETRY >= within || error.kind() == ErrorKind::PermissionDenied =>
            {
                return Err(fail(format!("PE 0 did not give the job's id within {within:?}: {error}")));
            }
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// Whether the other end is a process of the same user, as the kernel says.
fn same_user(stream: &UnixStream) -> io::Result<()> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, whose size is told.
    let asked = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut len,
        )
    };
    match asked {
        0 if peer.uid == uid() => Ok(()),
        0 => {
            let why = format!("process {} of user {} is at its other end", peer.pid, peer.uid);
            Err(io::Error::new(ErrorKind::PermissionDenied, why))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn uid() -> u32 {
    // SAFETY: has no preconditions.
    unsafe { libc::getuid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torchrun(pe: u32, n_pes: u32, run: &str) -> Torchrun {
        let (addr, run) = ("127.0.0.1".into(), format!("{run} {}", std::process::id()));
        Torchrun { pe, n_pes, local_pe: pe, local_pes: 3, addr, port: 29500, run }
    }

    #[test]
    fn processes_of_a_machine_learn_the_id_in_any_order() {
        let config = Config::default();
        std::thread::scope(|scope| {
            let meet = |pe| torchrun(pe, 3, "order").meet(&config).unwrap();
            let (a, b) = (scope.spawn(move || meet(2)), scope.spawn(move || meet(1)));
            std::thread::sleep(Duration::from_millis(100));
            let (place, id) = meet(0);
            assert_eq!(place, PePosition { pe: 0, n_pes: 3, local: Some((0, 3)) });
            assert_eq!((a.join().unwrap().1, b.join().unwrap().1), (id, id));
        });
    }

    #[test]
    fn a_pe_0_that_does_not_come_is_missed() {
        let mut config = Config::default();
        config.set("bootstrap_timeout", "200ms").unwrap();
        let error = torchrun(1, 3, "missed").meet(&config).unwrap_err().to_string();
        assert!(error.contains("PE 0 did not give the job's id within 200ms"), "{error}");
    }

    #[test]
    fn several_nodes_need_a_secret_and_meet_beside_the_master() {
        let mut config = Config::default();
        let error = torchrun(1, 6, "nodes").meet(&config).unwrap_err().to_string();
        assert!(error.contains("RUSHMEM_TOKEN"), "{error}");
        let token = "5a".repeat(32);
        config = Config::load_from([("RUSHMEM_TOKEN".into(), token.into())]).unwrap();
        let (_, id) = torchrun(1, 6, "nodes").meet(&config).unwrap();
        assert_eq!(id.addr().to_string(), "127.0.0.1:29501");
        assert_eq!(torchrun(0, 6, "nodes").meet(&config).unwrap().1, id);
        config.bootstrap_port = 4000;
        assert_eq!(torchrun(0, 6, "nodes").meet(&config).unwrap().1.addr().port(), 4000);
    }
}
