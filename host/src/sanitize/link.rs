//! The way from a PE to the engine of its job.

use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_sanitizer::{Accesses, Actor, ActorId, Context, Kind, MeetingId, Plain, Post};

use super::HOSTS;
use super::client::Client;
use super::request::{Done, Reply, Request, TeamKey, TeamMeetings, TokenId};
use super::state::State;

/// The way to the engine.
///
/// All requests of a process have one order. A request that other processes can see has reached the engine when the call
/// returns. If the engine is lost, so is its process and with it the job: the calls then return harmless answers.
#[derive(Debug)]
pub(super) enum Link {
    /// The engine is in this process.
    Here(Arc<Mutex<State>>),
    /// The engine is in the process of PE 0.
    There(Client),
}

impl Link {
    /// Makes a request without an answer.
    pub(super) fn tell(&self, request: Request) {
        match self {
            Self::Here(state) => drop(lock(state).apply(request)),
            Self::There(client) => client.tell([request]),
        }
    }

    /// Watches the plain accesses of a block, until it has ended.
    pub(super) fn add_accesses(&self, accesses: &Arc<Accesses>) {
        if let Self::Here(state) = self {
            lock(state).engine.add_accesses(Arc::clone(accesses));
        }
    }

    /// Lets the engine have the plain accesses of a block, which has ended.
    pub(super) fn remove_accesses(&self, accesses: &Arc<Accesses>) {
        match self {
            Self::Here(state) => lock(state).engine.remove_accesses(accesses),
            Self::There(_) => self.take_accesses(accesses),
        }
    }

    /// Lets the engine have the plain accesses of a block so far.
    pub(super) fn take_accesses(&self, accesses: &Accesses) {
        if accesses.is_empty() {
            return;
        }
        match self {
            Self::Here(state) => {
                accesses.sort();
                lock(state).engine.take_accesses(accesses);
            }
            Self::There(client) => {
                let (accesses, ended) = accesses.take();
                let accesses = accesses.into_iter().map(|Plain { actor, span, kind, call }| match kind {
                    Kind::Put => Request::StoreToPeer { actor, span, call },
                    Kind::Write => Request::Store { actor, span, call },
                    _ => Request::Load { actor, span, call },
                });
                client.tell(accesses.chain(ended.into_iter().map(Request::End)));
            }
        }
    }

    /// Lets the engine have the plain accesses of a block so far, if it cannot see for itself that there are stores to peers.
    pub(super) fn take_stores(&self, accesses: &Accesses) {
        if let Self::There(_) = self {
            self.take_accesses(accesses);
        }
    }

    /// Makes requests without answers, in their order and with no other between them.
    pub(super) fn tell_all(&self, requests: impl IntoIterator<Item = Request>) {
        match self {
            Self::Here(state) => {
                let mut state = lock(state);
                for request in requests {
                    state.apply(request);
                }
            }
            Self::There(client) => client.tell(requests),
        }
    }

    /// Makes a request, and returns the answer, unless the engine is lost.
    fn ask(&self, request: Request) -> Option<Reply> {
        match self {
            Self::Here(state) => Some(lock(state).apply(request)),
            Self::There(client) => client.ask(&request),
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
        match self.ask(Request::Post { actor, post, completion }) {
            Some(Reply::Actor(operation)) => operation,
            _ => actor,
        }
    }

    /// Adds actors that follow `parent`.
    pub(super) fn fork(&self, parent: ActorId, actors: Vec<Actor>) -> Vec<ActorId> {
        let count = actors.len();
        match self.ask(Request::Fork { parent, actors }) {
            Some(Reply::Actors(actors)) => actors,
            _ => vec![parent; count],
        }
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
        match self.ask(Request::AddGrid { blocks }) {
            Some(Reply::Meeting(meeting)) => meeting,
            _ => HOSTS,
        }
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
    pub(super) fn release(&self, actor: ActorId) -> Option<TokenId> {
        match self.ask(Request::Release(actor)) {
            Some(Reply::Token(token)) => Some(token),
            _ => None,
        }
    }
}
