//! Runs the lanes of a launch's blocks round-robin on one operating system thread, the worker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corosensei::stack::Stack;

use crate::block::{Block, Queue, Turn};
use crate::lane::{Handle, Kernel, Routine, Shared};
use crate::overflow::{self, LaneStack};
use crate::rest::Rest;
use crate::stack::{STORE, Stacks};
use crate::{Error, LaunchConfig, Observer, Options, Report};
use rushmem_base::{lock, panic_text, pes_per_core};
use rushmem_device::arch::WeakMemory;

/// Time with only spinning lanes after which a worker starts blocks beyond its share, since its lanes may be waiting
/// for those.
const TAKE_OVER_AFTER: Duration = Duration::from_micros(200);

/// Number of scheduling rounds between checks of the time limit, while lanes make progress.
const ROUNDS_PER_CLOCK_CHECK: u32 = 256;

/// State shared by the workers of one kernel launch.
pub(crate) struct Launch<'a> {
    grid: LaunchConfig,
    /// Rank of the PE and name of the kernel, for messages.
    name: (Option<u32>, Option<&'static str>),
    stack_bytes: usize,
    deadline: Option<(Duration, Instant)>,
    rest: Rest<'a>,
    observer: Option<&'a dyn Observer>,
    kernel: Kernel<'a>,
    /// Index of the first block that no worker has started.
    next: AtomicU32,
    /// Number of blocks that each worker starts while its earlier blocks are still running. A worker whose blocks have
    /// all returned starts more, so a kernel that does not wait may complete before the other workers have woken up.
    share: u32,
    stop: AtomicBool,
    failure: Mutex<Option<Error>>,
    is_weak: bool,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(grid: LaunchConfig, workers: u32, options: &'a Options, kernel: Kernel<'a>) -> Self {
        let deadline = options.time_limit.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
        let rest = Rest::new(pes_per_core(options.sharers), options.channel.as_deref());
        let share = grid.blocks().div_ceil(workers);
        let (next, stop, failure) = (AtomicU32::new(0), AtomicBool::new(false), Mutex::new(None));
        let name = (options.pe, options.kernel);
        Self {
            grid,
            name,
            stack_bytes: options.stack_bytes,
            deadline,
            rest,
            observer: options.observer.as_deref(),
            kernel,
            next,
            share,
            stop,
            failure,
            is_weak: options.weak_memory,
        }
    }

    /// Runs a worker on the calling thread until no block of the launch is left.
    pub(crate) fn run(&self) {
        overflow::prepare();
        let mut worker = Worker::new(self);
        if let Err(error) = worker.work() {
            self.failure().get_or_insert(error);
            self.stop.store(true, Ordering::Relaxed);
        }
        worker.end();
        self.rest.begin();
    }

    pub(crate) fn into_result(self) -> Result<(), Error> {
        let mut failure = self.failure().take();
        if let Some(report) = failure.as_mut().and_then(Error::report_mut) {
            report.sort();
        }
        failure.map_or(Ok(()), Err)
    }

    /// Creates the weak memory of a block, if the launch uses weak memory. Each block gets a different seed.
    fn weak_memory(&self) -> Option<WeakMemory> {
        static SEED: AtomicU64 = AtomicU64::new(0);
        let seed = || SEED.fetch_add(1 << 32, Ordering::Relaxed);
        self.is_weak.then(|| WeakMemory::new(self.grid.threads(), seed()))
    }

    /// Locks the first error of the launch.
    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        lock(&self.failure)
    }
}

struct Worker<'a> {
    launch: &'a Launch<'a>,
    /// Started blocks, by slot. The slot of a block that has returned is reused, so there are only as many slots as
    /// blocks were live at the same time.
    blocks: Vec<Running<'a>>,
    /// Free slots: those of blocks that have returned.
    free: Vec<u32>,
    /// Number of blocks that this worker has started.
    taken: u32,
    /// Whether a block of this worker has deadlocked. Never reset.
    deadlocked: bool,
    queue: Queue,
    stacks: Stacks<'a>,
}

struct Running<'a> {
    block: Block,
    shared: Rc<Shared>,
    /// The coroutine of each lane. `None` before a lane first runs and after it has returned: only lanes in between
    /// need a stack.
    routines: Vec<Option<Routine<'a>>>,
}

impl<'a> Worker<'a> {
    fn new(launch: &'a Launch<'a>) -> Self {
        Self {
            launch,
            blocks: Vec::new(),
            free: Vec::new(),
            taken: 0,
            deadlocked: false,
            queue: Queue::new(),
            stacks: Stacks::new(&STORE, launch.stack_bytes),
        }
    }

    /// Runs lanes round-robin until all blocks have returned, a lane fails, or another worker has failed.
    fn work(&mut self) -> Result<(), Error> {
        let mut idle = Idle::default();
        let mut rounds = 0u32;
        let mut doomed = false;
        loop {
            self.start_blocks(idle.time());
            if self.queue.is_empty() || self.launch.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // Read before any lane polls memory; see `WaitChannel`.
            let wakes = self.launch.rest.wakes();
            // Run whole rounds: each lane then reaches its next wait, which makes reports complete.
            let mut progress = false;
            for _ in 0..self.queue.len() {
                let Some(turn) = self.queue.pop_front() else { break };
                progress |= self.turn(turn)?;
            }
            if self.deadlocked {
                if doomed || self.queue.is_empty() {
                    return Err(Error::Deadlock(Report::default()));
                }
                // Some lanes had their turn before the deadlock occurred. One more round takes them to where they will
                // be stuck.
                doomed = true;
            }
            rounds = rounds.wrapping_add(1);
            let is_due = rounds.is_multiple_of(ROUNDS_PER_CLOCK_CHECK);
            // Without progress, the round was short and the worker is about to rest, so reading the clock costs little.
            if !progress || is_due {
                self.check_time()?;
            }
            // Report once per wait, and now and then while lanes are busy: others may wait for their stores.
            if is_due || (!progress && !idle.has_begun()) {
                self.launch.rest.begin();
            }
            if !progress && !idle.has_begun() {
                self.report_waits();
            }
            match progress {
                true => idle = Idle::default(),
                false => self.launch.rest.after(idle.begin(), wakes),
            }
        }
    }

    /// Reports to the launch's observer which lanes are waiting for which other lanes.
    fn report_waits(&self) {
        let Some(observer) = self.launch.observer else { return };
        for block in self.blocks.iter().map(|running| &running.block) {
            for (thread, site, missing) in block.waiting() {
                observer.waits(block.index(), thread, site, missing);
            }
        }
    }

    /// Starts further blocks, if any are left and this worker needs more. Starts as many as are live already, at least
    /// one: blocks that return immediately then run one after the other in a single slot, while all blocks of a large
    /// grid that wait are started within few rounds.
    fn start_blocks(&mut self, idle: Duration) {
        let live = (self.blocks.len() - self.free.len()).max(1);
        for _ in 0..live {
            let wants = self.taken < self.launch.share || idle > TAKE_OVER_AFTER;
            if !(self.queue.is_empty() || wants) || !self.start_block() {
                return;
            }
        }
    }

    /// Starts the next block of the grid. Returns false if none is left.
    fn start_block(&mut self) -> bool {
        let Launch { grid, next, observer, .. } = self.launch;
        // Check before incrementing, or many calls after the last block could overflow the counter.
        if next.load(Ordering::Relaxed) >= grid.blocks() {
            return false;
        }
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= grid.blocks() {
            return false;
        }
        if let Some(observer) = observer {
            observer.block_begins(index, grid.threads());
        }
        self.taken += 1;
        let slot = self.free.pop().unwrap_or(self.blocks.len() as u32);
        let running = Running {
            block: Block::new(index, slot, grid.threads(), &mut self.queue),
            shared: Rc::new(Shared::new(grid.shared_bytes() as usize, self.launch.weak_memory())),
            routines: (0..grid.threads()).map(|_| None).collect(),
        };
        match self.blocks.get_mut(slot as usize) {
            Some(returned) => *returned = running,
            None => self.blocks.push(running),
        }
        true
    }

    /// Runs one lane until it suspends or returns. Returns whether it made progress.
    fn turn(&mut self, Turn { slot, thread }: Turn) -> Result<bool, Error> {
        let Running { block, shared, routines } = &mut self.blocks[slot as usize];
        let entry = &mut routines[thread as usize];
        let routine = match entry {
            Some(routine) => routine,
            None => {
                let stack = self.stacks.take()?;
                let Launch { grid, name: (pe, kernel), stack_bytes: bytes, observer, .. } = *self.launch;
                let watcher = observer.map(|observer| observer.watcher(block.index(), thread));
                let handle = Handle::new(grid, block.index(), thread, Rc::clone(shared), watcher);
                let guard = stack.limit().get();
                let place = LaneStack { pe, kernel, block: block.index(), thread, bytes, guard };
                entry.insert(Routine::new(stack, handle, place, self.launch.kernel))
            }
        };
        let answer = block.answer(thread);
        match catch_unwind(AssertUnwindSafe(|| routine.resume(answer))) {
            Ok(Some(request)) => {
                let progress = block.arrive(thread, request, &mut self.queue)?;
                self.deadlocked |= block.deadlocked();
                if let (Some(observer), Some(met)) = (self.launch.observer, block.take_met()) {
                    observer.sync(block.index(), &mut met.threads());
                }
                Ok(progress | routine.made_progress())
            }
            Ok(None) => {
                self.stacks.put(entry.take().map(Routine::end).expect("it has just run"));
                if let Some(memory) = shared.weak_memory() {
                    memory.release(thread);
                }
                block.exit(thread, &mut self.queue);
                if let Some(observer) = self.launch.observer {
                    observer.lane_ends(block.index(), thread);
                }
                self.deadlocked |= block.deadlocked();
                if block.ended() {
                    self.free.push(slot);
                }
                Ok(true)
            }
            Err(payload) => {
                let message = panic_text(&*payload).unwrap_or("(a payload that is not text)").to_owned();
                Err(Error::Panicked { block: block.index(), thread, message })
            }
        }
    }

    fn check_time(&self) -> Result<(), Error> {
        match self.launch.deadline {
            Some((limit, end)) if Instant::now() >= end => {
                Err(Error::TimeLimit { limit, report: Report::default() })
            }
            _ => Ok(()),
        }
    }

    /// Unwinds the remaining lanes. Adds their positions to the error of the launch, if the error contains a report.
    fn end(mut self) {
        // A block is removed from `blocks` only by reuse of its slot, so skip those that have returned.
        let left = self.blocks.iter().map(|running| &running.block).filter(|block| !block.ended());
        let mut failure = self.launch.failure();
        if let Some(report) = failure.as_mut().and_then(Error::report_mut) {
            report.blocks.extend(left.map(Block::report));
        }
        drop(failure);
        for routine in self.blocks.iter_mut().flat_map(|running| running.routines.drain(..)).flatten() {
            // The kernel may catch the unwinding and panic again. The launch has failed already, so ignore that.
            if let Ok(stack) = catch_unwind(AssertUnwindSafe(|| routine.end())) {
                self.stacks.put(stack);
            }
        }
    }
}

/// Measures for how long all lanes of a worker have been spinning.
#[derive(Default)]
struct Idle {
    since: Option<Instant>,
}

impl Idle {
    fn time(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    /// Records a round without progress. Returns the time since the first of consecutive such rounds.
    fn begin(&mut self) -> Duration {
        self.since.get_or_insert_with(Instant::now).elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_reuse_slots() {
        let (options, kernel) = (Options::default(), |_: &dyn rushmem_device::arch::Lane| {});
        let launch = Launch::new(LaunchConfig::new(65_535, 1), 1, &options, &kernel);
        let mut worker = Worker::new(&launch);
        worker.work().unwrap();
        assert_eq!((worker.taken, worker.blocks.len()), (65_535, 1));
    }
}
