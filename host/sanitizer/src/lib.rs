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
//! | put with signal | The word carries the knowledge at the post and step 2 of this operation. |
//! | signal, `p`, atomic | The same. |
//! | wait for a word | The waiter knows what the word carries. Of a longer put, it knows this word only. |
//! | atomic with a result | The caller knows what the word carried. An update adds to it. |
//! | strong store and load | They carry the knowledge of a release fence to an acquire fence. |
//! | barrier of a group | All members know what each knew. |
//! | team or grid barrier, collective call | A member that leaves knows what all knew on arrival. |
//! | launch, stream, event, host call | The later side knows what the earlier side knew. |
//!
//! **Quiet and fence add no entry for each operation.** An operation has a list of *ends*. Each is a step of another actor at
//! which it was complete, so an actor that knows that step knows the operation. A fence is an actor too, one for each target with
//! operations in flight. The operations before it end there, and later operations follow it.
//!
//! **Collective calls.** The part of each PE is one operation. It begins once all members have arrived, because every call
//! begins with a check-in. It reads and writes the buffers of its own PE. It is complete when its own member leaves.
//!
//! # Shadow memory
//!
//! Each PE has a heap, local buffers and windows. A map of intervals holds the accesses that later ones may race with. An
//! ordered access replaces earlier ones if it conflicts with everything that they conflict with. Accesses of one step and line
//! to adjacent bytes are one interval. [`Kind`] lists the kinds, and `access.rs` their conflicts.
//!
//! # Memory use
//!
//! An actor has *settled* once all live actors know its last step. It then leaves all clocks and the shadow memory. A host
//! that waits for a launch tells the engine by [`Engine::awaits`], so that it does not hold up the settling.
//!
//! # Limits
//!
//! - A fence of block scope counts like one of system scope.
//! - A plain load of a word behind a relaxed load needs the acquire fence too.
//! - The engine finds races of the order that this execution took. Another branch or another winner of a lock needs its own run.
//! - Of more than 64 accesses of the same bytes without an order among them, the first ones are forgotten.
//! - An operation that no `quiet` ever covers stays in the tables until the job ends.
//! - Arrays that each thread of a grid fills element by element have one interval for each element, until they settle.
//! - One engine watches one process. A job of processes needs the calls in one order, through the launcher for example.
//! - Through a NIC, the poster does not deliver. The software ConnectX must then report deliveries before it makes them.
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | `clock` | actor numbers, steps, vector clocks |
//! | `intervals` | maps from ranges of bytes to values |
//! | `access` | accesses, and their conflicts |
//! | `actors` | actors, their knowledge, and the settling |
//! | `queues` | operations in flight by context, and fences |
//! | `shadow` | earlier accesses of each byte |
//! | `values` | the knowledge that values in memory carry |
//! | `meetings` | barriers and collective calls |
//! | `post` | the description of an operation |
//! | `order` | the order that a race lacks, and its remedy |
//! | `report` | races as text and JSON |
//! | `deadlock` | waits that cannot end |
//! | `finding` | races and deadlocks |
//! | `engine` | one method for each relation |
//!
//! # Hooks
//!
//! None exists yet. Add them in this order; each stage has a suite of its own.
//!
//! **Rules.** A release calls the engine before others can see the step, and an acquire after it has seen it. A hook is at the
//! public call. Calls inside it are silent: a depth counter of the lane hides them. The device crate has a feature `sanitize`,
//! natively only: `arch::watch` passes plain words to the lane, and is an empty function in `arch/nvptx.rs`. A sanitized job
//! sets `peer_path=p2p`, so that a thread delivers its own operations: `post`, `deliver`, and then the copy.
//!
//! **Stage 1: threads of a launch.**
//!
//! | file | function | method |
//! |---|---|---|
//! | `device/src/arch/native.rs` | `trait Lane`: a new method `watcher` | none: it returns the sink of the lane's events |
//! | `host/native/src/lane.rs` | `Handle::new` | [`Engine::fork`], from the stream or host of the launch |
//! | `host/native/src/worker.rs` | `Worker::turn`, arm `Ok(None)` | [`Engine::end`] |
//! | `host/native/src/lib.rs` | `launch_lanes`, at its end | [`Engine::join`] of each lane |
//! | `host/native/src/block.rs` | `Block::barrier`, when all have arrived | [`Engine::sync`] of the block |
//! | `host/native/src/block.rs` | `Block::exchange`, when the mask is complete | [`Engine::sync`] of the mask |
//! | `device/src/coll/grid.rs` | `Ctx::sync_grid` | [`Engine::arrive`], [`Engine::leave`] by each leader |
//! | `device/src/view.rs` | `View::load`, `View::store` | [`Engine::load`], [`Engine::store`] |
//! | `device/src/view.rs` | `View::load_relaxed`, `View::store_relaxed` | [`Engine::observe`] at a fence, [`Engine::store_relaxed`] |
//! | `device/src/order.rs` | `Ctx::fence_release`, `Ctx::fence_acquire`, `Ctx::fence_system` | [`Engine::fence_release`], [`Engine::fence_acquire`] |
//!
//! **Stage 2: operations.**
//!
//! | file | function | method |
//! |---|---|---|
//! | `device/src/rma.rs` | `Ctx::put_nbi`, `Ctx::p` | [`Engine::post`] of [`Post::put`], [`Engine::deliver`] |
//! | `device/src/rma.rs` | `Ctx::put` | the same, then [`Engine::free_source`] |
//! | `device/src/rma.rs` | `Ctx::get_nbi` | [`Engine::post`] of [`Post::get`], [`Engine::deliver`] |
//! | `device/src/rma.rs` | `Ctx::get`, `Ctx::g` | the same, then [`Engine::complete`] |
//! | `device/src/strided.rs` | all transfers | one [`Post`] for each block of elements |
//! | `device/src/view.rs` | `RemoteView::load`, `RemoteView::store` | [`Engine::load`]; [`Post::put`] in [`Context::Stores`] |
//! | `device/src/signal.rs` | `Ctx::put_signal_nbi`, `Ctx::put_signal` | [`Engine::quiet`] of [`Context::Stores`] for each thread, [`Post::with_signal`] |
//! | `device/src/signal.rs` | `Ctx::signal_op`, `Ctx::signal_reset` | [`Post::signal`], [`Post::fetch`] |
//! | `device/src/signal.rs` | `Ctx::signal_after_all`, `Ctx::put_signal_after_all` | [`Post::after_all`] |
//! | `device/src/amo/mod.rs` | `Ctx::post_op` | [`Post::atomic`] |
//! | `device/src/amo/mod.rs` | `Ctx::fetch_op`, `Ctx::add_by_swap` | [`Post::fetch`], [`Engine::complete`] |
//! | `device/src/amo/nbi.rs` | all methods; `Fetched` | [`Post::fetch_nbi`]; [`Engine::complete`] |
//! | `device/src/amo/masked.rs` | all methods | [`Post::fetch`], [`Engine::complete`] |
//! | `device/src/pending.rs` | `Pending::wait`, `Pending::test` | [`Engine::complete`] |
//! | `device/src/order.rs` | `Ctx::fence`, `Ctx::fence_group`, `Ctx::fence_pe` | [`Engine::fence`] |
//! | `device/src/order.rs` | `Ctx::quiet`, `Ctx::quiet_pe`, `Ctx::quiet_pes` | [`Engine::quiet`], by each thread between the barriers of the group |
//! | `device/src/order.rs` | `Ctx::flush`, `Ctx::flush_pe` | [`Engine::flush`] |
//! | `device/src/wait_until.rs` | `await_address`, `Ctx::test`, `look_at_words` | [`Engine::observe`], or [`Engine::look`] |
//! | `device/src/signal.rs` | `Ctx::signal_fetch` | [`Engine::observe`] |
//! | `device/src/lock.rs` | all methods | none: their atomics do it |
//!
//! **Stage 3: collective calls.** Each has one meeting for each team, by its slot.
//!
//! | file | function | method |
//! |---|---|---|
//! | `device/src/coll/sync.rs` | `Ctx::team_sync`; `Ctx::barrier` | [`Engine::arrive`], [`Engine::leave`]; [`Engine::quiet`] before |
//! | `device/src/coll/sync.rs` | `Ctx::sync_arrive`, `Ctx::sync_wait` | [`Engine::arrive`], [`Engine::leave`] of a second meeting |
//! | `device/src/coll/movement.rs`, `reduce.rs`, `strided.rs`, `alltoall_ll.rs` | all methods | [`Engine::arrive`], and [`Engine::leave`] with [`Buffers`] |
//! | `host/src/pe/teams.rs` | `Pe::split`, `Pe::team_destroy`; the predefined teams at start | [`Engine::define_meeting`], [`Engine::remove_meeting`] |
//!
//! **Stage 4: the host.**
//!
//! | file | function | method |
//! |---|---|---|
//! | `host/src/pe/start.rs` | bring-up | [`Engine::start`], [`Engine::define_meeting`] of the hosts |
//! | `host/src/pe.rs` | `Pe::host_sync`, `Pe::allgather`, `Pe::allgather_for` | [`Engine::arrive`], [`Engine::leave`] |
//! | `host/src/pe/memory.rs` | `Pe::allocate_object`, `Pe::realloc` | [`Engine::alloc`] |
//! | `host/src/pe/memory.rs` | `Pe::free`, behind `agree` | [`Engine::free`] |
//! | `host/src/pe/memory.rs` | `Pe::read`, `Pe::write` | [`Engine::load`], [`Engine::store`] |
//! | `host/src/pe/register.rs` | `register`, `unregister` and the symmetric forms | [`Engine::alloc`], [`Engine::free`] |
//! | `host/src/machine/native/queue.rs` | `NativeStream::launch`, `Shared::run` | [`Engine::release`] at the call, [`Engine::acquire`] before it runs |
//! | `host/src/machine/native/queue.rs` | `record_event`, `wait_event`, `wait` | [`Engine::release`] in `Completion::set`, [`Engine::acquire`] behind `Completion::wait` |
//! | `host/src/launch.rs`, `host/src/stream/mod.rs` | `Launch::wait`, `Stream::wait` | [`Engine::awaits`], then [`Engine::acquire`] of the event |
//! | `host/src/pe/outcome.rs` | `Pe::initiate` | [`Engine::fork`] from the calling thread; the kernel does the rest |
//!
//! **Stage 5: waits.**
//!
//! | file | function | method |
//! |---|---|---|
//! | `device/src/wait.rs` | `Watch::look` | [`Engine::wait`] with [`Until::Word`], or [`Until::Members`] in a collective call |
//! | `host/native/src/block.rs` | `Block::barrier`, `Block::exchange` | [`Engine::wait`] with [`Until::Arrivals`] |
//! | `host/src/launch_queue/queue.rs` | `LaunchQueue::wait_for` | [`Engine::wait`] with [`Until::Ends`] |
//! | `host/native/src/worker.rs` | `Idle::begin`, after a round without progress | [`Engine::deadlock`] |
//!
//! **Stage 6: the command.** `host/config` gets the setting `sanitize`, and `host/src/job.rs` owns the engine in one lock. The
//! end of the job prints [`Engine::take_races`] and exits with code 5.
#![forbid(unsafe_code)]

mod access;
mod actors;
mod clock;
mod deadlock;
mod engine;
mod finding;
mod intervals;
mod meetings;
mod order;
mod post;
mod queues;
mod report;
mod shadow;
mod values;

pub use access::{Call, Kind, Memory, Site, Space, Span};
pub use actors::{Actor, Transfer};
pub use clock::ActorId;
pub use deadlock::{Deadlock, Stuck, Until, Wait};
pub use engine::{Acquire, Buffers, Engine, Token};
pub use finding::Finding;
pub use intervals::Bytes;
pub use meetings::MeetingId;
pub use order::MissingOrder;
pub use post::Post;
pub use queues::Context;
pub use report::{Party, Race};
