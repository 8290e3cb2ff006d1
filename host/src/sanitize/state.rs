//! The engine of a job, and everything beside it that all PEs share.

use std::collections::HashMap;

use rushmem_sanitizer::{
    Actor, ActorId, Context, Deadlock, Engine, Finding, MeetingId, Post, Token, Until, Wait,
};

use super::HOSTS;
use super::request::{Done, Reply, Request, TeamKey, TeamMeetings, TokenId};

/// The engine, and the meetings and tokens that it knows.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) engine: Engine,
    /// The host of each PE.
    hosts: Vec<ActorId>,
    /// The meetings of each team.
    teams: HashMap<TeamKey, TeamMeetings>,
    /// The number of meetings so far, without the one of all hosts.
    meetings: u64,
    tokens: HashMap<TokenId, Token>,
    /// The number of tokens so far.
    released: u64,
    /// Whether the job has failed for another reason.
    pub(super) has_failed: bool,
    pub(super) deadlock: Option<Deadlock>,
    /// A deadlock that counts if the deadline of a wait ends the job.
    pub(super) suspected: Option<Deadlock>,
    has_timed_out: bool,
}

impl State {
    /// Returns the state of a new job of `n_pes` PEs.
    pub(super) fn new(n_pes: u32) -> Self {
        let mut engine = Engine::new();
        let hosts = (0..n_pes).map(|pe| engine.start(Actor::Host { pe, thread: 0 })).collect();
        engine.define_meeting(HOSTS, (0..n_pes).collect());
        Self { engine, hosts, ..Self::default() }
    }

    /// Applies a request.
    pub(super) fn apply(&mut self, request: Request) -> Reply {
        let engine = &mut self.engine;
        match request {
            Request::Host(pe) => match self.hosts.get(pe as usize) {
                Some(&host) => return Reply::Actor(host),
                None => return Reply::Applied,
            },
            Request::Load { actor, span, call } => engine.load(actor, span, call),
            Request::Store { actor, span, call } => engine.store(actor, span, call),
            Request::StoreToPeer { actor, span, call } => engine.store_to_peer(actor, span, call),
            Request::StoreRelaxed { actor, word, call } => engine.store_relaxed(actor, word, call),
            Request::Alloc { span, label } => {
                engine.alloc(span);
                engine.name_object(span, label);
            }
            Request::Free { actor, span, call } => engine.free(actor, span, call),
            Request::FenceRelease(actor, scope) => engine.fence_release(actor, scope),
            Request::FenceAcquire(actor, scope) => engine.fence_acquire(actor, scope),
            Request::Look { actor, word, call } => engine.look(actor, word, call),
            Request::Observe { actor, word, value, acquire, call } => {
                engine.observe(actor, (word, value), acquire, call);
            }
            Request::Hold { actor, lock, call } => engine.hold(actor, lock, call),
            Request::LetGo(lock) => engine.let_go(lock),
            Request::Post { actor, post, completion } => {
                return Reply::Actor(self.post(actor, post, completion));
            }
            Request::Complete { actor, operation } => engine.complete(actor, operation),
            Request::Fence { actor, context, pe, call } => engine.fence(actor, context, pe, call),
            Request::Quiet { actor, context, pe } => engine.quiet(actor, context, pe),
            Request::Flush { actor, context, pe } => engine.flush(actor, context, pe),
            Request::Earlier { actor, context, pe } => {
                return Reply::Actors(engine.earlier(actor, context, pe));
            }
            Request::WithStores(mut lanes) => {
                lanes.retain(|&lane| engine.is_in_flight(Context::Stores(lane)));
                return Reply::Actors(lanes);
            }
            Request::Fork { parent, actors } => return Reply::Actors(engine.fork_all(parent, actors)),
            Request::Awaits { parent, children } => engine.awaits(parent, &children),
            Request::End(actor) => engine.end(actor),
            Request::Join { parent, children } => engine.join_all(parent, &children),
            Request::Sync(actors) => engine.sync(&actors),
            Request::AddGrid { blocks } => return Reply::Meeting(self.add_meeting((0..blocks).collect())),
            Request::RemoveGrid(meeting) => engine.remove_meeting(meeting),
            Request::AddTeam(key, members) => return Reply::Team(self.add_team(key, &members)),
            Request::Arrive { actor, meeting, member } => engine.arrive(actor, meeting, member),
            Request::Leave { actor, meeting, member, buffers, call } => {
                engine.leave(actor, meeting, member, &buffers, call);
            }
            Request::Missing { meeting, member } => return Reply::Members(engine.missing(meeting, member)),
            Request::Release(actor) => {
                let token = TokenId(self.released);
                self.released += 1;
                self.tokens.insert(token, engine.release(actor));
                return Reply::Token(token);
            }
            Request::Acquire { actor, token } => {
                if let Some(token) = self.tokens.get(&token) {
                    engine.acquire(actor, token);
                }
            }
            Request::Forget(token) => drop(self.tokens.remove(&token)),
            Request::Wait { actor, wait } => engine.wait(actor, wait),
            Request::WaitForMembers { actor, call, meeting, member, at } => {
                let pes = engine.missing(meeting, member);
                if !pes.is_empty() {
                    engine.wait(actor, Wait { call, until: Until::Members { at, pes } });
                }
            }
            Request::Wake(actor) => engine.wake(actor),
            Request::JobFailed => self.has_failed = true,
            Request::DeadlinePassed => self.has_timed_out = true,
        }
        Reply::Applied
    }

    /// Takes the findings so far.
    pub(super) fn take_findings(&mut self) -> Vec<Finding> {
        let suspected = self.suspected.take().filter(|_| self.has_timed_out);
        let races = self.engine.take_races().into_iter().map(|race| Finding::Race(Box::new(race)));
        races.chain(self.deadlock.take().or(suspected).map(Finding::Deadlock)).collect()
    }

    fn post(&mut self, actor: ActorId, post: Post, completion: Done) -> ActorId {
        let operation = self.engine.post(actor, post);
        self.engine.deliver(operation);
        match completion {
            Done::Nothing => {}
            Done::Source => self.engine.free_source(actor, operation),
            Done::All => self.engine.complete(actor, operation),
        }
        operation
    }

    fn add_meeting(&mut self, members: Vec<u32>) -> MeetingId {
        self.meetings += 1;
        let id = MeetingId(self.meetings);
        self.engine.define_meeting(id, members);
        id
    }

    fn add_team(&mut self, key: TeamKey, members: &[u32]) -> TeamMeetings {
        if let Some(known) = self.teams.get(&key) {
            return *known;
        }
        let new = (self.add_meeting(members.to_vec()), self.add_meeting(members.to_vec()));
        self.teams.insert(key, new);
        new
    }
}
