//! One GPU thread as a coroutine: what it asks for when it suspends, and what it is told when it goes on.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;
use std::rc::Rc;
use std::thread;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use rushmem_device::arch::Lane;

use super::Grid;

/// Why a lane suspends.
pub(super) enum Request {
    Spin,
    Barrier { vote: bool },
    Exchange { mask: u32, value: u64 },
    Converge,
}

/// What a lane resumes with.
#[derive(Default)]
pub(super) enum Answer {
    /// Its turn has come: the answer to a spin, and to nothing at the start.
    #[default]
    Turn,
    Vote(bool),
    Values(Rc<[u64; 32]>),
    Mask(u32),
}

type Site = &'static Location<'static>;
type LaneYielder = Yielder<Answer, (Request, Site)>;

/// What the code of one lane sees of its executor.
pub(super) struct Handle {
    thread: u32,
    block: u32,
    grid: Grid,
    shared: (*mut u8, usize),
    /// Set by the coroutine itself when it starts.
    yielder: Cell<Option<NonNull<LaneYielder>>>,
}

impl Handle {
    pub(super) fn new(grid: Grid, block: u32, thread: u32, shared: (*mut u8, usize)) -> Self {
        Self { thread, block, grid, shared, yielder: Cell::new(None) }
    }

    /// None if the lane must not wait, because it is being unwound.
    fn suspend(&self, request: Request, site: Site) -> Option<Answer> {
        if thread::panicking() {
            return None;
        }
        let yielder = self.yielder.get()?;
        // SAFETY: the yielder lives as long as the coroutine's body runs, and only code called from that body
        // reaches this handle: the worker shows it as the current lane while it resumes this coroutine, no longer.
        Some(unsafe { yielder.as_ref() }.suspend((request, site)))
    }
}

impl Lane for Handle {
    fn thread(&self) -> u32 {
        self.thread
    }

    fn threads(&self) -> u32 {
        self.grid.threads
    }

    fn block(&self) -> u32 {
        self.block
    }

    fn blocks(&self) -> u32 {
        self.grid.blocks
    }

    fn spin(&self, site: Site) {
        self.suspend(Request::Spin, site);
    }

    fn block_any(&self, vote: bool, site: Site) -> bool {
        match self.suspend(Request::Barrier { vote }, site) {
            Some(Answer::Vote(any)) => any,
            _ => vote,
        }
    }

    fn warp_gather(&self, mask: u32, value: u64, site: Site) -> [u64; 32] {
        match self.suspend(Request::Exchange { mask, value }, site) {
            Some(Answer::Values(values)) => *values,
            _ => {
                let mut values = [0; 32];
                values[self.thread as usize % 32] = value;
                values
            }
        }
    }

    fn converged(&self, site: Site) -> u32 {
        match self.suspend(Request::Converge, site) {
            Some(Answer::Mask(mask)) => mask,
            _ => 1 << (self.thread % 32),
        }
    }

    fn shared(&self) -> (*mut u8, usize) {
        self.shared
    }
}

/// A lane that has begun to run.
pub(super) struct Routine<'a> {
    coroutine: Coroutine<Answer, (Request, Site), (), DefaultStack>,
    borrows: PhantomData<&'a Handle>,
}

impl<'a> Routine<'a> {
    pub(super) fn new(
        stack: DefaultStack,
        handle: &'a Handle,
        kernel: &'a (dyn Fn(&dyn Lane) + Sync),
    ) -> Self {
        let body = move |yielder: &LaneYielder, _: Answer| {
            handle.yielder.set(Some(NonNull::from(yielder)));
            kernel(handle);
        };
        // SAFETY: the body borrows for 'a, which `borrows` keeps this routine within.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        Self { coroutine, borrows: PhantomData }
    }

    /// Runs the lane until it suspends, or to its end (None). A panic of the lane comes out of here.
    pub(super) fn resume(&mut self, answer: Answer) -> Option<(Request, Site)> {
        match self.coroutine.resume(answer) {
            CoroutineResult::Yield(request) => Some(request),
            CoroutineResult::Return(()) => None,
        }
    }

    /// Unwinds the lane if it has not ended, and frees its stack.
    pub(super) fn end(mut self) -> DefaultStack {
        self.coroutine.force_unwind();
        self.coroutine.into_stack()
    }
}
