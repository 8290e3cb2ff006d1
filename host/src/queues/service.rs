//! The thread that connects QPs: for kernels that ask, and for peers that write.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_device::abi::ControlPage;

use super::connections::{ConnectMessage, Connections, Outgoing};
use super::info::QpInfo;
use crate::bootstrap::{Bootstrap, Mail};
use crate::exit::end_job;
use crate::machine::Region;
use crate::provider::Key;
use crate::teams::Inbox;
use crate::{Error, Result};

/// How often the thread looks whether a kernel asks: soon after its launch often, then less and less.
const FIRST_LOOK: Duration = Duration::from_micros(20);
const LAST_LOOK: Duration = Duration::from_millis(1);

/// The same where all connections are made, and a kernel can only ask for the end of the job.
const IDLE_LOOK: Duration = Duration::from_millis(50);

enum ServiceEvent {
    Mail(Mail),
    /// Connect everything.
    All,
    Launched,
    Stop,
}

/// The connections of a PE, and the thread that makes them. Dropping it ends the thread.
pub(crate) struct Service {
    events: Sender<ServiceEvent>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Queues of kernels that run, as far as is known.
    running: AtomicUsize,
}

struct State {
    connections: Connections,
    failure: Option<Error>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Starts the thread. Messages of peers may have come already; those about teams go to `teams`.
    ///
    /// # Errors
    /// If there is no thread, or somebody else reads this PE's messages.
    pub(crate) fn start(
        connections: Connections,
        bootstrap: Arc<dyn Bootstrap>,
        control: Region,
        teams: Inbox,
    ) -> Result<Self> {
        let (events, inbox) = channel();
        let mail = events.clone();
        bootstrap.on_mail(Box::new(move |message| {
            if let Some(message) = teams.keep(message) {
                // A message after the thread's end is for nobody.
                drop(mail.send(ServiceEvent::Mail(message)));
            }
        }))?;
        let state = Mutex::new(State { connections, failure: None });
        let shared = Arc::new(Shared { state, changed: Condvar::new(), running: AtomicUsize::new(0) });
        let worker = Worker { shared: Arc::clone(&shared), bootstrap, control };
        let name = "rushmem-connect".to_string();
        let thread = std::thread::Builder::new().name(name).spawn(move || worker.run(&inbox));
        Ok(Self { events, thread: Some(thread.map_err(Error::Thread)?), shared })
    }

    /// Makes every connection, and waits until they are there.
    ///
    /// # Errors
    /// What keeps one from being made, or that the deadline has passed.
    pub(crate) fn connect_all(&self, within: Duration) -> Result<()> {
        self.tell(ServiceEvent::All);
        let begin = Instant::now();
        let mut state = self.shared.lock();
        while !state.connections.complete() {
            if let Some(failure) = state.failure.take() {
                return Err(failure);
            }
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() {
                let why =
                    format!("{} connections were made within {within:?}", state.connections.connected());
                return Err(Error::Unavailable { what: "a connection to every PE".into(), why });
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// No kernel of this PE posts by these QPs to other PEs than `peers`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if one may already.
    pub(crate) fn limit(&self, qps: Range<usize>, peers: &[u32]) -> Result<()> {
        self.shared.lock().connections.limit(qps, peers)
    }

    /// A key of each NIC over `memory`. The keys must go before the service.
    ///
    /// # Errors
    /// What a NIC refuses.
    pub(crate) fn register(&self, memory: &Region) -> Result<Vec<Box<dyn Key>>> {
        self.shared.lock().connections.register(memory)
    }

    /// A kernel begins.
    pub(crate) fn launched(&self) {
        self.shared.running.fetch_add(1, Ordering::AcqRel);
        self.tell(ServiceEvent::Launched);
    }

    /// A kernel has ended.
    pub(crate) fn ended(&self) {
        self.shared.running.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a kernel runs, or may: nobody has waited for its end.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.running.load(Ordering::Acquire) != 0
    }

    /// Why a connection could not be made, once.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.shared.lock().failure.take()
    }

    /// Completes what kernels have posted to these QPs.
    ///
    /// # Errors
    /// That it is not complete by then, or ended with an error.
    pub(crate) fn drain(&self, mut qps: Range<usize>, until: Instant) -> Result<()> {
        qps.try_for_each(|i| self.shared.lock().connections.drain(i, until))
    }

    /// A QP that an error has ended, if there is one: its peer, and its number.
    ///
    /// # Errors
    /// If the machine cannot read its memory.
    pub(crate) fn poisoned(&self) -> Result<Option<(u32, u32)>> {
        self.shared.lock().connections.poisoned()
    }

    /// Ends all connections, as at the start. No kernel runs on any PE.
    ///
    /// # Errors
    /// If the machine cannot write its memory.
    pub(crate) fn reset(&self) -> Result<()> {
        let mut state = self.shared.lock();
        state.failure = None;
        state.connections.reset()
    }

    /// QPs that kernels may use now.
    pub(crate) fn connected(&self) -> usize {
        self.shared.lock().connections.connected()
    }

    /// What the NICs say of those.
    ///
    /// # Errors
    /// What a NIC refuses.
    pub(crate) fn query(&self) -> Result<Vec<QpInfo>> {
        self.shared.lock().connections.query()
    }

    fn tell(&self, event: ServiceEvent) {
        // The thread ends only with this object.
        let _ = self.events.send(event);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.tell(ServiceEvent::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by itself.
            let _ = thread.join();
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    bootstrap: Arc<dyn Bootstrap>,
    control: Region,
}

impl Worker {
    fn run(&self, events: &Receiver<ServiceEvent>) {
        let mut pause = FIRST_LOOK;
        loop {
            let event = if self.shared.running.load(Ordering::Acquire) != 0 {
                let complete = self.shared.lock().connections.complete();
                match events.recv_timeout(if complete { IDLE_LOOK } else { pause }) {
                    Ok(event) => event,
                    Err(RecvTimeoutError::Timeout) => {
                        self.end_if_asked();
                        pause = if self.look() { FIRST_LOOK } else { (pause * 2).min(LAST_LOOK) };
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                match events.recv() {
                    Ok(event) => event,
                    Err(_) => return,
                }
            };
            match event {
                ServiceEvent::Launched => pause = FIRST_LOOK,
                ServiceEvent::Mail(mail) => self.read(mail),
                ServiceEvent::All => {
                    let all = self.shared.lock().connections.usable();
                    self.request(all);
                }
                ServiceEvent::Stop => return,
            }
        }
    }

    /// Ends the job if a kernel has asked for that.
    fn end_if_asked(&self) {
        let mut exit = 0u32;
        let read = self.control.read(offset_of!(ControlPage, exit) as u64, bytemuck::bytes_of_mut(&mut exit));
        match read {
            Ok(()) if exit != 0 => end_job(&*self.bootstrap, exit as u8),
            Ok(()) => {}
            Err(error) => tracing::error!("what the kernels ask for cannot be read: {error}"),
        }
    }

    /// Looks whether kernels ask, and does what they ask for.
    fn look(&self) -> bool {
        let asked = self.asked().unwrap_or_else(|error| {
            tracing::error!("what the kernels ask for cannot be read: {error}");
            Vec::new()
        });
        let any = !asked.is_empty();
        self.request(asked);
        any
    }

    /// The QPs that kernels have asked for since the last look.
    fn asked(&self) -> Result<Vec<usize>> {
        const AT: u64 = offset_of!(ControlPage, requested) as u64;
        let mut any = 0u32;
        self.control.read(AT, bytemuck::bytes_of_mut(&mut any))?;
        if any == 0 {
            return Ok(Vec::new());
        }
        // Cleared before the handshakes are read: a request that comes meanwhile sets it again.
        self.control.write(AT, bytemuck::bytes_of(&0u32))?;
        fence(Ordering::SeqCst);
        self.shared.lock().connections.wanted()
    }

    fn request(&self, qps: impl IntoIterator<Item = usize>) {
        for i in qps {
            self.step(|connections, post| connections.request(i, post));
        }
    }

    fn read(&self, mail: Mail) {
        match serde_json::from_slice::<ConnectMessage>(&mail.bytes) {
            Ok(message) => self.step(|connections, post| connections.receive(mail.from, message, post)),
            Err(error) => tracing::error!("a message of PE {} makes no sense: {error}", mail.from),
        }
    }

    /// Takes a step, sends the messages that it makes necessary, and remembers the first failure.
    fn step(&self, step: impl FnOnce(&mut Connections, &mut dyn FnMut(Outgoing)) -> Result<()>) {
        let mut messages = Vec::new();
        {
            let mut state = self.shared.lock();
            let outcome = step(&mut state.connections, &mut |message| messages.push(message));
            if let Err(error) = outcome {
                tracing::error!("{error}");
                state.failure.get_or_insert(error);
            }
        }
        self.shared.changed.notify_all();
        for (to, message) in messages {
            let sent = serde_json::to_vec(&message).map_err(|e| e.to_string());
            let sent = sent.and_then(|bytes| self.bootstrap.send(to, &bytes).map_err(|e| e.to_string()));
            if let Err(error) = sent {
                // The peer, or this PE, has left: what waits for the connection learns that from its own watch.
                tracing::debug!("no message to PE {to}: {error}");
            }
        }
    }
}
