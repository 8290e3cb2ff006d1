//! The server of the engine, in the process of PE 0: it applies the requests of all other PEs.

use std::io::{self, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use rushmem_base::{lock, wait};
use rushmem_sanitizer::Finding;
use socket2::SockRef;

use super::client::{Frame, read};
use super::request::{Reply, Request};
use super::state::State;
use crate::bootstrap::{check_same_user, nonce};
use crate::{Error, Result};

/// The server.
#[derive(Debug)]
pub(super) struct Server {
    progress: Arc<Progress>,
    listener: Arc<UnixListener>,
    thread: Option<JoinHandle<()>>,
}

/// The progress of the job.
#[derive(Debug)]
struct Progress {
    end: Mutex<JobEnd>,
    changed: Condvar,
}

#[derive(Debug)]
struct JobEnd {
    /// The number of PEs of other processes that have not ended.
    left: u32,
    /// The findings, once they are known.
    findings: Option<Vec<Finding>>,
}

impl Server {
    /// Starts the server for `clients` PEs, and returns it with the name of its socket.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if there is no socket.
    /// - [`Error::Thread`] if the system cannot start a thread.
    /// - [`Error::Bootstrap`] if there are no random bytes.
    pub(super) fn start(state: Arc<Mutex<State>>, clients: u32) -> Result<(Self, String)> {
        let name: String = nonce()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let listener = address(&name).and_then(|address| UnixListener::bind_addr(&address));
        let listener = Arc::new(listener.map_err(no_socket)?);
        let end = JobEnd { left: clients, findings: None };
        let progress = Arc::new(Progress { end: Mutex::new(end), changed: Condvar::new() });
        let (ours, theirs) = (Arc::clone(&listener), Arc::clone(&progress));
        let run = move || accept(&ours, clients, &state, &theirs);
        let thread = thread::Builder::new().name("rushmem-sanitizer".into()).spawn(run);
        Ok((Self { progress, listener, thread: Some(thread.map_err(Error::Thread)?) }, name))
    }

    /// Waits for the end of all other PEs.
    pub(super) fn wait_for_others(&self) {
        let mut end = lock(&self.progress.end);
        while end.left > 0 {
            end = wait(&self.progress.changed, end);
        }
    }

    /// Sends the findings to all other PEs.
    pub(super) fn send_findings(&mut self, findings: Vec<Finding>) {
        self.progress.publish(findings);
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends the loop that accepts. A PE that still waits for the findings of a job without an end gets none.
        let _ = SockRef::from(&*self.listener).shutdown(std::net::Shutdown::Both);
        self.progress.publish(Vec::new());
    }
}

impl Progress {
    /// Sets the findings, unless they are known.
    fn publish(&self, findings: Vec<Finding>) {
        lock(&self.end).findings.get_or_insert(findings);
        self.changed.notify_all();
    }

    /// Waits for the findings.
    fn findings(&self) -> Vec<Finding> {
        let mut end = lock(&self.end);
        loop {
            match &end.findings {
                Some(findings) => return findings.clone(),
                None => end = wait(&self.changed, end),
            }
        }
    }
}

/// A PE of another process. It has ended once this is dropped.
struct Member<'a>(&'a Progress);

impl Drop for Member<'_> {
    fn drop(&mut self) {
        lock(&self.0.end).left -= 1;
        self.0.changed.notify_all();
    }
}

/// Returns the address of the socket with this name: an abstract name, valid in this network namespace.
fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("rushmem-sanitizer-{name}"))
}

fn no_socket(error: io::Error) -> Error {
    Error::Unavailable { what: "the sanitizer's socket".into(), why: error.to_string() }
}

/// Connects to the server of PE 0.
///
/// # Errors
/// - [`Error::Unavailable`] if it cannot be reached, or if another user owns it.
pub(super) fn connect(name: &str) -> Result<UnixStream> {
    let stream = address(name).and_then(|address| UnixStream::connect_addr(&address)).map_err(no_socket)?;
    check_same_user(&stream).map_err(no_socket)?;
    Ok(stream)
}

/// Accepts and serves `clients` PEs.
fn accept(listener: &UnixListener, clients: u32, state: &Mutex<State>, progress: &Progress) {
    thread::scope(|scope| {
        let mut left = clients;
        while left > 0
            && let Ok((stream, _)) = listener.accept()
        {
            if let Err(error) = check_same_user(&stream) {
                tracing::debug!("a client of the sanitizer was refused: {error}");
                continue;
            }
            left -= 1;
            scope.spawn(move || {
                let served = serve(stream, state, progress);
                if !matches!(served, Ok(true)) {
                    tracing::debug!("a PE is lost, says the sanitizer: {served:?}");
                    lock(state).has_failed = true;
                }
            });
        }
    });
}

/// Serves a PE until its end. Returns whether it has come to the end of the job.
fn serve(stream: UnixStream, state: &Mutex<State>, progress: &Progress) -> io::Result<bool> {
    let member = Member(progress);
    let mut from = BufReader::new(stream);
    let mut frame = Frame::new();
    while let Some(content) = read(&mut from)? {
        if content.is_empty() {
            drop(member);
            frame.add(&Reply::Findings(progress.findings()))?;
            return frame.write(from.get_mut()).map(|()| true);
        }
        let requests = serde_json::Deserializer::from_slice(&content).into_iter::<Request>();
        let requests = requests.collect::<serde_json::Result<Vec<_>>>()?;
        let mut state_now = lock(state);
        let reply = requests.into_iter().map(|request| state_now.apply(request)).last();
        drop(state_now);
        frame.add(&reply.unwrap_or(Reply::Applied))?;
        frame.write(from.get_mut())?;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use rushmem_sanitizer::{Actor, Call, MeetingId, Site, Span};

    use super::super::client::Client;
    use super::super::link::Link;
    use super::*;

    /// Returns the state of a job of two PEs, its server, and the link of PE 1.
    fn job() -> (Arc<Mutex<State>>, Server, Link) {
        let state = Arc::new(Mutex::new(State::new(2)));
        let (server, name) = Server::start(Arc::clone(&state), 1).unwrap();
        (state, server, Link::There(Client::new(connect(&name).unwrap())))
    }

    fn end(link: &Link) -> Vec<Finding> {
        match link {
            Link::There(client) => client.end(),
            Link::Here(_) => panic!("the engine is here"),
        }
    }

    #[test]
    fn private_requests_travel_with_the_next_one_that_others_see() {
        let (state, mut server, link) = job();
        let (first, second) = (Link::Here(Arc::clone(&state)).host(0).unwrap(), link.host(1).unwrap());
        let call = |line| Call { name: "load", site: Site { file: "test.rs", line } };
        let span = Span::heap(0, 64, 8);
        link.tell(Request::Load { actor: second, span, call: call(1) });
        lock(&state).apply(Request::Store { actor: first, span, call: call(2) });
        assert_eq!(lock(&state).engine.race_count(), 0, "the load waits");
        link.tell(Request::Arrive { actor: second, meeting: MeetingId(0), member: 1 });
        assert_eq!(lock(&state).engine.race_count(), 1);
        let (missing, others) = (link.missing(MeetingId(0), 1), Link::Here(Arc::clone(&state)));
        assert_eq!((missing, others.missing(MeetingId(0), 0)), (vec![0], vec![0]));
        let forked = link.fork(second, vec![Actor::Stream { pe: 1, stream: 0 }; 3]);
        assert_eq!(forked.len(), 3);
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| end(&link));
            server.wait_for_others();
            let findings = lock(&state).take_findings();
            server.send_findings(findings.clone());
            assert_eq!((ended.join().unwrap(), findings.len()), (findings, 1));
        });
        assert!(!lock(&state).has_failed);
    }

    #[test]
    fn a_lost_pe_fails_the_job() {
        let (state, mut server, link) = job();
        link.host(1).unwrap();
        drop(link);
        server.wait_for_others();
        server.send_findings(Vec::new());
        assert!(lock(&state).has_failed);
    }

    #[test]
    fn a_lost_engine_gives_harmless_answers() {
        let (state, server, link) = job();
        let host = link.host(1).unwrap();
        drop(server);
        assert_eq!(end(&link), []);
        assert_eq!(link.host(1), None);
        assert_eq!(link.fork(host, vec![Actor::Stream { pe: 1, stream: 0 }]), [host]);
        link.tell(Request::JobFailed);
        assert!(!lock(&state).has_failed);
    }
}
