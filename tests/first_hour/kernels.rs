//! Kernels that a new user might write in the first hour: struct arguments, and typical mistakes.
#![forbid(unsafe_code)]

use rushmem_device::prelude::*;

/// A kernel argument that selects which words to write, and whether to write them.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Fill {
    /// Symmetric words to write to.
    pub words: SymSlice<u64>,
    /// Index in `words` of the first word to write.
    pub first: usize,
    /// Whether to write anything.
    pub enabled: bool,
}

/// Writes 7 to all of `fill.words` from index `fill.first` on, if enabled.
#[kernel]
pub fn fill(ctx: &Ctx, fill: Fill) {
    let words = ctx.local(fill.words);
    let mut at = fill.first;
    while fill.enabled && Thread::index() == 0 && at < words.len() {
        words.store(at, 7);
        at += 1;
    }
}

/// Adds 5 to a word on `pe`, and stores the old value in `old`.
#[kernel]
pub fn add(ctx: &Ctx, old: Sym<Fetched<u64>>, word: Sym<u64>, pe: u32) -> Result {
    if Thread::index() == 0 {
        ctx.atomic_fetch_add_nbi(old, word, 5, pe)?;
    }
    ctx.quiet(Block::current())
}

/// Performs a call that fails in the leader only. All threads return the error.
#[kernel]
pub fn fail_in_leader(ctx: &Ctx, word: Sym<u64>, pe: u32) -> Result {
    let block = Block::current();
    block.leader_result(|| ctx.atomic_fetch_inc(word, pe))?;
    ctx.sync_all(block)
}

/// Waits for a signal that no PE sends.
#[kernel]
pub fn wait_in_vain(ctx: &Ctx, signal: Sym<Signal>) -> Result {
    ctx.signal_wait_until(Block::current(), signal, Cmp::Eq, 1)?;
    Ok(())
}

/// Puts words `first` to 98 of an object that has fewer words.
#[kernel]
pub fn use_missing_words(ctx: &Ctx, words: SymSlice<u64>, first: usize) -> Result {
    ctx.put(Block::current(), words.slice(first..99), words.slice(first..99), 0)
}

/// Loads an element of a table with an index that may be out of bounds.
#[kernel]
pub fn no_panic_reduce(ctx: &Ctx, words: SymSlice<u64>, at: usize) {
    let table = [3, 5, 7];
    ctx.local(words).store(0, table[at]);
}

/// Loops until a word is set, which never happens.
#[kernel]
pub fn loop_for_ever(ctx: &Ctx, words: SymSlice<u64>) {
    let words = ctx.local(words);
    while words.load_relaxed(0) == 0 {}
}

/// Stores the result of `depth` nested calls. Does nothing on a GPU.
#[kernel]
pub fn recurse(ctx: &Ctx, words: SymSlice<u64>, depth: u64) {
    #[cfg(not(target_arch = "nvptx64"))]
    ctx.local(words).store(0, deeper(depth));
}

#[cfg(not(target_arch = "nvptx64"))]
fn deeper(depth: u64) -> u64 {
    let cells = std::hint::black_box([depth; 1024]);
    let below = if depth == 0 { 0 } else { deeper(depth - 1) };
    below + cells[0]
}
