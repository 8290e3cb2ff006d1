//! The send queue of a queue pair: how threads post to one queue without waiting for each other.
//!
//! A send queue is a ring of 64-byte basic blocks (WQEBBs), numbered from [`FIRST_BLOCK`](crate::abi::FIRST_BLOCK) in
//! 64 bits; the numbers never wrap. Each stage has a counter, which holds the index *one past* the last block that
//! reached it:
//!
//! ```text
//!  ---------+---------------+-------------------------------+-----> block index
//!  complete |   announced   |  published, written or only   |  free
//!           | the NIC reads |  reserved, in any mixture     |
//!           |               |                               |
//!           |<---------------- at most `depth` ------------>|
//! ```
//!
//! A posting passes through five stages:
//!
//! 1. **Reserved** ([`reserve()`]): one atomic add hands out blocks. The poster may write them once `done + depth` has
//!    covered its whole reservation, so it never overwrites a WQE that the NIC has yet to execute.
//! 2. **Written**: the poster writes its WQEs, in any order relative to other posters.
//! 3. **Published** ([`publish`]): one release store to the [`ReadyEntry`] of the reservation's first slot. It does not
//!    wait for earlier posters.
//! 4. **Announced** ([`announce`]): one thread, the doorbell holder, rings the doorbell for all postings published
//!    without a gap. A poster that finds the doorbell held sets the pending bit and returns. The holder cannot release
//!    the doorbell before it has seen that bit, so the doorbell only moves forward, and one ring serves many posters.
//! 5. **Complete**: the NIC has written a CQE. A waiting thread polls the CQ and advances `done`.
//!
//! # Uncontended fast path
//!
//! If the doorbell is free, has no gap and stands at the start of a reservation, there is nothing earlier to announce.
//! Nor can the doorbell move past that reservation, which is not published. Its poster can therefore skip stage 3: it
//! rings without holding the doorbell, and then advances the doorbell with one compare-and-swap ([`ring_uncontended`]).
//! The swap fails if another poster has set the pending bit in between. [`ring_contended`] handles that case:
//!
//! - If the doorbell is free again, the poster takes it and announces what the others have published.
//! - If another thread holds it, the poster writes its own end into the doorbell word for the holder to pick up. A
//!   ready entry would come too late: the NIC may already have executed the blocks, and another poster may have reused
//!   their slots.
//!
//! # Why no posting is lost
//!
//! - Every change of the doorbell word is a read-modify-write. Setting the pending bit is a release and taking it an
//!   acquire, so a holder that takes the bit sees everything its setter published.
//! - The gap bit means that published postings may be waiting for an unpublished one before them. A holder releases the
//!   doorbell without that bit only if it has announced every block it knows to be reserved, which includes those of
//!   every poster whose pending bit it took. A later poster finds the doorbell free and becomes the holder.
//! - Ready entries are never reset. An entry names its reservation, so an entry from an earlier lap does not match. It
//!   is written before its blocks are announced, so it never overwrites an entry of a later lap.
//!
//! `device/tests/loom.rs` checks the protocol under every interleaving that loom explores.
//!
//! # Files
//!
//! `reserve.rs`, `doorbell.rs` and `closing.rs` contain the protocol, written against the trait [`SendQueueState`] of `state.rs`. The
//! other files implement that trait on memory laid out by the host:
//!
//! | file | content |
//! |---|---|
//! | `qp.rs` | a queue pair: descriptor, state words and owner |
//! | `posting.rs` | posting to a queue pair |
//! | `send_queue.rs` | WQEs, doorbell record and doorbell register |
//! | `completion.rs` | polling the CQ, waiting, errors |
//! | `connect.rs` | requesting the connection from the host |
//! | `failover.rs` | handing a queue over to the host when its connection has failed |
//! | `renewal.rs` | connecting a queue to the process that has replaced its peer |
//! | `fetch_slot.rs` | results of blocking `g` and atomics |

mod closing;
mod completion;
mod connect;
mod doorbell;
mod failover;
mod fetch_slot;
mod posting;
mod qp;
mod renewal;
mod reserve;
mod send_queue;
mod state;

pub use closing::{
    Closed, abandon, close, give_back, mark_waiting, published, reopen, take_doorbell, unmark,
};
pub use doorbell::{announce, publish, publish_and_announce, ring_contended, ring_uncontended};
pub(crate) use posting::Reservation;
pub(crate) use qp::{EndIndex, HAS_DC, Qp};
pub use reserve::{completed, first_of_queue, reserve, writable_at};
pub(crate) use send_queue::HAS_FAILOVER;
pub use state::{DoorbellState, MAX_DEPTH, ReadyEntry, SendQueueState};
