//! The way from a PE to the engine of its job.

use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_sanitizer::{
    Accesses, Actor, ActorId, Context, Done, Finding, HOSTS, Ids, JobState, MeetingId, Post, Reply, Request,
    TeamKey, TeamMeetings, TokenId,
};

use super::client::Client;

/// The way to the engine.
///
/// All requests of a process have one order. A request that other processes can see has its place among the requests of all
/// when the call returns. If the engine is lost, so is its process and with it the job: the calls then return harmless answers.
#[derive(Debug)]
pub(super) struct Link {
    transport: Transport,
    ids: Ids,
}

#[derive(Debug)]
enum Transport {
    /// All PEs are in this process, and lock the engine.
    Local(Arc<Mutex<JobState>>),
    /// PEs are processes, and the one of PE 0 has the engine.
    Queue(Client),
}

impl Link {
    /// Returns the way of all PEs to an engine in their process.
    pub(super) fn here(state: Arc<Mutex<JobState>>) -> Self {
        Self { transport: Transport::Local(state), ids: Ids::of_process(0, 1) }
    }

    /// Returns the way of a PE that is a process.
    pub(super) fn there(client: Client, pe: u32, n_pes: u32) -> Self {
        Self { transport: Transport::Queue(client), ids: Ids::of_process(pe, n_pes) }
    }

    /// Makes a request without an answer.
    pub(super) fn tell(&self, request: Request) {
        match &self.transport {
            Transport::Local(state) => drop(lock(state).apply(request)),
            Transport::Queue(client) => client.tell([request]),
        }
    }

    /// Sends the requests that wait for others.
    pub(super) fn flush(&self) {
        if let Transport::Queue(client) = &self.transport {
            client.flush();
        }
    }

    /// Sends the last requests of this process.
    pub(super) fn end(&self) {
        if let Transport::Queue(client) = &self.transport {
            client.end();
        }
    }

    /// Waits until all PEs have finished, and returns the findings of the job if the process of PE 0 has them.
    pub(super) fn findings(&self) -> Vec<Finding> {
        match &self.transport {
            Transport::Local(_) => Vec::new(),
            Transport::Queue(client) => client.findings(),
        }
    }

    /// Watches the plain accesses of a block, until it has ended.
    pub(super) fn add_accesses(&self, accesses: &Arc<Accesses>) {
        if let Transport::Local(state) = &self.transport {
            lock(state).engine.add_accesses(Arc::clone(accesses));
        }
    }

    /// Lets the engine have the plain accesses of a block, which has ended.
    pub(super) fn remove_accesses(&self, accesses: &Arc<Accesses>) {
        match &self.transport {
            Transport::Local(state) => lock(state).engine.remove_accesses(accesses),
            Transport::Queue(_) => self.take_accesses(accesses),
        }
    }

    /// Lets the engine have the plain accesses of a block so far.
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

    /// Lets the engine have the plain accesses of a block so far, if it cannot see for itself that there are stores to peers.
    pub(super) fn take_stores(&self, accesses: &Accesses) {
        if let Transport::Queue(_) = self.transport {
            self.take_accesses(accesses);
        }
    }

    /// Makes requests without answers, in their order and with no other between them.
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

    /// Makes a request, and returns the answer, unless the engine is lost.
    fn ask(&self, request: Request) -> Option<Reply> {
        match &self.transport {
            Transport::Local(state) => Some(lock(state).apply(request)),
            Transport::Queue(client) => client.ask(&request),
        }
    }

    /// Returns the host of a PE, if the engine is not lost.
    pub(super) fn host(&self, pe: u32) -> Option<ActorId> {
        match self.ask(Request::Host(pe)) {
            Some(Reply::Actor(host)) => Some(host),
            _ => None,
        }
    }

    /// Posts and delivers an operation, and returns it.
    pub(super) fn post(&self, actor: ActorId, post: Post, completion: Done) -> ActorId {
        let operation = self.ids.operation();
        self.tell(Request::Post { operation, actor, post, completion });
        operation
    }

    /// Adds actors that follow `parent`.
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

    /// Returns the lanes that have stores to peers in flight.
    pub(super) fn with_stores(&self, lanes: Vec<ActorId>) -> Vec<ActorId> {
        if lanes.is_empty() {
            return lanes;
        }
        match self.ask(Request::WithStores(lanes)) {
            Some(Reply::Actors(lanes)) => lanes,
            _ => Vec::new(),
        }
    }

    /// Adds the meeting of the blocks of a grid.
    pub(super) fn add_grid(&self, blocks: u32) -> MeetingId {
        let meeting = self.ids.meeting();
        self.tell(Request::AddGrid { meeting, blocks });
        meeting
    }

    /// Adds a team, and returns its meetings.
    pub(super) fn add_team(&self, key: TeamKey, members: &[u32]) -> TeamMeetings {
        match self.ask(Request::AddTeam(key, members.to_vec())) {
            Some(Reply::Team(meetings)) => meetings,
            _ => (HOSTS, HOSTS),
        }
    }

    /// Returns the members that the call of `member` still waits for.
    pub(super) fn missing(&self, meeting: MeetingId, member: u32) -> Vec<u32> {
        match self.ask(Request::Missing { meeting, member }) {
            Some(Reply::Members(members)) => members,
            _ => Vec::new(),
        }
    }

    /// Keeps what an actor knows, until the token is forgotten.
    pub(super) fn release(&self, actor: ActorId) -> TokenId {
        let token = self.ids.token();
        self.tell(Request::Release { actor, token });
        token
    }
}
