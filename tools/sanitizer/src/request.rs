//! Requests to the engine of a job, as plain data that may come from another process.

use serde::{Deserialize, Serialize};

use crate::access::{Call, Span};
use crate::accesses::Batch;
use crate::actor::Actor;
use crate::context::Context;
use crate::deadlock::Wait;
use crate::engine::{Acquire, Buffers};
use crate::epoch::ActorId;
use crate::finding::Finding;
use crate::meetings::MeetingId;
use crate::post::Post;
use crate::scopes::Scope;

/// A request. Most of them are one relation of the memory model, like the methods of [`Engine`](crate::Engine).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[allow(missing_docs, reason = "the fields are the arguments of these methods")]
pub enum Request {
    /// Asks for the host of a PE.
    Host(u32),
    Load {
        actor: ActorId,
        span: Span,
        call: Call,
    },
    Store {
        actor: ActorId,
        span: Span,
        call: Call,
    },
    StoreToPeer {
        actor: ActorId,
        span: Span,
        call: Call,
    },
    /// The plain accesses that a block has made so far.
    Accesses(Batch),
    StoreRelaxed {
        actor: ActorId,
        word: Span,
        call: Call,
    },
    /// Starts the lifetime of an object. The label has its name, which may be empty, and the call that allocated it.
    Alloc {
        span: Span,
        label: Call,
    },
    Free {
        actor: ActorId,
        span: Span,
        call: Call,
    },
    FenceRelease(ActorId, Scope),
    FenceAcquire(ActorId, Scope),
    Look {
        actor: ActorId,
        word: Span,
        call: Call,
    },
    Observe {
        actor: ActorId,
        word: Span,
        /// The value that was read, for reports.
        value: Option<u64>,
        acquire: Acquire,
        call: Call,
    },
    /// Records that an actor has acquired a lock.
    Hold {
        actor: ActorId,
        lock: Span,
        call: Call,
    },
    /// Records that a lock is about to be released.
    LetGo(Span),
    /// Posts and delivers an operation, because a lane delivers its own operations.
    Post {
        operation: ActorId,
        actor: ActorId,
        post: Post,
        completion: Done,
    },
    Complete {
        actor: ActorId,
        operation: ActorId,
    },
    Fence {
        actor: ActorId,
        context: Context,
        pe: Option<u32>,
        call: Call,
    },
    Quiet {
        actor: ActorId,
        context: Context,
        pe: Option<u32>,
    },
    Flush {
        actor: ActorId,
        context: Context,
        pe: Option<u32>,
    },
    /// Asks for the operations that `quiet` would complete.
    Earlier {
        actor: ActorId,
        context: Context,
        pe: Option<u32>,
    },
    /// Asks for the lanes with stores to peers in flight.
    WithStores(Vec<ActorId>),
    /// Adds actors that follow `parent`.
    Fork {
        parent: ActorId,
        actors: Vec<(ActorId, Actor)>,
    },
    Awaits {
        parent: ActorId,
        children: Vec<ActorId>,
    },
    End(ActorId),
    Join {
        parent: ActorId,
        children: Vec<ActorId>,
    },
    Sync(Vec<ActorId>),
    /// Adds the meeting of the blocks of a grid.
    AddGrid {
        meeting: MeetingId,
        blocks: u32,
    },
    RemoveGrid(MeetingId),
    /// Adds a team. Each member sends this, and the first one creates it.
    AddTeam(TeamKey, Vec<u32>),
    Arrive {
        actor: ActorId,
        meeting: MeetingId,
        member: u32,
    },
    Leave {
        actor: ActorId,
        meeting: MeetingId,
        member: u32,
        buffers: Buffers,
        call: Call,
    },
    /// Asks for the members that have not arrived.
    Missing {
        meeting: MeetingId,
        member: u32,
    },
    /// Stores what an actor knows, for another actor.
    Release {
        actor: ActorId,
        token: TokenId,
    },
    Acquire {
        actor: ActorId,
        token: TokenId,
    },
    Forget(TokenId),
    Wait {
        actor: ActorId,
        wait: Wait,
    },
    /// Records a wait for the members that have not arrived. `at` names the meeting in reports.
    WaitForMembers {
        actor: ActorId,
        call: Call,
        meeting: MeetingId,
        member: u32,
        at: String,
    },
    Wake(ActorId),
    /// Records that the job has failed, so its waits may not end, but not because of a deadlock.
    JobFailed,
    /// Records that the deadline of a wait has failed the job.
    DeadlinePassed,
}

/// The ID of what an actor knew at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct TokenId(pub(crate) u64);

/// A team of the job: its generation, its slot, and its first member.
pub type TeamKey = (u32, u32, Option<u32>);

/// The meetings of a team: one for calls of the whole team, and one for the split barrier.
pub type TeamMeetings = (MeetingId, MeetingId);

/// How far an operation has progressed when its call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Done {
    /// It may still be in flight.
    Nothing,
    /// It has read its source.
    Source,
    /// It is complete.
    All,
}

/// The reply to a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Reply {
    /// The request was applied. It has no other reply.
    Applied,
    /// The host of a PE.
    Actor(ActorId),
    /// Operations or lanes.
    Actors(Vec<ActorId>),
    /// Members of a meeting.
    Members(Vec<u32>),
    /// The meetings of a team.
    Team(TeamMeetings),
    /// The findings of the job, after its end.
    Findings(Vec<Finding>),
}

impl Request {
    /// Whether other processes cannot tell when the engine gets the request, provided that it gets all requests of a
    /// process in order.
    ///
    /// Others see what a process announces by words, operations, meetings and the lifetimes of objects. Until then,
    /// they see nothing that it keeps to itself: accesses, completed operations, and the order of its actors. A
    /// wait and its end may be reported a little late, because deadlock detection is far slower.
    pub fn is_private(&self) -> bool {
        match self {
            Self::Load { .. }
            | Self::Store { .. }
            | Self::FenceRelease(..)
            | Self::FenceAcquire(..)
            | Self::Look { .. }
            | Self::Complete { .. }
            | Self::Fence { .. }
            | Self::Quiet { .. }
            | Self::Flush { .. }
            | Self::Fork { .. }
            | Self::Awaits { .. }
            | Self::End(_)
            | Self::Join { .. }
            | Self::Sync(_)
            | Self::Hold { .. }
            | Self::LetGo(_)
            | Self::AddGrid { .. }
            | Self::RemoveGrid(_)
            | Self::Leave { .. }
            | Self::Release { .. }
            | Self::Acquire { .. }
            | Self::Forget(_)
            | Self::Wait { .. }
            | Self::WaitForMembers { .. }
            | Self::Wake(_) => true,
            Self::Accesses(batch) => !batch.has_stores(),
            // Others can see these, or these depend on the steps of others.
            Self::StoreToPeer { .. }
            | Self::StoreRelaxed { .. }
            | Self::Alloc { .. }
            | Self::Free { .. }
            | Self::Observe { .. }
            | Self::Post { .. }
            | Self::Arrive { .. }
            | Self::JobFailed
            | Self::DeadlinePassed => false,
            // These have a reply.
            Self::Host(_)
            | Self::Earlier { .. }
            | Self::WithStores(_)
            | Self::AddTeam(..)
            | Self::Missing { .. } => false,
        }
    }
}
