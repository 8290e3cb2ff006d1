//! Emulation of weak memory for native kernels, which exposes missing fences.
//!
//! An x86 processor makes plain stores visible in program order and never returns stale values, so a missing fence goes
//! unnoticed. A [`WeakMemory`] delays the plain stores of a block and answers its plain loads from stale copies, within
//! what the PTX memory model allows. Strong accesses, atomics and NICs bypass it:
//!
//! | event | effect |
//! |---|---|
//! | plain store | is buffered for its thread; random entries reach memory early, in any order |
//! | plain load | sees the stores of its thread, those that a barrier has shown to the block, or a stale value of memory |
//! | barrier of the block or of a warp, fence at block scope | shows the thread's stores to its block |
//! | releasing fence or store at GPU or system scope | writes these stores, and those shown to the block, to memory |
//! | acquiring fence or load at GPU or system scope | drops stale copies |
//! | strong access | writes earlier stores to the same bytes first |
//! | return from the kernel | writes everything |
//!
//! Three permitted outcomes never occur: a release at GPU scope already reaches other GPUs, an acquire by one thread
//! refreshes the whole block, and a warp's shuffles and votes order memory like its barrier.
#![allow(unsafe_code, reason = "performs the held accesses on behalf of the kernel")]
#![allow(clippy::indexing_slicing)] // an invalid index is a panic of the emulator

use core::cell::RefCell;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::vec::Vec;

/// Maximum length of a plain access, in bytes. Longer elements are split.
const MAX_BYTES: usize = 16;

/// Maximum number of stores delayed per thread, and per block. Beyond it, a random one is written to memory.
const MAX_HELD: usize = 24;

/// Length of the words of memory that are kept as stale copies, in bytes.
const LINE: usize = 8;

/// Weak memory of one block: delayed stores, and stale copies of memory.
pub struct WeakMemory(RefCell<State>);

/// Copies of aligned words by address, as read by the block.
#[derive(Default)]
struct Copies(BTreeMap<usize, [u8; LINE]>);

impl Copies {
    /// Drops the copies of words that contain any of the `len` bytes at address `at`.
    fn forget(&mut self, at: usize, len: usize) {
        self.0.retain(|&line, _| line + LINE <= at || at + len <= line);
    }
}

struct State {
    dice: u64,
    /// Delayed stores of each thread that no other thread sees yet.
    threads: Vec<Vec<Store>>,
    /// Delayed stores that a barrier has shown to all threads of the block.
    block: Vec<Store>,
    copies: Copies,
}

#[derive(Clone, Copy)]
struct Store {
    to: *mut u8,
    len: usize,
    bytes: [u8; MAX_BYTES],
}

impl Store {
    fn overlaps(&self, at: usize, len: usize) -> bool {
        self.to.addr() < at + len && at < self.to.addr() + self.len
    }

    /// Writes the delayed bytes to memory. Each aligned word of up to 8 bytes is written as a whole.
    fn commit(&self) {
        let mut done = 0;
        while done < self.len {
            // SAFETY: the kernel had the right to write these `len` bytes, and its stores are atomic for other observers.
            let to = unsafe { self.to.add(done) };
            // Observers must never see a torn word, so write whole words where the store covers them.
            if to.addr().is_multiple_of(LINE) && self.len - done >= LINE {
                let word: [u8; LINE] = core::array::from_fn(|i| self.bytes[done + i]);
                // SAFETY: as above; aligned.
                unsafe { AtomicU64::from_ptr(to.cast()) }.store(u64::from_ne_bytes(word), Ordering::Relaxed);
                done += LINE;
            } else {
                done += self.commit_part(to, done);
            }
        }
    }

    /// Writes the bytes from `done` on to `to`, as the widest aligned word below 8 bytes that fits. Returns its length.
    fn commit_part(&self, to: *mut u8, done: usize) -> usize {
        use core::sync::atomic::{AtomicU16, AtomicU32};
        let (b, left) = (&self.bytes[done..], self.len - done);
        // SAFETY: the kernel had the right to write these bytes; each word is aligned.
        unsafe {
            if left >= 4 && to.addr().is_multiple_of(4) {
                AtomicU32::from_ptr(to.cast())
                    .store(u32::from_ne_bytes([b[0], b[1], b[2], b[3]]), Ordering::Relaxed);
                4
            } else if left >= 2 && to.addr().is_multiple_of(2) {
                AtomicU16::from_ptr(to.cast()).store(u16::from_ne_bytes([b[0], b[1]]), Ordering::Relaxed);
                2
            } else {
                AtomicU8::from_ptr(to).store(b[0], Ordering::Relaxed);
                1
            }
        }
    }
}

impl WeakMemory {
    /// Creates the weak memory of a block of `threads` threads. The `seed` determines all random choices.
    pub fn new(threads: u32, seed: u64) -> Self {
        let threads = (0..threads).map(|_| Vec::new()).collect();
        Self(RefCell::new(State { dice: seed, threads, block: Vec::new(), copies: Copies::default() }))
    }

    /// Delays a plain store of `from` to address `to` by `thread`.
    ///
    /// # Safety
    /// `to` is valid for writes of that many bytes until they are written, at the latest when this value is dropped.
    pub(super) unsafe fn store(&self, thread: u32, mut to: *mut u8, from: &[u8]) {
        let state = &mut *self.0.borrow_mut();
        // A store longer than an entry becomes several, which may reach memory separately.
        for part in from.chunks(MAX_BYTES) {
            let mut bytes = [0; MAX_BYTES];
            bytes[..part.len()].copy_from_slice(part);
            state.threads[thread as usize].push(Store { to, len: part.len(), bytes });
            to = to.wrapping_add(part.len());
        }
        state.write_some(thread as usize);
    }

    /// Loads the bytes at `from` into `to`, as `thread` may see them.
    ///
    /// # Safety
    /// `from` is valid for reads of that many bytes, and so are the aligned words around its ends.
    pub(super) unsafe fn load(&self, thread: u32, from: *const u8, to: &mut [u8]) {
        let state = &mut *self.0.borrow_mut();
        let first = from.addr();
        // Memory is read in whole words, whatever the element.
        let mut line = first & !(LINE - 1);
        while line < first + to.len() {
            // SAFETY: `from`, and with it the aligned word around each of its bytes, is readable, by this function's
            // contract.
            let copy = unsafe { state.copy(from.with_addr(line)) };
            overlay(to, first, line, &copy);
            line += LINE;
        }
        // Stores that this thread must see, oldest first: those shown to the block, then its own.
        for store in state.block.iter().chain(&state.threads[thread as usize]) {
            overlay(to, first, store.to.addr(), &store.bytes[..store.len]);
        }
        state.write_some(thread as usize);
    }

    /// Writes delayed stores to the `len` bytes at `at` before a strong access of `thread` to these bytes. Before a
    /// strong store, also drops stale copies of the bytes.
    pub(super) fn strong(&self, thread: u32, at: usize, len: usize, writes: bool) {
        let State { threads, block, copies, .. } = &mut *self.0.borrow_mut();
        // Stores shown to the block precede the thread's own.
        write_overlapping(block, copies, at, len);
        write_overlapping(&mut threads[thread as usize], copies, at, len);
        // A stale copy would hide the new value from this block.
        if writes {
            copies.forget(at, len);
        }
    }

    /// Makes the delayed stores of `thread` visible to its block.
    pub(super) fn show(&self, thread: u32) {
        let State { threads, block, .. } = &mut *self.0.borrow_mut();
        block.append(&mut threads[thread as usize]);
    }

    /// Writes all delayed stores to memory that were made by `thread` or shown to its block.
    pub fn release(&self, thread: u32) {
        // What the thread has seen of its block is released with it.
        self.show(thread);
        let state = &mut *self.0.borrow_mut();
        while !state.block.is_empty() {
            // In random order: the release promises that all are written, not in which order.
            let i = state.roll() as usize % state.block.len();
            let State { block, copies, .. } = state;
            write_one(block, copies, i);
        }
    }

    /// Drops all stale copies of memory, as an acquire does.
    pub(super) fn acquire(&self) {
        self.0.borrow_mut().copies.0.clear();
    }

    /// Writes some delayed stores while `thread` waits, so every store reaches memory eventually.
    pub(super) fn pass(&self, thread: u32) {
        let state = &mut *self.0.borrow_mut();
        state.write_some(thread as usize);
    }
}

impl Drop for WeakMemory {
    fn drop(&mut self) {
        let State { threads, block, .. } = self.0.get_mut();
        // The kernel has returned, which publishes everything.
        block.iter().chain(threads.iter().flatten()).for_each(Store::commit);
    }
}

impl State {
    /// Returns the next random number, by SplitMix64 (Steele, Lea and Flood, 2014).
    fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.dice ^ self.dice >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns an aligned word of memory, or a stale copy of it.
    ///
    /// # Safety
    /// `line` is aligned to a word and valid for reads of one.
    unsafe fn copy(&mut self, line: *const u8) -> [u8; LINE] {
        // Stale seven times out of eight, to make a missing acquire likely to show.
        if let Some(&old) = self.copies.0.get(&line.addr())
            && self.roll() & 7 != 0
        {
            return old;
        }
        // SAFETY: `line` is an aligned, readable word, by this function's contract. Other observers access it
        // atomically.
        let word = unsafe { AtomicU64::from_ptr(line.cast_mut().cast()) }.load(Ordering::Relaxed);
        self.copies.0.insert(line.addr(), word.to_ne_bytes());
        word.to_ne_bytes()
    }

    /// Writes a random delayed store with a probability of 1/16, and whenever there are more than [`MAX_HELD`].
    fn write_some(&mut self, thread: usize) {
        // One roll serves both choices, from different bits.
        let roll = self.roll();
        let pick = |held: &Vec<Store>, chance: u64| {
            let is_due = !held.is_empty() && (chance & 15 == 0 || held.len() > MAX_HELD);
            is_due.then(|| (roll >> 8) as usize % held.len())
        };
        let Self { threads, block, copies, .. } = self;
        let own = &mut threads[thread];
        if let Some(i) = pick(own, roll) {
            // Stores shown to the block are older.
            write_overlapping(block, copies, own[i].to.addr(), own[i].len);
            write_one(own, copies, i);
        }
        if let Some(i) = pick(block, roll >> 4) {
            write_one(block, copies, i);
        }
    }
}

/// Copies those of `bytes`, which are stored at address `at`, that overlap memory at address `first` to its copy `to`.
fn overlay(to: &mut [u8], first: usize, at: usize, bytes: &[u8]) {
    for (at, &byte) in (at..).zip(bytes) {
        if let Some(to) = at.checked_sub(first).and_then(|i| to.get_mut(i)) {
            *to = byte;
        }
    }
}

/// Writes the delayed stores that overlap the `len` bytes at `at` to memory, and removes them from `held`.
fn write_overlapping(held: &mut Vec<Store>, copies: &mut Copies, at: usize, len: usize) {
    held.retain(|store| {
        let overlaps = store.overlaps(at, len);
        if overlaps {
            write(store, copies);
        }
        !overlaps
    });
}

/// Writes delayed store `i`, after any older ones that it overlaps, and removes them from `held`.
fn write_one(held: &mut Vec<Store>, copies: &mut Copies, i: usize) {
    let last = held[i];
    let mut at = 0;
    held.retain(|store| {
        // Older stores to the same bytes must reach memory first.
        let goes = at == i || (at < i && store.overlaps(last.to.addr(), last.len));
        at += 1;
        if goes {
            write(store, copies);
        }
        !goes
    });
}

/// Writes a store to memory. Drops stale copies of these bytes, which would hide the store from the thread that made
/// it.
fn write(store: &Store, copies: &mut Copies) {
    store.commit();
    copies.forget(store.to.addr(), store.len);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: u64 = 2000;

    fn store(memory: &WeakMemory, thread: u32, to: &AtomicU64, value: u64) {
        // SAFETY: the word outlives the memory.
        unsafe { memory.store(thread, to.as_ptr().cast(), &value.to_ne_bytes()) }
    }

    fn load(memory: &WeakMemory, thread: u32, from: &AtomicU64) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: a whole word.
        unsafe { memory.load(thread, from.as_ptr().cast(), &mut bytes) };
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn stores_reach_memory_in_any_order_without_a_release() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..ROUNDS {
            let (x, y) = (AtomicU64::new(0), AtomicU64::new(0));
            let memory = WeakMemory::new(1, seed);
            store(&memory, 0, &x, 1);
            store(&memory, 0, &y, 1);
            memory.pass(0);
            seen.insert((x.load(Ordering::Relaxed), y.load(Ordering::Relaxed)));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    }

    #[test]
    fn a_release_covers_what_a_barrier_has_shown() {
        for seed in 0..ROUNDS {
            let (x, y) = (AtomicU64::new(0), AtomicU64::new(0));
            let memory = WeakMemory::new(2, seed);
            store(&memory, 0, &x, 1);
            memory.show(0);
            store(&memory, 1, &y, 1);
            memory.release(1);
            assert_eq!((x.load(Ordering::Relaxed), y.load(Ordering::Relaxed)), (1, 1));
        }
    }

    #[test]
    fn a_thread_sees_its_own_stores_and_old_values_of_others() {
        let mut stale = 0;
        for seed in 0..ROUNDS {
            let (x, y) = (AtomicU64::new(0), AtomicU64::new(0));
            let memory = WeakMemory::new(1, seed);
            assert_eq!(load(&memory, 0, &x), 0);
            x.store(1, Ordering::Relaxed);
            stale += (load(&memory, 0, &x) == 0) as u64;
            memory.acquire();
            assert_eq!(load(&memory, 0, &x), 1);
            store(&memory, 0, &y, 2);
            store(&memory, 0, &y, 3);
            assert_eq!(load(&memory, 0, &y), 3);
        }
        assert!(stale > ROUNDS / 2, "{stale} old values");
    }

    #[test]
    fn a_thread_never_sees_a_value_older_than_its_own_store() {
        for seed in 0..ROUNDS {
            let x = AtomicU64::new(0);
            let memory = WeakMemory::new(1, seed);
            for value in 1..4 {
                store(&memory, 0, &x, value);
                assert_eq!(load(&memory, 0, &x), value);
                memory.release(0);
                assert_eq!(load(&memory, 0, &x), value);
            }
        }
    }

    #[test]
    fn stores_to_one_word_stay_in_order() {
        for seed in 0..ROUNDS {
            let x = AtomicU64::new(0);
            let memory = WeakMemory::new(2, seed);
            store(&memory, 0, &x, 1);
            memory.show(0);
            store(&memory, 1, &x, 2);
            memory.pass(1);
            store(&memory, 1, &x, 3);
            memory.strong(1, x.as_ptr().addr(), 8, false);
            assert_eq!(x.load(Ordering::Relaxed), 3);
            store(&memory, 1, &x, 4);
            drop(memory);
            assert_eq!(x.load(Ordering::Relaxed), 4);
        }
    }

    #[test]
    fn parts_of_words_are_combined() {
        let x = AtomicU64::new(u64::MAX);
        let memory = WeakMemory::new(1, 7);
        for i in [0, 3, 5] {
            // SAFETY: a byte of the word.
            unsafe { memory.store(0, x.as_ptr().cast::<u8>().add(i), &[i as u8]) };
        }
        assert_eq!(load(&memory, 0, &x).to_ne_bytes(), [0, 255, 255, 3, 255, 5, 255, 255]);
        memory.release(0);
        assert_eq!(x.load(Ordering::Relaxed).to_ne_bytes(), [0, 255, 255, 3, 255, 5, 255, 255]);
    }
}
