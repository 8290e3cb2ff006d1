//! The service of a PE: connects QPs when kernels of this PE or messages of peers request it, and watches kernels and NICs.
//!
//! The service thread looks for requests of kernels. Each step of a connection is work for the [`Workers`] of the process.
//! Messages of peers go to them at once.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_base::{crowd_deadline, lock, wait_timeout};
use rushmem_bootstrap::{Bootstrap, PeerMessage};
use rushmem_device::abi::ControlPage;
use rushmem_error::{Error, Result};
use rushmem_machine::waits::{Waits, is_waits_message};
use rushmem_machine::{Alarm, Printer, Region, Watchdog, end_job, end_with};
use rushmem_softnic::Memory;

use super::connect_message::ConnectMessage;
use super::connections::{Connections, Outgoing};
use super::flush::RemoteEnd;
use super::info::QpInfo;
use super::rail::Qp;
use super::watch::{NicWatch, Notice};
use super::workers::Workers;
use crate::provider::Keys;

/// Interval at which the thread polls for requests. It is short after a launch and doubles up to the limit.
const FIRST_LOOK: Duration = Duration::from_micros(20);
const LAST_LOOK: Duration = Duration::from_millis(1);

/// Interval once all connections exist. Kernels can then only request the end of the job. Also the interval if kernels
/// make the thread look when they wait.
const IDLE_LOOK: Duration = Duration::from_millis(50);

enum ServiceEvent {
    /// A message about waits.
    Waits(PeerMessage),
    Launched,
    /// Kernels wait, and may have left a request.
    Asked,
    /// Look at the report of the waits.
    LookAtWaits,
    Stop,
}

/// The connections of a PE, and the thread that serves them. Dropping it ends the thread and the steps of its connections.
pub struct Service {
    events: Sender<ServiceEvent>,
    thread: Option<JoinHandle<()>>,
    steps: Arc<Steps>,
    shared: Arc<Shared>,
    control: Region,
    /// Whether the thread polls for requests while kernels run.
    polls: bool,
}

struct Shared {
    connections: Connections,
    guards: Guards,
    failure: Mutex<Option<Error>>,
    /// Notified after each step of a connection.
    changed: Condvar,
    /// The requests of this PE that may be unanswered, oldest first: QP, epoch and time.
    requests: Mutex<VecDeque<(usize, u64, Instant)>>,
    /// Number of launches that have not been waited for.
    running: AtomicUsize,
    /// Set once a failure of a NIC has ended the waits of kernels.
    failed: AtomicBool,
}

/// The way of a PE's steps to the workers. Steps that begin after its end do nothing.
struct Steps {
    workers: Arc<Workers>,
    /// `None` after the end. A step holds the lock for reading.
    shared: RwLock<Option<Arc<Shared>>>,
    /// A number that distributes the QPs of different PEs over the workers.
    me: usize,
}

impl Steps {
    /// Lets a worker execute a step. Steps with the same `key` are executed in order.
    fn submit(
        self: &Arc<Self>,
        key: usize,
        step: impl FnOnce(&Connections, &mut dyn FnMut(Outgoing)) -> Result<()> + Send + 'static,
    ) {
        let steps = Arc::clone(self);
        self.workers.submit(self.me + key, move || {
            if let Some(shared) = &*steps.shared.read().unwrap_or_else(PoisonError::into_inner) {
                shared.step(step);
            }
        });
    }

    /// Processes a message of a peer.
    fn receive(self: &Arc<Self>, mail: &PeerMessage) {
        let from = mail.from;
        match ConnectMessage::decode(&mail.bytes) {
            Some(message) => self.submit(from as usize + message.set as usize, move |connections, post| {
                connections.receive(from, message, post)
            }),
            None => tracing::error!("PE {from} sent a malformed message"),
        }
    }

    /// Requests QPs of epoch `epoch`.
    fn request(self: &Arc<Self>, qps: impl IntoIterator<Item = usize>, epoch: u64) {
        for i in qps {
            self.submit(i, move |connections, post| connections.request(i, epoch, post));
        }
    }

    /// Waits for the steps that have begun. No step begins any more.
    fn end(&self) {
        *self.shared.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Service {
    /// Starts the thread. Messages of peers may already have arrived. `keep` keeps the messages that are not about queues,
    /// and returns the others. Kernels that never sleep need a thread that `polls` for their requests.
    ///
    /// # Errors
    /// An error if the thread cannot start, or if this PE's messages already have a reader.
    pub fn start(
        connections: Connections,
        guards: Guards,
        Pace { local_pes, polls, connect_timeout }: Pace,
        keep: impl Fn(PeerMessage) -> Option<PeerMessage> + Send + 'static,
    ) -> Result<Self> {
        let (events, inbox) = channel();
        let (control, bootstrap) = (guards.control.clone(), Arc::clone(&guards.bootstrap));
        let me = connections.pe() as usize;
        let shared = Arc::new(Shared {
            connections,
            guards,
            failure: Mutex::default(),
            changed: Condvar::new(),
            requests: Mutex::default(),
            running: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        });
        // Only processes authenticate each other.
        let pes = if bootstrap.token().is_some() { 1 } else { bootstrap.n_pes() };
        let workers = Workers::of_process(pes)?;
        let steps = Arc::new(Steps { workers, shared: RwLock::new(Some(Arc::clone(&shared))), me });
        let (mail, receiver) = (events.clone(), Arc::clone(&steps));
        bootstrap.on_message(Box::new(move |message| match keep(message) {
            None => {}
            // Messages that arrive after the thread's end are discarded.
            Some(message) if is_waits_message(&message) => drop(mail.send(ServiceEvent::Waits(message))),
            Some(message) => receiver.receive(&message),
        }))?;
        let [first, last] = if polls { [FIRST_LOOK, LAST_LOOK] } else { [IDLE_LOOK; 2] };
        let [first, last, idle] = [first, last, IDLE_LOOK].map(|look| crowd_deadline(look, local_pes));
        let looks = Looks { first, last, idle };
        let watcher =
            Watcher { shared: Arc::clone(&shared), steps: Arc::clone(&steps), looks, connect_timeout };
        let name = "rushmem-service".to_string();
        let thread = std::thread::Builder::new().name(name).spawn(move || watcher.run(&inbox));
        Ok(Self { events, thread: Some(thread.map_err(Error::Thread)?), steps, shared, control, polls })
    }

    /// Returns a function that makes the thread serve the requests of kernels, if there are any.
    pub fn looker(&self) -> impl Fn() + Send + Sync + 'static {
        let (control, events) = (self.control.clone(), self.events.clone());
        move || {
            let is_set = |offset: usize| {
                let mut word = 0u32;
                // The thread reports an error of the read.
                control.read(offset as u64, bytemuck::bytes_of_mut(&mut word)).is_err() || word != 0
            };
            if is_set(offset_of!(ControlPage, requested)) || is_set(offset_of!(ControlPage, exit)) {
                // The thread may have ended with the PE.
                drop(events.send(ServiceEvent::Asked));
            }
        }
    }

    /// Makes all connections and waits for them.
    ///
    /// # Errors
    /// The first failure, or [`Error::Unavailable`] once `within` has passed.
    pub fn connect_all(&self, within: Duration) -> Result<()> {
        let connections = &self.shared.connections;
        self.steps.request(connections.usable(), connections.epoch());
        let begin = Instant::now();
        let mut failure = lock(&self.shared.failure);
        while !connections.is_complete() {
            if let Some(failure) = failure.take() {
                return Err(failure);
            }
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() {
                let why = format!(
                    "{} connections were made within {within:?}; {}",
                    connections.connected(),
                    connections.describe_missing()
                );
                return Err(Error::Unavailable { what: "a connection to every PE".into(), why });
            }
            failure = wait_timeout(&self.shared.changed, failure, left);
        }
        Ok(())
    }

    /// Limits kernels of this PE to `peers` when they post through these QPs.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a QP to another PE is already connected.
    pub fn limit(&self, qps: Range<usize>, peers: &[u32]) -> Result<()> {
        self.shared.connections.limit(qps, peers)
    }

    /// Registers `memory` with each NIC. The keys must be dropped before the service.
    ///
    /// # Errors
    /// The errors of the NICs.
    pub fn register(&self, memory: &Region) -> Result<Vec<Keys>> {
        self.shared.connections.register(memory)
    }

    /// Counts a launch.
    pub fn launched(&self) {
        self.shared.running.fetch_add(1, Ordering::AcqRel);
        if self.polls {
            self.notify(ServiceEvent::Launched);
        }
    }

    /// Counts the end of a launch.
    pub fn ended(&self) {
        self.shared.guards.print();
        self.shared.running.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether a kernel may be running: some launch has not been waited for.
    pub fn is_busy(&self) -> bool {
        self.shared.running.load(Ordering::Acquire) != 0
    }

    /// Makes the thread look at the report of the waits.
    pub fn look_at_waits(&self) {
        self.notify(ServiceEvent::LookAtWaits);
    }

    /// Takes the error of the first connection that failed.
    pub fn take_failure(&self) -> Option<Error> {
        lock(&self.shared.failure).take()
    }

    /// Completes everything that kernels have posted to these QPs. Data is in memory of the peers then.
    ///
    /// `ends` returns the ends of symmetric memory beyond the heap, by PE and rail.
    ///
    /// # Errors
    /// An error if an operation failed or is not complete at `until`.
    pub fn drain(
        &self,
        mut qps: Range<usize>,
        ends: impl Fn(u32, usize) -> Vec<RemoteEnd>,
        until: Instant,
    ) -> Result<()> {
        qps.try_for_each(|i| self.shared.connections.drain(i, &ends, until))
    }

    /// Waits until all WRITEs that the NICs of this PE have acknowledged are in its memory.
    ///
    /// `ends` returns the ends of this PE's symmetric memory beyond the heap, by rail.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a NIC cannot find that out before `until`.
    pub fn flush(&self, ends: impl Fn(usize) -> Vec<RemoteEnd>, until: Instant) -> Result<()> {
        let rails = self.shared.connections.rails_to_flush();
        rails.into_iter().try_for_each(|rail| {
            let others = ends(rail);
            self.shared.connections.flush(rail, others, until)
        })
    }

    /// Returns the peer and number of a poisoned QP, if there is one.
    ///
    /// # Errors
    /// An error if the machine cannot read its memory.
    pub fn poisoned(&self) -> Result<Option<(u32, u32)>> {
        self.shared.connections.poisoned()
    }

    /// Returns the PE to which a WQE of the DC initiator `qpn` goes: in block `index`, or else the oldest that is not known to
    /// be complete. Returns `None` if there is no such initiator.
    ///
    /// # Errors
    /// An error if the machine cannot read its memory.
    pub fn peer_of_wqe(&self, qpn: u32, index: Option<u16>) -> Result<Option<u32>> {
        self.shared.connections.peer_of_wqe(qpn, index)
    }

    /// Returns the peer and number of a QP that has failed, even if no kernel has met its error.
    ///
    /// # Errors
    /// An error if the machine cannot read its memory, or a NIC refuses the query.
    pub fn failed_qp(&self) -> Result<Option<(u32, u32)>> {
        self.shared.connections.failed_qp()
    }

    /// Ends all connections and restores the initial state. No kernel may run on any PE.
    ///
    /// # Errors
    /// An error if the machine cannot write its memory.
    pub fn reset(&self) -> Result<()> {
        *lock(&self.shared.failure) = None;
        self.shared.connections.reset()
    }

    /// Returns the number of QPs that kernels may use now.
    pub fn connected(&self) -> usize {
        self.shared.connections.connected()
    }

    /// Returns the number of PRM commands to the NICs so far.
    pub fn commands(&self) -> u64 {
        self.shared.connections.commands()
    }

    /// Queries the NICs for these QPs.
    ///
    /// # Errors
    /// The errors of the NICs.
    pub fn query(&self) -> Result<Vec<QpInfo>> {
        self.shared.connections.query()
    }

    fn notify(&self, event: ServiceEvent) {
        // The thread ends only with this object.
        let _ = self.events.send(event);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.notify(ServiceEvent::Stop);
        if let Some(thread) = self.thread.take() {
            // The thread has already reported a panic.
            let _ = thread.join();
        }
        self.steps.end();
    }
}

/// The number of PEs on this machine, and the times of the service.
pub struct Pace {
    /// Number of PEs of this machine.
    pub local_pes: u32,
    /// Whether the thread polls for the requests of kernels.
    pub polls: bool,
    /// Deadline of a first contact.
    pub connect_timeout: Duration,
}

/// The parts of a PE with which its service thread watches kernels.
pub struct Guards {
    pub bootstrap: Arc<dyn Bootstrap>,
    pub control: Region,
    pub watchdog: Arc<Watchdog>,
    pub waits: Arc<Waits>,
    /// The lines that kernels print, unless the settings turn them off.
    pub printer: Option<Printer>,
}

impl Guards {
    /// Passes on the lines that kernels have printed.
    fn print(&self) {
        if let Some(printer) = &self.printer
            && let Err(error) = printer.drain()
        {
            tracing::error!("cannot read the lines that kernels have printed: {error}");
        }
    }
}

/// Sets the abort word of the control page `page`, so that waiting calls of kernels end. Logs an error if the memory cannot
/// be written.
pub fn set_abort_word(page: &dyn Memory) {
    let written = page.write(offset_of!(ControlPage, abort) as u64, bytemuck::bytes_of(&1u32));
    if let Err(error) = written.and_then(|()| page.flush()) {
        tracing::error!("the abort word of the kernels cannot be written: {error}");
    }
}

/// Logs a warning, once for all PEs of this process that have it within a second.
fn warn_once(text: String) {
    const TOGETHER: Duration = Duration::from_secs(1);
    static LAST: Mutex<Option<(Instant, String)>> = Mutex::new(None);
    let mut last = lock(&LAST);
    let now = Instant::now();
    if last.as_ref().is_none_or(|(at, before)| *before != text || now.duration_since(*at) > TOGETHER) {
        tracing::warn!("{text}");
        *last = Some((now, text));
    }
}

/// The service thread.
struct Watcher {
    shared: Arc<Shared>,
    steps: Arc<Steps>,
    looks: Looks,
    connect_timeout: Duration,
}

/// Intervals between polls for requests.
struct Looks {
    /// After a launch or a request.
    first: Duration,
    /// The longest.
    last: Duration,
    /// Once all connections exist.
    idle: Duration,
}

impl Watcher {
    fn run(&self, events: &Receiver<ServiceEvent>) {
        let mut pause = self.looks.first;
        let mut next_check = Instant::now();
        let nics = self.shared.connections.nic_names();
        let mut watches: Vec<NicWatch> = nics.iter().map(|_| NicWatch::default()).collect();
        loop {
            if Instant::now() >= next_check {
                self.shared.guards.print();
                self.check_kernels();
                self.step_waits();
                self.give_up_late_requests();
                for (rail, (watch, nic)) in watches.iter_mut().zip(&nics).enumerate() {
                    self.check_nic(rail, nic, watch);
                }
                next_check = Instant::now() + IDLE_LOOK;
            }
            let event = if self.shared.running.load(Ordering::Acquire) != 0 {
                let complete = self.shared.connections.is_complete();
                match events.recv_timeout(if complete { self.looks.idle } else { pause }) {
                    Ok(event) => event,
                    Err(RecvTimeoutError::Timeout) => {
                        self.end_if_asked();
                        let is_asked = self.look();
                        pause = if is_asked { self.looks.first } else { (pause * 2).min(self.looks.last) };
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                // A launch may begin without an event, so the watchdog looks from time to time. So do the NICs.
                match events.recv_timeout(self.shared.guards.watchdog.interval().min(self.looks.idle)) {
                    Ok(event) => event,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            };
            match event {
                ServiceEvent::Launched => pause = self.looks.first,
                ServiceEvent::Asked => {
                    self.end_if_asked();
                    self.look();
                }
                ServiceEvent::Waits(mail) => {
                    self.shared.guards.waits.receive(&mail, &*self.shared.guards.bootstrap);
                    self.step_waits();
                }
                ServiceEvent::LookAtWaits => self.step_waits(),
                ServiceEvent::Stop => return,
            }
        }
    }

    /// Acts on the alarms of the watchdog.
    fn check_kernels(&self) {
        let watchdog = &self.shared.guards.watchdog;
        match watchdog.check_lanes().or_else(|| watchdog.check(Instant::now())) {
            None => {}
            Some(Alarm::Warning(text)) => tracing::warn!("{text}"),
            Some(Alarm::Limit(error)) => {
                tracing::error!("{error}");
                self.shared.guards.waits.known.keep_waits(self.in_flight());
                self.shared.guards.waits.ask(&*self.shared.guards.bootstrap);
                lock(&self.shared.failure).get_or_insert(error);
                set_abort_word(&*self.shared.guards.control.memory);
            }
            Some(Alarm::Fatal(text)) => end_with(&*self.shared.guards.bootstrap, &text),
        }
    }

    /// Performs the steps of the report of the waits that are due.
    fn step_waits(&self) {
        self.shared.guards.waits.step(&*self.shared.guards.bootstrap, &|| self.in_flight());
    }

    /// Describes the QPs with operations that are under way.
    fn in_flight(&self) -> Vec<String> {
        const QPS: usize = 8;
        self.shared.connections.in_flight(QPS).unwrap_or_else(|error| {
            tracing::debug!("the state of the QPs cannot be read: {error}");
            Vec::new()
        })
    }

    /// Acts on the events of a NIC.
    fn check_nic(&self, rail: usize, nic: &str, watch: &mut NicWatch) {
        let events = self.shared.connections.events(rail);
        for notice in watch.observe(events, Instant::now()) {
            match notice {
                Notice::Bridged => {
                    warn_once(format!("{nic} was down for less than a second, and is up again"))
                }
                Notice::Repaired => warn_once(format!("{nic} is up again")),
                Notice::Failed(why) => self.lose(rail, nic, &|_| true, |_| why.clone()),
                Notice::CqFailed(cqn) => self.lose(rail, nic, &|pair| pair.cqn == cqn, |qp| {
                    format!("the CQ of {qp} takes no completions any more")
                }),
                Notice::QpFailed(qpn) => self.lose(rail, nic, &|pair| pair.address.qpn == qpn, |qp| {
                    format!("{qp} reports a fatal error")
                }),
                Notice::RequestRefused(qpn) => {
                    let connections = &self.shared.connections;
                    if let Some(&i) = connections.find(rail, |pair| pair.address.qpn == qpn).first() {
                        let (pe, qp) = (connections.pe(), connections.describe(i));
                        tracing::warn!("PE {pe}: {nic}: {qp} refused a request of that PE");
                    }
                }
            }
        }
    }

    /// Ends the waits of kernels, because the QPs of a rail that `choose` selects are lost. `why` gets a description of the
    /// first one. If no QP is lost, it only logs that.
    fn lose(&self, rail: usize, nic: &str, choose: &dyn Fn(&Qp) -> bool, why: impl Fn(&str) -> String) {
        self.shared.step(|connections, post| {
            let lost = connections.find(rail, choose);
            let why = why(&lost.first().map_or(String::new(), |&i| connections.describe(i)));
            if lost.is_empty() {
                warn_once(format!("{nic} failed: {why}; no QP uses it"));
                return Ok(());
            }
            let error = Error::NicFailed { pe: connections.pe(), nic: nic.into(), why };
            lost.into_iter().for_each(|i| connections.lose(i, &error.to_string(), post));
            if !self.shared.failed.load(Ordering::Acquire) {
                tracing::error!("{error}");
            }
            Err(error)
        });
    }

    /// Ends the job if a kernel has requested it.
    fn end_if_asked(&self) {
        let mut exit = 0u32;
        let read = self
            .shared
            .guards
            .control
            .read(offset_of!(ControlPage, exit) as u64, bytemuck::bytes_of_mut(&mut exit));
        match read {
            Ok(()) if exit != 0 => end_job(&*self.shared.guards.bootstrap, exit as u8),
            Ok(()) => {}
            Err(error) => tracing::error!("cannot read the exit request of the kernels: {error}"),
        }
    }

    /// Serves the requests of kernels. Returns whether there were any.
    fn look(&self) -> bool {
        let asked = self.asked().unwrap_or_else(|error| {
            tracing::error!("cannot read the connection requests of the kernels: {error}");
            Vec::new()
        });
        let (any, epoch, now) = (!asked.is_empty(), self.shared.connections.epoch(), Instant::now());
        lock(&self.shared.requests).extend(asked.iter().map(|&i| (i, epoch, now)));
        self.steps.request(asked, epoch);
        any
    }

    /// Gives up the requests that are unanswered after the deadline of first contacts.
    fn give_up_late_requests(&self) {
        let within = self.connect_timeout;
        let mut requests = lock(&self.shared.requests);
        while let Some(&(i, epoch, _)) = requests.front().filter(|(.., at)| at.elapsed() >= within) {
            requests.pop_front();
            self.shared.step(|connections, post| connections.give_up(i, epoch, within, post));
        }
    }

    /// Returns the QPs that kernels have requested since the last call.
    fn asked(&self) -> Result<Vec<usize>> {
        const AT: u64 = offset_of!(ControlPage, requested) as u64;
        let mut any = 0u32;
        self.shared.guards.control.read(AT, bytemuck::bytes_of_mut(&mut any))?;
        if any == 0 {
            return Ok(Vec::new());
        }
        // Cleared before the handshakes are read: a concurrent request sets it again.
        self.shared.guards.control.write(AT, bytemuck::bytes_of(&0u32))?;
        fence(Ordering::SeqCst);
        self.shared.connections.take_wanted()
    }
}

impl Shared {
    /// Runs a step, sends the resulting messages, and keeps the first failure. The start of the job or a launch returns
    /// it, so it is not logged as an error.
    fn step(&self, step: impl FnOnce(&Connections, &mut dyn FnMut(Outgoing)) -> Result<()>) {
        let mut messages = Vec::new();
        let outcome = step(&self.connections, &mut |message| messages.push(message));
        {
            let mut failure = lock(&self.failure);
            if let Err(error) = outcome {
                tracing::debug!("{error}");
                if matches!(error, Error::NicFailed { .. } | Error::ConnectionLost { .. }) {
                    self.end_waits(&error);
                }
                failure.get_or_insert(error);
            }
        }
        self.changed.notify_all();
        for (to, message) in messages {
            if let Err(error) = self.guards.bootstrap.send(to, &message.encode()) {
                // The peer or this PE has left. The kernels' deadlines and the lost-PE watch report that.
                tracing::debug!("cannot send a message to PE {to}: {error}");
            }
        }
    }

    /// Ends the waits of kernels after a failure of a NIC.
    fn end_waits(&self, cause: &Error) {
        if self.failed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.guards.watchdog.job_failed(cause.to_string());
        set_abort_word(&*self.guards.control.memory);
    }
}
