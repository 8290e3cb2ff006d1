//! The send-queue protocol under loom: every interleaving, and every value that a weak memory lets a load see.
//!
//! A poster writes a slot without synchronisation of its own (loom's `UnsafeCell` panics on a race), publishes, and
//! goes. The NIC believes the doorbell alone: what the bell has announced must be written, in order, and once
//! everybody is done everything must have been announced.
#![allow(clippy::disallowed_methods)] // `core`'s atomics are right on a CPU

use std::sync::atomic::AtomicUsize as Count;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::fence;
use loom::thread;
use rushmem_device::sq::{self, Bell, Note, Words};

/// A queue of `DEPTH` one-block slots.
struct Queue<const DEPTH: usize> {
    reserved: AtomicU64,
    done: AtomicU64,
    bell: AtomicU64,
    notes: [AtomicU64; DEPTH],
    slots: [UnsafeCell<u64>; DEPTH],
    /// The doorbell register: blocks announced.
    register: AtomicU64,
    /// What only who rings touches: loom panics if two do at once, or one without having seen the other.
    holder: UnsafeCell<u64>,
}

impl<const DEPTH: usize> Queue<DEPTH> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            reserved: AtomicU64::new(0),
            done: AtomicU64::new(0),
            bell: AtomicU64::new(0),
            notes: std::array::from_fn(|_| AtomicU64::new(0)),
            slots: std::array::from_fn(|_| UnsafeCell::new(0)),
            register: AtomicU64::new(0),
            holder: UnsafeCell::new(0),
        })
    }

    /// Posts `blocks` blocks, each with its index plus one as its content.
    fn post(&self, blocks: u64) {
        let seen = self.look();
        let first = self.reserve(blocks);
        let end = first + blocks;
        while end > self.done.load(Acquire) + DEPTH as u64 {
            thread::yield_now();
        }
        for block in first..end {
            let slot = &self.slots[block as usize % DEPTH];
            // SAFETY: `reserve` and the wait above made the slot this thread's alone; loom checks it.
            slot.with_mut(|p| unsafe { *p = block + 1 });
        }
        if !seen.waits_for(first) {
            sq::publish(self, DEPTH as u64, first, end, |now| self.ring(now));
        } else if !sq::alone(self, first, end, |now| self.ring(now)) {
            sq::knocked(self, DEPTH as u64, first, end, |now| self.ring(now));
        }
    }

    /// As [`Queue::post`], in a batch that ends later.
    fn hold(&self, blocks: u64) {
        let first = self.reserve(blocks);
        for block in first..first + blocks {
            // SAFETY: as in `post`; nobody makes the queue full.
            self.slots[block as usize % DEPTH].with_mut(|p| unsafe { *p = block + 1 });
        }
        sq::hold(self, DEPTH as u64, first, first + blocks);
    }

    /// What who rings does to announce all before `now`.
    fn ring(&self, now: u64) {
        fence(AcqRel);
        // SAFETY: one thread is here at a time; loom checks it.
        let before = self.holder.with_mut(|p| unsafe { std::mem::replace(&mut *p, now) });
        assert!(now >= before, "the doorbell went back");
        self.read(before, now);
        fence(Release); // for the reading, which is the model's own
        self.register.store(now, Relaxed);
    }

    /// Reads the WQEs from `from` to `to`, as a NIC may at once when they are announced.
    fn read(&self, from: u64, to: u64) {
        for block in from..to {
            let slot = &self.slots[block as usize % DEPTH];
            // SAFETY: announced blocks are the NIC's until they complete; loom checks it.
            slot.with(|p| assert_eq!(unsafe { *p }, block + 1, "an unwritten WQE was announced"));
        }
    }

    /// What a NIC does: executes what is announced, and completes it.
    fn execute(&self, from: u64) -> u64 {
        let announced = self.register.load(Acquire);
        self.read(from, announced);
        if announced > from {
            self.done.fetch_max(announced, AcqRel);
        }
        announced
    }
}

impl<const DEPTH: usize> Words for Queue<DEPTH> {
    fn reserve(&self, blocks: u64) -> u64 {
        self.reserved.fetch_add(blocks, Relaxed)
    }
    fn note(&self, slot: u64) -> Note {
        Note(self.notes[slot as usize].load(Relaxed))
    }
    fn set_note(&self, slot: u64, note: Note) {
        self.notes[slot as usize].store(note.0, Release);
    }
    fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }
    fn look(&self) -> Bell {
        Bell(self.bell.load(Relaxed))
    }
    fn knock(&self) -> Bell {
        Bell(self.bell.fetch_or(Bell::KNOCK, Release))
    }
    fn hear(&self, held: Bell) -> Bell {
        Bell(self.bell.swap(held.0, Acquire))
    }
    fn change(&self, from: Bell, to: Bell) -> Bell {
        match self.bell.compare_exchange(from.0, to.0, Release, Relaxed) {
            Ok(found) | Err(found) => Bell(found),
        }
    }
}

/// A thread that posts once.
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

/// Posters without a full queue: all interleavings of two threads, and the NIC looks at any moment.
#[test]
fn what_is_announced_is_written_and_all_is_announced() {
    static RUNS: Count = Count::new(0);
    model(3, || {
        let q = Queue::<4>::new();
        let posters = [1, 2].map(|blocks| poster(&q, blocks));
        let seen = q.execute(0);
        for poster in posters {
            poster.join().unwrap();
        }
        assert_eq!(q.register.load(Acquire), 3, "a published WQE was never announced");
        q.execute(seen);
        RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(RUNS.load(std::sync::atomic::Ordering::Relaxed) > 100, "loom explored next to nothing");
}

/// Three posters.
#[test]
fn three_posters_leave_nothing_unannounced() {
    model(2, || {
        let q = Queue::<4>::new();
        let posters = [1, 1].map(|blocks| poster(&q, blocks));
        q.post(1);
        for poster in posters {
            poster.join().unwrap();
        }
        assert_eq!(q.register.load(Acquire), 3, "a published WQE was never announced");
        q.execute(0);
    });
}

/// A batch that is held back, and another poster behind or before it.
#[test]
fn what_is_held_is_announced_when_the_batch_ends() {
    model(3, || {
        let q = Queue::<4>::new();
        let poster = poster(&q, 1);
        q.hold(1);
        q.hold(1);
        sq::ring(&*q, 4, |now| q.ring(now));
        poster.join().unwrap();
        assert_eq!(q.register.load(Acquire), 3, "a published WQE was never announced");
        q.execute(0);
    });
}

/// A queue of two slots that wraps: no slot is written before the NIC has executed what was in it.
#[test]
fn a_full_queue_never_overwrites() {
    model(3, || {
        let q = Queue::<2>::new();
        let poster = {
            let q = Arc::clone(&q);
            thread::spawn(move || (0..3).for_each(|_| q.post(1)))
        };
        serve(&q, 3);
        poster.join().unwrap();
    });
}

/// The same with two posters, one of which takes the whole queue at once.
#[test]
fn a_full_queue_is_shared() {
    model(1, || {
        let q = Queue::<2>::new();
        let posters = [1, 2].map(|blocks| poster(&q, blocks));
        serve(&q, 3);
        for poster in posters {
            poster.join().unwrap();
        }
    });
}

/// Slots are given out again while who posted to them alone has yet to move the bell, and while others have yet to publish.
#[test]
fn slots_come_round_before_the_bell_has_moved() {
    model(3, || {
        let q = Queue::<2>::new();
        let posters = [1, 1].map(|blocks| poster(&q, blocks));
        let mut at = 0;
        while at == 0 {
            at = q.execute(0);
            thread::yield_now();
        }
        q.post(1);
        for poster in posters {
            poster.join().unwrap();
        }
        assert_eq!(q.register.load(Acquire), 3, "a published WQE was never announced");
    });
}

/// Is the NIC until `blocks` blocks have completed.
fn serve<const DEPTH: usize>(q: &Queue<DEPTH>, blocks: u64) {
    let mut at = 0;
    while at < blocks {
        at = q.execute(at);
        thread::yield_now();
    }
    assert_eq!(q.done.load(Acquire), blocks);
}
