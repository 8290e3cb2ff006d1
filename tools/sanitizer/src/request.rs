//! Requests to the sanitizer engine, as plain data that may come from another process.

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

/// A request to the sanitizer engine. Most requests correspond to one method of [`Engine`](crate::Engine).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[allow(missing_docs, reason = "the fields are the arguments of these methods")]
pub enum Request {
    /// Asks for the actor ID of a PE's host.
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
    /// Records the start of an object's lifetime. The label has its name, which may be empty, and the call that
    /// allocated it.
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
        /// The value that was read, if known, for reports.
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
    /// Records that an operation is posted and delivered. Under the sanitizer, the posting thread also delivers it.
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
    /// Asks which of these GPU threads have stores to peers in flight.
    WithStores(Vec<ActorId>),
    /// Adds actors whose steps happen after the current step of `parent`.
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
    /// Registers the grid barrier of a launch with `blocks` blocks.
    AddGrid {
        meeting: MeetingId,
        blocks: u32,
    },
    RemoveGrid(MeetingId),
    /// Registers a team and asks for its meeting IDs. Each member sends this, and the first one creates the team.
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
    /// Asks for the members that have not arrived at the collective call in which `member` waits.
    Missing {
        meeting: MeetingId,
        member: u32,
    },
    /// Stores a snapshot of the actor's vector clock under `token`.
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
    /// Records that an actor waits for the members that have not arrived at a collective call, which reports call `at`.
    WaitForMembers {
        actor: ActorId,
        call: Call,
        meeting: MeetingId,
        member: u32,
        at: String,
    },
    Wake(ActorId),
    /// Records that the job has failed. From then on, waits that never finish are not reported as a deadlock.
    JobFailed,
    /// Records that the deadline of a wait has failed the job.
    DeadlinePassed,
}

/// ID of a snapshot of a vector clock, stored in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct TokenId(pub(crate) u64);

/// Identifies a team of the job: its generation, its slot, and the PE that is its first member.
pub type TeamKey = (u32, u32, Option<u32>);

/// Meeting IDs of a team: one for its collective calls, and one for its split barrier.
pub type TeamMeetings = (MeetingId, MeetingId);

/// How far an operation has progressed when the call that posted it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Done {
    /// The operation may still be in flight.
    Nothing,
    /// The operation has read its source.
    Source,
    /// The operation is complete.
    All,
}

/// The engine's reply to a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Reply {
    /// The request was applied. It has no other reply.
    Applied,
    /// The actor ID of a PE's host.
    Actor(ActorId),
    /// The actor IDs of operations or GPU threads.
    Actors(Vec<ActorId>),
    /// Members that have not arrived at a collective call.
    Members(Vec<u32>),
    /// The meeting IDs of a team.
    Team(TeamMeetings),
    /// All findings of the job, sent after all PEs have finished.
    Findings(Vec<Finding>),
}

impl Request {
    /// Whether it makes no difference to other processes when the engine receives this request, as long as it receives
    /// all requests of a process in order.
    ///
    /// Other processes can see what a process announces by words, operations, collective calls and the lifetimes of
    /// objects. Until then, they see nothing of its accesses, completed operations, and the order of its actors. A wait
    /// and its end may be reported a little late, because deadlock detection is far slower.
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
