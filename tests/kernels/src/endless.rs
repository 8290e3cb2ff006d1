//! Test kernels that never return by themselves, and one that needs a large stack.

use rushmem_device::prelude::*;

/// What an infinite loop does in each iteration, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EndlessLoop {
    /// Enters a barrier of the block.
    Barriers,
    /// Waits for a signal and ignores the error.
    IgnoredErrors,
    /// Loads a word.
    Loads,
}

/// Loops until `word` is set, which never happens. `body` is an [`EndlessLoop`].
#[kernel]
pub fn endless(ctx: &Ctx, body: u32, word: Sym<Signal>) {
    let view = ctx.local_one(word);
    while view.load_relaxed(0) == 0 {
        if body == EndlessLoop::Barriers as u32 {
            Block::current().sync();
        } else if body == EndlessLoop::IgnoredErrors as u32 {
            let _ = ctx.signal_wait_until(Thread, word, Cmp::Eq, 1);
        }
    }
}

/// Stores the result of `depth` nested calls, each with 8 KiB of stack. On a GPU, stores `depth` without nesting.
#[kernel]
pub fn recurse(ctx: &Ctx, depth: u32, out: Sym<u64>) {
    #[cfg(not(target_arch = "nvptx64"))]
    let sum = deeper(depth.into());
    #[cfg(target_arch = "nvptx64")]
    let sum = depth as u64;
    ctx.local_one(out).store(0, sum);
}

#[cfg(not(target_arch = "nvptx64"))]
#[inline(never)]
fn deeper(depth: u64) -> u64 {
    let cells = std::hint::black_box([depth; 1024]);
    let below = if depth == 0 { 0 } else { deeper(depth - 1) };
    below + cells.iter().sum::<u64>()
}
