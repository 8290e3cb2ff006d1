//! Support for `torchrun`, which gives each process its position in environment variables, but no secret.
//!
//! On a single node, PE 0 sends the ID to the others over a Unix socket. The kernel reports the user at either end, so
//! only processes of the same user can connect. On several nodes, all processes must be given the same token, and PE 0
//! listens at `MASTER_ADDR`.

use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::PePosition;
use crate::auth::Token;
use crate::error::Error;
use crate::id::UniqueId;
use crate::resolve::resolve;
use crate::user::{check_same_user, uid};
use rushmem_config::Config;

/// Pause between two attempts to send the ID to a process, or to receive it from PE 0.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Timeout for reading or writing the ID on a connection. It need not grow with the load of the machine: a process that
/// gets no ID in time connects again, and the ID fits into the send buffer of the new connection.
const IO_TIMEOUT: Duration = Duration::from_secs(5);

/// Position of this process and address of the job's master, from the environment variables that torchrun sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Torchrun {
    pub(crate) pe: u32,
    pub(crate) n_pes: u32,
    pub(crate) local_pe: u32,
    pub(crate) local_pes: u32,
    pub(crate) addr: String,
    pub(crate) port: u16,
    /// Run ID and restart count, which distinguish consecutive jobs on the same port.
    pub(crate) run: String,
}

impl Torchrun {
    /// Returns the position of this process, and the ID of its job. Collective.
    pub(crate) fn exchange_id(&self, config: &Config) -> Result<(PePosition, UniqueId), Error> {
        let position =
            PePosition { pe: self.pe, n_pes: self.n_pes, local: Some((self.local_pe, self.local_pes)) };
        let id = if self.local_pes == self.n_pes {
            self.exchange_on_node(config)?
        } else {
            self.id_at_master(config)?
        };
        Ok((position, id))
    }

    /// Returns the ID of a job on several nodes, derived from the address and the token that all processes know.
    fn id_at_master(&self, config: &Config) -> Result<UniqueId, Error> {
        let Some(token) = &config.token else {
            return Err(fail(format!(
                "WORLD_SIZE={} and LOCAL_WORLD_SIZE={} describe a job of several nodes, which needs a secret: export \
                 the same RUSHMEM_TOKEN (openssl rand -hex 32) on all nodes",
                self.n_pes, self.local_pes
            )));
        };
        let after =
            self.port.checked_add(1).ok_or_else(|| fail("there is no port after MASTER_PORT".into()))?;
        let port = if config.bootstrap_port == 0 { after } else { config.bootstrap_port };
        let waits = |error: &io::Error| tracing::info!("waiting for MASTER_ADDR={}: {error}", self.addr);
        let addr = resolve((self.addr.as_str(), port), config.bootstrap_timeout, waits)
            .map_err(|error| fail(format!("MASTER_ADDR={}: {error}", self.addr)))?;
        Ok(UniqueId::with_token(addr, &Token::from_hex(token.reveal())?))
    }

    /// As PE 0, creates the ID and serves it to the other PEs on a Unix socket. As another PE, receives it.
    fn exchange_on_node(&self, config: &Config) -> Result<UniqueId, Error> {
        let (name, within) = (self.socket_name(), config.bootstrap_timeout);
        if self.pe != 0 {
            return receive_id(&name, within);
        }
        let id = UniqueId::with_config(config)?;
        let listener = SocketAddr::from_abstract_name(&name).and_then(|name| UnixListener::bind_addr(&name));
        let listener = listener.map_err(|error| {
            fail(format!(
                "cannot open a socket for the other processes of MASTER_PORT={}: {error}",
                self.port
            ))
        })?;
        let others = self.n_pes - 1;
        // A thread serves the ID, since this process must go on to start the job's server.
        let thread = "rushmem-torchrun";
        let body = move || serve_id(&listener, &id, others, within);
        let spawned = std::thread::Builder::new().name(thread.into()).spawn(body);
        spawned.map_err(|source| Error::Thread { name: thread, source })?;
        Ok(id)
    }

    /// Returns the abstract name of the socket, which is unique to this user and job.
    fn socket_name(&self) -> Vec<u8> {
        let job = format!("{} {} {} {} {}", uid(), self.addr, self.port, self.n_pes, self.run);
        let digest: String = Sha256::digest(job).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("rushmem-torchrun-{digest}").into_bytes()
    }
}

fn fail(why: String) -> Error {
    Error::Exchange { by: "torchrun".into(), why }
}

/// Sends the ID to `others` processes of this user.
fn serve_id(listener: &UnixListener, id: &UniqueId, mut others: u32, within: Duration) {
    let begin = Instant::now();
    if let Err(error) = listener.set_nonblocking(true) {
        return tracing::error!("cannot send the job's id to the other processes: {error}");
    }
    while others > 0 && begin.elapsed() < within {
        let given = listener.accept().and_then(|(stream, _)| send_id(stream, id));
        match given {
            Ok(()) => others -= 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(RETRY_PAUSE),
            Err(error) => tracing::warn!("cannot send the job's id to a process: {error}"),
        }
    }
}

fn send_id(mut stream: UnixStream, id: &UniqueId) -> io::Result<()> {
    check_same_user(&stream)?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    stream.write_all(&id.to_bytes())
}

/// Receives the ID from PE 0, which may start later than this process.
fn receive_id(name: &[u8], within: Duration) -> Result<UniqueId, Error> {
    let begin = Instant::now();
    let once = || -> io::Result<[u8; UniqueId::BYTES]> {
        let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        check_same_user(&stream)?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        let mut id = [0; UniqueId::BYTES];
        stream.read_exact(&mut id)?;
        Ok(id)
    };
    loop {
        match once() {
            Ok(id) => return UniqueId::from_bytes(&id),
            Err(error)
                if begin.elapsed() + RETRY_PAUSE >= within || error.kind() == ErrorKind::PermissionDenied =>
            {
                return Err(fail(format!("PE 0 did not send the job's id within {within:?}: {error}")));
            }
            Err(_) => std::thread::sleep(RETRY_PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torchrun(pe: u32, n_pes: u32, run: &str) -> Torchrun {
        let (addr, run) = ("127.0.0.1".into(), format!("{run} {}", std::process::id()));
        Torchrun { pe, n_pes, local_pe: pe, local_pes: 3, addr, port: 29500, run }
    }

    #[test]
    fn processes_of_a_node_receive_the_id_in_any_order() {
        let config = Config::default();
        std::thread::scope(|scope| {
            let exchange = |pe| torchrun(pe, 3, "order").exchange_id(&config).unwrap();
            let (a, b) = (scope.spawn(move || exchange(2)), scope.spawn(move || exchange(1)));
            std::thread::sleep(Duration::from_millis(100));
            let (position, id) = exchange(0);
            assert_eq!(position, PePosition { pe: 0, n_pes: 3, local: Some((0, 3)) });
            assert_eq!((a.join().unwrap().1, b.join().unwrap().1), (id, id));
        });
    }

    #[test]
    fn missing_pe_0_is_an_error_at_the_deadline() {
        let mut config = Config::default();
        config.set("bootstrap_timeout", "200ms").unwrap();
        let error = torchrun(1, 3, "missed").exchange_id(&config).unwrap_err().to_string();
        assert!(error.contains("PE 0 did not send the job's id within 200ms"), "{error}");
    }

    #[test]
    fn several_nodes_need_a_token_and_use_the_next_port() {
        let mut config = Config::default();
        let error = torchrun(1, 6, "nodes").exchange_id(&config).unwrap_err().to_string();
        assert!(error.contains("RUSHMEM_TOKEN"), "{error}");
        let token = "5a".repeat(32);
        config = Config::load_from([("RUSHMEM_TOKEN".into(), token.into())]).unwrap();
        let (_, id) = torchrun(1, 6, "nodes").exchange_id(&config).unwrap();
        assert_eq!(id.addr().to_string(), "127.0.0.1:29501");
        assert_eq!(torchrun(0, 6, "nodes").exchange_id(&config).unwrap().1, id);
        config.bootstrap_port = 4000;
        assert_eq!(torchrun(0, 6, "nodes").exchange_id(&config).unwrap().1.addr().port(), 4000);
    }
}
