//! The steps of the host of a PE.

use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use rushmem_base::lock;
use rushmem_device::{Handle, Team};
use rushmem_sanitizer::{
    ActorId, Buffers, Call, Context, HOSTS, MeetingId, Request, Span, TokenId, Until, Wait, interned,
};

use super::link::Link;
use super::{Addresses, JobEnd, Sanitizer};

/// What an actor knew at one time, for another actor, or `None` if nobody watches.
pub type Seen = Option<Knowledge>;

/// What an actor knew at one time. The engine holds it until this is dropped.
#[derive(Debug)]
pub struct Knowledge {
    sanitizer: Arc<Sanitizer>,
    token: TokenId,
}

impl Knowledge {
    /// Returns the request that makes an actor know it.
    pub(super) fn acquired_by(&self, actor: ActorId) -> Request {
        Request::Acquire { actor, token: self.token }
    }
}

impl Drop for Knowledge {
    fn drop(&mut self) {
        self.sanitizer.link.tell(Request::Forget(self.token));
    }
}

/// The sanitizer as a PE sees it. Does nothing if the job has none.
#[derive(Clone, Debug, Default)]
pub struct PeWatch(pub(super) Option<Arc<Watched>>);

/// The launches that a host waits for.
#[derive(Debug, Default)]
struct HostWaits {
    /// The last call that has announced a wait.
    announced: Option<Call>,
    /// The threads that have made calls.
    threads: HashSet<ThreadId>,
    /// The host or stream that launches, for each wait.
    waits: Vec<(ActorId, Call)>,
    /// The lanes of each running launch, by the host or stream that has launched it.
    running: HashMap<ActorId, Vec<ActorId>>,
}

#[derive(Clone, Debug)]
pub(super) struct TeamWatch {
    generation: u32,
    pub(super) whole: MeetingId,
    /// The meeting of the split barrier.
    pub(super) split: MeetingId,
    pub(super) members: Vec<u32>,
}

/// A PE that the sanitizer watches. Its host threads count as one.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) pe: u32,
    pub(super) host: ActorId,
    sanitizer: Arc<Sanitizer>,
    launches: AtomicU32,
    pub(super) streams: AtomicU32,
    addresses: Mutex<Arc<Addresses>>,
    host_waits: Mutex<HostWaits>,
    /// The teams of this PE, by slot.
    teams: Mutex<HashMap<u32, TeamWatch>>,
    /// Lanes that have returned with stores to peers in flight, each with its launch unless that has finished.
    with_stores: Mutex<Vec<(Option<u32>, ActorId)>>,
}

impl Watched {
    pub(super) fn link(&self) -> &Link {
        &self.sanitizer.link
    }

    /// Whether the waits of the job have been aborted.
    pub(super) fn is_over(&self) -> bool {
        self.sanitizer.is_over.load(Ordering::Relaxed)
    }

    /// Sends a request that has no reply.
    pub(super) fn tell(&self, request: Request) {
        self.link().tell(request);
    }

    /// Sends requests that have no reply, in order and without any other in between.
    pub(super) fn tell_all(&self, requests: impl IntoIterator<Item = Request>) {
        self.link().tell_all(requests);
    }

    /// Returns what an actor knows, for others.
    pub(super) fn release(&self, actor: ActorId) -> Seen {
        let token = self.link().release(actor);
        Some(Knowledge { sanitizer: Arc::clone(&self.sanitizer), token })
    }

    /// Returns a team of this PE, if it exists.
    pub(super) fn team(&self, (slot, generation): (u32, u32)) -> Option<TeamWatch> {
        lock(&self.teams).get(&slot).filter(|known| known.generation == generation).cloned()
    }

    /// Returns the memory that kernels can access now.
    pub(super) fn addresses(&self) -> Arc<Addresses> {
        Arc::clone(&lock(&self.addresses))
    }
}

impl PeWatch {
    /// Creates the sanitizer of `pe`.
    pub fn new(sanitizer: Option<&Arc<Sanitizer>>, pe: u32) -> Self {
        let watched = |sanitizer: &Arc<Sanitizer>| {
            Some(Arc::new(Watched {
                pe,
                host: sanitizer.link.host(pe)?,
                sanitizer: Arc::clone(sanitizer),
                launches: AtomicU32::new(0),
                streams: AtomicU32::new(0),
                addresses: Mutex::default(),
                host_waits: Mutex::default(),
                teams: Mutex::default(),
                with_stores: Mutex::default(),
            }))
        };
        Self(sanitizer.and_then(watched))
    }

    /// Sets the memory that kernels can access from now on.
    pub fn set_addresses(&self, addresses: impl FnOnce() -> Addresses) {
        if let Some(watched) = &self.0 {
            *lock(&watched.addresses) = Arc::new(addresses());
        }
    }

    /// Records that the host reads memory.
    #[track_caller]
    pub fn read(&self, name: &'static str, handle: Handle) {
        let call = Call { name, site: Location::caller().into() };
        self.access(handle, |actor, span| Request::Load { actor, span, call });
    }

    /// Records that the host writes memory.
    #[track_caller]
    pub fn write(&self, name: &'static str, handle: Handle) {
        let call = Call { name, site: Location::caller().into() };
        self.access(handle, |actor, span| Request::Store { actor, span, call });
    }

    /// Records the start of an object's lifetime. Reports name it by `name`, unless that is empty, and by its line.
    pub fn alloc(&self, handle: Handle, name: &str, site: &'static Location<'static>) {
        let label = || Call { name: interned(name), site: site.into() };
        self.access(handle, |_, span| Request::Alloc { span, label: label() });
    }

    /// Records that an object is freed.
    #[track_caller]
    pub fn free(&self, name: &'static str, handle: Handle) {
        let call = Call { name, site: Location::caller().into() };
        self.access(handle, |actor, span| Request::Free { actor, span, call });
    }

    /// Records that all operations of a context are complete.
    pub fn complete(&self, context: u32) {
        if let Some(watched) = &self.0 {
            let context = Context::Queues { pe: watched.pe, context };
            watched.tell(Request::Quiet { actor: watched.host, context, pe: None });
        }
    }

    fn access(&self, handle: Handle, request: impl FnOnce(ActorId, Span) -> Request) {
        let Some(watched) = &self.0 else { return };
        if let Some(span) = watched.addresses().own(handle) {
            watched.tell(request(watched.host, span));
        }
    }

    /// Performs an exchange of all hosts.
    #[track_caller]
    pub fn meet<R>(&self, exchange: impl FnOnce() -> R) -> R {
        let Some(watched) = &self.0 else { return exchange() };
        let call = Call { name: "host_sync", site: Location::caller().into() };
        let (actor, meeting, member) = (watched.host, HOSTS, watched.pe);
        let wait = watched.has_one_thread().then(|| {
            let at = "a collective call of the hosts".into();
            Request::WaitForMembers { actor, call, meeting, member, at }
        });
        watched.tell_all([Request::Arrive { actor, meeting, member }].into_iter().chain(wait));
        let result = exchange();
        let buffers = Buffers::default();
        watched.tell_all([Request::Wake(actor), Request::Leave { actor, meeting, member, buffers, call }]);
        result
    }

    /// Records a new team of this PE.
    pub fn add_team(&self, team: Team, members: &[u32]) {
        if let Some(watched) = &self.0 {
            let (slot, generation) = (team.slot(), team.generation());
            let key = (generation, slot, members.first().copied());
            let (whole, split) = watched.link().add_team(key, members);
            let team = TeamWatch { generation, whole, split, members: members.to_vec() };
            lock(&watched.teams).insert(slot, team);
        }
    }

    /// Records that a team is destroyed.
    pub fn remove_team(&self, team: Team) {
        if let Some(watched) = &self.0 {
            lock(&watched.teams).remove(&team.slot());
        }
    }

    /// Records that the host waits next, at this line of the program.
    #[track_caller]
    pub fn announce_wait(&self, name: &'static str) {
        if let Some(watched) = &self.0 {
            let call = Call { name, site: Location::caller().into() };
            lock(&watched.host_waits).announced = Some(call);
        }
    }

    /// Registers `end`, which is called if the waits of the job cannot end.
    pub fn on_deadlock(&self, end: impl Fn(&str) + Send + 'static) {
        if let Some(watched) = &self.0 {
            watched.sanitizer.on_deadlock(JobEnd(Box::new(end)));
        }
    }

    /// Aborts loops of kernels that only poll a word: after the loss of a PE, nobody may ever write it.
    pub fn end_loops(&self) {
        if let Some(watched) = &self.0 {
            watched.sanitizer.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the job has failed, so its waits may not end, but not because of a deadlock.
    pub fn job_failed(&self) {
        if let Some(watched) = &self.0 {
            watched.tell(Request::JobFailed);
        }
    }

    /// Records that the host's last step has completed.
    pub fn end(&self) {
        if let Some(watched) = &self.0 {
            watched.tell(Request::End(watched.host));
        }
    }

    /// Returns what the host knows, for a stream.
    pub fn release(&self) -> Seen {
        let watched = self.0.as_ref()?;
        watched.release(watched.host)
    }

    /// Passes what a stream knew to the host.
    pub fn acquire(&self, seen: Option<&Knowledge>) {
        if let (Some(watched), Some(seen)) = (&self.0, seen) {
            watched.tell(seen.acquired_by(watched.host));
        }
    }
}

impl Watched {
    /// Records that a lane has returned with stores to peers in flight. A later fence of another lane covers them.
    pub(super) fn ends_with_stores(&self, launch: u32, lane: ActorId) {
        lock(&self.with_stores).push((Some(launch), lane));
    }

    /// Drops the lanes of finished launches that have no stores to peers in flight. `launch` has just finished.
    pub(super) fn forget_complete_stores(&self, launch: u32) {
        let mut lanes = lock(&self.with_stores);
        let (ended, running): (Vec<_>, Vec<_>) =
            lanes.drain(..).partition(|(of, _)| of.is_none_or(|of| of == launch));
        let left = self.link().with_stores(ended.into_iter().map(|(_, lane)| lane).collect());
        lanes.extend(left.into_iter().map(|lane| (None, lane)).chain(running));
    }

    /// Returns the lanes that have returned with stores to peers in flight.
    pub(super) fn ended_with_stores(&self) -> Vec<ActorId> {
        lock(&self.with_stores).iter().map(|(_, lane)| *lane).collect()
    }

    /// Whether a single host thread has made all calls so far. The waits of a host with several threads are not known.
    fn has_one_thread(&self) -> bool {
        let mut waits = lock(&self.host_waits);
        waits.threads.insert(thread::current().id());
        waits.threads.len() == 1
    }

    /// Records that the host waits for the launches of a stream, or for its own.
    pub(super) fn host_waits(&self, parent: ActorId, call: Call) {
        if !self.has_one_thread() {
            return;
        }
        let mut waits = lock(&self.host_waits);
        let call = waits.announced.take().unwrap_or(call);
        waits.waits.push((parent, call));
        if let Some(lanes) = waits.running.get(&parent) {
            self.wait_for_ends(call, lanes);
        }
    }

    /// Records that a wait of the host is over.
    pub(super) fn host_goes_on(&self, parent: ActorId) {
        let mut waits = lock(&self.host_waits);
        waits.waits.retain(|(awaited, _)| *awaited != parent);
        self.tell(Request::Wake(self.host));
    }

    /// Records that all lanes of a launch have started.
    pub(super) fn launch_runs(&self, parent: ActorId, lanes: Vec<ActorId>) {
        let mut waits = lock(&self.host_waits);
        if let Some((_, call)) = waits.waits.iter().find(|(awaited, _)| *awaited == parent) {
            self.wait_for_ends(*call, &lanes);
        }
        waits.running.insert(parent, lanes);
    }

    /// Records that a launch has finished.
    pub(super) fn launch_ends(&self, parent: ActorId) {
        let mut waits = lock(&self.host_waits);
        waits.running.remove(&parent);
        if parent == self.host {
            waits.waits.retain(|(awaited, _)| *awaited != parent);
        }
        self.tell(Request::Wake(self.host));
    }

    fn wait_for_ends(&self, call: Call, lanes: &[ActorId]) {
        let until = Until::Ends { actors: lanes.to_vec() };
        self.tell(Request::Wait { actor: self.host, wait: Wait { call, until } });
    }

    /// Allocates the index of the next launch.
    pub(super) fn next_launch(&self) -> u32 {
        self.launches.fetch_add(1, Ordering::Relaxed)
    }
}
