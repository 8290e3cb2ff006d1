//! The way from a PE to the engine of its job.

use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_sanitizer::{Actor, ActorId, Context, MeetingId, Post};

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
