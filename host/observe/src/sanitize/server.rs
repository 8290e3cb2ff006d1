//! The server in the process of PE 0 that applies the requests of all PEs to the sanitizer engine.

use std::io::{self, PipeWriter, Read};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use rushmem_base::{lock, wait};
use rushmem_bootstrap::{check_same_user, nonce};
use rushmem_error::{Error, Result};
use rushmem_sanitizer::{Finding, JobState, Reply, Wire};
use socket2::SockRef;

use super::client::{Client, write};
use super::queue::{Kind, Part, Receiver, Sender};
use crate::descriptor;

/// Owns the engine's thread and the listening socket for other processes of the job.
#[derive(Debug)]
pub(super) struct Server {
    members: Arc<Members>,
    listener: Arc<UnixListener>,
    queue: Sender,
    engine: Option<JoinHandle<()>>,
}

/// The connected PEs, in the order of their connections and starting with PE 0.
#[derive(Debug)]
struct Members {
    /// For each PE, the socket on which the engine replies to it.
    replies: Mutex<Vec<Arc<UnixStream>>>,
    /// Number of PEs that may still send requests.
    left: Mutex<u32>,
    changed: Condvar,
}

impl Server {
    /// Starts the server for `n_pes` PEs. Returns it together with the name of its socket and a client for PE 0.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if no socket or pipe can be created.
    /// - [`Error::Thread`] if a thread cannot be started.
    /// - [`Error::Bootstrap`] if the system provides no random bytes.
    pub(super) fn start(state: Arc<Mutex<JobState>>, n_pes: u32) -> Result<(Self, String, Client)> {
        let name: String = nonce()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let listener = address(&name).and_then(|address| UnixListener::bind_addr(&address));
        let listener = Arc::new(listener.map_err(no_socket)?);
        let (reader, pipe) = io::pipe().map_err(no_socket)?;
        let (to_first, first) = UnixStream::pair().map_err(no_socket)?;
        let [ours, theirs] = [pipe.try_clone(), pipe.try_clone()].map(|pipe| pipe.map_err(no_socket));
        let (queue, client) = (Sender::new(0, ours?), Client::new(Sender::new(0, theirs?), first));
        let members = Arc::new(Members {
            replies: Mutex::new(vec![Arc::new(to_first)]),
            left: Mutex::new(n_pes),
            changed: Condvar::new(),
        });
        let named = |name: &str| thread::Builder::new().name(name.into());
        let serving = Serving::new(state, Arc::clone(&members), n_pes);
        let run = move || serving.run(Receiver::new(reader));
        let engine = named("rushmem-sanitizer").spawn(run).map_err(Error::Thread)?;
        let server = Self { members, listener, queue, engine: Some(engine) };
        let (listener, members) = (Arc::clone(&server.listener), Arc::clone(&server.members));
        let run = move || accept(&listener, n_pes, &members, &pipe);
        named("rushmem-sanitizer-accept").spawn(run).map_err(Error::Thread)?;
        Ok((server, name, client))
    }

    /// Waits until no PE will send requests, and joins the engine's thread. Resumes a panic of that thread.
    pub(super) fn wait_for_all(&mut self) {
        let mut left = lock(&self.members.left);
        while *left > 0 {
            left = wait(&self.members.changed, left);
        }
        drop(left);
        if let Some(engine) = self.engine.take()
            && let Err(panic) = engine.join()
        {
            std::panic::resume_unwind(panic);
        }
    }

    /// Sends the findings of the job to all PEs except PE 0.
    pub(super) fn send_findings(&self, findings: Vec<Finding>) {
        let reply = Reply::Findings(findings);
        for replies in lock(&self.members.replies).iter().skip(1) {
            if let Err(error) = write(&reply, replies) {
                tracing::debug!("a PE does not get the findings of the sanitizer: {error}");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Stop the engine first, since it would take a closed connection for a lost PE.
        let _ = self.queue.send(Kind::Stop, &[]);
        // Stops the accept loop. A PE that still waits for the findings of an unfinished job gets none.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
        self.members.disconnect_all();
    }
}

impl Members {
    fn reply(&self, number: u32, reply: &Reply) -> io::Result<()> {
        lock(&self.replies).get(number as usize).map_or(Ok(()), |to| write(reply, to))
    }

    fn disconnect(&self, number: u32) {
        lock(&self.replies).get(number as usize).map(|replies| replies.shutdown(Shutdown::Both));
    }

    fn disconnect_all(&self) {
        lock(&self.replies).iter().for_each(|replies| drop(replies.shutdown(Shutdown::Both)));
    }
}

/// Returns the address of the server's socket, in the abstract namespace of Unix sockets.
fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("rushmem-sanitizer-{name}"))
}

fn no_socket(error: io::Error) -> Error {
    Error::Unavailable { what: "the sanitizer's socket".into(), why: error.to_string() }
}

/// Connects a PE to the sanitizer server in the process of PE 0.
///
/// # Errors
/// - [`Error::Unavailable`] if the server cannot be reached, or belongs to another user.
pub(super) fn connect(name: &str) -> Result<Client> {
    let connect = || {
        let stream = UnixStream::connect_addr(&address(name)?)?;
        check_same_user(&stream)?;
        let (number, pipe) = descriptor::receive(&stream)?;
        let pipe = pipe.ok_or_else(|| io::Error::other("the answer carried no pipe; see `ulimit -n`"))?;
        Ok(Client::new(Sender::new(u32::from_le_bytes(number), pipe.into()), stream))
    };
    connect().map_err(no_socket)
}

/// Accepts connections of all PEs except PE 0, and watches each of them until it is closed.
fn accept(listener: &UnixListener, n_pes: u32, members: &Members, pipe: &PipeWriter) {
    thread::scope(|scope| {
        let mut number = 1;
        while number < n_pes
            && let Ok((stream, _)) = listener.accept()
        {
            match admit(stream, number, members, pipe) {
                Ok((stream, queue)) => {
                    scope.spawn(move || watch(&stream, queue));
                    number += 1;
                }
                Err(error) => tracing::debug!("a client of the sanitizer was refused: {error}"),
            }
        }
    });
}

/// Admits a connected process as the next PE, and sends it its index and the writing end of the pipe.
fn admit(
    stream: UnixStream,
    number: u32,
    members: &Members,
    pipe: &PipeWriter,
) -> io::Result<(Arc<UnixStream>, Sender)> {
    check_same_user(&stream)?;
    let (stream, queue) = (Arc::new(stream), Sender::new(number, pipe.try_clone()?));
    let mut replies = lock(&members.replies);
    descriptor::send(&stream, &number.to_le_bytes(), pipe)?;
    replies.push(Arc::clone(&stream));
    Ok((stream, queue))
}

/// Waits until the connection of a PE is closed, and sends [`Kind::Lost`] on its behalf.
fn watch(mut stream: &UnixStream, mut queue: Sender) {
    let _ = stream.read(&mut [0]);
    // The engine stops reading once all PEs have finished.
    let _ = queue.send(Kind::Lost, &[]);
}

#[derive(Debug, Default)]
struct Member {
    /// The parts received so far of an incomplete message.
    message: Vec<u8>,
    wire: Wire,
    has_ended: bool,
}

/// State of the thread that applies requests to the engine.
struct Serving {
    state: Arc<Mutex<JobState>>,
    shared: Arc<Members>,
    members: Vec<Member>,
    is_stopped: bool,
}

impl Serving {
    fn new(state: Arc<Mutex<JobState>>, shared: Arc<Members>, n_pes: u32) -> Self {
        let members = (0..n_pes).map(|_| Member::default()).collect();
        Self { state, shared, members, is_stopped: false }
    }

    /// Applies requests until all PEs have finished, the engine is stopped, or the pipe is closed.
    fn run(mut self, mut queue: Receiver) {
        let state = Arc::clone(&self.state);
        while !self.is_stopped && *lock(&self.shared.left) > 0 {
            match queue.wait() {
                Ok(true) => {
                    let mut state = lock(&state);
                    queue.take(|part| self.take(&mut state, &part));
                }
                other => {
                    tracing::debug!("the sanitizer has lost all PEs: {other:?}");
                    return;
                }
            }
        }
    }

    fn take(&mut self, state: &mut JobState, part: &Part<'_>) {
        if self.is_stopped {
            return;
        }
        let Some(member) = self.members.get_mut(part.sender as usize) else { return };
        member.message.extend_from_slice(part.content);
        let result = match part.kind {
            Kind::Part => return,
            Kind::Stop => {
                self.is_stopped = true;
                return;
            }
            Kind::Tell => member.apply(state).map(drop),
            Kind::Ask => member.apply(state).and_then(|reply| self.shared.reply(part.sender, &reply)),
            Kind::End => {
                self.end(part.sender);
                return;
            }
            Kind::Lost => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        if let Err(error) = result
            && self.end(part.sender)
        {
            tracing::debug!("a PE is lost, says the sanitizer: {error}");
            state.has_failed = true;
            self.shared.disconnect(part.sender);
        }
    }

    /// Marks a PE as finished. Returns `false` if it already was.
    fn end(&mut self, number: u32) -> bool {
        let Some(member) = self.members.get_mut(number as usize) else { return false };
        if std::mem::replace(&mut member.has_ended, true) {
            return false;
        }
        *lock(&self.shared.left) -= 1;
        self.shared.changed.notify_all();
        true
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // After a panic, no replies will be sent.
        if thread::panicking() {
            self.shared.disconnect_all();
        }
        *lock(&self.shared.left) = 0;
        self.shared.changed.notify_all();
    }
}

impl Member {
    /// Applies all requests of a complete message, and returns the reply to the last of them.
    fn apply(&mut self, state: &mut JobState) -> io::Result<Reply> {
        let reply = state.apply_message(&mut self.wire, &self.message).map_err(io::Error::other);
        self.message.clear();
        reply
    }
}

#[cfg(test)]
mod tests {
    use rushmem_sanitizer::{Actor, Call, MeetingId, Request, Site, Span};

    use super::super::link::Link;
    use super::*;

    struct TestJob {
        state: Arc<Mutex<JobState>>,
        server: Server,
        links: [Link; 2],
    }

    fn job() -> TestJob {
        let state = Arc::new(Mutex::new(JobState::new(2)));
        let (server, name, first) = Server::start(Arc::clone(&state), 2).unwrap();
        let links = [Link::there(first, 0, 2), Link::there(connect(&name).unwrap(), 1, 2)];
        TestJob { state, server, links }
    }

    fn races(link: &Link, state: &Mutex<JobState>) -> usize {
        // A reply arrives after all earlier requests have been applied.
        link.host(0).unwrap();
        lock(state).engine.race_count()
    }

    #[test]
    fn private_requests_travel_with_the_next_one_that_others_see() {
        let TestJob { state, mut server, links: [first, second] } = job();
        let [one, other] = [first.host(0).unwrap(), second.host(1).unwrap()];
        let call = |line| Call { name: "load", site: Site { file: "test.rs", line } };
        let span = Span::heap(0, 64, 8);
        second.tell(Request::Load { actor: other, span, call: call(1) });
        first.tell(Request::Store { actor: one, span, call: call(2) });
        assert_eq!(races(&first, &state), 0, "the load waits");
        second.tell(Request::Arrive { actor: other, meeting: MeetingId(0), member: 1 });
        assert_eq!(races(&second, &state), 1);
        assert_eq!((second.missing(MeetingId(0), 1), first.missing(MeetingId(0), 0)), (vec![0], vec![0]));
        let findings = std::thread::scope(|scope| {
            first.end();
            let ended = scope.spawn(|| {
                second.end();
                second.findings()
            });
            server.wait_for_all();
            let findings = lock(&state).take_findings();
            server.send_findings(findings.clone());
            assert_eq!(ended.join().unwrap(), findings);
            findings
        });
        assert_eq!((findings.len(), lock(&state).has_failed), (1, false));
    }

    #[test]
    fn requests_have_the_order_in_which_they_were_made() {
        let TestJob { state, server: _server, links } = job();
        let actors = [links[0].host(0).unwrap(), links[1].host(1).unwrap()];
        let word = Span::heap(0, 64, 8);
        let call = Call { name: "test", site: Site { file: "test.rs", line: 1 } };
        // Alternately, one PE publishes what it knows and the other acquires it.
        for turn in 0..1000 {
            let (link, actor) = (&links[turn % 2], actors[turn % 2]);
            let fence = Request::FenceRelease(actor, rushmem_sanitizer::Scope::System);
            let acquire = rushmem_sanitizer::Acquire::Now;
            link.tell(Request::Observe { actor, word, value: None, acquire, call });
            link.tell(Request::Store { actor, span: Span::heap(0, 128, 8), call });
            link.tell_all([fence, Request::StoreRelaxed { actor, word, call }]);
        }
        assert_eq!(races(&links[0], &state), 0);
    }

    #[test]
    fn a_message_of_many_parts_arrives() {
        let TestJob { state: _state, server: _server, links: [_, second] } = job();
        let host = second.host(1).unwrap();
        let lanes = (0..20_000).map(|thread| Actor::Thread { pe: 1, launch: 0, block: 0, thread });
        let lanes = second.fork(host, lanes.collect());
        assert_eq!(second.with_stores(lanes), []);
    }

    #[test]
    fn a_lost_pe_fails_the_job() {
        let TestJob { state, mut server, links: [first, second] } = job();
        second.host(1).unwrap();
        drop(second);
        first.end();
        server.wait_for_all();
        server.send_findings(Vec::new());
        assert!(lock(&state).has_failed);
    }

    #[test]
    fn a_lost_engine_gives_harmless_answers() {
        let TestJob { state, server, links: [_, second] } = job();
        let host = second.host(1).unwrap();
        drop(server);
        assert_eq!(second.findings(), []);
        assert_eq!(second.host(1), None);
        assert_eq!(second.fork(host, vec![Actor::Stream { pe: 1, stream: 0 }]).len(), 1);
        second.tell(Request::JobFailed);
        second.end();
        assert!(!lock(&state).has_failed);
    }
}
