//! Model of the send-queue protocol for loom, which checks every interleaving and every value that weak memory ordering
//! allows a load to return.
//!
//! Posters write slots without any synchronisation besides the protocol. Loom's `UnsafeCell` panics on a race. The NIC
//! only trusts the doorbell: announced blocks must have been written, in order. Once all posters are done, all blocks
//! must have been announced.
#![allow(clippy::disallowed_methods)] // `core`'s atomics are right on a CPU

use std::sync::atomic::AtomicUsize as Count;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::fence;
use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::thread;
use rushmem_device::abi::FIRST_BLOCK;
use rushmem_device::sq::{self, DoorbellState, ReadyEntry, SendQueueState};

/// A send queue of `DEPTH` single-block slots.
struct Queue<const DEPTH: usize> {
    reserved: AtomicU64,
    done: AtomicU64,
    doorbell: AtomicU64,
    ready: [AtomicU64; DEPTH],
    slots: [UnsafeCell<u64>; DEPTH],
    /// Index of the current connection. A poster reads it once it has found room.
    connection: AtomicU64,
    connections: [Connection; 3],
    /// Twice the number of failovers, plus 1 while one closes the queue.
    closing: AtomicU64,
}

/// What a failover replaces.
struct Connection {
    /// The doorbell register: index one past the last announced block.
    register: AtomicU64,
    /// Index announced by the last ring, only accessed while ringing. Loom panics if two threads ring concurrently, or
    /// if one rings without having seen the last ring.
    holder: UnsafeCell<u64>,
}

impl<const DEPTH: usize> Queue<DEPTH> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            reserved: AtomicU64::new(FIRST_BLOCK),
            done: AtomicU64::new(FIRST_BLOCK),
            doorbell: AtomicU64::new(FIRST_BLOCK),
            ready: std::array::from_fn(|_| AtomicU64::new(0)),
            slots: std::array::from_fn(|_| UnsafeCell::new(0)),
            connection: AtomicU64::new(0),
            connections: std::array::from_fn(|_| Connection {
                register: AtomicU64::new(FIRST_BLOCK),
                holder: UnsafeCell::new(FIRST_BLOCK),
            }),
            closing: AtomicU64::new(0),
        })
    }

    /// Posts `blocks` blocks, each containing its index plus one.
    fn post(&self, blocks: u64) {
        let seen = self.doorbell();
        let (first, end) = sq::reserve(self, blocks);
        let mut marked = 0;
        loop {
            let done = self.done.load(Acquire);
            if done >= sq::writable_at(end, DEPTH as u64) {
                break;
            }
            let closing = self.closing.load(Relaxed);
            if !closing.is_multiple_of(2) && closing != marked {
                marked = closing;
                fence(Acquire);
                let done = self.done.load(Acquire);
                if done < sq::writable_at(end, DEPTH as u64) {
                    sq::mark_waiting(self, DEPTH as u64, first, done);
                }
            }
            thread::yield_now();
        }
        let ring = |now| self.ring(now);
        let connection = self.current();
        self.write(first, end);
        if !seen.is_idle_at(first) {
            sq::publish_and_announce(self, DEPTH as u64, first, end, ring);
        } else if !sq::ring_uncontended(self, first, end, |now| self.ring_on(connection, now)) {
            sq::ring_contended(self, DEPTH as u64, first, end, ring);
        }
    }

    fn current(&self) -> &Connection {
        &self.connections[self.connection.load(Relaxed) as usize]
    }

    /// Replaces the connection. Returns the index one past the last block that was taken from the old one, and the index of
    /// the first block of the new one.
    fn fail_over(&self) -> (u64, u64) {
        let (depth, done) = (DEPTH as u64, self.done.load(Acquire));
        self.closing.fetch_add(1, Release);
        let mut end = loop {
            match sq::take_doorbell(self) {
                Some(announced) => break announced,
                None => thread::yield_now(),
            }
        };
        let closed = sq::close(self, done, depth);
        loop {
            let (published, is_all) = sq::published(self, depth, closed, end);
            end = published;
            if is_all {
                break;
            }
            thread::yield_now();
        }
        fence(AcqRel);
        self.read(done, end);
        let resume = closed.resume(end);
        let next = self.connection.load(Relaxed) + 1;
        let connection = &self.connections[next as usize];
        // SAFETY: nobody rings the new connection yet; loom checks it.
        connection.holder.with_mut(|p| unsafe { *p = resume });
        connection.register.store(resume, Relaxed);
        self.connection.store(next, Relaxed);
        sq::unmark(self, depth, end);
        self.closing.fetch_add(1, Relaxed);
        sq::reopen(self, resume);
        self.done.store(resume, Release);
        (end, resume)
    }

    /// Gives the queue up, with everything that was reserved, and starts another connection. Returns the index of its first block.
    fn renew(&self, abandoned: &AtomicBool) -> u64 {
        let done = self.done.load(Acquire);
        self.closing.fetch_add(1, Release);
        let resume = sq::abandon(self, done, DEPTH as u64);
        abandoned.store(true, Release);
        let next = self.connection.load(Relaxed) + 1;
        let connection = &self.connections[next as usize];
        // SAFETY: nobody rings the new connection yet; loom checks it.
        connection.holder.with_mut(|p| unsafe { *p = resume });
        connection.register.store(resume, Relaxed);
        self.connection.store(next, Relaxed);
        self.closing.fetch_add(1, Relaxed);
        sq::reopen(self, resume);
        self.done.store(resume, Release);
        resume
    }

    /// Publishes `blocks` blocks of a batch that is announced later. The caller must know that the queue is not full.
    fn post_in_batch(&self, blocks: u64) {
        let (first, end) = sq::reserve(self, blocks);
        self.write(first, end);
        sq::publish(self, DEPTH as u64, first, end);
    }

    /// Writes blocks `first..end`, which the caller has reserved.
    fn write(&self, first: u64, end: u64) {
        for block in first..end {
            let slot = &self.slots[block as usize % DEPTH];
            // SAFETY: the reservation makes the slot this thread's alone; loom checks it.
            slot.with_mut(|p| unsafe { *p = block + 1 });
        }
    }

    /// Rings the doorbell of the current connection for all blocks before `now`.
    fn ring(&self, now: u64) {
        self.ring_on(self.current(), now);
    }

    fn ring_on(&self, connection: &Connection, now: u64) {
        fence(AcqRel);
        // SAFETY: one thread is here at a time; loom checks it.
        let before = connection.holder.with_mut(|p| unsafe { std::mem::replace(&mut *p, now) });
        assert!(now >= before, "the doorbell went back");
        self.read(before, now);
        fence(Release); // for the read, which only the model makes
        connection.register.store(now, Relaxed);
    }

    /// Returns the index one past the last block announced on the current connection.
    fn announced(&self) -> u64 {
        self.current().register.load(Acquire)
    }

    /// Reads the WQEs `from..to`, as a NIC may do as soon as they are announced.
    fn read(&self, from: u64, to: u64) {
        for block in from..to {
            let slot = &self.slots[block as usize % DEPTH];
            // SAFETY: announced blocks are the NIC's until they complete; loom checks it.
            slot.with(|p| assert_eq!(unsafe { *p }, block + 1, "an unwritten WQE was announced"));
        }
    }

    /// Executes and completes the announced blocks, as a NIC does. Returns the index one past the last.
    fn execute(&self, from: u64) -> u64 {
        let announced = self.announced();
        self.read(from, announced);
        if announced > from {
            self.done.fetch_max(announced, AcqRel);
        }
        announced
    }
}

impl<const DEPTH: usize> SendQueueState for Queue<DEPTH> {
    fn fetch_add_reserved(&self, blocks: u64) -> u64 {
        self.reserved.fetch_add(blocks, Relaxed)
    }
    fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }
    fn compare_swap_reserved(&self, from: u64, to: u64) -> u64 {
        match self.reserved.compare_exchange(from, to, Relaxed, Relaxed) {
            Ok(found) | Err(found) => found,
        }
    }
    fn ready_entry(&self, slot: u64) -> ReadyEntry {
        ReadyEntry(self.ready[slot as usize].load(Relaxed))
    }
    fn set_ready_entry(&self, slot: u64, entry: ReadyEntry) {
        self.ready[slot as usize].store(entry.0, Release);
    }
    fn doorbell(&self) -> DoorbellState {
        DoorbellState(self.doorbell.load(Relaxed))
    }
    fn set_pending(&self) -> DoorbellState {
        DoorbellState(self.doorbell.fetch_or(DoorbellState::HELD_PENDING, Release))
    }
    fn take_pending(&self, held: DoorbellState) -> DoorbellState {
        DoorbellState(self.doorbell.swap(held.0, Acquire))
    }
    fn compare_swap_doorbell(&self, from: DoorbellState, to: DoorbellState) -> DoorbellState {
        match self.doorbell.compare_exchange(from.0, to.0, Release, Relaxed) {
            Ok(found) | Err(found) => DoorbellState(found),
        }
    }
}

/// Spawns a thread that posts `blocks` blocks once.
fn poster<const DEPTH: usize>(q: &Arc<Queue<DEPTH>>, blocks: u64) -> thread::JoinHandle<()> {
    let q = Arc::clone(q);
    thread::spawn(move || q.post(blocks))
}

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(f);
}

/// Two posters, a queue that is never full, and a NIC that reads the doorbell at any time.
#[test]
fn announced_blocks_are_written_and_all_are_announced() {
    static RUNS: Count = Count::new(0);
    model(3, || {
        let q = Queue::<4>::new();
        let posters = [1, 2].map(|blocks| poster(&q, blocks));
        let seen = q.execute(FIRST_BLOCK);
        for poster in posters {
            poster.join().unwrap();
        }
        assert_eq!(q.announced(), FIRST_BLOCK + 3, "a published WQE was never announced");
        q.execute(seen);
        RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(RUNS.load(std::sync::atomic::Ordering::Relaxed) > 100, "loom explored next to nothing");
}

#[test]
fn three_posters_leave_nothing_unannounced() {
    model(2, || {
        let q = Queue::<4>::new();
        let posters = [1, 1].map(|blocks| poster(&q, blocks));
        q.post(1);
        for poster in posters {
            poster.join().unwrap();
        }
        assert_eq!(q.announced(), FIRST_BLOCK + 3, "a published WQE was never announced");
        q.execute(FIRST_BLOCK);
    });
}

/// One thread posts in a batch; another poster posts before or after the batch is closed.
#[test]
fn closing_a_batch_announces_it() {
    model(3, || {
        let q = Queue::<4>::new();
        let poster = poster(&q, 1);
        q.post_in_batch(1);
        q.post_in_batch(1);
        sq::announce(&*q, 4, |now| q.ring(now));
        poster.join().unwrap();
        assert_eq!(q.announced(), FIRST_BLOCK + 3, "a published WQE was never announced");
        q.execute(FIRST_BLOCK);
    });
}

/// A queue of two slots wraps. No slot may be written before the NIC has executed what it contained.
#[test]
fn a_full_queue_never_overwrites() {
    model(3, || {
        let q = Queue::<2>::new();
        let poster = {
            let q = Arc::clone(&q);
            thread::spawn(move || (0..3).for_each(|_| q.post(1)))
        };
        serve(&q, FIRST_BLOCK, 3);
        poster.join().unwrap();
    });
}

/// A full queue with two posters, one of which reserves the whole queue.
#[test]
fn two_posters_share_a_full_queue() {
    model(1, || {
        let q = Queue::<2>::new();
        let posters = [1, 2].map(|blocks| poster(&q, blocks));
        serve(&q, FIRST_BLOCK, 3);
        for poster in posters {
            poster.join().unwrap();
        }
    });
}

/// Slots are reused before their uncontended poster has moved the doorbell word, and before other posters have
/// published.
#[test]
fn slots_may_be_reused_before_the_doorbell_word_moves() {
    model(3, || {
        let q = Queue::<2>::new();
        let posters = [1, 1].map(|blocks| poster(&q, blocks));
        let mut at = FIRST_BLOCK;
        while at == FIRST_BLOCK {
            at = q.execute(FIRST_BLOCK);
            thread::yield_now();
        }
        q.post(1);
        for poster in posters {
            poster.join().unwrap();
        }
        assert_eq!(q.announced(), FIRST_BLOCK + 3, "a published WQE was never announced");
    });
}

/// Executes blocks from `first` on, like a NIC, until `blocks` of them have completed.
fn serve<const DEPTH: usize>(q: &Queue<DEPTH>, first: u64, blocks: u64) {
    let mut at = first;
    while at < first + blocks {
        at = q.execute(at);
        thread::yield_now();
    }
    assert_eq!(q.done.load(Acquire), first + blocks);
}

/// Spawns a thread that posts one block and then two, for which a queue of two slots has no room.
fn posts_twice(q: &Arc<Queue<2>>) -> thread::JoinHandle<()> {
    let q = Arc::clone(q);
    thread::spawn(move || [1, 2].into_iter().for_each(|blocks| q.post(blocks)))
}

/// The connection fails while a poster posts, which has to wait for room. Nothing is lost, and nothing is posted twice.
#[test]
fn failover_takes_every_published_block_once() {
    model(2, || {
        let q = Queue::<2>::new();
        let poster = posts_twice(&q);
        let (end, resume) = q.fail_over();
        serve(&q, resume, FIRST_BLOCK + 3 - end);
        poster.join().unwrap();
        assert_eq!(end + (q.announced() - resume), FIRST_BLOCK + 3);
    });
}

/// Two failovers follow each other, while a poster may have waited for room during the first one only.
#[test]
fn failovers_follow_each_other() {
    model(1, || {
        let q = Queue::<2>::new();
        let poster = posts_twice(&q);
        let (end, resume) = q.fail_over();
        let (end_2, resume_2) = q.fail_over();
        let taken = end - FIRST_BLOCK + (end_2 - resume);
        serve(&q, resume_2, 3 - taken);
        poster.join().unwrap();
        assert_eq!(taken + (q.announced() - resume_2), 3);
    });
}

/// Two posters in a queue that is never full may take the uncontended path on both connections.
#[test]
fn failover_beside_uncontended_posters() {
    model(1, || {
        let q = Queue::<4>::new();
        let posters = [1, 1].map(|blocks| poster(&q, blocks));
        let (end, resume) = q.fail_over();
        for poster in posters {
            poster.join().unwrap();
        }
        assert_eq!(end + (q.announced() - resume), FIRST_BLOCK + 2, "a published WQE was never announced");
    });
}

/// A thread that posts to a queue that another one renews waits for the next connection, and posts to that.
#[test]
fn posters_wait_for_the_connection_of_a_renewed_queue() {
    model(2, || {
        let q = Queue::<2>::new();
        // Dropped with the queue.
        q.post(1);
        let abandoned = Arc::new(AtomicBool::new(false));
        let poster = {
            let (q, abandoned) = (Arc::clone(&q), Arc::clone(&abandoned));
            thread::spawn(move || {
                while !abandoned.load(Acquire) {
                    thread::yield_now();
                }
                q.post(1);
            })
        };
        let resume = q.renew(&abandoned);
        poster.join().unwrap();
        assert_eq!(q.announced(), resume + 1, "a published WQE was never announced");
    });
}
