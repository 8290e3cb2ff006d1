//! A GPU block, emulated with one operating system thread per GPU thread.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

use rushmem_device::arch::{self, FailedTests, Lane};
use rushmem_service::{Limits, Ring, serve};

const WARP: usize = 32;

/// Barriers and shared state of a block.
struct Block {
    threads: u32,
    all: Barrier,
    vote: AtomicBool,
    broadcast: Shared,
    warps: Vec<Warp>,
}

struct Shared(Cell<(u64, u64)>);

// SAFETY: one thread writes between two barriers of the block, and all read between the next two.
unsafe impl Sync for Shared {}

struct Warp {
    barrier: Barrier,
    values: [AtomicU64; WARP],
}

struct Thread {
    block: Arc<Block>,
    index: u32,
    failed_tests: Cell<FailedTests>,
}

impl Lane for Thread {
    fn thread(&self) -> u32 {
        self.index
    }
    fn threads(&self) -> u32 {
        self.block.threads
    }
    fn block(&self) -> u32 {
        0
    }
    fn blocks(&self) -> u32 {
        1
    }
    fn spin(&self, _: &'static Location<'static>) {
        thread::yield_now();
    }
    fn block_any(&self, vote: bool, _: &'static Location<'static>) -> bool {
        self.block.vote.fetch_or(vote, Ordering::SeqCst);
        self.block.all.wait();
        self.block.vote.load(Ordering::SeqCst)
    }
    fn warp_gather(&self, _: u32, value: u64, _: &'static Location<'static>) -> [u64; WARP] {
        let warp = &self.block.warps[self.index as usize / WARP];
        warp.values[self.index as usize % WARP].store(value, Ordering::SeqCst);
        warp.barrier.wait();
        let all = std::array::from_fn(|lane| warp.values[lane].load(Ordering::SeqCst));
        warp.barrier.wait();
        all
    }
    fn converged(&self, _: &'static Location<'static>) -> u32 {
        1 << (self.index % 32)
    }
    fn shared(&self) -> (*mut u8, usize) {
        (std::ptr::null_mut(), 0)
    }
    fn broadcast_words(&self) -> &Cell<(u64, u64)> {
        &self.block.broadcast.0
    }
    fn failed_tests(&self) -> &Cell<FailedTests> {
        &self.failed_tests
    }
}

/// Launches the kernel as a block of `threads` threads.
pub(crate) fn launch(ring: u64, threads: u32, limits: Limits) -> Vec<JoinHandle<()>> {
    let warps = (threads as usize).div_ceil(WARP);
    let size = |warp: usize| (threads as usize - warp * WARP).min(WARP);
    let block = Arc::new(Block {
        threads,
        all: Barrier::new(threads as usize),
        vote: AtomicBool::new(false),
        broadcast: Shared(Cell::new((0, 0))),
        warps: (0..warps)
            .map(|warp| Warp { barrier: Barrier::new(size(warp)), values: Default::default() })
            .collect(),
    });
    let run = |index| {
        let thread = Thread { block: Arc::clone(&block), index, failed_tests: Cell::default() };
        // SAFETY: the tests keep the ring, and the memory that its requests name, until the kernel has exited.
        thread::spawn(move || arch::enter(&thread, || unsafe { serve(ring as *mut Ring, limits) }))
    };
    (0..threads).map(run).collect()
}
