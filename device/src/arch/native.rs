//! The CPU half of the primitives: a kernel runs natively, each GPU thread as a [`Lane`] of some executor.
//!
//! This file knows nothing of how lanes are scheduled. An executor (the host runtime has one) installs itself
//! with [`enter`] before it resumes a lane; every primitive asks the installed lane.

use core::cell::Cell;
use core::panic::Location;
use core::ptr::NonNull;

/// One GPU thread, as its executor shows it to the device code that runs on it.
///
/// Every method that may let other lanes run names its call site, so that an executor can tell which lanes meet
/// at the same place and can name the place in a deadlock report.
pub trait Lane {
    /// Index of this thread in its block (`threadIdx.x`).
    fn thread(&self) -> u32;
    /// Threads in a block (`blockDim.x`).
    fn threads(&self) -> u32;
    /// Index of this block (`blockIdx.x`).
    fn block(&self) -> u32;
    /// Blocks in the grid (`gridDim.x`).
    fn blocks(&self) -> u32;
    /// One turn of a waiting loop: lets other lanes, other blocks and the software NIC run.
    fn spin(&self, site: &'static Location<'static>);
    /// `barrier.sync` of the whole block with an OR over all votes: true on every lane if any lane voted true.
    fn block_any(&self, vote: bool, site: &'static Location<'static>) -> bool;
    /// A convergent exchange among the lanes of the warp named by `mask` (bit = lane; the caller's bit is set):
    /// waits for all of them, and returns the value that each of them gave. Entries outside `mask` are zero.
    fn warp_gather(&self, mask: u32, value: u64, site: &'static Location<'static>) -> [u64; 32];
    /// The lanes of this warp that are at this call site together (`activemask` at a point of convergence).
    /// Returns once every other live lane of the warp has arrived here too, waits somewhere else, or has spun.
    fn converged(&self, site: &'static Location<'static>) -> u32;
    /// The block's shared memory: one allocation for all its lanes, 16-byte aligned, zeroed at launch.
    fn shared(&self) -> (*mut u8, usize);
    /// A waiting loop begins. An executor that gives the CPU away while nothing gets on learns here that this lane did.
    fn wait_begins(&self) {}
}

std::thread_local! {
    static LANE: Cell<Option<NonNull<dyn Lane>>> = const { Cell::new(None) };
}

/// Runs `f` with `lane` as the current lane of this OS thread. An executor calls it around each resumption.
pub fn enter<R>(lane: &dyn Lane, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<NonNull<dyn Lane>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            LANE.set(self.0);
        }
    }
    // SAFETY: only the lifetime is erased; `Restore` takes the pointer out again before `lane` can end.
    let erased: NonNull<dyn Lane> = unsafe { core::mem::transmute(NonNull::from(lane)) };
    let _restore = Restore(LANE.replace(Some(erased)));
    f()
}
