//! A worker: one thread of the operating system that takes the lanes of its blocks in turns.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rushmem_device::arch::{self, Lane};

use super::block::{Block, Queue, Turn};
use super::lane::{Handle, Routine};
use super::stack::{STORE, Stacks};
use super::{Error, Grid, Report};

/// A worker whose lanes all spin gives its core away at once, and sleeps between rounds after this long.
const PATIENCE: Duration = Duration::from_millis(1);

/// A sleep between rounds. Linux adds about 50 us of timer slack to it, which is the length meant.
const NAP: Duration = Duration::from_micros(1);

/// Rounds between two looks at the clock while lanes get on.
const CLOCK_EVERY: u32 = 256;

/// What the workers of one launch share.
pub(super) struct Launch<'a> {
    grid: Grid,
    workers: u32,
    stack_bytes: usize,
    deadline: Option<(Duration, Instant)>,
    kernel: &'a (dyn Fn(&dyn Lane) + Sync),
    stop: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl<'a> Launch<'a> {
    pub(super) fn new(
        grid: Grid,
        workers: u32,
        stack_bytes: usize,
        deadline: Option<(Duration, Instant)>,
        kernel: &'a (dyn Fn(&dyn Lane) + Sync),
    ) -> Self {
        let (stop, failure) = (AtomicBool::new(false), Mutex::new(None));
        Self { grid, workers, stack_bytes, deadline, kernel, stop, failure }
    }

    /// Ends the launch. Of several errors the first is kept.
    pub(super) fn fail(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn into_result(self) -> Result<(), Error> {
        let mut failure = self.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = failure.as_mut().and_then(Error::report_mut) {
            report.sort();
        }
        failure.map_or(Ok(()), Err)
    }

    /// Runs the blocks of one worker: each `workers`th, from `worker` on.
    pub(super) fn run(&self, worker: u32) {
        let blocks = || (worker..self.grid.blocks).step_by(self.workers as usize);
        let shared: Vec<Shared> = blocks().map(|_| Shared::new(self.grid.shared_bytes as usize)).collect();
        let threads = self.grid.threads;
        let handles: Vec<Handle> = blocks()
            .zip(&shared)
            .flat_map(|(block, shared)| {
                (0..threads).map(move |thread| Handle::new(self.grid, block, thread, shared.parts()))
            })
            .collect();
        let mut queue = Queue::with_capacity(handles.len());
        let blocks = (0..).zip(blocks());
        let blocks = blocks.map(|(slot, index)| Block::new(index, slot, threads, &mut queue)).collect();
        let routines = handles.iter().map(|_| None).collect();
        let stacks = Stacks::new(&STORE, self.stack_bytes);
        let mut worker = Worker { launch: self, blocks, queue, handles: &handles, routines, stacks };
        if let Err(error) = worker.work() {
            self.fail(error);
        }
        worker.end();
    }
}

struct Worker<'a> {
    launch: &'a Launch<'a>,
    blocks: Vec<Block>,
    queue: Queue,
    /// Block by block, as `routines`.
    handles: &'a [Handle],
    /// None before a lane's first turn and after its last.
    routines: Vec<Option<Routine<'a>>>,
    stacks: Stacks<'a>,
}

impl Worker<'_> {
    /// Takes the lanes in turns until all have ended, one fails, or another worker has failed.
    fn work(&mut self) -> Result<(), Error> {
        let mut idle = Idle::default();
        let mut rounds = 0u32;
        while !self.queue.is_empty() {
            let mut progress = false;
            for _ in 0..self.queue.len() {
                let Some(turn) = self.queue.pop_front() else { break };
                if self.launch.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                progress |= self.turn(turn)?;
            }
            // At the end of a round each lane that can has come to where it waits, so that the report is complete.
            if self.blocks.iter().any(Block::hopeless) {
                return Err(Error::Deadlock(Report::default()));
            }
            rounds = rounds.wrapping_add(1);
            if !progress || rounds.is_multiple_of(CLOCK_EVERY) {
                self.check_time()?;
            }
            if progress {
                idle = Idle::default();
            } else if !self.queue.is_empty() {
                idle.rest();
            }
        }
        Ok(())
    }

    /// One lane's turn. Tells whether it got on.
    fn turn(&mut self, turn: Turn) -> Result<bool, Error> {
        let Turn { slot, thread } = turn;
        let block = &mut self.blocks[slot as usize];
        let index = slot as usize * self.launch.grid.threads as usize + thread as usize;
        let handle = &self.handles[index];
        let routine = match &mut self.routines[index] {
            Some(routine) => routine,
            first => first.insert(Routine::new(self.stacks.take()?, handle, self.launch.kernel)),
        };
        let answer = block.answer(thread);
        let resumed = arch::enter(handle, || catch_unwind(AssertUnwindSafe(|| routine.resume(answer))));
        let progress = match resumed {
            Ok(Some(request)) => block.arrive(thread, request, &mut self.queue)?,
            Ok(None) => {
                self.stacks.put(self.routines[index].take().map(Routine::end).expect("it has just run"));
                block.exit(thread, &mut self.queue);
                true
            }
            Err(payload) => {
                let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
                let message = text.unwrap_or_else(|| "(a payload that is no text)".to_owned());
                return Err(Error::Panicked { block: block.index(), thread, message });
            }
        };
        if block.stuck() { Err(Error::Deadlock(Report::default())) } else { Ok(progress) }
    }

    fn check_time(&self) -> Result<(), Error> {
        match self.launch.deadline {
            Some((limit, end)) if Instant::now() >= end => {
                Err(Error::TimeLimit { limit, report: Report::default() })
            }
            _ => Ok(()),
        }
    }

    /// Unwinds the lanes that are left, and says where they were if the error of the launch asks for it.
    fn end(mut self) {
        let left = self.blocks.iter().filter(|block| !block.ended());
        let mut failure = self.launch.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = failure.as_mut().and_then(Error::report_mut) {
            report.blocks.extend(left.map(Block::report));
        }
        drop(failure);
        for (handle, routine) in self.handles.iter().zip(&mut self.routines) {
            let Some(routine) = routine.take() else { continue };
            // The kernel may catch the unwinding and panic in its own way; the launch has failed already.
            let ended = arch::enter(handle, || catch_unwind(AssertUnwindSafe(|| routine.end())));
            if let Ok(stack) = ended {
                self.stacks.put(stack);
            }
        }
    }
}

/// How long all lanes of a worker have been spinning.
#[derive(Default)]
struct Idle {
    since: Option<Instant>,
}

impl Idle {
    fn rest(&mut self) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE { thread::yield_now() } else { thread::sleep(NAP) }
    }
}

/// The shared memory of a block.
struct Shared {
    lines: Box<[UnsafeCell<Line>]>,
    bytes: usize,
}

#[repr(C, align(128))]
struct Line([u8; 128]);

impl Shared {
    fn new(bytes: usize) -> Self {
        let lines = (0..bytes.div_ceil(128)).map(|_| UnsafeCell::new(Line([0; 128])));
        Self { lines: lines.collect(), bytes }
    }

    fn parts(&self) -> (*mut u8, usize) {
        (self.lines.as_ptr().cast_mut().cast(), self.bytes)
    }
}
