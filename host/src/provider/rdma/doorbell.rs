//! A thread that rings doorbells for kernels that cannot reach the NIC's registers.
//!
//! A kernel writes its doorbell to a word of page-locked memory instead, and the thread stores what it finds there to the
//! register. It takes a value by exchanging it with 0, so that a value that comes twice is stored twice. A value that is
//! replaced before the thread came by is not lost either: the doorbell of a QP tells the newest producer index, and the
//! index before is part of it. Each bell has a word of its own.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_device::abi::DevAddr;
use rushmem_softnic::Idle;

use crate::machine::{Machine, Region};
use crate::{Error, Result};

/// Distance of two words: a line of their own keeps kernels from disturbing each other.
const STRIDE: u64 = 64;
/// Words that are allocated together.
const WORDS: u64 = 64;

/// One word and its register.
struct DoorbellEntry {
    number: u64,
    word: *const AtomicU64,
    register: *mut u64,
}

// SAFETY: the word is accessed with atomics only, the register by the thread only.
unsafe impl Send for DoorbellEntry {}

impl DoorbellEntry {
    /// Passes on what is in the word; true if there was something.
    fn forward(&self) -> bool {
        // SAFETY: the word is mapped as long as the bell is in the list.
        let word = unsafe { &*self.word };
        if word.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // What the kernel wrote before the word comes before the register, for the NIC as well.
        let value = word.swap(0, Ordering::AcqRel);
        // SAFETY: a doorbell register, mapped as long as the bell is in the list.
        unsafe { store_register(self.register, value) };
        true
    }
}

/// Rings a doorbell, after all that was written before.
///
/// # Safety
/// `register` is a mapped doorbell register.
pub(super) unsafe fn store_register(register: *mut u64, value: u64) {
    fence(Ordering::SeqCst);
    // SAFETY: the caller's promise.
    unsafe { register.write_volatile(value) };
    flush_write_combining();
}

/// Lets a store to a page mapped for write combining leave the processor.
fn flush_write_combining() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[derive(Default)]
struct Entries {
    next: u64,
    list: Vec<DoorbellEntry>,
    /// The newest memory for words, and how many of them are given away.
    words: Option<(Region, u64)>,
}

#[derive(Default)]
struct Shared {
    bells: Mutex<Entries>,
    stop: AtomicBool,
}

impl Shared {
    fn bells(&self) -> MutexGuard<'_, Entries> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread. It ends when this is dropped.
pub(super) struct DoorbellProxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl DoorbellProxy {
    /// Starts the thread, for kernels of `machine`.
    pub(super) fn start(machine: &dyn Machine) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        // Kernels on a GPU leave the CPU alone; native ones need it.
        let pause = if machine.is_gpu() { Idle::patient() } else { Idle::default() };
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("rushmem-doorbell".into())
            .spawn(move || run(&theirs, pause))
            .map_err(Error::Thread)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A word whose values are stored to `register`.
    ///
    /// # Safety
    /// The register may be written as long as the word lives.
    pub(super) unsafe fn word(&self, machine: &dyn Machine, register: *mut u64) -> Result<DoorbellWord> {
        let mut bells = self.shared.bells();
        let (region, index) = match bells.words.take() {
            Some((region, used)) if used < WORDS => (region, used),
            _ => (machine.shared(WORDS * STRIDE)?, 0),
        };
        bells.words = Some((region.clone(), index + 1));
        let offset = index * STRIDE;
        let start = region.memory.host_ptr().ok_or_else(|| Error::Misuse {
            call: "a doorbell word",
            what: "memory that kernels and the CPU share has no address on the CPU".into(),
        })?;
        // SAFETY: the offset lies within the region.
        let word = unsafe { start.add(offset as usize) }.cast::<AtomicU64>();
        let number = bells.next;
        bells.next += 1;
        bells.list.push(DoorbellEntry { number, word: word.as_ptr(), register });
        let addr = region.addr.add(offset);
        Ok(DoorbellWord { shared: Arc::clone(&self.shared), number, addr, word, _region: region })
    }

    /// How long it takes from a value in a word to the register: the median of some tries, with a register that is
    /// memory.
    pub(super) fn measure(&self, machine: &dyn Machine) -> Result<Duration> {
        const TRIES: usize = 33;
        const LIMIT: Duration = Duration::from_millis(100);
        let register = AtomicU64::new(0);
        // SAFETY: the register outlives the word, which is declared after it.
        let word = unsafe { self.word(machine, register.as_ptr()) }?;
        let mut times = Vec::with_capacity(TRIES);
        for value in 1..=TRIES as u64 {
            let start = Instant::now();
            // SAFETY: a live word.
            unsafe { word.word.as_ref() }.store(value, Ordering::Release);
            while register.load(Ordering::Acquire) != value && start.elapsed() < LIMIT {
                std::hint::spin_loop();
            }
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(times[TRIES / 2])
    }
}

impl Drop for DoorbellProxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by itself; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// A word for one doorbell register. Once it is dropped, the register is left alone.
pub(super) struct DoorbellWord {
    shared: Arc<Shared>,
    number: u64,
    addr: DevAddr,
    word: NonNull<AtomicU64>,
    _region: Region,
}

// SAFETY: the pointer is only read by `DoorbellProxy::measure`, to an atomic.
unsafe impl Send for DoorbellWord {}
// SAFETY: as above.
unsafe impl Sync for DoorbellWord {}

impl DoorbellWord {
    /// Its address for kernels.
    pub(super) fn addr(&self) -> DevAddr {
        self.addr
    }
}

impl Drop for DoorbellWord {
    fn drop(&mut self) {
        self.shared.bells().list.retain(|bell| bell.number != self.number);
    }
}

fn run(shared: &Shared, pause: Idle) {
    let mut idle_since = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        let rang = shared.bells().list.iter().fold(false, |rang, bell| bell.forward() | rang);
        if rang {
            idle_since = Instant::now();
            continue;
        }
        pause.rest(idle_since.elapsed(), std::thread::sleep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Native;
    use crate::native::Options;

    fn machine() -> Native {
        Native::new(Options::default(), 1)
    }

    fn ring(word: &DoorbellWord, value: u64) {
        // SAFETY: a live word.
        unsafe { word.word.as_ref() }.store(value, Ordering::Release);
    }

    fn await_value(register: &AtomicU64, value: u64) {
        let start = Instant::now();
        while register.load(Ordering::Acquire) != value {
            assert!(start.elapsed() < Duration::from_secs(20), "{value:#x} did not arrive");
            std::thread::yield_now();
        }
    }

    #[test]
    fn values_arrive_even_when_they_repeat() {
        let (machine, register) = (machine(), AtomicU64::new(0));
        let proxy = DoorbellProxy::start(&machine).unwrap();
        // SAFETY: the register outlives the word.
        let word = unsafe { proxy.word(&machine, register.as_ptr()) }.unwrap();
        for value in [5, 5, 5, u64::MAX, 5] {
            register.store(0, Ordering::Relaxed);
            ring(&word, value);
            await_value(&register, value);
        }
    }

    #[test]
    fn bells_do_not_mix_and_stop_when_dropped() {
        let machine = machine();
        let registers: Vec<_> = (0..2 * WORDS).map(|_| AtomicU64::new(0)).collect();
        let proxy = DoorbellProxy::start(&machine).unwrap();
        // SAFETY: the registers outlive the words.
        let word = |register: &AtomicU64| unsafe { proxy.word(&machine, register.as_ptr()) }.unwrap();
        let mut words: Vec<_> = registers.iter().map(word).collect();
        for (i, word) in words.iter().enumerate() {
            ring(word, 1000 + i as u64);
        }
        for (i, register) in registers.iter().enumerate() {
            await_value(register, 1000 + i as u64);
        }
        let last = words.pop().unwrap();
        let (cell, region) = (last.word, last._region.clone());
        drop(last);
        // SAFETY: the region keeps the memory.
        unsafe { cell.as_ref() }.store(7, Ordering::Release);
        ring(&words[0], 8);
        await_value(&registers[0], 8);
        assert_ne!(registers[registers.len() - 1].load(Ordering::Relaxed), 7);
        drop(region);
        assert!(proxy.measure(&machine).unwrap() < Duration::from_millis(100));
    }
}
