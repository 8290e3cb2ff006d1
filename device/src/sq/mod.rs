//! The send queue of a queue pair: how threads post to one queue without waiting for each other.
//!
//! A send queue is a ring of 64-byte basic blocks (WQEBBs). Blocks are counted from [`FIRST_BLOCK`](crate::abi::FIRST_BLOCK)
//! in 64 bits and never wrap. Every counter holds the index *one past the last* block of its stage:
//!
//! ```text
//!          done          doorbell                        reserved
//!           |               |                               |
//!  ---------+---------------+-------------------------------+-----> block index
//!  complete |   announced   |  published, written or only   |  free
//!           | the NIC reads |  reserved, in any mixture     |
//!           |               |                               |
//!           |<---------------- at most `depth` ------------>|
//! ```
//!
//! A posting passes five stages:
//!
//! 1. **Reserved** ([`reserve()`]): one atomic add hands out blocks. The poster may write them once `done + depth` has
//!    passed their end, so it never overwrites a WQE that the NIC has not executed.
//! 2. **Written**: the poster writes its WQEs. Posters write in any order.
//! 3. **Published** ([`publish`]): one release store into the [`ReadyEntry`] of the reservation's first slot. The poster
//!    does not wait for earlier posters.
//! 4. **Announced** ([`announce`]): one thread, the doorbell holder, rings the doorbell for all postings that are published
//!    without a gap. A poster that finds the doorbell held sets its pending bit and leaves. The holder cannot give up the
//!    doorbell before it has seen that bit. So the doorbell only moves forward, and one ring serves many posters.
//! 5. **Complete**: the NIC has written a CQE. A waiting thread polls the CQ and advances `done`.
//!
//! # Uncontended fast path
//!
//! A doorbell that is free, has no gap and stands at the start of a reservation has nothing earlier to announce. It cannot
//! move past that reservation either, because the reservation is not published. Its poster skips stage 3: it rings without
//! holding the doorbell, and then advances the doorbell with one compare-and-swap ([`ring_uncontended`]). The swap fails if
//! another poster has set the pending bit meanwhile. Then [`ring_contended`] finishes the work:
//!
//! - If the doorbell is free again, the poster takes it and announces what the others have published.
//! - If another thread holds it, the poster writes its own end into the doorbell word for that holder. A ready entry would
//!   come too late, because the NIC may already have executed the blocks and another poster may have reused their slots.
//!
//! # Why no posting is lost
//!
//! - Every change of the doorbell word is a read-modify-write. Setting the pending bit is a release, taking it is an
//!   acquire. So a holder that takes the bit sees everything its setter published.
//! - The gap bit says that published postings may wait behind an unpublished one. A holder leaves the doorbell without that
//!   bit only if it has announced all blocks that it knows to be reserved. It knows the blocks of every poster that has
//!   set the pending bit it took. A later poster finds the doorbell free and holds it.
//! - Ready entries need no reset. An entry names the reservation that it belongs to, so one of an earlier lap does not match.
//!   Its poster writes it before the blocks are announced, so it never overwrites an entry of a later lap.
//!
//! `device/tests/loom.rs` checks the protocol under every interleaving that loom explores.
//!
//! # Where to read on
//!
//! `reserve.rs` and `doorbell.rs` are the protocol, over the trait [`SendQueueState`] of `state.rs`. The other files implement it on memory that
//! the host lays out:
//!
//! | file | content |
//! |---|---|
//! | `qp.rs` | a queue pair: its descriptor, its state words, and who owns it |
//! | `posting.rs` | posting to a queue pair |
//! | `send_queue.rs` | WQEs, doorbell record and doorbell register in memory |
//! | `completion.rs` | polling the CQ, waiting, errors |
//! | `connect.rs` | asking the host for the connection |
//! | `fetch_slot.rs` | results of blocking `g` and atomics |

mod completion;
mod connect;
mod doorbell;
mod fetch_slot;
mod posting;
mod qp;
mod reserve;
mod send_queue;
mod state;

pub use doorbell::{announce, publish, publish_and_announce, ring_contended, ring_uncontended};
pub(crate) use posting::Reservation;
pub(crate) use qp::{EndIndex, HAS_DC, Qp};
pub use reserve::{completed, reserve, writable_at};
pub use state::{DoorbellState, MAX_DEPTH, ReadyEntry, SendQueueState};
