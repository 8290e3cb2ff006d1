//! The server side of vfio-user, the protocol by which QEMU and other virtual machine monitors use devices of another
//! process.
//!
//! Each message is answered before the next one is read. QEMU does not wait for the answers to its writes.

mod interrupts;
mod message;
mod session;
mod socket;

use crate::config_space::Identity;
use crate::function::Count;
use rushmem_mlx5::prm::CmdOpcode;
use rushmem_softnic::Nic;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a virtual machine cannot be served any further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket cannot be created.
    #[error("cannot create the socket {path}: {source}")]
    Bind {
        /// Path of the socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No connection can be accepted.
    #[error("cannot accept a connection: {0}")]
    Accept(io::Error),
    /// The connection fails.
    #[error("the connection fails: {0}")]
    Socket(#[from] Errno),
    /// The client breaks the protocol.
    #[error("the client breaks the protocol: {0}")]
    Message(&'static str),
}

/// A socket at which one virtual machine at a time can attach a PCI function.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Creates the socket. A socket at which nobody listens any more is replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Bind`]: for example, the file exists.
    pub fn bind(path: &Path) -> Result<Server, Error> {
        let bound = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
                std::fs::remove_file(path).and_then(|()| UnixListener::bind(path))
            }
            bound => bound,
        };
        let listener = bound.map_err(|source| Error::Bind { path: path.into(), source })?;
        Ok(Server { listener, path: path.into() })
    }

    /// Serves a function of `nic` to the next virtual machine, until that disconnects. Returns how often each command
    /// was executed and refused.
    ///
    /// # Errors
    ///
    /// - [`Error::Accept`]
    /// - [`Error::Socket`], [`Error::Message`]: the connection failed.
    pub fn serve(&self, nic: &Arc<Nic>, identity: Identity) -> Result<BTreeMap<CmdOpcode, Count>, Error> {
        let (socket, _) = self.listener.accept().map_err(Error::Accept)?;
        session::Session::new(Arc::clone(nic), identity, Arc::default()).run(&socket)
    }
}

/// Whether there is a socket at `path` at which nobody listens.
fn is_stale(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves a client that sends `data` and then disconnects.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn hostile_client(nic: &Arc<Nic>, identity: Identity, data: &[u8]) {
    use std::io::{Read, Write};
    use std::net::Shutdown;

    let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The server may have hung up.
            let _ = client.write_all(data).and_then(|()| client.shutdown(Shutdown::Write));
            let _ = client.read_to_end(&mut Vec::new());
        });
        // Any outcome is acceptable.
        let _ = session::Session::new(Arc::clone(nic), identity, Arc::default()).run(&server);
        drop(server);
    });
}

#[cfg(test)]
pub(crate) use tests::valid_messages;

#[cfg(test)]
mod tests;
