//! Translates the steps of a PE's host, such as memory accesses, launches and collective calls, into sanitizer
//! requests.

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

/// Snapshot of the sanitizer's view of a host or stream, to be acquired by another one. `None` if the job runs without
/// the sanitizer.
pub type Seen = Option<Knowledge>;

/// Snapshot of which steps happened before a host or stream's current step. The engine stores it until this is dropped.
#[derive(Debug)]
pub struct Knowledge {
    sanitizer: Arc<Sanitizer>,
    token: TokenId,
}

impl Knowledge {
    /// Returns the request that orders later steps of `actor` after the steps in this snapshot.
    pub(super) fn acquired_by(&self, actor: ActorId) -> Request {
        Request::Acquire { actor, token: self.token }
    }
}

impl Drop for Knowledge {
    fn drop(&mut self) {
        self.sanitizer.link.tell(Request::Forget(self.token));
    }
}

/// The communication sanitizer's hooks for the host of a PE. They do nothing if the job runs without the sanitizer.
#[derive(Clone, Debug, Default)]
pub struct PeWatch(pub(super) Option<Arc<Watched>>);

/// The kernel launches for which a host is waiting or may wait.
#[derive(Debug, Default)]
struct HostWaits {
    /// Name and source line that the host has announced for its next wait.
    announced: Option<Call>,
    /// The host threads that have made waiting calls.
    threads: HashSet<ThreadId>,
    /// For each wait in progress, the host or stream whose launch is awaited, and the waiting call.
    waits: Vec<(ActorId, Call)>,
    /// The GPU threads of each running launch, by the host or stream that launched it.
    running: HashMap<ActorId, Vec<ActorId>>,
}

#[derive(Clone, Debug)]
pub(super) struct TeamWatch {
    generation: u32,
    pub(super) whole: MeetingId,
    /// ID under which the engine tracks the team's split barrier.
    pub(super) split: MeetingId,
    pub(super) members: Vec<u32>,
}

/// A PE observed by the sanitizer. All its host threads count as one.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) pe: u32,
    pub(super) host: ActorId,
    sanitizer: Arc<Sanitizer>,
    launches: AtomicU32,
    pub(super) streams: AtomicU32,
    addresses: Mutex<Arc<Addresses>>,
    host_waits: Mutex<HostWaits>,
    /// Teams with this PE as a member, by team slot.
    teams: Mutex<HashMap<u32, TeamWatch>>,
    /// GPU threads that have returned while their stores to peers were in flight. Each has the index of its launch, or
    /// `None` once the launch has finished.
    with_stores: Mutex<Vec<(Option<u32>, ActorId)>>,
}

impl Watched {
    pub(super) fn link(&self) -> &Link {
        &self.sanitizer.link
    }

    pub(super) fn is_over(&self) -> bool {
        self.sanitizer.is_over.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&self, request: Request) {
        self.link().tell(request);
    }

    /// Sends requests that have no reply, in order and with no request of another PE in between.
    pub(super) fn tell_all(&self, requests: impl IntoIterator<Item = Request>) {
        self.link().tell_all(requests);
    }

    /// Returns a snapshot of which steps happened before the current step of `actor`.
    pub(super) fn release(&self, actor: ActorId) -> Seen {
        let token = self.link().release(actor);
        Some(Knowledge { sanitizer: Arc::clone(&self.sanitizer), token })
    }

    /// Returns the team in `slot`, or `None` if the slot is empty or holds a team of another generation.
    pub(super) fn team(&self, (slot, generation): (u32, u32)) -> Option<TeamWatch> {
        lock(&self.teams).get(&slot).filter(|known| known.generation == generation).cloned()
    }

    pub(super) fn addresses(&self) -> Arc<Addresses> {
        Arc::clone(&lock(&self.addresses))
    }
}

impl PeWatch {
    /// Registers `pe` with the sanitizer. Without a sanitizer, the result ignores all events.
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

    /// Sets the memory that launches may access from now on. Running launches keep their view.
    pub fn set_addresses(&self, addresses: impl FnOnce() -> Addresses) {
        if let Some(watched) = &self.0 {
            *lock(&watched.addresses) = Arc::new(addresses());
        }
    }

    /// Records that the host reads the memory of `handle` in a call of this `name`.
    #[track_caller]
    pub fn read(&self, name: &'static str, handle: Handle) {
        let call = Call { name, site: Location::caller().into() };
        self.access(handle, |actor, span| Request::Load { actor, span, call });
    }

    /// Records that the host writes the memory of `handle` in a call of this `name`.
    #[track_caller]
    pub fn write(&self, name: &'static str, handle: Handle) {
        let call = Call { name, site: Location::caller().into() };
        self.access(handle, |actor, span| Request::Store { actor, span, call });
    }

    /// Records the start of an object's lifetime. Reports show `name`, unless it is empty, and `site`, where it was
    /// allocated.
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

    /// Records that all operations of a context have completed, as after `quiet`.
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

    /// Runs `exchange`, a collective operation of the hosts of all PEs, and records that it synchronizes them.
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

    /// Records that a team with this PE as a member has been created.
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

    /// Sets the call name and source line shown for the host's next wait: `name`, and the line of the caller.
    #[track_caller]
    pub fn announce_wait(&self, name: &'static str) {
        if let Some(watched) = &self.0 {
            let call = Call { name, site: Location::caller().into() };
            lock(&watched.host_waits).announced = Some(call);
        }
    }

    /// Registers a callback that is called with a reason when the sanitizer finds a deadlock. It must abort the PE's
    /// waits.
    pub fn on_deadlock(&self, end: impl Fn(&str) + Send + 'static) {
        if let Some(watched) = &self.0 {
            watched.sanitizer.on_deadlock(JobEnd(Box::new(end)));
        }
    }

    /// Aborts kernels of this process that poll a word in a loop. Called after the loss of a PE, when the word may
    /// never be written.
    pub fn end_loops(&self) {
        if let Some(watched) = &self.0 {
            watched.sanitizer.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the job has failed. From then on, waits that never finish are not reported as a deadlock.
    pub fn job_failed(&self) {
        if let Some(watched) = &self.0 {
            watched.tell(Request::JobFailed);
        }
    }

    /// Records that the host of this PE takes no more steps.
    pub fn end(&self) {
        if let Some(watched) = &self.0 {
            watched.tell(Request::End(watched.host));
        }
    }

    /// Returns a snapshot of the steps that happened before the host's current step, to be acquired by a stream.
    pub fn release(&self) -> Seen {
        let watched = self.0.as_ref()?;
        watched.release(watched.host)
    }

    /// Records that the host's next steps happen after the steps in `seen`, which a stream has released.
    pub fn acquire(&self, seen: Option<&Knowledge>) {
        if let (Some(watched), Some(seen)) = (&self.0, seen) {
            watched.tell(seen.acquired_by(watched.host));
        }
    }
}

impl Watched {
    /// Records that a GPU thread has returned with stores to peers in flight. A later fence of another thread covers
    /// them.
    pub(super) fn ends_with_stores(&self, launch: u32, lane: ActorId) {
        lock(&self.with_stores).push((Some(launch), lane));
    }

    /// Drops the GPU threads of finished launches whose stores to peers have completed. `launch` has just finished.
    pub(super) fn forget_complete_stores(&self, launch: u32) {
        let mut lanes = lock(&self.with_stores);
        let (ended, running): (Vec<_>, Vec<_>) =
            lanes.drain(..).partition(|(of, _)| of.is_none_or(|of| of == launch));
        let left = self.link().with_stores(ended.into_iter().map(|(_, lane)| lane).collect());
        lanes.extend(left.into_iter().map(|lane| (None, lane)).chain(running));
    }

    /// Returns the GPU threads that returned while their stores to peers were in flight.
    pub(super) fn ended_with_stores(&self) -> Vec<ActorId> {
        lock(&self.with_stores).iter().map(|(_, lane)| *lane).collect()
    }

    /// Whether all waiting calls so far came from one host thread. Waits are reported only then, since the engine has
    /// one actor for the whole host.
    fn has_one_thread(&self) -> bool {
        let mut waits = lock(&self.host_waits);
        waits.threads.insert(thread::current().id());
        waits.threads.len() == 1
    }

    /// Records that the host waits for the launches of `parent`, which is a stream or the host itself.
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

    /// Records that the host no longer waits for the launches of `parent`.
    pub(super) fn host_goes_on(&self, parent: ActorId) {
        let mut waits = lock(&self.host_waits);
        waits.waits.retain(|(awaited, _)| *awaited != parent);
        self.tell(Request::Wake(self.host));
    }

    /// Records that all threads of a launch have started.
    pub(super) fn launch_runs(&self, parent: ActorId, lanes: Vec<ActorId>) {
        let mut waits = lock(&self.host_waits);
        if let Some((_, call)) = waits.waits.iter().find(|(awaited, _)| *awaited == parent) {
            self.wait_for_ends(*call, &lanes);
        }
        waits.running.insert(parent, lanes);
    }

    /// Records that a launch of `parent` has finished.
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

    pub(super) fn next_launch(&self) -> u32 {
        self.launches.fetch_add(1, Ordering::Relaxed)
    }
}
