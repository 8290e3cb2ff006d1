//! The communication sanitizer: finds conflicting accesses of a job that nothing orders, and waits that cannot end.
//!
//! It watches one execution, but does not depend on its timing. Two conflicting accesses are a *race* if the memory
//! model does not order one before the other. So a single run finds a missing fence, even if the result happened to be
//! right.
//!
//! # Actors and clocks
//!
//! An *actor* has its own program order: a GPU thread of a launch, a host thread, a stream, and each operation in
//! flight. A vector clock holds the last known step of each actor. A step is an *epoch*: an actor and a count.
//!
//! An operation is an actor with two steps. At step 1 it has read its source, and at step 2 it is delivered, including
//! its signal. It follows everything that its poster knows when it is posted.
//!
//! | call | effect |
//! |---|---|
//! | `quiet` | The caller knows step 2 of all operations of the context whose posting it knows. |
//! | `flush` | The caller knows step 1 of them. |
//! | `fence` | Step 2 of later operations to a PE follows step 2 of earlier operations to that PE. |
//! | put with signal, strong signal | The signal word carries what the poster knew, and step 2 of this operation. |
//! | signal, `p`, put, atomic | The word carries what the thread knew at its last release fences, and its own write. |
//! | relaxed store, store to a peer | The same. |
//! | wait or test for a word | The thread knows what the word carries. Of a longer put, it knows only this word. |
//! | atomic with a result, relaxed load | The thread knows what the word carries after its next acquire fence. |
//! | barrier of a group | All members know what each of them knew. |
//! | team or grid barrier | A member that leaves knows what all members knew on arrival. |
//! | collective call that moves data | A member knows that the call has used its own buffers. |
//! | launch, stream, event, host call | The later side knows what the earlier side knew. |
//!
//! **Release and acquire.** `fence`, `quiet`, waits for operations, `sync` and `barrier` release and acquire at system
//! scope. A call of a group does so for all its threads. A grid barrier has GPU scope, and memory fences have the scope
//! that they name. Each side must be within the scope of the other's fence, so a word carries a clock for each scope:
//! see `scopes.rs`. An update of a word adds to what the word carries, while a set or a put replaces it. A new thread
//! has released what the hosts have written. It also knows what earlier kernels of its stream have done, but publishes
//! that only by its own fence. Kernels that the runtime launches on behalf of hosts and streams start with a fence.
//!
//! **Quiet and fence do not add an entry for every operation.** An operation has a list of *ends*. Each end is a step
//! of another actor at which the operation was complete, so an actor that knows that step knows the operation. A fence
//! is an actor too, one for each target with operations in flight. The operations before it end at the fence, and later
//! operations follow it.
//!
//! **Collective calls.** The part of each PE is one operation, on the buffers of that PE. Short data travels together
//! with the check-in, so the read of a source follows only the arrival of its own member. The write of a result also
//! follows the arrivals of the members that have the data. The operation is complete when its own member leaves. So
//! earlier uses of a result by members that send data are ordered before later uses by its own member.
//!
//! # Shadow memory
//!
//! Each PE has a heap, local buffers and windows. Pages of 64 bytes hold the accesses that later ones may race with, as
//! ranges of bytes. An ordered access replaces earlier ones if it conflicts with everything that they conflict with. A
//! read does so only if nobody can learn of it without learning of them. Accesses to adjacent bytes of a page by the
//! same step and line form one range. [`Kind`] lists the kinds of accesses, and `access.rs` their conflicts.
//!
//! **Stores to peers.** Stores of one thread to one PE are parts of one operation, until the thread learns something or
//! releases what it knows. Each store is a separate delivery, at a separate step. The last store of a word in the
//! shadow memory is its value, until something else writes the word. So the engine records the value of a store only
//! when somebody reads it.
//!
//! **Plain accesses.** A plain load or store orders nothing, so nobody learns of it before its block takes another
//! step. Until then it waits in a list of the block, [`Accesses`], without taking the job's lock. The engine later
//! takes the list page by page. A wait can see a store to a peer immediately, so the engine takes all lists with such
//! stores before it reads a word.
//!
//! **Rows.** Neighboring threads mostly access neighboring elements. If threads with consecutive IDs make the same
//! access to consecutive elements of a page, the page has one record for all of them, which is called a row. An access
//! that treats elements of a row differently splits it. Lanes yield to the others of their block from time to time, so
//! that the list has accesses of all of them.
//!
//! # Memory use
//!
//! An actor has *settled* once all live actors know its last step. It is then removed from all clocks and from the
//! shadow memory. A host that waits for a launch reports this by [`Engine::awaits`], so it does not keep actors from
//! settling.
//!
//! # Limits
//!
//! - An acquire fence of block scope acquires only from the last writer of a word, unless others have released to the
//!   block.
//! - `get` and `g` are plain reads. A loop of `g` that polls a word therefore races with the write of that word.
//! - A plain load of a word after a relaxed load still needs the acquire fence.
//! - The engine finds races with respect to the order that this execution took. Another branch, or another winner of a
//!   lock, needs another run.
//! - Of more than 64 unordered updates of the same word, the oldest ones are dropped.
//! - An operation that no `quiet` ever covers stays in the tables for the rest of the job.
//! - Arrays that every thread of a grid accesses element by element take 16 bytes for each access or row, until they
//!   settle.
//! - One engine watches the PEs of one machine. Processes send it a message for each call that others can see.
//! - Operations through a NIC are not delivered by their poster. The software ConnectX would have to report deliveries
//!   before it makes them.
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | `calls` | interned calls of the program |
//! | `epoch` | actor IDs, steps |
//! | `clock` | vector clocks |
//! | `entries` | the lists that clocks consist of |
//! | `context` | contexts of operations, and operations that may announce others |
//! | `intervals` | maps from ranges of bytes to values |
//! | `access` | accesses, and their conflicts |
//! | `regions` | memory by address |
//! | `accesses` | plain accesses that the engine has not taken yet |
//! | `actor` | what actors are |
//! | `actors` | actors, what they know, and settling |
//! | `queues` | operations in flight by context, and fences |
//! | `pages` | records of accesses, in pages of memory |
//! | `crowds` | reads of the same bytes by many actors |
//! | `met` | what an access does to earlier ones |
//! | `shadow` | the earlier accesses to each byte |
//! | `values` | what values in memory carry |
//! | `meetings` | barriers and collective calls |
//! | `scopes` | fence scopes, and what passes from release to acquire fences |
//! | `post` | the description of an operation |
//! | `objects` | objects by offset, for reports |
//! | `locks` | locks and their holders, for reports |
//! | `order` | the order that a race lacks, and how to add it |
//! | `report` | races as text and JSON |
//! | `deadlock` | waits that cannot end |
//! | `finding` | races and deadlocks |
//! | `engine` | one method for each relation |
//! | `operations` | the engine's part for operations and stores to peers |
//! | `ids` | IDs that processes allocate for their actors, meetings and tokens |
//! | `request` | calls of the engine as plain data |
//! | `job` | the state of a job, which requests are applied to |
//! | `wire` | requests and replies as bytes |
//! | `text` | names and files received from other processes |
//!
//! # Hooks
//!
//! **Rules.** A release calls the engine before others can see the step, and an acquire calls it after seeing the step.
//! A hook is at the public call, and calls inside it are silent, because a depth counter of the lane hides them. Only
//! `Event::Part` reports from inside a collective call which memory it uses. A sanitized job sets `peer_path=p2p`,
//! which makes each thread deliver its own operations: `post`, `deliver`, and then the copy. An atomic with a result
//! observes its word again after the processor's atomic, because others may have come in between.
//!
//! A hook in the device crate is one line that calls `device/src/watch`, which describes the call as a plain `Event`.
//! Those functions are empty for GPUs, and in release builds without the feature `sanitize`. An `Observer` of
//! `host/native` creates a `Watcher` for each lane. `host/observe/src/sanitize` turns their events into [`Request`]s.
//! Threads apply these to a [`JobState`], under one lock. If PEs are processes, PE 0 has the engine, and all of them
//! write their requests to one pipe. A request that others can see is in the pipe before its step, so the requests have
//! the order of the steps, and nobody waits for the engine.
//!
//! | what | hooks | engine |
//! |---|---|---|
//! | lanes | `host/native`: start of a block, end of a lane, full barriers and exchanges | [`Engine::fork`], [`Engine::end`], [`Engine::sync`], [`Engine::join`] |
//! | accesses | `device/src/view.rs`, `Ctx::fetched`; the address tells whether a store goes to a peer | [`Accesses::load`], [`Accesses::store`], [`Engine::take_accesses`] |
//! | relaxed accesses, memory fences | `device/src/view.rs`, `order/` | [`Engine::observe`], [`Engine::store_relaxed`], [`Engine::fence_release`], [`Engine::fence_acquire`] |
//! | operations | `rma/`, `sync/signal.rs`, `amo/`, by the leader of the group | [`Engine::post`], [`Engine::deliver`], [`Engine::complete`], [`Engine::free_source`] |
//! | order | `order/`; calls that announce their thread's own stores | [`Engine::fence`], [`Engine::quiet`], [`Engine::flush`] |
//! | waits for words | `sync/` | [`Engine::observe`], [`Engine::look`], [`Engine::wait`] |
//! | collective calls, barrier of the grid | `coll/`: the leader arrives after its group, which leaves together | [`Engine::arrive`], [`Engine::leave`] |
//! | teams | `host/src/pe/teams.rs`, bring-up | [`Engine::define_meeting`] |
//! | the host | `host/src/pe.rs`, `pe/memory.rs`, `pe/register.rs` | [`Engine::arrive`], [`Engine::leave`], [`Engine::alloc`], [`Engine::free`], [`Engine::load`], [`Engine::store`] |
//! | streams, events | `host/machine/src/machine/native/queue.rs` | [`Engine::release`], [`Engine::acquire`], [`Engine::awaits`] |
//! | deadlocks | each wait that continues; lanes at barriers while their worker has nothing else to run | [`Engine::wait`], [`Engine::deadlock`] |
//!
//! A thread of the job calls [`Engine::deadlock`] ten times per second. Waits may be out of date for a moment, so it
//! must find the same ones for two seconds. If a deadline would fail the job earlier, half of the deadline is enough.
//!
//! **Missing.**
//!
//! - Accesses through pointers: `View::as_ptr`, `Pe::ptr`, references to registered buffers, and other libraries.
//! - The indices that `wait_until_some` writes, and the `slots` of `alltoall_ll`.
//! - The order that creating or destroying a team gives to the hosts.
//! - Host threads of a PE count as one. Their order is not checked, and a PE with several is never part of a deadlock.
//! - Messages between PEs by other means, such as channels and atomics of the process, do not order anything.
//! - Loops that read several words or update a word by an atomic, and waits for any of several words, count as work, so
//!   they hide a deadlock. A loop that loads a single address for seconds, and accesses nothing else, counts as a wait.
//! - A call may be reported by the name of its base form: `sync_all` as `team_sync`.
//! - At a later `fence` of its PE, stores to peers of a thread that has returned count as complete, rather than only as
//!   ordered.
#![forbid(unsafe_code)]

mod access;
mod accesses;
mod actor;
mod actors;
mod calls;
mod clock;
mod context;
mod crowds;
mod deadlock;
mod engine;
mod entries;
mod epoch;
mod finding;
mod ids;
mod intervals;
mod job;
mod locks;
mod meetings;
mod met;
mod objects;
mod operations;
mod order;
mod pages;
mod post;
mod queues;
mod regions;
mod report;
mod request;
mod scopes;
mod shadow;
mod text;
mod values;
mod wire;

pub use access::{Call, Kind, Memory, Site, Space, Span};
pub use accesses::{Accesses, Batch, Noted};
pub use actor::{Actor, Transfer};
pub use context::Context;
pub use deadlock::{Awaited, Deadlock, Stuck, Until, Wait};
pub use engine::{Acquire, Buffers, Engine, Token};
pub use epoch::ActorId;
pub use finding::Finding;
pub use ids::Ids;
pub use intervals::Bytes;
pub use job::{HOSTS, JobState};
pub use locks::Holder;
pub use meetings::MeetingId;
pub use order::MissingOrder;
pub use post::Post;
pub use regions::{Region, Regions};
pub use report::{Named, Object, Party, Race, Seen};
pub use request::{Done, Reply, Request, TeamKey, TeamMeetings, TokenId};
pub use scopes::Scope;
pub use text::interned;
pub use wire::{Malformed, Wire};
