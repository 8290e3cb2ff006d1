//! Sends the file descriptors of a PE's heap or other memory to other processes of the job over a Unix socket. Both
//! sides prove that they know the job's token.
//!
//! ```text
//! owner  -- nonce -->                 user
//!        <-- nonce, proof --
//!        -- proof, first file -->
//!        -- a byte, next file --> ...
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

/// Sent with each file after the first.
const NEXT_FILE: [u8; 1] = [0];

/// Time until the server accepts clients again after an error.
const RETRY: Duration = Duration::from_millis(10);

/// A server that sends the file descriptors of some memory to processes of this node, until it is dropped.
pub(super) struct FdServer {
    listener: Arc<UnixListener>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the socket address for `name`: an abstract name, which is valid within a network namespace.
fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("rushmem-{name}"))
}

impl FdServer {
    /// Starts to serve `files` under `name`, on a node with `pes` PEs.
    ///
    /// # Errors
    /// Fails if the operating system refuses the socket or the thread.
    pub(super) fn open(name: &str, files: Vec<Arc<OwnedFd>>, token: Token, pes: u32) -> Result<Self> {
        let listener = address(name).and_then(|address| UnixListener::bind_addr(&address));
        let listener = Arc::new(listener.map_err(|error| Error::Unavailable {
            what: "a socket for this node's PEs".into(),
            why: format!("{error}; set RUSHMEM_PEER_PATH=auto"),
        })?);
        let ours = Arc::clone(&listener);
        let within = crowd_deadline(CLIENT_TIMEOUT, pes);
        let run = move || accept_clients(&ours, &files, &token, within);
        let thread =
            std::thread::Builder::new().name("rushmem-fd_server".into()).spawn(run).map_err(Error::Thread)?;
        Ok(Self { listener, thread: Some(thread) })
    }
}

/// Serves each client until `listener` is shut down, and waits for those that are being served.
fn accept_clients(listener: &UnixListener, files: &[Arc<OwnedFd>], token: &Token, within: Duration) {
    std::thread::scope(|scope| {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(error) => {
                    // A client may have left, or this process may have too many open files for now.
                    tracing::debug!("a client of the heap's file cannot connect yet: {error}");
                    std::thread::sleep(RETRY);
                    continue;
                }
            };
            // Other users do not even get a thread, so their idle connections cost nothing.
            if let Err(error) = check_same_user(&stream) {
                tracing::debug!("a client of the heap's file was refused: {error}");
                continue;
            }
            // One thread per client: a slow one must not block the others.
            let body = move || {
                if let Err(error) = serve(stream, files, token, within) {
                    tracing::warn!("a client did not receive the heap's file: {error}");
                }
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, body) {
                tracing::warn!("cannot serve a client of the heap's file: {error}");
            }
        }
    });
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

fn serve(mut stream: UnixStream, files: &[Arc<OwnedFd>], token: &Token, within: Duration) -> io::Result<()> {
    prepare(&stream, within)?;
    let ours = random()?;
    stream.write_all(&ours)?;
    let (mut theirs, mut proof) = ([0; PROOF_BYTES], [0; PROOF_BYTES]);
    stream.read_exact(&mut theirs)?;
    stream.read_exact(&mut proof)?;
    if !token.verify(Role::HeapUser, &ours, &theirs, &proof) {
        return Err(unknown_peer());
    }
    let proof = token.proof(Role::HeapOwner, &ours, &theirs);
    let mut bytes = &proof[..];
    for file in files {
        descriptor::send(&stream, bytes, file)?;
        bytes = &NEXT_FILE;
    }
    Ok(())
}

/// Receives the `count` file descriptors, at least one, that another process serves under `name`.
///
/// # Errors
/// An error if no server answers within `within`, or if the server does not know the token.
pub(super) fn fetch(
    name: &str,
    count: usize,
    token: &Token,
    within: Duration,
) -> io::Result<Vec<Arc<OwnedFd>>> {
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
    let received = |file: Option<OwnedFd>| {
        let file = file.ok_or_else(|| io::Error::other("the answer carried no file; see `ulimit -n`"))?;
        Ok::<_, io::Error>(Arc::new(file))
    };
    let mut files = vec![received(file)?];
    for _ in 1..count {
        let (NEXT_FILE, file) = descriptor::receive(&stream)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        files.push(received(file)?);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;

    const WITHIN: Duration = Duration::from_secs(20);

    fn name(what: &str) -> String {
        format!("{what}-{}", std::process::id())
    }

    fn a_file(text: &str) -> Arc<OwnedFd> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Arc::new(file.into())
    }

    fn text_of(file: &OwnedFd) -> String {
        let mut file = std::fs::File::from(file.try_clone().unwrap());
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn clients_with_the_token_receive_the_files() {
        let token = Token::generate().unwrap();
        let name = name("friend");
        let files = ["a heap", "a page", "another"];
        let fd_server = FdServer::open(&name, files.map(a_file).to_vec(), token.clone(), 2).unwrap();
        for count in 1..=3 {
            let found = fetch(&name, count, &token, WITHIN).unwrap();
            let found: Vec<_> = found.iter().map(|file| text_of(file)).collect();
            assert_eq!(found, files[..count]);
        }
        assert!(fetch(&name, 4, &token, WITHIN).is_err());
        drop(fd_server);
        assert!(fetch(&name, 1, &token, WITHIN).is_err());
    }

    #[test]
    fn client_without_the_token_is_refused_and_blocks_no_one() {
        let token = Token::generate().unwrap();
        let name = name("unknown_peer");
        let fd_server = FdServer::open(&name, vec![a_file("a heap")], token.clone(), 2).unwrap();
        let silent = UnixStream::connect_addr(&address(&name).unwrap()).unwrap();
        assert!(fetch(&name, 1, &Token::generate().unwrap(), WITHIN).is_err());
        fetch(&name, 1, &token, WITHIN).unwrap();
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
            descriptor::send(&stream, &[7; PROOF_BYTES], &a_file("a heap")).unwrap();
        });
        let error = fetch(&name, 1, &Token::generate().unwrap(), WITHIN).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        owner.join().unwrap();
    }

    #[test]
    fn fetch_times_out_if_the_server_never_answers() {
        let name = name("never");
        let _listener = UnixListener::bind_addr(&address(&name).unwrap()).unwrap();
        let token = Token::generate().unwrap();
        assert!(fetch(&name, 1, &token, Duration::from_millis(100)).is_err());
    }
}
