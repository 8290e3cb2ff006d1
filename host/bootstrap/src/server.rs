//! The launcher's side of a job: lets PEs in, relays their collective calls, and tells of lost ones.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, ErrorKind, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::auth::{Role, Token, nonce};
use crate::deadline::UntilDeadline;
use crate::dial::{WRITE, tune};
use crate::error::{Error, Failure, PeerLost, Pes};
use crate::job::{JobState, Refusal, Step};
use crate::messages::PeerMessage;
use crate::refusals::Refusals;
use crate::wire::{
    MESSAGE_LIMIT, Message, PROTOCOL, STRANGER_LIMIT, frame, read_frame, server_limit, write_frame,
};
use rushmem_base::{lock, wait_timeout};

/// How long a stranger may take to prove itself.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How often it is looked whether one that waits for the next job has given up.
const LOOK: Duration = Duration::from_millis(100);

/// Strangers that are heard at the same time, besides one for each PE.
const STRANGERS: usize = 64;

/// Stack of a connection's threads, which do little.
const STACK: usize = 256 << 10;

/// What a server needs to know.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// PEs of the job.
    pub n_pes: u32,
    /// The PE whose process has this server; `None` in a launcher.
    pub host: Option<u32>,
    /// The job's secret.
    pub token: Token,
    /// Where to listen: `127.0.0.1:0` unless other nodes take part.
    pub listen: SocketAddr,
    /// How long a closed connection waits for a launcher's report of how its process ended, which tells more.
    pub exit_wait: Duration,
}

/// The server of one job. Dropping it ends the job for all that are still connected.
pub struct Server {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accept: Option<JoinHandle<()>>,
}

struct Shared {
    options: ServerOptions,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
}

type Outbox = Sender<Arc<Vec<u8>>>;

struct State {
    job: JobState,
    /// Jobs that these processes have had before.
    jobs_before: u64,
    /// Whether any PE ever joined. Until then processes that end are no loss to anybody.
    any_joined: bool,
    pes: Vec<Option<Outbox>>,
    exits: Vec<Option<String>>,
    observers: BTreeMap<u32, Option<Outbox>>,
    /// PEs to which something may still have to be written.
    writing: usize,
    /// All open connections, to close them at the end.
    streams: BTreeMap<u64, TcpStream>,
    next_stream: u64,
    /// Connections that have not proved themselves.
    strangers: BTreeSet<u64>,
    refusals: Refusals,
}

impl Server {
    /// Starts to listen.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`] if the address cannot be had.
    pub fn start(options: ServerOptions) -> Result<Server, Error> {
        let listen = |source| Error::Listen { addr: options.listen.to_string(), source };
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        Server::on(listener, options)
    }

    /// Listens on a socket that is bound already.
    ///
    /// # Errors
    ///
    /// If the system has no thread.
    pub(crate) fn on(listener: TcpListener, options: ServerOptions) -> Result<Server, Error> {
        let listen = |source| Error::Listen { addr: options.listen.to_string(), source };
        let addr = listener.local_addr().map_err(listen)?;
        let n = options.n_pes as usize;
        let state = State {
            job: JobState::new(options.n_pes),
            jobs_before: 0,
            any_joined: false,
            pes: vec![None; n],
            exits: vec![None; n],
            observers: BTreeMap::new(),
            writing: 0,
            streams: BTreeMap::new(),
            next_stream: 0,
            strangers: BTreeSet::new(),
            refusals: Refusals::default(),
        };
        let shared = Arc::new(Shared {
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let acceptor = shared.clone();
        let accept = spawn("rushmem-accept", move || acceptor.accept(&listener))?;
        Ok(Server { addr, shared, accept: Some(accept) })
    }

    /// Where it listens, with the port that it got.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Which of the jobs of these processes goes on.
    pub(crate) fn job(&self) -> u64 {
        lock(&self.shared.state).jobs_before
    }

    /// Waits until every PE has left this job and was told all that there was to tell, at most `within`; returns those
    /// that have not left. Some may be in the next job already.
    pub(crate) fn wait_for_pes(&self, job: u64, within: Duration) -> Pes {
        let begin = Instant::now();
        let mut state = lock(&self.shared.state);
        loop {
            if state.jobs_before != job {
                return Pes(Vec::new());
            }
            let present = state.job.present();
            let left = within.saturating_sub(begin.elapsed());
            if (present.0.is_empty() && state.writing == 0) || left.is_zero() {
                return present;
            }
            state = self.shared.wait(state, left);
        }
    }

    /// Waits until the observers of all of `nodes` nodes have come and gone; at most `within`, if given.
    /// Returns the nodes that have not.
    pub fn wait_for_observers(&self, nodes: u32, within: Option<Duration>) -> Vec<u32> {
        let begin = Instant::now();
        let mut state = lock(&self.shared.state);
        loop {
            let gone = |node: &u32| matches!(state.observers.get(node), Some(None));
            let remaining: Vec<u32> = (0..nodes).filter(|node| !gone(node)).collect();
            let left = within.map_or(Duration::from_secs(1), |within| within.saturating_sub(begin.elapsed()));
            if remaining.is_empty() || left.is_zero() {
                return remaining;
            }
            state = self.shared.wait(state, left);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let mut own = self.addr;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() { [127, 0, 0, 1].into() } else { [0, 0, 0, 0, 0, 0, 0, 1].into() });
        }
        // Wakes `accept`; where that fails, its thread is left behind and ends with the process.
        if TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok()
            && let Some(accept) = self.accept.take()
        {
            let _ = accept.join();
        }
        let mut state = lock(&self.shared.state);
        state.refusals.log_rest();
        for stream in state.streams.values() {
            // One that the other side has closed needs no more.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK).spawn(body);
    thread.map_err(|source| Error::Thread { name, source })
}

impl Shared {
    fn wait<'a>(&self, state: MutexGuard<'a, State>, within: Duration) -> MutexGuard<'a, State> {
        wait_timeout(&self.changed, state, within)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => {
                    lock(&self.state).refusals.add(&format!("cannot accept it: {error}"));
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            let Some(id) = self.keep(&stream) else { continue };
            let shared = self.clone();
            let serve = move || shared.serve(id, stream);
            if let Err(error) = spawn("rushmem-serve", serve) {
                let mut state = lock(&self.state);
                state.strangers.remove(&id);
                state.streams.remove(&id);
                state.refusals.add(&error.to_string());
            }
        }
    }

    /// One connection, from its first byte to its last.
    fn serve(self: &Arc<Self>, id: u64, mut stream: TcpStream) {
        let introduced = self.introduce(&stream);
        let kept = lock(&self.state).strangers.remove(&id);
        match introduced {
            _ if !kept => lock(&self.state).refusals.add("too many connections had not proved themselves"),
            Ok(Message::Join { pe, n_pes, build, whence }) => {
                self.serve_pe(stream, pe, n_pes, &build, &whence)
            }
            Ok(Message::Observe { node }) => self.serve_observer(stream, node),
            Ok(_) => refuse(&mut stream, "it neither joins the job nor observes it".into()),
            Err(reason) => {
                lock(&self.state).refusals.add(&reason);
                refuse(&mut stream, reason);
            }
        }
        lock(&self.state).streams.remove(&id);
    }

    /// Remembers a new connection, so that the server can close it. Closes the oldest one that has not proved itself if
    /// there are too many. Returns `None` if the server is closing all connections.
    fn keep(&self, stream: &TcpStream) -> Option<u64> {
        let copy = stream.try_clone().ok()?;
        let mut state = lock(&self.state);
        if self.stop.load(Ordering::SeqCst) {
            return None;
        }
        let id = state.next_stream;
        state.next_stream += 1;
        state.streams.insert(id, copy);
        state.strangers.insert(id);
        if state.strangers.len() > STRANGERS + self.options.n_pes as usize
            && let Some(oldest) = state.strangers.pop_first()
            && let Some(stream) = state.streams.get(&oldest)
        {
            // Its thread then ends. One that is closed already needs no more.
            let _ = stream.shutdown(Shutdown::Both);
        }
        Some(id)
    }

    /// Both sides prove themselves; then the other one says what it is.
    fn introduce(&self, stream: &TcpStream) -> Result<Message, String> {
        let io = |error: std::io::Error| error.to_string();
        tune(stream).map_err(io)?;
        let mut socket = UntilDeadline::new(stream, Instant::now() + HANDSHAKE);
        let ours = nonce().map_err(|error| error.to_string())?;
        write_frame(&mut socket, &Message::Hello { protocol: PROTOCOL, nonce: ours }).map_err(io)?;
        let theirs = match read_frame(&mut socket, STRANGER_LIMIT).map_err(io)? {
            Some(Message::Auth { protocol, .. }) if protocol != PROTOCOL => {
                return Err(format!(
                    "it speaks protocol {protocol}, the launcher {PROTOCOL}; use one build of rushmem"
                ));
            }
            Some(Message::Auth { nonce: theirs, proof, .. }) => {
                if !self.options.token.verify(Role::Pe, &ours, &theirs, &proof) {
                    return Err(
                        "its token is not this job's; RUSHMEM_TOKEN must be the same on all nodes".into()
                    );
                }
                theirs
            }
            _ => return Err("it does not prove that it knows the job's token".into()),
        };
        let proof = self.options.token.proof(Role::Launcher, &ours, &theirs);
        write_frame(&mut socket, &Message::Proof { proof }).map_err(io)?;
        let introduced = read_frame(&mut socket, server_limit(self.options.n_pes)).map_err(io)?;
        socket.release(WRITE).map_err(io)?;
        introduced.ok_or_else(|| "it closed the connection".into())
    }

    fn serve_pe(self: &Arc<Self>, mut stream: TcpStream, pe: u32, n_pes: u32, build: &str, whence: &str) {
        let outbox = match outbox(&stream, Writing::to_a_pe(self)) {
            Ok(outbox) => outbox,
            Err(error) => return refuse(&mut stream, error.to_string()),
        };
        {
            let mut state = lock(&self.state);
            // One that comes for the next job may be faster than another that leaves the last one: until it gives up, or
            // goes.
            while state.job.is_early(pe) && !has_more(&stream) {
                state = self.wait(state, LOOK);
            }
            if state.job.is_over() {
                state.begin_again();
                // Who waits for the end of the last one need not wait for what this one has to write.
                self.changed.notify_all();
            }
            match state.job.join(pe, n_pes, build, whence) {
                Ok(()) => {}
                Err(Refusal::Reason(reason)) => {
                    drop(state);
                    tracing::warn!(reason, "a process was refused");
                    return send(&outbox, &Message::Refused { reason });
                }
                Err(Refusal::Failed(failure)) => {
                    send(&outbox, &Message::Failed(failure.clone()));
                    return state.tell_pes(&Message::Failed(failure));
                }
            }
            tracing::debug!(pe, whence, "joined");
            state.any_joined = true;
            state.pes[pe as usize] = Some(outbox);
            // PEs learn here which PE dies with the server.
            let is_host = self.options.host == Some(pe);
            state.enter(pe, "joining the job", if is_host { vec![1] } else { Vec::new() });
        }
        if let Err(reason) = self.listen_to_pe(stream, pe) {
            self.pe_closed(pe, &reason);
        }
    }

    /// Takes in what a PE says, until it finishes. An error tells how its connection ended before that.
    fn listen_to_pe(&self, stream: TcpStream, pe: u32) -> Result<(), String> {
        let mut from = BufReader::new(stream);
        loop {
            let message = match read_frame(&mut from, server_limit(self.options.n_pes)) {
                Ok(Some(message)) => message,
                Ok(None) => return Err("its connection closed: it ended, or left without finish()".into()),
                Err(error) => return Err(format!("its connection broke: {error}")),
            };
            let mut state = lock(&self.state);
            match message {
                Message::Gather { .. } if state.job.is_waiting(pe) => {
                    return Err(
                        "it does not follow the protocol: two collective calls at the same time".into()
                    );
                }
                Message::Gather { call, bytes } => state.enter(pe, &call, bytes),
                Message::GiveUp { waited_ms } => {
                    if let Some(failure) = state.job.give_up(pe, Duration::from_millis(waited_ms)) {
                        state.tell_pes(&Message::Failed(failure));
                    }
                }
                Message::Send { to, bytes } if to < self.options.n_pes && bytes.len() <= MESSAGE_LIMIT => {
                    state.tell_pe(to, &Message::FromPeer(PeerMessage { from: pe, bytes }));
                }
                Message::Abort { reason, exit } => {
                    state.tell_pe(pe, &Message::Left);
                    let reason = if exit.is_some() { reason } else { format!("aborted: {reason}") };
                    state.lose(pe, &reason, exit);
                }
                Message::Finish => {
                    let failure = state.job.finish(pe);
                    state.tell_pe(pe, &Message::Left);
                    state.pes[pe as usize] = None;
                    if let Some(failure) = failure {
                        state.tell_pes(&Message::Failed(failure));
                    }
                    self.changed.notify_all();
                    return Ok(());
                }
                _ => return Err("it does not follow the protocol".into()),
            }
            self.changed.notify_all();
        }
    }

    /// A PE's connection has ended. If it was not done, its launcher may tell more, soon.
    fn pe_closed(&self, pe: u32, reason: &str) {
        let begin = Instant::now();
        let mut state = lock(&self.state);
        loop {
            let left = self.options.exit_wait.saturating_sub(begin.elapsed());
            if !state.job.is_joined(pe) || state.exits[pe as usize].is_some() || left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
        state.pes[pe as usize] = None;
        state.lose(pe, reason, None);
        self.changed.notify_all();
    }

    fn serve_observer(&self, mut stream: TcpStream, node: u32) {
        let outbox = match outbox(&stream, ()) {
            Ok(outbox) => outbox,
            Err(error) => return refuse(&mut stream, error.to_string()),
        };
        {
            let mut state = lock(&self.state);
            if state.observers.contains_key(&node) {
                let reason = format!("two launchers want to be node {node}; each needs its own --node");
                return send(&outbox, &Message::Refused { reason });
            }
            if let Some(Failure::Lost(lost)) = state.job.failure() {
                send(&outbox, &Message::Lost(lost.clone()));
            }
            state.observers.insert(node, Some(outbox.clone()));
        }
        let mut from = BufReader::new(stream);
        while let Ok(Some(message)) = read_frame(&mut from, server_limit(self.options.n_pes)) {
            match message {
                Message::Exited { pe, how } if pe < self.options.n_pes => {
                    self.exited(pe, how);
                    send(&outbox, &Message::Noted { pe });
                }
                // It closes the connection when it has read that; until then it is not gone.
                Message::Finish => send(&outbox, &Message::Left),
                _ => break,
            }
        }
        lock(&self.state).observers.insert(node, None);
        self.changed.notify_all();
    }

    /// The process of a PE has ended, as its launcher says.
    fn exited(&self, pe: u32, how: String) {
        let mut state = lock(&self.state);
        if state.job.is_absent(pe) {
            state.lose(pe, &before_joining(&how), None);
        } else {
            state.lose(pe, &format!("{how}, before it had finished the job"), None);
        }
        state.exits[pe as usize] = Some(how);
        self.changed.notify_all();
    }
}

/// Something may still have to be written to a PE.
struct Writing(Arc<Shared>);

impl Writing {
    fn to_a_pe(shared: &Arc<Shared>) -> Writing {
        lock(&shared.state).writing += 1;
        Writing(shared.clone())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        lock(&self.0.state).writing -= 1;
        self.0.changed.notify_all();
    }
}

impl State {
    /// A PE enters a collective call.
    fn enter(&mut self, pe: u32, call: &str, bytes: Vec<u8>) {
        let failed_before = self.job.failure().is_some();
        match self.job.contribute(pe, call, bytes) {
            Step::Waiting => {}
            Step::Done(parts) => self.tell_pes(&Message::Gathered { parts }),
            Step::Failed(failure) if failed_before => self.tell_pe(pe, &Message::Failed(failure)),
            Step::Failed(failure) => self.tell_pes(&Message::Failed(failure)),
        }
    }

    /// The same processes begin another job, but for those that have ended meanwhile.
    fn begin_again(&mut self) {
        self.job = JobState::new(self.job.n_pes());
        self.jobs_before += 1;
        for (pe, exit) in (0..).zip(&self.exits) {
            if let Some(how) = exit {
                self.job.lose(pe, &before_joining(how), None);
            }
        }
    }

    fn lose(&mut self, pe: u32, reason: &str, exit: Option<u8>) {
        let Some(lost) = self.job.lose(pe, reason, exit) else { return };
        self.pes[pe as usize] = None;
        if self.any_joined {
            tracing::debug!(pe, reason, "lost");
            self.tell_pes(&Message::Lost(lost.clone()));
            self.tell_observers(lost);
        }
    }

    fn tell_pe(&self, pe: u32, message: &Message) {
        if let Some(outbox) = &self.pes[pe as usize] {
            send(outbox, message);
        }
    }

    fn tell_pes(&self, message: &Message) {
        send_all(self.pes.iter().flatten(), message);
    }

    fn tell_observers(&self, lost: PeerLost) {
        send_all(self.observers.values().flatten(), &Message::Lost(lost));
    }
}

fn before_joining(how: &str) -> String {
    format!("{how}, before it joined the job")
}

fn send(to: &Outbox, message: &Message) {
    send_all([to].into_iter(), message);
}

fn send_all<'a>(to: impl Iterator<Item = &'a Outbox>, message: &Message) {
    let frame = Arc::new(frame(message));
    for outbox in to {
        // A connection that has just ended is noticed by its own thread.
        let _ = outbox.send(frame.clone());
    }
}

/// A thread that writes to one connection, so that a slow reader holds up nobody else.
/// Drops `end` when it has written all.
fn outbox(stream: &TcpStream, end: impl Send + 'static) -> Result<Outbox, Error> {
    let (outbox, frames): (Outbox, Receiver<Arc<Vec<u8>>>) = channel();
    let name = "rushmem-write";
    let mut stream = stream.try_clone().map_err(|source| Error::Thread { name, source })?;
    let write = move || {
        for frame in frames {
            if stream.write_all(&frame).is_err() {
                break;
            }
        }
        // Said everything, or nobody hears it: either way the connection is over, once the other side has read it.
        let _ = stream.shutdown(Shutdown::Write);
        drop(end);
    };
    spawn(name, write).map(|_| outbox)
}

/// Whether something has come that nobody has read, or the end.
fn has_more(stream: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    let found = SockRef::from(stream).recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT);
    !found.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn refuse(stream: &mut TcpStream, reason: String) {
    // One that is refused may be gone already.
    let _ = write_frame(stream, &Message::Refused { reason });
}
