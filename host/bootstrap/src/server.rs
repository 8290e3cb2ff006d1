//! The server of a job: authenticates PEs, completes their collective calls, relays messages and reports lost PEs.
//!
//! Each connection has a reader thread and a writer thread. All readers share one `State` under a lock. With the setting
//! `heartbeat`, another thread sends heartbeats.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, ErrorKind, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::auth::{Role, Token, nonce};
use crate::deadline::UntilDeadline;
use crate::dial::{tune, write_timeout};
use crate::error::{BEFORE_JOINING, Error, Failure, NONE_LEFT, PeerLost};
use crate::job::{JobState, PastCall, Progress, Refusal};
use crate::messages::PeerMessage;
use crate::pulse::{Due, Pulse};
use crate::refusals::Refusals;
use crate::wire::{
    HANDSHAKE_LIMIT, MESSAGE_LIMIT, Message, PROTOCOL, frame, read_frame, server_limit, write_frame,
};
use rushmem_base::{Pes, crowd_deadline, lock, wait_timeout};

/// Time limit for the handshake of a new connection, unless many PEs share the cores.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which the server checks whether a PE that waits for the next job has closed its connection.
const REJOIN_POLL: Duration = Duration::from_millis(100);

/// Maximum number of connections in the handshake at the same time, in addition to one per PE.
const MAX_UNAUTHENTICATED: usize = 64;

/// Shortest interval of heartbeats.
const MIN_BEAT: Duration = Duration::from_millis(1);

/// Number of heartbeats after which a PE takes a silent server for lost.
const SILENT_HEARTBEATS: u32 = 4;

/// Stack size of the server's threads, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// Size, secret and address of the job that a [`Server`] serves.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Number of PEs in the job.
    pub n_pes: u32,
    /// The PE whose process runs this server. `None` for a server in a launcher.
    pub host: Option<u32>,
    /// The job's secret.
    pub token: Token,
    /// Address to listen on. Jobs on a single node use `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// How long to wait, after a PE's connection was closed, until its launcher reports how the process exited. The
    /// report makes a better error message than the closed connection.
    pub exit_wait: Duration,
    /// How long a PE may give no sign of life, once the PEs have formed an epoch, before it is lost. `None` if only a
    /// closed connection is a loss.
    pub heartbeat: Option<Duration>,
}

/// The server of one job, or of consecutive jobs of the same processes. Dropping it closes all connections.
pub struct Server {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accept: Option<JoinHandle<()>>,
    /// Dropping it stops the thread that sends heartbeats.
    _heartbeats: Option<Sender<()>>,
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
    /// Number of jobs that the same processes have finished on this server before the current one.
    jobs_before: u64,
    /// Whether any PE has ever joined. Until then, no loss is reported.
    any_joined: bool,
    pes: Vec<Option<Outbox>>,
    /// Key of each PE's connection in `streams`.
    connections: Vec<u64>,
    pulse: Pulse,
    exits: Vec<Option<String>>,
    observers: BTreeMap<u32, Option<Outbox>>,
    /// Number of running threads that write to PEs.
    writers: usize,
    /// All open connections, to close them when the server is dropped.
    streams: BTreeMap<u64, TcpStream>,
    next_stream: u64,
    /// IDs of the connections that are in the handshake. IDs count up, so the first one is the oldest.
    unauthenticated: BTreeSet<u64>,
    refusals: Refusals,
}

impl Server {
    /// Starts a server that listens on `options.listen`.
    ///
    /// # Errors
    ///
    /// - [`Error::Listen`]: the address is in use or not available.
    /// - [`Error::Thread`]: the system cannot start a thread.
    pub fn start(options: ServerOptions) -> Result<Server, Error> {
        let listen = |source| Error::Listen { addr: options.listen.to_string(), source };
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        Server::on(listener, options)
    }

    /// Starts a server on a socket that is already bound.
    ///
    /// # Errors
    ///
    /// - [`Error::Listen`]: the socket has no address.
    /// - [`Error::Thread`]: the system cannot start a thread.
    pub(crate) fn on(listener: TcpListener, options: ServerOptions) -> Result<Server, Error> {
        let listen = |source| Error::Listen { addr: options.listen.to_string(), source };
        let addr = listener.local_addr().map_err(listen)?;
        let n = options.n_pes as usize;
        let state = State {
            job: JobState::new(options.n_pes, options.host),
            jobs_before: 0,
            any_joined: false,
            pes: vec![None; n],
            connections: vec![0; n],
            pulse: Pulse::new(options.n_pes),
            exits: vec![None; n],
            observers: BTreeMap::new(),
            writers: 0,
            streams: BTreeMap::new(),
            next_stream: 0,
            unauthenticated: BTreeSet::new(),
            refusals: Refusals::default(),
        };
        let shared = Arc::new(Shared {
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let heartbeats = shared.options.heartbeat.map(|heartbeat| {
            let (heartbeats, end) = channel();
            let shared = shared.clone();
            spawn("rushmem-heartbeat", move || shared.send_heartbeats(heartbeat, &end)).map(|_| heartbeats)
        });
        let heartbeats = heartbeats.transpose()?;
        let acceptor = shared.clone();
        let accept = spawn("rushmem-accept", move || acceptor.accept(&listener))?;
        Ok(Server { addr, shared, accept: Some(accept), _heartbeats: heartbeats })
    }

    /// Returns the server's address, with the port that was actually bound.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Index of the current job among the consecutive jobs of this server, from 0.
    pub(crate) fn job(&self) -> u64 {
        lock(&self.shared.state).jobs_before
    }

    /// Waits, for at most `within`, until every PE has left this job and all messages to PEs are written. Returns the
    /// PEs that have not left. Some PEs may already be in the next job.
    pub(crate) fn wait_for_pes(&self, job: u64, within: Duration) -> Pes {
        let begin = Instant::now();
        let mut state = lock(&self.shared.state);
        loop {
            if state.jobs_before != job {
                return Pes(Vec::new());
            }
            let present = state.job.present();
            let left = within.saturating_sub(begin.elapsed());
            if (present.0.is_empty() && state.writers == 0) || left.is_zero() {
                return present;
            }
            state = self.shared.wait(state, left);
        }
    }

    /// Returns the PEs that are in job `job`, each with a description of its process (PID and host). Empty once that
    /// job is over.
    pub(crate) fn origins(&self, job: u64) -> Vec<(u32, String)> {
        let state = lock(&self.shared.state);
        if state.jobs_before == job { state.job.origins() } else { Vec::new() }
    }

    /// Waits until the observers of all `nodes` nodes have connected and disconnected again, for at most `within` if
    /// given. Returns the nodes for which this has not happened.
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
        // A connection wakes the accepting thread. If it fails, the thread keeps running until the process exits.
        if TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok()
            && let Some(accept) = self.accept.take()
        {
            let _ = accept.join();
        }
        let mut state = lock(&self.shared.state);
        state.refusals.log_rest();
        for stream in state.streams.values() {
            // This fails if the other side has already closed the connection.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(body);
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
                // Typically the process is out of file descriptors. Pause, so the loop does not spin.
                Err(error) => {
                    lock(&self.state).refusals.add(&format!("cannot accept it: {error}"));
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            let Some(id) = self.register(&stream) else { continue };
            let shared = self.clone();
            let serve = move || shared.serve(id, stream);
            if let Err(error) = spawn("rushmem-serve", serve) {
                let mut state = lock(&self.state);
                state.unauthenticated.remove(&id);
                state.streams.remove(&id);
                state.refusals.add(&error.to_string());
            }
        }
    }

    /// Authenticates a new connection, and serves the PE or the observer at its other end until it is closed.
    fn serve(self: &Arc<Self>, id: u64, mut stream: TcpStream) {
        match self.handshake(id, &stream) {
            Ok(Message::Join { pe, n_pes, build, origin }) => {
                self.serve_pe(id, stream, (pe, n_pes), &build, &origin)
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

    /// Registers a new connection, so it can be closed by the server. Returns `None` if the server is stopping.
    ///
    /// If too many connections are in the handshake, the oldest is closed. Idle connections can thus never keep PEs
    /// out.
    fn register(&self, stream: &TcpStream) -> Option<u64> {
        let copy = stream.try_clone().ok()?;
        let mut state = lock(&self.state);
        if self.stop.load(Ordering::SeqCst) {
            return None;
        }
        let id = state.next_stream;
        state.next_stream += 1;
        state.streams.insert(id, copy);
        state.unauthenticated.insert(id);
        if state.unauthenticated.len() > MAX_UNAUTHENTICATED + self.options.n_pes as usize
            && let Some(oldest) = state.unauthenticated.pop_first()
            && let Some(stream) = state.streams.get(&oldest)
        {
            // The thread of that connection notices and returns. This fails if the connection is already closed.
            let _ = stream.shutdown(Shutdown::Both);
        }
        Some(id)
    }

    /// Performs mutual authentication. Returns the first message of the other side, which should be `Join` or
    /// `Observe`.
    fn handshake(&self, id: u64, stream: &TcpStream) -> Result<Message, String> {
        let io = |error: std::io::Error| error.to_string();
        let within = crowd_deadline(HANDSHAKE_TIMEOUT, self.options.n_pes);
        let mut socket = UntilDeadline::new(stream, Instant::now() + within);
        let proof =
            tune(stream, self.options.n_pes).map_err(io).and_then(|()| self.authenticate(&mut socket));
        // Once the other side has our proof, it takes a closed connection for the end of the job. So from here on,
        // `register` must not close it. If it already has, the error of the handshake would be misleading.
        if !lock(&self.state).unauthenticated.remove(&id) {
            return Err("too many others are in the handshake".into());
        }
        write_frame(&mut socket, &Message::Proof { proof: proof? }).map_err(io)?;
        let first_message = read_frame(&mut socket, server_limit(self.options.n_pes)).map_err(io)?;
        socket.release(write_timeout(self.options.n_pes)).map_err(io)?;
        first_message.ok_or_else(|| "it closed the connection".into())
    }

    /// Checks that the other side knows the job's token. Returns the proof that this side knows it too.
    fn authenticate(&self, socket: &mut UntilDeadline<'_>) -> Result<[u8; 32], String> {
        let io = |error: std::io::Error| error.to_string();
        let ours = nonce().map_err(|error| error.to_string())?;
        write_frame(socket, &Message::Hello { protocol: PROTOCOL, nonce: ours }).map_err(io)?;
        match read_frame(socket, HANDSHAKE_LIMIT).map_err(io)? {
            Some(Message::Auth { protocol, .. }) if protocol != PROTOCOL => Err(format!(
                "it speaks protocol {protocol}, the launcher {PROTOCOL}; use the same build of rushmem everywhere"
            )),
            Some(Message::Auth { nonce: theirs, proof, .. }) => {
                // Verify before sending our own proof: a stranger learns nothing that depends on the token.
                if !self.options.token.verify(Role::Pe, &ours, &theirs, &proof) {
                    return Err(
                        "its token is not this job's; RUSHMEM_ID, or else RUSHMEM_TOKEN, must be the same for all PEs".into()
                    );
                }
                Ok(self.options.token.proof(Role::Launcher, &ours, &theirs))
            }
            _ => Err("it does not prove that it knows the job's token".into()),
        }
    }

    fn serve_pe(
        self: &Arc<Self>,
        id: u64,
        mut stream: TcpStream,
        (pe, n_pes): (u32, u32),
        build: &str,
        origin: &str,
    ) {
        let outbox = match outbox(&stream, WriterGuard::new(self)) {
            Ok(outbox) => outbox,
            Err(error) => return refuse(&mut stream, error.to_string()),
        };
        {
            let mut state = lock(&self.state);
            // A PE may arrive for the next job before another PE has left the last one. Let it wait until that happens,
            // or until it gives up or disconnects.
            while state.job.is_early(pe) && !has_more(&stream) {
                state = self.wait(state, REJOIN_POLL);
            }
            if state.job.is_over() && !state.job.is_lost(pe) {
                state.begin_next_job();
                // Wake `wait_for_pes`: the last job has finished, although the writer of this connection is running.
                self.changed.notify_all();
            }
            match state.job.join(pe, n_pes, build, origin) {
                Ok(()) => {}
                Err(Refusal::Reason(reason)) => {
                    drop(state);
                    tracing::warn!(reason, "refused a process");
                    return send(&outbox, &Message::Refused { reason });
                }
                Err(Refusal::Failed(failure)) => {
                    send(&outbox, &Message::Failed(failure.clone()));
                    return state.tell_pes(&Message::Failed(failure));
                }
            }
            tracing::debug!(pe, origin, "joined");
            state.any_joined = true;
            state.pes[pe as usize] = Some(outbox);
            state.connections[pe as usize] = id;
            state.exits[pe as usize] = None;
            state.pulse.joined(pe);
            // All PEs see this contribution and learn from it which PE runs the server.
            let is_host = self.options.host == Some(pe);
            match state.job.start_for(pe) {
                None => state.enter(pe, "joining the job", if is_host { vec![1] } else { Vec::new() }),
                Some(start) => state.tell_start(pe, start),
            }
        }
        if let Err(reason) = self.listen_to_pe(id, stream, pe) {
            self.pe_closed(id, pe, &reason);
        }
    }

    /// Handles the messages of a PE until it finishes. Returns the reason if the connection is closed before that.
    fn listen_to_pe(&self, id: u64, stream: TcpStream, pe: u32) -> Result<(), String> {
        let mut from = BufReader::new(stream);
        loop {
            let message = match read_frame(&mut from, server_limit(self.options.n_pes)) {
                Ok(Some(message)) => message,
                Ok(None) => {
                    return Err("its connection closed: the process ended, or left without finish()".into());
                }
                Err(error) => return Err(format!("its connection broke: {error}")),
            };
            let mut state = lock(&self.state);
            if !state.is_connected(pe, id) {
                // Its launcher has reported its exit. Later messages do not count.
                return Ok(());
            }
            state.pulse.heard(pe);
            match message {
                Message::Pong => state.pulse.answered(pe),
                Message::Gather { .. } | Message::FormEpoch { .. } if state.job.is_waiting(pe) => {
                    return Err(
                        "it does not follow the protocol: two collective calls at the same time".into()
                    );
                }
                Message::Gather { .. } if state.job.is_replacing(pe) => {
                    return Err("it does not follow the protocol: a call before its first epoch".into());
                }
                Message::Gather { call, bytes } => state.enter(pe, &call, bytes),
                Message::FormEpoch { admits } => state.enter_epoch(pe, admits),
                Message::GiveUp { waited_ms } => {
                    if let Some(failure) = state.job.give_up(pe, Duration::from_millis(waited_ms)) {
                        state.tell_pes(&Message::Failed(failure));
                    }
                }
                Message::Send { to, bytes } if to < self.options.n_pes && bytes.len() <= MESSAGE_LIMIT => {
                    // Messages for a lost PE must not reach its replacement.
                    if !state.job.is_replacing(to) {
                        state.tell_pe(to, &Message::FromPeer(PeerMessage { from: pe, bytes }));
                    }
                }
                Message::Abort { reason, exit } => {
                    state.tell_pe(pe, &Message::Left);
                    let reason = if exit.is_some() { reason } else { format!("aborted: {reason}") };
                    state.lose(pe, &reason, exit);
                    self.changed.notify_all();
                    return Ok(());
                }
                Message::Finish => {
                    let progress = state.job.finish(pe);
                    state.tell_pe(pe, &Message::Left);
                    state.pes[pe as usize] = None;
                    state.tell_progress(progress);
                    state.turn_away();
                    self.changed.notify_all();
                    return Ok(());
                }
                _ => return Err("it does not follow the protocol".into()),
            }
            self.changed.notify_all();
        }
    }

    /// Handles a closed connection. Unless the PE had finished, it is lost, but first its launcher gets time to report
    /// the reason.
    fn pe_closed(&self, id: u64, pe: u32, reason: &str) {
        let begin = Instant::now();
        let mut state = lock(&self.state);
        loop {
            let left = self.options.exit_wait.saturating_sub(begin.elapsed());
            if !state.is_connected(pe, id) || state.exits[pe as usize].is_some() || left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
        if state.is_connected(pe, id) {
            state.pes[pe as usize] = None;
            state.lose(pe, reason, None);
        }
        self.changed.notify_all();
    }

    /// Asks the PEs for signs of life until `end` is disconnected. Loses those that are silent for longer than
    /// `heartbeat`.
    fn send_heartbeats(&self, heartbeat: Duration, end: &Receiver<()>) {
        let interval = (heartbeat / 4).max(MIN_BEAT);
        loop {
            let begin = Instant::now();
            if end.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let mut state = lock(&self.state);
            let now = Instant::now();
            // The threads that read from the PEs were probably not scheduled, either.
            let is_late = now - begin > interval + heartbeat / 2;
            if state.send_heartbeats(heartbeat, now, is_late) {
                self.changed.notify_all();
            }
        }
    }

    fn serve_observer(&self, mut stream: TcpStream, node: u32) {
        let outbox = match outbox(&stream, ()) {
            Ok(outbox) => outbox,
            Err(error) => return refuse(&mut stream, error.to_string()),
        };
        {
            let mut state = lock(&self.state);
            if state.observers.contains_key(&node) {
                let reason = format!("two launchers use node number {node}; give each its own --node");
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
                // The observer closes the connection when it has read the reply.
                Message::Finish => send(&outbox, &Message::Left),
                _ => break,
            }
        }
        lock(&self.state).observers.insert(node, None);
        self.changed.notify_all();
    }

    /// Handles the launcher's report that the process of a PE has exited.
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

/// Includes a writer thread of a PE in `State::writers` until the guard is dropped.
struct WriterGuard(Arc<Shared>);

impl WriterGuard {
    fn new(shared: &Arc<Shared>) -> WriterGuard {
        lock(&shared.state).writers += 1;
        WriterGuard(shared.clone())
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        lock(&self.0.state).writers -= 1;
        self.0.changed.notify_all();
    }
}

impl State {
    /// Returns whether connection `id` is that of PE `pe`, which is in the job. Another process may have replaced a lost PE.
    fn is_connected(&self, pe: u32, id: u64) -> bool {
        self.job.is_joined(pe) && self.connections[pe as usize] == id
    }

    /// Sends the calls of the job's start to a process that replaces a lost PE, and completes the first, in which it is waiting.
    fn tell_start(&self, pe: u32, start: &[PastCall]) {
        let mut calls = start.iter();
        let Some(joined) = calls.next() else { return };
        for PastCall { call, parts } in calls {
            self.tell_pe(pe, &Message::Past { call: call.clone(), parts: parts.clone() });
        }
        self.tell_pe(pe, &Message::Gathered { parts: joined.parts.clone() });
    }

    /// Refuses the processes that wait to replace lost PEs, if no PE is left that could take them in.
    fn turn_away(&mut self) {
        let away = self.job.turn_away();
        for &pe in &away {
            let lost = PeerLost { pe: Some(pe), reason: NONE_LEFT.into(), exit: None, survivable: false };
            self.tell_pe(pe, &Message::Lost(lost));
            self.pes[pe as usize] = None;
        }
    }

    /// Enters a PE into a collective call. Sends the outcome if the call completes or fails.
    fn enter(&mut self, pe: u32, call: &str, bytes: Vec<u8>) {
        let failed_before = self.job.failure().is_some();
        match self.job.contribute(pe, call, bytes) {
            // Everyone else has already been told about an earlier failure.
            Progress::Failed(failure) if failed_before => self.tell_pe(pe, &Message::Failed(failure)),
            progress => self.tell_progress(progress),
        }
    }

    /// Records that a PE waits for the next epoch, and sends the outcome if there is one.
    fn enter_epoch(&mut self, pe: u32, admits: bool) {
        if !admits {
            self.job.bar();
        }
        let progress = self.job.form_epoch(pe);
        self.tell_progress(progress);
    }

    /// Sends the outcome of a call, if it has one, to all PEs.
    fn tell_progress(&self, progress: Progress) {
        match progress {
            Progress::Waiting => {}
            Progress::Done(parts) => self.tell_pes(&Message::Gathered { parts }),
            Progress::Formed(epoch) => {
                tracing::debug!(?epoch, "formed");
                self.tell_pes(&Message::Epoch(epoch));
            }
            Progress::Failed(failure) => self.tell_pes(&Message::Failed(failure)),
        }
    }

    /// Starts the next job of the same processes. PEs whose processes have exited are lost in it from the start.
    fn begin_next_job(&mut self) {
        self.job = self.job.next();
        self.jobs_before += 1;
        for (pe, exit) in (0..).zip(&self.exits) {
            if let Some(how) = exit {
                self.job.lose(pe, &before_joining(how), None);
            }
        }
    }

    fn lose(&mut self, pe: u32, reason: &str, exit: Option<u8>) {
        let lost = self.job.lose(pe, reason, exit);
        if !self.job.is_joined(pe) {
            self.pes[pe as usize] = None;
        }
        let Some((lost, progress)) = lost else { return };
        self.turn_away();
        if self.any_joined {
            tracing::debug!(pe, reason, "lost");
            self.tell_pes(&Message::Lost(lost.clone()));
            self.tell_observers(lost);
        }
        self.tell_progress(progress);
    }

    /// Sends the heartbeats that are due. Returns whether a PE was lost.
    fn send_heartbeats(&mut self, heartbeat: Duration, now: Instant, is_late: bool) -> bool {
        let silence_ms = heartbeat.saturating_mul(SILENT_HEARTBEATS).as_millis() as u64;
        let mut has_lost = false;
        for pe in self.job.watched() {
            match self.pulse.check(pe, now, heartbeat, is_late) {
                Due::Ping => self.tell_pe(pe, &Message::Ping { silence_ms }),
                // After a final failure, PEs shut down by themselves.
                Due::Loss if self.job.final_failure().is_none() => {
                    has_lost = true;
                    self.lose(pe, &format!("no sign of life for {heartbeat:?}"), None);
                    // A process that continues later finds its connection closed. This fails if it is closed already.
                    let connection = self.streams.get(&self.connections[pe as usize]);
                    let _ = connection.map(|stream| stream.shutdown(Shutdown::Both));
                }
                Due::Loss | Due::Nothing => {}
            }
        }
        has_lost
    }

    fn tell_pe(&self, pe: u32, message: &Message) {
        if let Some(outbox) = &self.pes[pe as usize] {
            send(outbox, message);
        }
    }

    /// Sends a message to all PEs. Those that wait to replace lost ones learn only how the job fails for good.
    fn tell_pes(&self, message: &Message) {
        let is_final = message.is_final_failure();
        let hears = |pe: u32| is_final || !self.job.is_replacing(pe);
        send_all(
            (0..).zip(&self.pes).filter(|(pe, _)| hears(*pe)).filter_map(|(_, to)| to.as_ref()),
            message,
        );
    }

    fn tell_observers(&self, lost: PeerLost) {
        send_all(self.observers.values().flatten(), &Message::Lost(lost));
    }
}

fn before_joining(how: &str) -> String {
    format!("{how},{BEFORE_JOINING}")
}

fn send(to: &Outbox, message: &Message) {
    send_all([to].into_iter(), message);
}

fn send_all<'a>(to: impl Iterator<Item = &'a Outbox>, message: &Message) {
    let frame = Arc::new(frame(message));
    for outbox in to {
        // This fails if the connection has just been closed. Its reader handles that.
        let _ = outbox.send(frame.clone());
    }
}

/// Starts a thread that writes to one connection, so a slow receiver does not delay the others.
///
/// The thread drops `end` when it has written everything.
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
        // Everything is written, or the other side is gone. Closing only this direction lets it read the rest.
        let _ = stream.shutdown(Shutdown::Write);
        drop(end);
    };
    spawn(name, write).map(|_| outbox)
}

/// Returns whether the connection has unread bytes or was closed.
fn has_more(stream: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    let found = SockRef::from(stream).recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT);
    !found.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn refuse(stream: &mut TcpStream, reason: String) {
    // This fails if the other side has already disconnected.
    let _ = write_frame(stream, &Message::Refused { reason });
}
