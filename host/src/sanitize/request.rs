//! Requests to the engine of a job, as plain data that may come from another process.

use rushmem_sanitizer::{
    Acquire, Actor, ActorId, Buffers, Call, Context, Finding, MeetingId, Post, Scope, Span, Wait,
};
use serde::{Deserialize, Serialize};

/// A request. Most are one relation of the memory model, as a method of [`Engine`](rushmem_sanitizer::Engine).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum Request {
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
    StoreRelaxed {
        actor: ActorId,
        word: Span,
        call: Call,
    },
    /// Begins the life of an object. The label is its name, which may be empty, and the call that allocated it.
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
        /// The value that was seen, for reports.
        value: Option<u64>,
        acquire: Acquire,
        call: Call,
    },
    /// Notes that an actor holds a lock from now on.
    Hold {
        actor: ActorId,
        lock: Span,
        call: Call,
    },
    /// Notes that a lock is about to be cleared.
    LetGo(Span),
    /// Posts an operation and delivers it, because a lane delivers its own operations.
    Post {
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
        actors: Vec<Actor>,
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
        blocks: u32,
    },
    RemoveGrid(MeetingId),
    /// Adds a team. Its members add it one after the other.
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
    /// Keeps what an actor knows, for another actor.
    Release(ActorId),
    Acquire {
        actor: ActorId,
        token: TokenId,
    },
    Forget(TokenId),
    Wait {
        actor: ActorId,
        wait: Wait,
    },
    /// Notes a wait for the members that have not arrived. `at` is the meeting in a report.
    WaitForMembers {
        actor: ActorId,
        call: Call,
        meeting: MeetingId,
        member: u32,
        at: String,
    },
    Wake(ActorId),
    /// Notes that the job has failed. Its waits may not end, but for another reason.
    JobFailed,
    /// Notes that the deadline of a wait has ended the job.
    DeadlinePassed,
}

/// The number of something that an actor knew at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub(super) struct TokenId(pub(super) u64);

/// A team of the job: its generation, its slot and its first member.
pub(super) type TeamKey = (u32, u32, Option<u32>);

/// The meetings of a team: the whole one, and the split barrier.
pub(super) type TeamMeetings = (MeetingId, MeetingId);

/// The progress of an operation at the end of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Done {
    Nothing,
    Source,
    All,
}

/// The answer to a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum Reply {
    /// The request has no answer, and the engine has it.
    Applied,
    Actor(ActorId),
    Actors(Vec<ActorId>),
    Members(Vec<u32>),
    Meeting(MeetingId),
    Team(TeamMeetings),
    Token(TokenId),
    Findings(Vec<Finding>),
}

impl Request {
    /// Returns whether other processes cannot see when the engine gets it, if it gets all requests of a process in their order.
    ///
    /// The others see what this process announces by words, operations, meetings and the begin and end of objects. They see
    /// nothing that it keeps to itself until then: accesses, completed operations, and the order of its own actors. A wait and
    /// its end may come a little late, because the search for deadlocks is far slower.
    pub(super) fn is_private(&self) -> bool {
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
            | Self::Awaits { .. }
            | Self::End(_)
            | Self::Join { .. }
            | Self::Sync(_)
            | Self::Hold { .. }
            | Self::LetGo(_)
            | Self::RemoveGrid(_)
            | Self::Leave { .. }
            | Self::Acquire { .. }
            | Self::Forget(_)
            | Self::Wait { .. }
            | Self::WaitForMembers { .. }
            | Self::Wake(_) => true,
            // Others see these, or they look at the steps of others.
            Self::StoreToPeer { .. }
            | Self::StoreRelaxed { .. }
            | Self::Alloc { .. }
            | Self::Free { .. }
            | Self::Observe { .. }
            | Self::Arrive { .. }
            | Self::JobFailed
            | Self::DeadlinePassed => false,
            // These have an answer.
            Self::Host(_)
            | Self::Post { .. }
            | Self::Earlier { .. }
            | Self::WithStores(_)
            | Self::Fork { .. }
            | Self::AddGrid { .. }
            | Self::AddTeam(..)
            | Self::Missing { .. }
            | Self::Release(_) => false,
        }
    }
}
