//! Tests for plain accesses that wait in the list of their block.

use std::panic::Location;
use std::sync::Arc;

use rushmem_sanitizer::{
    Accesses, Acquire, Actor, ActorId, Call, Engine, Ids, Memory, Noted, Region, Regions, Space, Span,
};

const LANES: u32 = 32;

/// Addresses of the heaps of PE 0 and PE 1.
const HEAPS: [u64; 2] = [0x10_0000, 0x20_0000];

struct Job {
    engine: Engine,
    blocks: [Arc<Accesses>; 2],
}

impl Job {
    fn new() -> Self {
        let mut engine = Engine::new();
        let mut regions = Regions::default();
        for (pe, address) in (0..).zip(HEAPS) {
            regions.add(Region {
                address,
                bytes: 0x1000,
                memory: Memory { pe, space: Space::Heap },
                start: 0,
            });
        }
        let regions = Arc::new(regions);
        let blocks = [0, 1].map(|pe| {
            let host = engine.start(Actor::Host { pe, thread: 0 });
            let threads = (0..LANES).map(|thread| Actor::Thread { pe, launch: 0, block: 0, thread });
            let lanes = Ids::of_process(pe, 2).actors(LANES as usize);
            engine.fork_as(host, lanes.iter().copied().zip(threads));
            let block = Arc::new(Accesses::new(pe, lanes, Arc::clone(&regions), None));
            engine.add_accesses(Arc::clone(&block));
            block
        });
        Self { engine, blocks }
    }

    fn lane(&self, pe: usize, thread: u32) -> ActorId {
        self.blocks[pe].lanes()[thread as usize]
    }

    fn load_elements(&self, pe: usize) {
        for thread in 0..LANES {
            let at = (HEAPS[pe] + 4 * u64::from(thread), 4);
            assert_eq!(self.blocks[pe].load(thread, at, "load", Location::caller()), Noted::Waits);
        }
    }
}

fn call(name: &'static str) -> Call {
    Call { name, site: Location::caller().into() }
}

#[test]
fn a_race_with_an_element_of_a_row_names_its_thread() {
    let mut job = Job::new();
    job.load_elements(0);
    job.engine.take_accesses(&job.blocks[0]);
    let (_, ranges) = job.engine.size();
    assert_eq!(ranges, 2, "32 accesses are a row in each of two pages");
    job.engine.store(job.lane(0, 0), Span::heap(0, 4 * 21, 4), call("store"));
    let races = job.engine.take_races();
    assert_eq!(races.len(), 1);
    assert_eq!(races[0].first.actor, Actor::Thread { pe: 0, launch: 0, block: 0, thread: 21 });
    assert_eq!((races[0].bytes.start, races[0].bytes.end), (4 * 21, 4 * 22));
}

#[test]
fn accesses_before_a_barrier_do_not_race_after_it() {
    for meets in [false, true] {
        let mut job = Job::new();
        job.load_elements(0);
        job.engine.take_accesses(&job.blocks[0]);
        if meets {
            job.engine.sync(job.blocks[0].lanes());
        }
        // Each thread stores its neighbor's element.
        for thread in 0..LANES {
            let at = (HEAPS[0] + 4 * u64::from((thread + 1) % LANES), 4);
            job.blocks[0].store(thread, at, "store", Location::caller());
        }
        job.engine.take_accesses(&job.blocks[0]);
        assert_eq!(job.engine.take_races().is_empty(), meets);
    }
}

#[test]
fn a_wait_knows_a_store_to_its_pe_that_is_in_a_list() {
    let mut job = Job::new();
    let stored = job.blocks[0].store(3, (HEAPS[1], 8), "store", Location::caller());
    assert_eq!((stored, job.blocks[0].is_empty()), (Noted::ToPeer, false));
    let (waiter, word) = (job.lane(1, 0), Span::heap(1, 0, 8));
    job.engine.observe(waiter, (word, None), Acquire::Now, call("wait"));
    assert!(job.blocks[0].is_empty());
    job.engine.load(waiter, word, call("load"));
    assert_eq!(job.engine.take_races(), []);
}

#[test]
fn the_end_of_memory_meets_the_accesses_in_all_lists() {
    let mut job = Job::new();
    job.load_elements(1);
    job.engine.free(job.lane(0, 0), Span::heap(1, 0, 64), call("free"));
    job.engine.alloc(Span::heap(1, 0, 64));
    assert!(!job.engine.take_races().is_empty());
}

#[test]
fn elements_of_several_lengths_keep_their_order() {
    let mut job = Job::new();
    let (block, at) = (Arc::clone(&job.blocks[0]), HEAPS[0]);
    block.store(0, (at + 60, 8), "across", Location::caller());
    block.store(0, (at + 56, 8), "before", Location::caller());
    block.store(0, (at + 64, 4), "behind", Location::caller());
    job.engine.take_accesses(&block);
    let names = [(56, "before"), (60, "before"), (64, "behind"), (68, "across")].map(|(at, _)| {
        job.engine.load(job.lane(0, 1), Span::heap(0, at, 4), call("load"));
        job.engine.take_races().first().map(|race| race.first.call.name)
    });
    assert_eq!(names, [Some("before"), None, Some("behind"), None]);
}

#[test]
fn accesses_of_another_process_have_the_same_races() {
    for threads in [1..2, 0..LANES] {
        let (mut here, mut there) = (Job::new(), Job::new());
        for job in [&here, &there] {
            for thread in threads.clone() {
                job.blocks[0].store(
                    thread,
                    (HEAPS[0] + 8 * u64::from(thread), 8),
                    "store",
                    Location::caller(),
                );
            }
        }
        here.engine.take_accesses(&here.blocks[0]);
        there.engine.take_batch(&there.blocks[0].take());
        let [wanted, found] = [&mut here, &mut there].map(|job| {
            job.engine.load(job.lane(1, 0), Span::heap(0, 8, 16), call("load"));
            job.engine.take_races()
        });
        assert_eq!((wanted.is_empty(), &found), (false, &wanted));
    }
}

#[test]
fn the_last_thread_of_a_block_ends_all() {
    let mut job = Job::new();
    let ends = (0..LANES).map(|thread| job.blocks[0].end(thread));
    assert_eq!(ends.filter(|noted| *noted == Noted::Full).count(), 1);
    job.engine.take_batch(&job.blocks[0].take());
    assert!(job.blocks[0].is_empty());
}
