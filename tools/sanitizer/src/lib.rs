//! The communication sanitizer: finds accesses of one job that no order separates, and waits that cannot end.
//!
//! It watches an execution and knows nothing of its timing. Two accesses that conflict are a *race* if the memory model
//! orders neither before the other. So one run finds a missing fence, also where the result happened to be right.
//!
//! # Actors and clocks
//!
//! An *actor* has a program order of its own: a GPU thread of a launch, a host thread, a stream, and each operation in flight.
//! A vector clock says for each actor which of its steps are known. A step is an *epoch*: an actor and a count.
//!
//! An operation is an actor with two steps. It has read its source at step 1. It is delivered, with its signal, at step 2.
//! It follows everything that its poster knows at the post.
//!
//! | call | effect |
//! |---|---|
//! | `quiet` | The caller knows step 2 of all operations of the context, if it knows of their posting. |
//! | `flush` | The caller knows step 1 of them. |
//! | `fence` | Step 2 of later operations to a PE follows step 2 of earlier ones to this PE. |
//! | put with signal, strong signal | The signal word carries the knowledge at the post and step 2 of this operation. |
//! | signal, `p`, put, atomic | The word carries the knowledge at the last release fences of its thread, and its own write. |
//! | relaxed store, store to a peer | The same. |
//! | wait or test for a word | The thread knows what the word carries. Of a longer put, it knows this word only. |
//! | atomic with a result, relaxed load | The thread knows what the word carried at its next acquire fence. |
//! | barrier of a group | All members know what each knew. |
//! | team or grid barrier | A member that leaves knows what all knew on arrival. |
//! | collective call that moves data | A member knows that the call has used its own buffers. |
//! | launch, stream, event, host call | The later side knows what the earlier side knew. |
//!
//! **Release and acquire.** `fence`, `quiet`, waits for operations, `sync` and `barrier` release and acquire at system scope. A
//! call of a group does so for all its threads. A barrier of the grid has GPU scope, and memory fences have the scope that they
//! name. Both sides must be in the scope of the other's fence, so a word carries a clock for each of them: see `scopes.rs`.
//! An update of a word adds to what the word carries, and a set or put replaces it. A new thread has released what the hosts
//! have written. Earlier kernels of its stream are known to it, but it publishes them by its own fence. Kernels that the runtime
//! launches for hosts and streams start with a fence.
//!
//! **Quiet and fence add no entry for each operation.** An operation has a list of *ends*. Each is a step of another actor at
//! which it was complete, so an actor that knows that step knows the operation. A fence is an actor too, one for each target with
//! operations in flight. The operations before it end there, and later operations follow it.
//!
//! **Collective calls.** The part of each PE is one operation, on the buffers of its own PE. Short data travels together with the
//! check-in. So the read of a source follows the arrival of its own member only. The write of a result follows it too, and the
//! arrivals of the members that have the data. The operation is complete when its own member leaves. So earlier uses of a result
//! by members that send data are ordered before later uses by its own member.
//!
//! # Shadow memory
//!
//! Each PE has a heap, local buffers and windows. Pages of 64 bytes hold the accesses that later ones may race with, as ranges
//! of bytes. An ordered access replaces earlier ones if it conflicts with everything that they conflict with. A read does so only
//! if nobody learns of it without them. Accesses of one step and line to adjacent bytes of a page are one range. [`Kind`] lists the
//! kinds, and `access.rs` their conflicts.
//!
//! **Stores to peers.** Stores of one thread to one PE are parts of one operation, until the thread learns or tells of
//! something. Each store is a delivery of its own, at a step of its own. The last store of a word in the shadow memory is its
//! value, until something else writes. So the engine notes the value of a store only when somebody looks at it.
//!
//! **Plain accesses.** A plain load or store orders nothing. So nobody learns of it before its block makes another step. Until then
//! it waits in a list of the block, [`Accesses`], and takes no lock of the job. The engine then takes the list page by page.
//! A wait may see a store to a peer at once. So the engine takes all lists with such stores before it looks at a word.
//!
//! **Rows.** Neighbouring threads mostly access neighbouring elements. If threads with consecutive numbers make the same access
//! to consecutive elements of a page, the page has one record for all: a row. An access that treats elements of a row differently
//! splits it. So a lane lets the others of its block run from time to time, and the list has accesses of all.
//!
//! # Memory use
//!
//! An actor has *settled* once all live actors know its last step. It then leaves all clocks and the shadow memory. A host
//! that waits for a launch tells the engine by [`Engine::awaits`], so that it does not hold up the settling.
//!
//! # Limits
//!
//! - An acquire fence of block scope acquires from the last writer of a word only, unless others have released to the block.
//! - `get` and `g` are plain reads. So a loop of `g` that polls a word races with the write of this word.
//! - A plain load of a word behind a relaxed load needs the acquire fence too.
//! - The engine finds races of the order that this execution took. Another branch or another winner of a lock needs its own run.
//! - Of more than 64 updates of the same word without an order among them, the first ones are forgotten.
//! - An operation that no `quiet` ever covers stays in the tables until the job ends.
//! - Arrays that each thread of a grid uses element by element have 16 bytes for each access or row, until they settle.
//! - One engine watches the PEs of one machine. Processes send their calls to it: a message for each call that others can see.
//! - Through a NIC, the poster does not deliver. The software ConnectX must then report deliveries before it makes them.
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | `calls` | calls of the program as small numbers |
//! | `epoch` | actor numbers, steps |
//! | `clock` | vector clocks |
//! | `entries` | the lists of clocks |
//! | `context` | contexts of operations, and operations that announce others |
//! | `intervals` | maps from ranges of bytes to values |
//! | `access` | accesses, and their conflicts |
//! | `regions` | memory by address |
//! | `accesses` | plain accesses that wait for the engine |
//! | `actor` | the natures of actors |
//! | `actors` | actors, their knowledge, and the settling |
//! | `queues` | operations in flight by context, and fences |
//! | `pages` | records of accesses, in pages of memory |
//! | `crowds` | reads of the same bytes by many actors |
//! | `met` | the effects of an access on earlier ones |
//! | `shadow` | earlier accesses of each byte |
//! | `values` | the knowledge that values in memory carry |
//! | `meetings` | barriers and collective calls |
//! | `scopes` | fence scopes, and the knowledge from release to acquire fences |
//! | `post` | the description of an operation |
//! | `objects` | objects by offset, for reports |
//! | `locks` | locks and their holders, for reports |
//! | `order` | the order that a race lacks, and its remedy |
//! | `report` | races as text and JSON |
//! | `deadlock` | waits that cannot end |
//! | `finding` | races and deadlocks |
//! | `engine` | one method for each relation |
//! | `operations` | its part for operations and stores to peers |
//! | `ids` | numbers that processes give to their actors, meetings and tokens |
//! | `request` | calls of the engine as plain data |
//! | `job` | the engine of a job, which applies requests |
//! | `wire` | requests and replies as bytes |
//! | `text` | names and files that come from other processes |
//!
//! # Hooks
//!
//! **Rules.** A release calls the engine before others can see the step, and an acquire after it has seen it. A hook is at the
//! public call. Calls inside it are silent: a depth counter of the lane hides them. Only
//! `Event::Part` tells from inside a collective call which memory it uses. A sanitized job sets `peer_path=p2p`, so
//! that a thread delivers its own operations: `post`, `deliver`, and then the copy. An atomic with a result looks at its word
//! again after the processor's atomic, because others may have come between.
//!
//! A hook of the device crate is one line that calls `device/src/watch`. It describes the call as a plain `Event`. The functions
//! there are empty for GPUs, and in release builds without the feature `sanitize`. An `Observer` of `host/native` makes a
//! `Watcher` for each lane. `host/observe/src/sanitize` turns their events into [`Request`]s. Threads apply them to a [`JobState`], under
//! one lock. If PEs are processes, PE 0 has the engine, and all write their requests to one pipe. A request that others can see
//! is in the pipe before its step. So the requests have the order of the steps, and nobody waits for the engine.
//!
//! | what | hooks | engine |
//! |---|---|---|
//! | lanes | `host/native`: begin of a block, end of a lane, full barriers and exchanges | [`Engine::fork`], [`Engine::end`], [`Engine::sync`], [`Engine::join`] |
//! | accesses | `device/src/view.rs`, `Ctx::fetched`; the address tells whether a store goes to a peer | [`Accesses::load`], [`Accesses::store`], [`Engine::take_accesses`] |
//! | relaxed accesses, memory fences | `device/src/view.rs`, `order.rs` | [`Engine::observe`], [`Engine::store_relaxed`], [`Engine::fence_release`], [`Engine::fence_acquire`] |
//! | operations | `rma.rs`, `strided.rs`, `signal.rs`, `amo/`, `pending.rs`, by the leader of the group | [`Engine::post`], [`Engine::deliver`], [`Engine::complete`], [`Engine::free_source`] |
//! | order | `order.rs`; calls that announce stores of their own thread | [`Engine::fence`], [`Engine::quiet`], [`Engine::flush`] |
//! | waits for words | `wait_until.rs`, `signal.rs` | [`Engine::observe`], [`Engine::look`], [`Engine::wait`] |
//! | collective calls, barrier of the grid | `coll/`: the leader arrives after its group, which leaves together | [`Engine::arrive`], [`Engine::leave`] |
//! | teams | `host/src/pe/teams.rs`, bring-up | [`Engine::define_meeting`] |
//! | the host | `host/src/pe.rs`, `pe/memory.rs`, `pe/register.rs` | [`Engine::arrive`], [`Engine::leave`], [`Engine::alloc`], [`Engine::free`], [`Engine::load`], [`Engine::store`] |
//! | streams, events | `host/machine/src/machine/native/queue.rs` | [`Engine::release`], [`Engine::acquire`], [`Engine::awaits`] |
//! | deadlocks | each wait that continues; lanes at barriers while nothing else of their worker goes on | [`Engine::wait`], [`Engine::deadlock`] |
//!
//! A thread of the job calls [`Engine::deadlock`] ten times in a second. Waits may be out of date for a moment, so it must
//! find the same ones for two seconds. If a deadline fails the job before, half of the deadline suffices.
//!
//! **Missing.**
//!
//! - Accesses through pointers: `View::as_ptr`, `Pe::ptr`, references to registered buffers, and other libraries.
//! - The indices that `wait_until_some` writes, and the `slots` of `alltoall_ll`.
//! - The order that making or destroying a team gives to the hosts.
//! - Host threads of a PE count as one. Order between them is not checked, and a PE with several has no deadlock.
//! - Messages between PEs by other means, such as channels and atomics of the process, give no order.
//! - Loops that read several words, or that update a word by an atomic, and waits for any of several words count as work. So
//!   they hide a deadlock. A loop that loads one address for seconds, and accesses nothing else, counts as a wait.
//! - A call in another form may have the name of its base form: `sync_all` is a `team_sync`.
//! - Stores to peers of a thread that has ended count as complete at a later `fence` of its PE, not only as ordered.
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
