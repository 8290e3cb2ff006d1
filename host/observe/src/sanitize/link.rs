//! The interface through which a PE sends requests to the sanitizer engine, in its own or another process.

use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_sanitizer::{
    Accesses, Actor, ActorId, Context, Done, Finding, HOSTS, Ids, JobState, MeetingId, Post, Reply, Request,
    TeamKey, TeamMeetings, TokenId,
};

use super::client::Client;

/// The connection of a process to the sanitizer engine.
///
/// The requests of a process are ordered. When a call returns, a request that other processes can see has its position
/// among the requests of all. If the engine is lost, the process of PE 0 has exited and the job is failing, so calls
/// return harmless replies from then on.
#[derive(Debug)]
pub(super) struct Link {
    transport: Transport,
    ids: Ids,
}

#[derive(Debug)]
enum Transport {
    /// All PEs are threads of this process and share the engine.
    Local(Arc<Mutex<JobState>>),
    /// PEs are processes, and the engine runs in the process of PE 0.
    Queue(Client),
}

impl Link {
    /// Creates the link used by all PEs of a job when they run as threads of this process.
    pub(super) fn here(state: Arc<Mutex<JobState>>) -> Self {
        Self { transport: Transport::Local(state), ids: Ids::of_process(0, 1) }
    }

    /// Creates the link of a PE that runs as its own process.
    pub(super) fn there(client: Client, pe: u32, n_pes: u32) -> Self {
        Self { transport: Transport::Queue(client), ids: Ids::of_process(pe, n_pes) }
    }

    pub(super) fn tell(&self, request: Request) {
        match &self.transport {
            Transport::Local(state) => drop(lock(state).apply(request)),
            Transport::Queue(client) => client.tell([request]),
        }
    }

    /// Sends the buffered requests.
    pub(super) fn flush(&self) {
        if let Transport::Queue(client) = &self.transport {
            client.flush();
        }
    }

    /// Sends the buffered requests, and announces that this process will send no more.
    pub(super) fn end(&self) {
        if let Transport::Queue(client) = &self.transport {
            client.end();
        }
    }

    /// Waits until all PEs have finished, and returns the findings of the job as received from PE 0. Returns none if
    /// the PEs are threads.
    pub(super) fn findings(&self) -> Vec<Finding> {
        match &self.transport {
            Transport::Local(_) => Vec::new(),
            Transport::Queue(client) => client.findings(),
        }
    }

    /// Registers the list of a block's plain accesses, so a local engine can take them when it needs them.
    pub(super) fn add_accesses(&self, accesses: &Arc<Accesses>) {
        if let Transport::Local(state) = &self.transport {
            lock(state).engine.add_accesses(Arc::clone(accesses));
        }
    }

    /// Passes on the remaining plain accesses of a block that has finished, and unregisters its list.
    pub(super) fn remove_accesses(&self, accesses: &Arc<Accesses>) {
        match &self.transport {
            Transport::Local(state) => lock(state).engine.remove_accesses(accesses),
            Transport::Queue(_) => self.take_accesses(accesses),
        }
    }

    /// Passes the plain accesses that a block has made so far to the engine.
    pub(super) fn take_accesses(&self, accesses: &Accesses) {
        if accesses.is_empty() {
            return;
        }
        match &self.transport {
            Transport::Local(state) => {
                accesses.sort();
                lock(state).engine.take_accesses(accesses);
            }
            Transport::Queue(client) => client.tell([Request::Accesses(accesses.take())]),
        }
    }

    /// Passes on the plain accesses of a block if the engine runs in another process, where it cannot look for stores
    /// to peers in the block's list.
    pub(super) fn take_stores(&self, accesses: &Accesses) {
        if let Transport::Queue(_) = self.transport {
            self.take_accesses(accesses);
        }
    }

    /// Sends requests that have no reply, in order and with no request of another PE in between.
    pub(super) fn tell_all(&self, requests: impl IntoIterator<Item = Request>) {
        match &self.transport {
            Transport::Local(state) => {
                let mut state = lock(state);
                for request in requests {
                    state.apply(request);
                }
            }
            Transport::Queue(client) => client.tell(requests),
        }
    }

    /// Sends a request and returns its reply, or `None` if the engine is lost.
    fn ask(&self, request: Request) -> Option<Reply> {
        match &self.transport {
            Transport::Local(state) => Some(lock(state).apply(request)),
            Transport::Queue(client) => client.ask(&request),
        }
    }

    /// Returns the ID of the host of `pe`, or `None` if the connection to the engine has failed.
    pub(super) fn host(&self, pe: u32) -> Option<ActorId> {
        match self.ask(Request::Host(pe)) {
            Some(Reply::Actor(host)) => Some(host),
            _ => None,
        }
    }

    /// Reports an operation as posted, and returns its ID.
    pub(super) fn post(&self, actor: ActorId, post: Post, completion: Done) -> ActorId {
        let operation = self.ids.operation();
        self.tell(Request::Post { operation, actor, post, completion });
        operation
    }

    /// Registers threads or streams whose steps happen after what `parent` has done so far. Returns their IDs.
    pub(super) fn fork(&self, parent: ActorId, actors: Vec<Actor>) -> Vec<ActorId> {
        let ids = self.ids.actors(actors.len());
        let actors = ids.iter().copied().zip(actors).collect();
        self.tell(Request::Fork { parent, actors });
        ids
    }

    /// Returns the operations that `quiet` would complete now.
    pub(super) fn earlier(&self, actor: ActorId, context: Context, pe: Option<u32>) -> Vec<ActorId> {
        match self.ask(Request::Earlier { actor, context, pe }) {
            Some(Reply::Actors(operations)) => operations,
            _ => Vec::new(),
        }
    }

    /// Returns those of `lanes` whose stores to other PEs are still in flight.
    pub(super) fn with_stores(&self, lanes: Vec<ActorId>) -> Vec<ActorId> {
        if lanes.is_empty() {
            return lanes;
        }
        match self.ask(Request::WithStores(lanes)) {
            Some(Reply::Actors(lanes)) => lanes,
            _ => Vec::new(),
        }
    }

    /// Registers the grid barrier of a launch with `blocks` blocks.
    pub(super) fn add_grid(&self, blocks: u32) -> MeetingId {
        let meeting = self.ids.meeting();
        self.tell(Request::AddGrid { meeting, blocks });
        meeting
    }

    /// Registers a team, and returns the IDs under which the engine tracks its collective calls and its split barrier.
    pub(super) fn add_team(&self, key: TeamKey, members: &[u32]) -> TeamMeetings {
        match self.ask(Request::AddTeam(key, members.to_vec())) {
            Some(Reply::Team(meetings)) => meetings,
            _ => (HOSTS, HOSTS),
        }
    }

    /// Returns the members that have not arrived at the collective call in which `member` waits.
    pub(super) fn missing(&self, meeting: MeetingId, member: u32) -> Vec<u32> {
        match self.ask(Request::Missing { meeting, member }) {
            Some(Reply::Members(members)) => members,
            _ => Vec::new(),
        }
    }

    /// Stores the current vector clock of `actor` in the engine, until the returned token is forgotten.
    pub(super) fn release(&self, actor: ActorId) -> TokenId {
        let token = self.ids.token();
        self.tell(Request::Release { actor, token });
        token
    }
}
