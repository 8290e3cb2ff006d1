//! Runs a GPU thread (a lane) as a coroutine, which suspends with a request and resumes with an answer.
#![allow(unsafe_code, reason = "shares the yielder of a coroutine with the device primitives")]

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;
use std::rc::Rc;
use std::thread;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use rushmem_device::arch::{self, FailedTests, Lane, WeakMemory};
use rushmem_device::watch::Watcher;

use crate::LaunchConfig;
use crate::overflow::{self, LaneStack};
use crate::stall;

/// The operation for which a lane suspends.
pub(crate) enum Request {
    Spin,
    Barrier { vote: bool },
    Exchange { mask: u32, value: u64 },
    Converge,
    Pass,
}

/// The result with which a suspended lane resumes.
#[derive(Default)]
pub(crate) enum Answer {
    /// No result: the lane has just started, or resumes after a spin or a pass.
    #[default]
    Turn,
    Vote(bool),
    Values(Rc<[u64; 32]>),
    Mask(u32),
}

/// The kernel of a launch, called once per lane.
pub(crate) type Kernel<'a> = &'a (dyn Fn(&dyn Lane) + Sync);

type Site = &'static Location<'static>;
type LaneYielder = Yielder<Answer, (Request, Site)>;

/// One lane's implementation of the device crate's primitives.
pub(crate) struct Handle {
    thread: u32,
    block: u32,
    grid: LaunchConfig,
    shared: Rc<Shared>,
    /// The coroutine's yielder, which suspends the lane. `None` until the coroutine has started.
    yielder: Cell<Option<NonNull<LaneYielder>>>,
    /// Whether the lane has started a new wait since it last suspended.
    made_progress: Cell<bool>,
    failed_tests: Cell<FailedTests>,
    watcher: Option<Box<dyn Watcher>>,
}

impl Handle {
    pub(crate) fn new(
        grid: LaunchConfig,
        block: u32,
        thread: u32,
        shared: Rc<Shared>,
        watcher: Option<Box<dyn Watcher>>,
    ) -> Self {
        Self {
            thread,
            block,
            grid,
            shared,
            yielder: Cell::new(None),
            made_progress: Cell::new(false),
            failed_tests: Cell::default(),
            watcher,
        }
    }

    /// Suspends the lane, and returns the answer with which it resumes. Returns `None` immediately if the lane is being
    /// unwound: a destructor must not wait for lanes that will never come.
    fn suspend(&self, request: Request, site: Site) -> Option<Answer> {
        if thread::panicking() {
            return None;
        }
        let yielder = self.yielder.get()?;
        // SAFETY: the yielder lives while the body of the coroutine runs. This handle is the current lane only while
        // the worker resumes that coroutine, so only code called from the body gets here.
        Some(unsafe { yielder.as_ref() }.suspend((request, site)))
    }
}

impl Lane for Handle {
    fn thread(&self) -> u32 {
        self.thread
    }

    fn threads(&self) -> u32 {
        self.grid.threads()
    }

    fn block(&self) -> u32 {
        self.block
    }

    fn blocks(&self) -> u32 {
        self.grid.blocks()
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
        self.shared.parts()
    }

    fn broadcast_words(&self) -> &Cell<(u64, u64)> {
        &self.shared.cast
    }

    fn failed_tests(&self) -> &Cell<FailedTests> {
        &self.failed_tests
    }

    fn pass(&self, site: Site) {
        self.suspend(Request::Pass, site);
    }

    fn wait_begins(&self) {
        self.made_progress.set(true);
    }

    fn watcher(&self) -> Option<&dyn Watcher> {
        self.watcher.as_deref()
    }

    fn weak_memory(&self) -> Option<&WeakMemory> {
        self.shared.weak_memory()
    }
}

/// A lane that has started and not yet returned.
pub(crate) struct Routine<'a> {
    coroutine: Coroutine<Answer, (Request, Site), (), DefaultStack>,
    handle: Rc<Handle>,
    place: LaneStack,
    borrows: PhantomData<&'a ()>,
}

impl<'a> Routine<'a> {
    pub(crate) fn new(stack: DefaultStack, handle: Handle, place: LaneStack, kernel: Kernel<'a>) -> Self {
        let handle = Rc::new(handle);
        let lane = Rc::clone(&handle);
        let body = move |yielder: &LaneYielder, _: Answer| {
            lane.yielder.set(Some(NonNull::from(yielder)));
            kernel(&*lane);
        };
        // SAFETY: the body borrows data for 'a, and the field `borrows` keeps this routine from outliving 'a.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        Self { coroutine, handle, place, borrows: PhantomData }
    }

    /// Runs the lane until it suspends. Returns its request, or `None` if the kernel has returned. Propagates a panic
    /// of the lane.
    pub(crate) fn resume(&mut self, answer: Answer) -> Option<(Request, Site)> {
        let resume = || arch::enter(&*self.handle, || self.coroutine.resume(answer));
        match stall::turn(self.place.pe, || overflow::enter(&self.place, resume)) {
            CoroutineResult::Yield(request) => Some(request),
            CoroutineResult::Return(()) => None,
        }
    }

    /// Returns whether the lane has started a new wait since the last call.
    pub(crate) fn made_progress(&self) -> bool {
        self.handle.made_progress.take()
    }

    /// Unwinds the lane if it has not returned, and returns its stack.
    pub(crate) fn end(mut self) -> DefaultStack {
        arch::enter(&*self.handle, || self.coroutine.force_unwind());
        self.coroutine.into_stack()
    }
}

/// The shared memory of one block.
pub(crate) struct Shared {
    lines: Box<[UnsafeCell<SharedLine>]>,
    bytes: usize,
    /// Two words that a thread broadcasts to its block.
    cast: Cell<(u64, u64)>,
    weak_memory: Option<WeakMemory>,
}

#[repr(C, align(128))]
struct SharedLine([u8; 128]);

impl Shared {
    pub(crate) fn new(bytes: usize, weak_memory: Option<WeakMemory>) -> Self {
        let lines = (0..bytes.div_ceil(128)).map(|_| UnsafeCell::new(SharedLine([0; 128])));
        Self { lines: lines.collect(), bytes, cast: Cell::new((0, 0)), weak_memory }
    }

    pub(crate) fn weak_memory(&self) -> Option<&WeakMemory> {
        self.weak_memory.as_ref()
    }

    fn parts(&self) -> (*mut u8, usize) {
        (self.lines.as_ptr().cast_mut().cast(), self.bytes)
    }
}
