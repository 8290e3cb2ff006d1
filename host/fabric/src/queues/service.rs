//! Runs the service thread of a PE, which connects QPs on request of kernels and peers, and watches kernels and NICs.
//!
//! The service thread polls for requests of kernels. Each step of a connection runs on the [`Workers`] of the process;
//! messages from peers go to them directly, without passing through the service thread.

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
use super::connections::{Connections, Outgoing, peer_of};
use super::info::QpInfo;
use super::pe_nics::PeNics;
use super::private_queue::RemoteEnd;
use super::rail::Qp;
use super::watch::{NicWatch, Notice};
use super::workers::Workers;
use crate::provider::Keys;

/// Poll interval for kernels' requests, after a launch or a request. It doubles up to [`MAX_POLL_INTERVAL`] while there
/// are none.
const FIRST_POLL_INTERVAL: Duration = Duration::from_micros(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Poll interval with failover, for the events of NICs and for failed connections.
const FAILOVER_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Poll interval once all connections exist, when only a request to exit the job is left. Also the interval if kernels
/// wake the service thread whenever they wait.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(50);

enum ServiceEvent {
    /// A peer's message about the report of what kernels are waiting for.
    Waits(PeerMessage),
    Launched,
    /// A kernel is waiting, and may have left a request.
    Asked,
    /// A step of the report of what kernels are waiting for may be due.
    LookAtWaits,
    Stop,
}

/// The QP connections of a PE, and the thread that serves them. Dropping it stops the thread, waits for running steps
/// of connections, and discards queued ones.
pub struct Service {
    events: Sender<ServiceEvent>,
    thread: Option<JoinHandle<()>>,
    steps: Arc<Steps>,
    shared: Arc<Shared>,
    control: Region,
    /// Whether the service thread polls for requests while kernels run. Otherwise kernels wake it.
    polls: bool,
}

struct Shared {
    connections: Connections,
    guards: Guards,
    failure: Mutex<Option<Error>>,
    /// Notified after each step of a connection.
    changed: Condvar,
    /// Connection requests of this PE's kernels that may still be unanswered, oldest first: QP, epoch and time of the
    /// request.
    requests: Mutex<VecDeque<(usize, u64, Instant)>>,
    /// Number of launches that have not been waited for yet.
    running: AtomicUsize,
    /// Set once the failure of a NIC has aborted the waits of kernels.
    failed: AtomicBool,
}

/// Submits the connection steps of one PE to the workers. After it is closed, queued steps do nothing.
struct Steps {
    workers: Arc<Workers>,
    /// `None` once closed. A running step holds the read lock.
    shared: RwLock<Option<Arc<Shared>>>,
    /// PE number. Added to the keys of steps, to spread the QPs of different PEs over the workers.
    me: usize,
}

impl Steps {
    /// Queues a connection step on a worker. Steps with the same `key` run in order.
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

    /// Queues a step that handles a peer's connect message.
    fn receive(self: &Arc<Self>, mail: &PeerMessage) {
        let from = mail.from;
        match ConnectMessage::decode(&mail.bytes) {
            // Messages of a peer about one set keep their order. A local request may run on another worker; the lock
            // and the state of the QP decide which of the two creates it.
            Some(message) => {
                if let Some(shared) = &*self.shared.read().unwrap_or_else(PoisonError::into_inner) {
                    shared.connections.announce(from, &message);
                }
                self.submit(from as usize + message.set as usize, move |connections, post| {
                    connections.receive(from, message, post)
                });
            }
            None => tracing::error!("PE {from} sent a malformed message"),
        }
    }

    /// Queues steps that connect the QPs `qps`, requested in epoch `epoch`.
    fn request(self: &Arc<Self>, qps: impl IntoIterator<Item = usize>, epoch: u64) {
        for i in qps {
            self.submit(i, move |connections, post| connections.request(i, epoch, post));
        }
    }

    /// Queues steps that replace the connections of the QPs `qps`, which kernels have handed over in epoch `epoch`.
    fn fail_over(self: &Arc<Self>, qps: impl IntoIterator<Item = usize>, epoch: u64) {
        for i in qps {
            self.submit(i, move |connections, post| connections.fail_over(i, epoch, post));
        }
    }

    /// Closes the steps: waits for those that are running, and makes queued ones do nothing.
    fn end(&self) {
        *self.shared.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Service {
    /// Starts the service thread. Messages from peers may already have arrived. `keep` consumes the messages that are
    /// not for the service, and returns the others.
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
        let connections_fail_over = connections.fails_over();
        let shared = Arc::new(Shared {
            connections,
            guards,
            failure: Mutex::default(),
            changed: Condvar::new(),
            requests: Mutex::default(),
            running: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        });
        // A bootstrap with a token connects processes, with one PE each. Otherwise all PEs are threads of this process.
        let pes = if bootstrap.token().is_some() { 1 } else { bootstrap.n_pes() };
        let workers = Workers::of_process(pes)?;
        let steps = Arc::new(Steps { workers, shared: RwLock::new(Some(Arc::clone(&shared))), me });
        // The callback runs on the bootstrap's thread. It must not block, so it only queues.
        let (mail, receiver) = (events.clone(), Arc::clone(&steps));
        bootstrap.on_message(Box::new(move |message| match keep(message) {
            None => {}
            // The channel is closed once the thread has exited.
            Some(message) if is_waits_message(&message) => drop(mail.send(ServiceEvent::Waits(message))),
            Some(message) => receiver.receive(&message),
        }))?;
        let idle = if connections_fail_over { FAILOVER_POLL_INTERVAL } else { IDLE_POLL_INTERVAL };
        let [first, last] = if polls { [FIRST_POLL_INTERVAL, MAX_POLL_INTERVAL] } else { [idle; 2] };
        // On an oversubscribed machine, polling would take CPU time from the kernels it waits for.
        let [first, last, idle] = [first, last, idle].map(|look| crowd_deadline(look, local_pes));
        let looks = Looks { first, last, idle };
        let watcher =
            Watcher { shared: Arc::clone(&shared), steps: Arc::clone(&steps), looks, connect_timeout };
        let name = "rushmem-service".to_string();
        let thread = std::thread::Builder::new().name(name).spawn(move || watcher.run(&inbox));
        Ok(Self { events, thread: Some(thread.map_err(Error::Thread)?), steps, shared, control, polls })
    }

    /// Returns a function that waiting kernels call. It wakes the service thread if kernels have left requests.
    pub fn looker(&self) -> impl Fn() + Send + Sync + 'static {
        let (control, events) = (self.control.clone(), self.events.clone());
        move || {
            let is_set = |offset: usize| {
                let mut word = 0u32;
                // On a read error, wake the thread: it reports the error.
                control.read(offset as u64, bytemuck::bytes_of_mut(&mut word)).is_err() || word != 0
            };
            if is_set(offset_of!(ControlPage, requested)) || is_set(offset_of!(ControlPage, exit)) {
                // The thread may have exited with its PE.
                drop(events.send(ServiceEvent::Asked));
            }
        }
    }

    /// Connects all QPs that kernels may use, and waits for them.
    ///
    /// # Errors
    /// The first failure, or [`Error::Unavailable`] once `within` has passed.
    pub fn connect_all(&self, within: Duration) -> Result<()> {
        let connections = &self.shared.connections;
        self.steps.request(connections.usable(), connections.epoch());
        let begin = Instant::now();
        // Every step takes this lock between its work and its notification, so no wakeup is lost.
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

    /// Restricts kernels of this PE that post through the QPs `qps` to the PEs `peers`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a QP to another PE is already connected.
    pub fn limit(&self, qps: Range<usize>, peers: &[u32]) -> Result<()> {
        self.shared.connections.limit(qps, peers)
    }

    /// Registers `memory` with each NIC of the PE. The keys must be dropped before the service is.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] in a job with failover.
    /// - Fails if a NIC refuses the registration.
    pub fn register(&self, memory: &Region) -> Result<Vec<Keys>> {
        if self.shared.connections.fails_over() {
            let why = "with RUSHMEM_FAILOVER=on, kernels can only move keys of the first heap".into();
            return Err(Error::Unavailable { what: "the registration of other memory".into(), why });
        }
        self.shared.connections.register(memory)
    }

    /// Records the launch of a kernel.
    pub fn launched(&self) {
        if let Err(error) = self.shared.connections.launched(&self.shared.running) {
            // Operations to the PEs that were replaced return `PeerLost` then.
            tracing::error!("the connections to replaced PEs cannot be reset: {error}");
        }
        if self.polls {
            self.notify(ServiceEvent::Launched);
        }
    }

    /// Records that a launch has been waited for, and outputs the remaining lines that its kernel printed.
    pub fn ended(&self) {
        self.shared.guards.print();
        self.shared.running.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether a kernel may be running, because some launch has not been waited for.
    pub fn is_busy(&self) -> bool {
        self.shared.running.load(Ordering::Acquire) != 0
    }

    /// Asks the service thread to perform the due steps of its report on what kernels are waiting for.
    pub fn look_at_waits(&self) {
        self.notify(ServiceEvent::LookAtWaits);
    }

    /// Returns and clears the first connection error since the last call.
    pub fn take_failure(&self) -> Option<Error> {
        lock(&self.shared.failure).take().filter(|error| !self.shared.is_loss(error))
    }

    /// Waits until everything that kernels have posted to the QPs `qps` is complete. On success the data is in the
    /// peers' memory.
    ///
    /// `ends` returns what to read back in symmetric memory other than the heap, by PE and rail.
    ///
    /// # Errors
    /// An error if an operation failed, or is not complete at `until`.
    pub fn drain(
        &self,
        qps: Range<usize>,
        ends: impl Fn(u32, usize) -> Vec<RemoteEnd>,
        until: Instant,
    ) -> Result<()> {
        let (shared, connections) = (&self.shared, &self.shared.connections);
        for i in qps {
            while !shared.guards.is_lost(connections.place(i).0) {
                let mut messages = Vec::new();
                let drained = connections.drain(i, &ends, until, &mut |message| messages.push(message));
                shared.send(messages);
                if drained? {
                    break;
                }
                if Instant::now() > until {
                    let what = format!("the completion of {}", connections.describe(i));
                    return Err(Error::Unavailable { what, why: "its connection has failed".into() });
                }
                std::thread::sleep(FIRST_POLL_INTERVAL);
            }
        }
        Ok(())
    }

    /// Waits until all WRITEs that the NICs of this PE have acknowledged are in its memory.
    ///
    /// `ends` returns, for each rail, what to read in this PE's symmetric memory other than the heap.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a NIC cannot confirm that before `until`.
    pub fn flush(&self, ends: impl Fn(usize) -> Vec<RemoteEnd>, until: Instant) -> Result<()> {
        let rails = self.shared.connections.rails_to_flush();
        rails.into_iter().try_for_each(|rail| {
            let others = ends(rail);
            self.shared.connections.flush(rail, others, until)
        })
    }

    /// Returns the peer and the QPN of a QP that kernels have marked as failed (poisoned), if there is one.
    ///
    /// # Errors
    /// An error if the machine cannot read its memory.
    pub fn poisoned(&self) -> Result<Option<(u32, u32)>> {
        self.shared.connections.poisoned()
    }

    /// Returns the destination PE of a WQE that DC initiator `qpn` posted: the WQE in block `index`, or without an
    /// index the oldest one not known to be complete. Returns `None` if there is no such initiator.
    ///
    /// # Errors
    /// An error if the machine cannot read its memory.
    pub fn peer_of_wqe(&self, qpn: u32, index: Option<u16>) -> Result<Option<u32>> {
        self.shared.connections.peer_of_wqe(qpn, index)
    }

    /// Returns the peer and the QPN of a failed QP, even if no kernel has seen the error yet.
    ///
    /// # Errors
    /// An error if the machine cannot read its memory or a NIC refuses the query.
    pub fn failed_qp(&self) -> Result<Option<(u32, u32)>> {
        self.shared.connections.failed_qp()
    }

    /// Destroys all QPs and restores the initial, unconnected state. No kernel may be running on any PE.
    ///
    /// # Errors
    /// An error if the machine cannot write its memory.
    pub fn reset(&self) -> Result<()> {
        *lock(&self.shared.failure) = None;
        self.shared.connections.reset()
    }

    /// Returns the number of [resets](Self::reset) so far, which connected PEs have in common.
    pub fn epoch(&self) -> u64 {
        self.shared.connections.epoch()
    }

    /// Sets the number of resets to that of the other PEs, in a process that replaces a lost PE.
    pub fn enter(&self, epoch: u64) {
        self.shared.connections.enter(epoch);
    }

    /// Resets the QPs to PE `pe`, which was lost, for its replacement with the NICs `nics`, which this PE met in the job's epoch
    /// `since`. No kernel may post to these QPs or wait for them. Without [failover](Self::fails_over), none may be running.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if kernels would have to treat the new NICs differently.
    /// - An error if the machine cannot write its memory.
    pub fn renew(&self, pe: u32, nics: &PeNics, since: u64) -> Result<()> {
        let connections = &self.shared.connections;
        // It may be about the lost PE, which the job has survived.
        lock(&self.shared.failure).take_if(|error| peer_of(error) == Some(pe));
        lock(&self.shared.requests).retain(|(i, ..)| connections.place(*i).0 != pe);
        connections.renew(pe, nics, since, &self.shared.running)
    }

    /// Returns whether kernels that are running may continue with another connection.
    pub fn fails_over(&self) -> bool {
        self.shared.connections.fails_over()
    }

    /// Returns whether kernels were running when PEs were replaced, so a kernel has to request the connections to them.
    pub fn has_stale(&self) -> bool {
        self.shared.connections.has_stale()
    }

    /// Returns the descriptions of this PE's NICs.
    pub fn nics(&self) -> PeNics {
        self.shared.connections.own_nics()
    }

    /// Returns the number of QPs that kernels may use now.
    pub fn connected(&self) -> usize {
        self.shared.connections.connected()
    }

    /// Returns the number of PRM commands executed so far, on all NICs.
    pub fn commands(&self) -> u64 {
        self.shared.connections.commands()
    }

    /// Queries the NICs for the state of all QPs that kernels may use.
    ///
    /// # Errors
    /// Fails if a NIC refuses a query.
    pub fn query(&self) -> Result<Vec<QpInfo>> {
        self.shared.connections.query()
    }

    fn notify(&self, event: ServiceEvent) {
        // The thread exits only when this object is dropped.
        let _ = self.events.send(event);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.notify(ServiceEvent::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
        self.steps.end();
    }
}

/// Parameters that determine how fast the service thread reacts.
pub struct Pace {
    /// Number of PEs on this machine. Poll intervals grow with it if the machine is oversubscribed.
    pub local_pes: u32,
    /// Whether the service thread polls for requests. Needed for kernels that never sleep, and so never wake the
    /// thread.
    pub polls: bool,
    /// Time limit for connecting a requested QP.
    pub connect_timeout: Duration,
}

/// The parts of a PE that the service thread watches, or through which it reports failures.
pub struct Guards {
    pub bootstrap: Arc<dyn Bootstrap>,
    pub control: Region,
    pub watchdog: Arc<Watchdog>,
    pub waits: Arc<Waits>,
    /// Returns whether a PE was lost without making the job fail. `None` with fixed membership.
    pub is_lost: Option<Box<dyn Fn(u32) -> bool + Send + Sync>>,
    /// Outputs the lines that kernels print. `None` if the settings turn that off.
    pub printer: Option<Printer>,
}

impl Guards {
    fn is_lost(&self, pe: u32) -> bool {
        self.is_lost.as_ref().is_some_and(|is_lost| is_lost(pe))
    }

    /// Outputs the lines that kernels have printed so far.
    fn print(&self) {
        if let Some(printer) = &self.printer
            && let Err(error) = printer.drain()
        {
            tracing::error!("cannot read the lines that kernels have printed: {error}");
        }
    }
}

/// Sets the abort word in the control page `page`, which makes waiting calls of kernels fail. Logs an error if the
/// memory cannot be written.
pub fn set_abort_word(page: &dyn Memory) {
    let written = page.write(offset_of!(ControlPage, abort) as u64, bytemuck::bytes_of(&1u32));
    if let Err(error) = written.and_then(|()| page.flush()) {
        tracing::error!("the abort word of the kernels cannot be written: {error}");
    }
}

/// Logs a warning, unless another PE of this process logged the same within the last second.
fn warn_once(text: String) {
    const REPEAT_WINDOW: Duration = Duration::from_secs(1);
    static LAST: Mutex<Option<(Instant, String)>> = Mutex::new(None);
    let mut last = lock(&LAST);
    // PEs that share a NIC see its events at about the same time.
    let now = Instant::now();
    if last.as_ref().is_none_or(|(at, before)| *before != text || now.duration_since(*at) > REPEAT_WINDOW) {
        tracing::warn!("{text}");
        *last = Some((now, text));
    }
}

/// The state of the service thread.
struct Watcher {
    shared: Arc<Shared>,
    steps: Arc<Steps>,
    looks: Looks,
    connect_timeout: Duration,
}

/// Intervals at which the service thread polls for requests.
struct Looks {
    /// Interval after a launch or a request.
    first: Duration,
    /// Longest interval while requests may arrive.
    last: Duration,
    /// Interval once all connections exist.
    idle: Duration,
}

impl Watcher {
    fn run(&self, events: &Receiver<ServiceEvent>) {
        let mut pause = self.looks.first;
        let mut next_check = Instant::now();
        let nics = self.shared.connections.nic_names();
        let mut watches: Vec<NicWatch> = nics.iter().map(|_| NicWatch::new(self.fails_over())).collect();
        loop {
            // Checked by the clock rather than on timeouts, or a steady stream of events would starve the checks.
            if Instant::now() >= next_check {
                self.shared.guards.print();
                self.check_kernels();
                self.step_waits();
                self.give_up_late_requests();
                for (rail, (watch, nic)) in watches.iter_mut().zip(&nics).enumerate() {
                    self.check_nic(rail, nic, watch);
                }
                next_check = Instant::now() + self.looks.idle;
            }
            let event = if self.shared.running.load(Ordering::Acquire) != 0 {
                // Kernels may be running. Until all connections exist they may ask for one at any time.
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
                // A launch may start without an event, so the watchdog checks now and then, and so do the NICs.
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

    /// Checks the watchdog, and acts on its alarm: warns, aborts the waits of kernels, or exits the job.
    fn check_kernels(&self) {
        let watchdog = &self.shared.guards.watchdog;
        match watchdog.check_lanes().or_else(|| watchdog.check(Instant::now())) {
            None => {}
            Some(Alarm::Warning(text)) => tracing::warn!("{text}"),
            Some(Alarm::Limit(error)) => {
                tracing::error!("{error}");
                // What kernels wait for has to be recorded before the abort word makes them give up.
                self.shared.guards.waits.known.keep_waits(self.in_flight());
                self.shared.guards.waits.ask(&*self.shared.guards.bootstrap);
                lock(&self.shared.failure).get_or_insert(error);
                set_abort_word(&*self.shared.guards.control.memory);
            }
            Some(Alarm::Fatal(text)) => end_with(&*self.shared.guards.bootstrap, &text),
        }
    }

    /// Performs the steps that are due in the report of what kernels are waiting for.
    fn step_waits(&self) {
        self.shared.guards.waits.step(&*self.shared.guards.bootstrap, &|| self.in_flight());
    }

    /// Describes a few QPs with operations in flight, for the report.
    fn in_flight(&self) -> Vec<String> {
        const QPS: usize = 8;
        self.shared.connections.in_flight(QPS).unwrap_or_else(|error| {
            tracing::debug!("the state of the QPs cannot be read: {error}");
            Vec::new()
        })
    }

    /// Handles the events of rail `rail`'s NIC since the last call: fails the QPs that they affect, and logs them.
    fn check_nic(&self, rail: usize, nic: &str, watch: &mut NicWatch) {
        let events = self.shared.connections.events(rail);
        for notice in watch.observe(events, Instant::now()) {
            match notice {
                Notice::Bridged => warn_once(format!("{nic} was down for a moment, and is up again")),
                Notice::Repaired => {
                    warn_once(format!("{nic} is up again"));
                    self.change_nic(rail, true);
                }
                Notice::Failed(why) if self.fails_over() => {
                    warn_once(format!("{nic} failed: {why}"));
                    self.change_nic(rail, false);
                }
                Notice::Failed(why) => self.lose(rail, nic, &|_| true, |_| why.clone()),
                Notice::CqFailed(cqn) => self.lose(rail, nic, &|pair| pair.cqn == cqn, |qp| {
                    format!("the CQ of {qp} takes no completions any more")
                }),
                // Kernels see it in the CQ, and then hand the queue over.
                Notice::QpFailed(_) if self.fails_over() => {}
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

    /// Moves connections after the port of a NIC has gone down or come up, if the job has failover.
    fn change_nic(&self, nic: usize, is_up: bool) {
        if self.fails_over() {
            self.shared.step(|connections, post| {
                connections.nic_changed(nic, is_up, post);
                Ok(())
            });
        }
    }

    /// Marks the QPs of a rail that `choose` selects as failed, and aborts the waits of kernels. `why` gets a
    /// description of the first such QP. If there is none, the failure is only logged.
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
            // One error is enough: later ones are consequences, or affect a job that fails anyway.
            if !self.shared.failed.load(Ordering::Acquire) {
                tracing::error!("{error}");
            }
            Err(error)
        });
    }

    /// Exits the job if a kernel has requested it.
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

    /// Takes kernels' connection requests and queues steps for them. Returns whether there were any.
    fn look(&self) -> bool {
        let [first, next] = self.asked().unwrap_or_else(|error| {
            tracing::error!("cannot read the connection requests of the kernels: {error}");
            Default::default()
        });
        let (epoch, now) = (self.shared.connections.epoch(), Instant::now());
        let asked = first.iter().chain(&next);
        let any = asked.clone().next().is_some();
        // Recorded before the steps are queued: a step that never runs must time out as well.
        lock(&self.shared.requests).extend(asked.map(|&i| (i, epoch, now)));
        self.steps.request(first, epoch);
        self.steps.fail_over(next, epoch);
        any
    }

    fn fails_over(&self) -> bool {
        self.shared.connections.fails_over()
    }

    /// Abandons connection requests that are still unanswered after the connect timeout.
    fn give_up_late_requests(&self) {
        let within = self.connect_timeout;
        let mut requests = lock(&self.shared.requests);
        // In order of time, so stop at the first request that is not late. Answered ones are dropped, too: `give_up`
        // ignores them.
        while let Some(&(i, epoch, _)) = requests.front().filter(|(.., at)| at.elapsed() >= within) {
            requests.pop_front();
            if self.shared.connections.may_still_move(i, within) {
                // No kernel has been waiting for long: a port may have gone down before any used the QP.
                requests.push_back((i, epoch, Instant::now()));
                continue;
            }
            self.shared.step(|connections, post| connections.give_up(i, epoch, within, post));
        }
    }

    /// Returns the QPs that kernels have requested since the last call, as [`Connections::take_wanted`] does.
    fn asked(&self) -> Result<[Vec<usize>; 2]> {
        const AT: u64 = offset_of!(ControlPage, requested) as u64;
        let mut any = 0u32;
        self.shared.guards.control.read(AT, bytemuck::bytes_of_mut(&mut any))?;
        if any == 0 {
            return Ok(Default::default());
        }
        // Clear the flag before reading the handshakes: a concurrent request sets it again, and the next poll sees it.
        self.shared.guards.control.write(AT, bytemuck::bytes_of(&0u32))?;
        fence(Ordering::SeqCst);
        self.shared.connections.take_wanted()
    }
}

impl Shared {
    /// Runs a connection step, sends the resulting messages, and keeps the first failure. The start of the job or a
    /// launch returns that failure, so it is not logged as an error here.
    fn step(&self, step: impl FnOnce(&Connections, &mut dyn FnMut(Outgoing)) -> Result<()>) {
        let mut messages = Vec::new();
        let outcome = step(&self.connections, &mut |message| messages.push(message));
        {
            let mut failure = lock(&self.failure);
            if let Err(error) = outcome
                && !self.is_loss(&error)
            {
                // QPs that were in use are gone. Kernels that wait for their operations would wait until their
                // deadline.
                tracing::debug!("{error}");
                let ends_waits = match error {
                    Error::NicFailed { .. } => true,
                    // The peer may be about to be reported as lost, which the job survives. If not, the waits reach
                    // their deadlines.
                    Error::ConnectionLost { .. } => self.guards.is_lost.is_none(),
                    _ => false,
                };
                if ends_waits {
                    self.end_waits(&error);
                }
                failure.get_or_insert(error);
            }
        }
        self.changed.notify_all();
        // Sent after the locks are released: sending may block.
        self.send(messages);
    }

    fn send(&self, messages: Vec<Outgoing>) {
        for (to, message) in messages {
            if let Err(error) = self.guards.bootstrap.send(to, &message.encode()) {
                // The peer or this PE has left. The deadlines of kernels and the watch for lost PEs report that.
                tracing::debug!("cannot send a message to PE {to}: {error}");
            }
        }
    }

    /// Returns whether a connection failed because its peer was lost, which kernels notice themselves.
    fn is_loss(&self, error: &Error) -> bool {
        peer_of(error).is_some_and(|peer| self.guards.is_lost(peer))
    }

    /// Aborts the waits of kernels after a NIC has failed for the reason `cause`.
    fn end_waits(&self, cause: &Error) {
        if self.failed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.guards.watchdog.job_failed(cause.to_string());
        set_abort_word(&*self.guards.control.memory);
    }
}
