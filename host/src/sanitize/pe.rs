//! The steps of the host of a PE.

use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use rushmem_base::lock;
use rushmem_device::{Handle, Team, kernel};
use rushmem_sanitizer::{Actor, ActorId, Buffers, Call, Context, Span, Token, Until, Wait};

use super::{Addresses, HOSTS, JobEnd, LaunchWatch, Sanitizer, State, StreamWatch};
use crate::native::Grid;

/// The knowledge of an actor at one time, for another actor; `None` if nobody watches.
pub(crate) type Seen = Option<Token>;

/// The sanitizer as a PE sees it. It does nothing if the job has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeWatch(Option<Arc<Watched>>);

/// The waits of a host for launches.
#[derive(Debug, Default)]
struct HostWaits {
    /// The last call that has announced a wait.
    announced: Option<Call>,
    /// The threads that have made calls.
    threads: HashSet<ThreadId>,
    /// The host or the stream that launches, for each wait.
    waits: Vec<(ActorId, Call)>,
    /// The lanes of each launch that runs, by the host or the stream that has launched it.
    running: HashMap<ActorId, Vec<ActorId>>,
}

/// A PE that the sanitizer watches. Its host threads count as one.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) pe: u32,
    pub(super) host: ActorId,
    sanitizer: Arc<Sanitizer>,
    launches: AtomicU32,
    streams: AtomicU32,
    addresses: Mutex<Arc<Addresses>>,
    host_waits: Mutex<HostWaits>,
    /// Lanes that have ended with stores to peers in flight.
    with_stores: Mutex<Vec<ActorId>>,
}

impl Watched {
    /// Calls `f` with the engine.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.sanitizer.lock())
    }

    /// Returns the memory that kernels reach now.
    pub(super) fn addresses(&self) -> Arc<Addresses> {
        Arc::clone(&lock(&self.addresses))
    }
}

impl PeWatch {
    /// Returns the sanitizer of `pe`.
    pub(crate) fn new(sanitizer: Option<&Arc<Sanitizer>>, pe: u32) -> Self {
        let watched = |sanitizer: &Arc<Sanitizer>| {
            Some(Arc::new(Watched {
                pe,
                host: *sanitizer.hosts.get(pe as usize)?,
                sanitizer: Arc::clone(sanitizer),
                launches: AtomicU32::new(0),
                streams: AtomicU32::new(0),
                addresses: Mutex::default(),
                host_waits: Mutex::default(),
                with_stores: Mutex::default(),
            }))
        };
        Self(sanitizer.and_then(watched))
    }

    /// Sets the memory that kernels reach from now on.
    pub(crate) fn set_addresses(&self, addresses: impl FnOnce() -> Addresses) {
        if let Some(watched) = &self.0 {
            *lock(&watched.addresses) = Arc::new(addresses());
        }
    }

    /// Notes that the host reads memory.
    #[track_caller]
    pub(crate) fn read(&self, name: &'static str, handle: Handle) {
        let call = Call { name, site: Location::caller().into() };
        self.access(handle, |watched, state, span| state.engine.load(watched.host, span, call));
    }

    /// Notes that the host writes memory.
    #[track_caller]
    pub(crate) fn write(&self, name: &'static str, handle: Handle) {
        let call = Call { name, site: Location::caller().into() };
        self.access(handle, |watched, state, span| state.engine.store(watched.host, span, call));
    }

    /// Notes the begin of an object's life.
    pub(crate) fn alloc(&self, handle: Handle) {
        self.access(handle, |_, state, span| state.engine.alloc(span));
    }

    /// Notes the end of an object's life.
    #[track_caller]
    pub(crate) fn free(&self, name: &'static str, handle: Handle) {
        let call = Call { name, site: Location::caller().into() };
        self.access(handle, |watched, state, span| state.engine.free(watched.host, span, call));
    }

    /// Notes that all operations of a context are complete.
    pub(crate) fn complete(&self, context: u32) {
        if let Some(watched) = &self.0 {
            let context = Context::Queues { pe: watched.pe, context };
            watched.with(|state| state.engine.quiet(watched.host, context, None));
        }
    }

    fn access(&self, handle: Handle, note: impl FnOnce(&Watched, &mut State, Span)) {
        let Some(watched) = &self.0 else { return };
        if let Some(span) = watched.addresses().own(handle) {
            watched.with(|state| note(watched, state, span));
        }
    }

    /// Makes an exchange of all hosts.
    #[track_caller]
    pub(crate) fn meet<R>(&self, exchange: impl FnOnce() -> R) -> R {
        let Some(watched) = &self.0 else { return exchange() };
        let call = Call { name: "host_sync", site: Location::caller().into() };
        watched.with(|state| {
            state.engine.arrive(watched.host, HOSTS, watched.pe);
            let pes = state.engine.missing(HOSTS, watched.pe);
            if watched.has_one_thread() && !pes.is_empty() {
                let until = Until::Members { at: "a collective call of the hosts".into(), pes };
                state.engine.wait(watched.host, Wait { call, until });
            }
        });
        let result = exchange();
        watched.with(|state| state.engine.wake(watched.host));
        let buffers = Buffers::default();
        watched.with(|state| state.engine.leave(watched.host, HOSTS, watched.pe, &buffers, call));
        result
    }

    /// Notes a new team of this PE.
    pub(crate) fn add_team(&self, team: Team, members: &[u32]) {
        if let Some(watched) = &self.0 {
            watched.with(|state| state.add_team(watched.pe, team, members));
        }
    }

    /// Notes the end of a team.
    pub(crate) fn remove_team(&self, team: Team) {
        if let Some(watched) = &self.0 {
            watched.with(|state| state.remove_team(watched.pe, team));
        }
    }

    /// Notes that the host waits next, at this line of the program.
    #[track_caller]
    pub(crate) fn announce_wait(&self, name: &'static str) {
        if let Some(watched) = &self.0 {
            let call = Call { name, site: Location::caller().into() };
            lock(&watched.host_waits).announced = Some(call);
        }
    }

    /// Calls `end` if the waits of the job cannot end.
    pub(crate) fn on_deadlock(&self, end: impl Fn(&str) + Send + 'static) {
        if let Some(watched) = &self.0 {
            watched.with(|state| state.ends.push(JobEnd(Box::new(end))));
        }
    }

    /// Notes that the job has failed. Its waits may not end, but for another reason.
    pub(crate) fn job_failed(&self) {
        if let Some(watched) = &self.0 {
            watched.with(|state| state.has_failed = true);
        }
    }

    /// Notes the end of the host's last step.
    pub(crate) fn end(&self) {
        if let Some(watched) = &self.0 {
            watched.with(|state| state.engine.end(watched.host));
        }
    }

    /// Returns what the host knows, for a stream.
    pub(crate) fn release(&self) -> Seen {
        let watched = self.0.as_ref()?;
        Some(watched.with(|state| state.engine.release(watched.host)))
    }

    /// Lets the host know what a stream knew.
    pub(crate) fn acquire(&self, seen: Option<&Token>) {
        if let (Some(watched), Some(token)) = (&self.0, seen) {
            watched.with(|state| state.engine.acquire(watched.host, token));
        }
    }

    /// Returns a new stream.
    pub(crate) fn stream(&self) -> StreamWatch {
        let Some(watched) = &self.0 else { return StreamWatch::default() };
        let stream = watched.streams.fetch_add(1, Ordering::Relaxed);
        let actor = Actor::Stream { pe: watched.pe, stream };
        let actor = watched.with(|state| state.engine.fork(watched.host, actor));
        StreamWatch::new(Arc::clone(watched), actor)
    }

    /// Returns the watch of a launch that the host makes itself.
    pub(crate) fn launch(&self, grid: Grid, call: &kernel::Call) -> Option<Arc<LaunchWatch>> {
        let watched = self.0.as_ref()?;
        let (name, site) = call.operation().unwrap_or((call.name(), Location::caller()));
        watched.host_waits(watched.host, Call { name, site: site.into() });
        Some(LaunchWatch::new(Arc::clone(watched), watched.host, grid, call))
    }
}

impl Watched {
    /// Notes that a lane has ended with stores to peers in flight. A later fence of another lane covers them.
    pub(super) fn ends_with_stores(&self, lane: ActorId) {
        let mut lanes = lock(&self.with_stores);
        self.with(|state| lanes.retain(|&lane| state.engine.is_in_flight(Context::Stores(lane))));
        lanes.push(lane);
    }

    /// Returns the lanes that have ended with stores to peers in flight.
    pub(super) fn ended_with_stores(&self) -> Vec<ActorId> {
        lock(&self.with_stores).clone()
    }

    /// Returns whether one thread of the host has made all calls so far. The waits of a host with several are not known.
    fn has_one_thread(&self) -> bool {
        let mut waits = lock(&self.host_waits);
        waits.threads.insert(thread::current().id());
        waits.threads.len() == 1
    }

    /// Notes that the host waits for the launches of a stream, or for its own.
    pub(super) fn host_waits(&self, parent: ActorId, call: Call) {
        if !self.has_one_thread() {
            return;
        }
        self.with(|state| {
            let mut waits = lock(&self.host_waits);
            let call = waits.announced.take().unwrap_or(call);
            waits.waits.push((parent, call));
            if let Some(lanes) = waits.running.get(&parent) {
                let until = Until::Ends { actors: lanes.clone() };
                state.engine.wait(self.host, Wait { call, until });
            }
        });
    }

    /// Notes the end of a wait of the host.
    pub(super) fn host_goes_on(&self, parent: ActorId) {
        self.with(|state| {
            lock(&self.host_waits).waits.retain(|(awaited, _)| *awaited != parent);
            state.engine.wake(self.host);
        });
    }

    /// Notes that all lanes of a launch have begun.
    pub(super) fn launch_runs(&self, state: &mut State, parent: ActorId, lanes: Vec<ActorId>) {
        let mut waits = lock(&self.host_waits);
        if let Some((_, call)) = waits.waits.iter().find(|(awaited, _)| *awaited == parent) {
            let until = Until::Ends { actors: lanes.clone() };
            state.engine.wait(self.host, Wait { call: *call, until });
        }
        waits.running.insert(parent, lanes);
    }

    /// Notes that a launch has ended.
    pub(super) fn launch_ends(&self, parent: ActorId) {
        self.with(|state| {
            let mut waits = lock(&self.host_waits);
            waits.running.remove(&parent);
            if parent == self.host {
                waits.waits.retain(|(awaited, _)| *awaited != parent);
            }
            state.engine.wake(self.host);
        });
    }

    /// Returns the number of the next launch.
    pub(super) fn next_launch(&self) -> u32 {
        self.launches.fetch_add(1, Ordering::Relaxed)
    }
}
