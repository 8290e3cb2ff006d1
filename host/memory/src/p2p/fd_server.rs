//! Sends the file descriptor of a PE's heap to other processes of the job over a Unix socket. Both sides prove that
//! they know the job's token.
//!
//! ```text
//! owner  -- nonce -->            user
//!        <-- nonce, proof --
//!        -- proof, the file -->
//! ```

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rushmem_base::crowd_deadline;
use rushmem_bootstrap::wire::PROOF_BYTES;
use rushmem_bootstrap::{Role, Token, check_same_user, nonce};
use rushmem_error::{Error, Result};
use rushmem_observe::descriptor;
use socket2::SockRef;

/// Time limit for serving one client, on a node with few PEs.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that sends the file descriptor of a heap to processes of this node, until it is dropped.
pub(super) struct FdServer {
    listener: Arc<UnixListener>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the socket address for `name`: an abstract name, which is valid within a network namespace.
fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("rushmem-{name}"))
}

impl FdServer {
    /// Starts to serve `file` under `name`, on a node with `pes` PEs.
    ///
    /// # Errors
    /// Fails if the operating system refuses the socket or the thread.
    pub(super) fn open(name: &str, file: Arc<OwnedFd>, token: Token, pes: u32) -> Result<Self> {
        let listener = address(name).and_then(|address| UnixListener::bind_addr(&address));
        let listener = Arc::new(listener.map_err(|error| Error::Unavailable {
            what: "a socket for this node's PEs".into(),
            why: format!("{error}; set RUSHMEM_PEER_PATH=auto"),
        })?);
        let ours = Arc::clone(&listener);
        let within = crowd_deadline(CLIENT_TIMEOUT, pes);
        let run = move || {
            std::thread::scope(|scope| {
                // `drop` shuts the socket down, which makes `accept` fail.
                while let Ok((stream, _)) = ours.accept() {
                    // Other users do not even get a thread, so their idle connections cost nothing.
                    if let Err(error) = check_same_user(&stream) {
                        tracing::debug!("a client of the heap's file was refused: {error}");
                        continue;
                    }
                    let (file, token) = (&file, &token);
                    // One thread per client: a slow one must not block the others.
                    let body = move || {
                        if let Err(error) = serve(stream, file, token, within) {
                            tracing::warn!("a client did not receive the heap's file: {error}");
                        }
                    };
                    if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, body) {
                        tracing::warn!("cannot serve a client of the heap's file: {error}");
                    }
                }
            });
        };
        let thread =
            std::thread::Builder::new().name("rushmem-fd_server".into()).spawn(run).map_err(Error::Thread)?;
        Ok(Self { listener, thread: Some(thread) })
    }
}

impl Drop for FdServer {
    fn drop(&mut self) {
        // Wakes the thread from `accept`.
        if let Err(error) = SockRef::from(&*self.listener).shutdown(std::net::Shutdown::Both) {
            tracing::warn!("a socket cannot be closed: {error}");
            return;
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

fn prepare(stream: &UnixStream, within: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))
}

fn random() -> io::Result<[u8; PROOF_BYTES]> {
    nonce().map_err(|error| io::Error::other(error.to_string()))
}

fn unknown_peer() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it does not know the job's token")
}

fn serve(mut stream: UnixStream, file: &OwnedFd, token: &Token, within: Duration) -> io::Result<()> {
    prepare(&stream, within)?;
    let ours = random()?;
    stream.write_all(&ours)?;
    let (mut theirs, mut proof) = ([0; PROOF_BYTES], [0; PROOF_BYTES]);
    stream.read_exact(&mut theirs)?;
    stream.read_exact(&mut proof)?;
    if !token.verify(Role::HeapUser, &ours, &theirs, &proof) {
        return Err(unknown_peer());
    }
    descriptor::send(&stream, &token.proof(Role::HeapOwner, &ours, &theirs), file)
}

/// Receives the file descriptor that another process serves under `name`.
///
/// # Errors
/// An error if no server answers within `within`, or if the server does not know the token.
pub(super) fn fetch(name: &str, token: &Token, within: Duration) -> io::Result<OwnedFd> {
    let mut stream = UnixStream::connect_addr(&address(name)?)?;
    prepare(&stream, within)?;
    let mut theirs = [0; PROOF_BYTES];
    stream.read_exact(&mut theirs)?;
    let ours = random()?;
    let proof = token.proof(Role::HeapUser, &theirs, &ours);
    stream.write_all(&[ours, proof].concat())?;

    let (proof, file) = match descriptor::receive(&stream) {
        // The server closes the connection if the client does not know the token.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(unknown_peer()),
        other => other?,
    };
    if !token.verify(Role::HeapOwner, &theirs, &ours, &proof) {
        return Err(unknown_peer());
    }
    file.ok_or_else(|| io::Error::other("the answer carried no file; see `ulimit -n`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;

    const WITHIN: Duration = Duration::from_secs(20);

    fn name(what: &str) -> String {
        format!("{what}-{}", std::process::id())
    }

    fn a_file() -> Arc<OwnedFd> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"a heap").unwrap();
        Arc::new(file.into())
    }

    #[test]
    fn clients_with_the_token_receive_the_file() {
        let token = Token::generate().unwrap();
        let name = name("friend");
        let fd_server = FdServer::open(&name, a_file(), token.clone(), 2).unwrap();
        for _ in 0..3 {
            let mut file = std::fs::File::from(fetch(&name, &token, WITHIN).unwrap());
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "a heap");
        }
        drop(fd_server);
        assert!(fetch(&name, &token, WITHIN).is_err());
    }

    #[test]
    fn client_without_the_token_is_refused_and_blocks_no_one() {
        let token = Token::generate().unwrap();
        let name = name("unknown_peer");
        let fd_server = FdServer::open(&name, a_file(), token.clone(), 2).unwrap();
        let silent = UnixStream::connect_addr(&address(&name).unwrap()).unwrap();
        assert!(fetch(&name, &Token::generate().unwrap(), WITHIN).is_err());
        fetch(&name, &token, WITHIN).unwrap();
        drop(silent);
        drop(fd_server);
    }

    #[test]
    fn rejects_a_server_without_the_token() {
        let name = name("false");
        let listener = UnixListener::bind_addr(&address(&name).unwrap()).unwrap();
        let owner = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&[7; PROOF_BYTES]).unwrap();
            stream.read_exact(&mut [0; 2 * PROOF_BYTES]).unwrap();
            descriptor::send(&stream, &[7; PROOF_BYTES], &a_file()).unwrap();
        });
        let error = fetch(&name, &Token::generate().unwrap(), WITHIN).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        owner.join().unwrap();
    }

    #[test]
    fn fetch_times_out_if_the_server_never_answers() {
        let name = name("never");
        let _listener = UnixListener::bind_addr(&address(&name).unwrap()).unwrap();
        let token = Token::generate().unwrap();
        assert!(fetch(&name, &token, Duration::from_millis(100)).is_err());
    }
}
