//! The state of a job: the engine, and what requests from all PEs refer to by ID.

use std::collections::HashMap;

use crate::actor::Actor;
use crate::context::Context;
use crate::deadlock::{Deadlock, Until, Wait};
use crate::engine::{Engine, Token};
use crate::epoch::ActorId;
use crate::finding::Finding;
use crate::meetings::MeetingId;
use crate::request::{Done, Reply, Request, TeamKey, TeamMeetings, TokenId};
use crate::wire::{Malformed, Wire};

/// ID of the collective calls in which the hosts of all PEs take part.
pub const HOSTS: MeetingId = MeetingId(0);

/// State of a job: the engine, with the hosts, teams and vector clock snapshots that requests refer to.
#[derive(Debug, Default)]
pub struct JobState {
    /// The happens-before engine that watches all PEs of the job.
    pub engine: Engine,
    /// Actor ID of each PE's host.
    hosts: Vec<ActorId>,
    /// IDs under which the collective calls and the split barrier of each team are tracked.
    teams: HashMap<TeamKey, TeamMeetings>,
    /// Number of meeting IDs allocated for teams so far.
    meetings: u64,
    tokens: HashMap<TokenId, Token>,
    /// Whether the job has failed for a reason other than a deadlock.
    pub has_failed: bool,
    /// The deadlock that caused the job to be aborted, if any.
    pub deadlock: Option<Deadlock>,
    /// A deadlock that is reported only if a wait later exceeds its deadline.
    pub suspected: Option<Deadlock>,
    has_timed_out: bool,
}

impl JobState {
    /// Creates the state of a job with `n_pes` PEs.
    pub fn new(n_pes: u32) -> Self {
        let mut engine = Engine::new();
        let hosts = (0..n_pes).map(|pe| engine.start(Actor::Host { pe, thread: 0 })).collect();
        engine.define_meeting(HOSTS, (0..n_pes).collect());
        Self { engine, hosts, ..Self::default() }
    }

    /// Applies a request to the engine, and returns the reply, which is [`Reply::Applied`] for most requests.
    // One arm per request, each a call of the engine: dividing the match would hide which requests are missing.
    pub fn apply(&mut self, request: Request) -> Reply {
        let engine = &mut self.engine;
        match request {
            Request::Host(pe) => match self.hosts.get(pe as usize) {
                Some(&host) => return Reply::Actor(host),
                None => return Reply::Applied,
            },
            Request::Load { actor, span, call } => engine.load(actor, span, call),
            Request::Store { actor, span, call } => engine.store(actor, span, call),
            Request::StoreToPeer { actor, span, call } => engine.store_to_peer(actor, span, call),
            Request::Accesses(batch) => engine.take_batch(&batch),
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
            Request::Post { operation, actor, post, completion } => {
                engine.post_as(operation, actor, post);
                engine.deliver(operation);
                match completion {
                    Done::Nothing => {}
                    Done::Source => engine.free_source(actor, operation),
                    Done::All => engine.complete(actor, operation),
                }
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
            Request::Fork { parent, actors } => engine.fork_as(parent, actors),
            Request::Awaits { parent, children } => engine.awaits(parent, &children),
            Request::End(actor) => engine.end(actor),
            Request::Join { parent, children } => engine.join_all(parent, &children),
            Request::Sync(actors) => engine.sync(&actors),
            Request::AddGrid { meeting, blocks } => engine.define_meeting(meeting, (0..blocks).collect()),
            Request::RemoveGrid(meeting) => engine.remove_meeting(meeting),
            Request::AddTeam(key, members) => return Reply::Team(self.add_team(key, &members)),
            Request::Arrive { actor, meeting, member } => engine.arrive(actor, meeting, member),
            Request::Leave { actor, meeting, member, buffers, call } => {
                engine.leave(actor, meeting, member, &buffers, call);
            }
            Request::Missing { meeting, member } => return Reply::Members(engine.missing(meeting, member)),
            Request::Release { actor, token } => drop(self.tokens.insert(token, engine.release(actor))),
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

    /// Applies the requests of a message. Returns the reply to the last of them.
    ///
    /// # Errors
    /// - [`Malformed`] if the bytes are not requests. Those before the malformed part may have been applied.
    pub fn apply_message(&mut self, wire: &mut Wire, mut message: &[u8]) -> Result<Reply, Malformed> {
        let mut reply = Reply::Applied;
        while !message.is_empty() {
            let (request, rest) = wire.decode(message)?;
            reply = self.apply(request);
            message = rest;
        }
        Ok(reply)
    }

    /// Removes and returns the races found so far, and the deadlock that caused the job to fail, if any.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        let suspected = self.suspected.take().filter(|_| self.has_timed_out);
        let races = self.engine.take_races().into_iter().map(|race| Finding::Race(Box::new(race)));
        races.chain(self.deadlock.take().or(suspected).map(Finding::Deadlock)).collect()
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
