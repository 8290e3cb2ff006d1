//! A CPU thread that rings doorbells for kernels that cannot write to the NIC's registers.
//!
//! Each doorbell has a word in page-locked memory. A kernel stores its doorbell value in the word, and the thread
//! copies it to the doorbell register. The thread takes a value by exchanging it with 0, which lets it forward equal
//! values separately. It polls only the words used by a QP, because most QPs of a large job are never connected. It may
//! miss a value that a kernel overwrites early. That is harmless: a doorbell value has the newest producer index of its
//! QP, and covers all earlier postings.
#![allow(unsafe_code, reason = "accesses doorbell words and registers through raw pointers")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_base::lock;
use rushmem_device::abi::DevAddr;
use rushmem_error::{Error, Result};
use rushmem_machine::{Machine, Region};
use rushmem_softnic::Idle;

/// Distance between doorbell words in bytes. Each word has its own cache line.
const STRIDE: u64 = 64;
/// Number of doorbell words allocated together.
const WORDS: u64 = 64;

/// A doorbell word in memory, and the NIC's register to which its values are copied.
struct DoorbellEntry {
    number: u64,
    word: *const AtomicU64,
    register: *mut u64,
}

// SAFETY: all accesses to the word are atomic, and only the thread writes to the register through this entry.
unsafe impl Send for DoorbellEntry {}

impl DoorbellEntry {
    /// Copies a new value from the word to the doorbell register. Returns whether there was a new value.
    fn forward(&self) -> bool {
        // SAFETY: the word is mapped while the entry is in the list.
        let word = unsafe { &*self.word };
        if word.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // Acquire: the NIC must see the kernel's stores from before the word, and then the doorbell.
        let value = word.swap(0, Ordering::AcqRel);
        // SAFETY: the doorbell register is mapped while the entry is in the list.
        unsafe { store_register(self.register, value) };
        true
    }
}

/// Writes `value` to a doorbell register, ordered after all earlier stores.
///
/// # Safety
/// `register` must be a mapped doorbell register.
pub(super) unsafe fn store_register(register: *mut u64, value: u64) {
    fence(Ordering::SeqCst);
    order_for_devices();
    // SAFETY: the caller guarantees a mapped register.
    unsafe { register.write_volatile(value) };
    flush_write_combining();
}

/// Orders earlier stores to memory before later stores to devices.
fn order_for_devices() {
    // The fence of the language orders stores for processors only.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier changes no state that the compiler knows.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

/// Flushes the CPU's write-combining buffers, which may still hold the store to the register.
fn flush_write_combining() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as for `order_for_devices`.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
}

#[derive(Default)]
struct Entries {
    next: u64,
    list: Vec<DoorbellEntry>,
    /// The most recent allocation of doorbell words, and how many of its words are taken.
    words: Option<(Region, u64)>,
}

/// State shared by the doorbell thread, its [`DoorbellProxy`] and the [`DoorbellWord`]s.
#[derive(Default)]
struct ProxyState {
    entries: Mutex<Entries>,
    stop: AtomicBool,
}

impl ProxyState {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        lock(&self.entries)
    }

    /// Copies new values of all words in use to their doorbell registers. Returns whether there were any.
    fn turn(&self) -> bool {
        self.entries().list.iter().fold(false, |rang, entry| entry.forward() | rang)
    }
}

/// A CPU thread that rings doorbells for kernels. Dropping it stops the thread.
pub(super) struct DoorbellProxy {
    state: Arc<ProxyState>,
    thread: Option<JoinHandle<()>>,
}

impl DoorbellProxy {
    /// Starts the doorbell thread for kernels of `machine`.
    pub(super) fn start(machine: &dyn Machine) -> Result<Self> {
        let state = Arc::<ProxyState>::default();
        // For kernels on a GPU the thread polls longer before it sleeps. Native kernels need the cores themselves.
        let pause = if machine.is_gpu() { Idle::patient() } else { Idle::default() };
        let for_thread = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("rushmem-doorbell".into())
            .spawn(move || run(&for_thread, pause))
            .map_err(Error::Thread)?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Creates a doorbell word for `register`. The thread copies its values to the register while the word is in use.
    ///
    /// # Safety
    /// The register must stay mapped and writable until the word is dropped.
    pub(super) unsafe fn word(&self, machine: &dyn Machine, register: *mut u64) -> Result<DoorbellWord> {
        let mut entries = self.state.entries();
        let (region, index) = match entries.words.take() {
            Some((region, used)) if used < WORDS => (region, used),
            _ => (machine.shared(WORDS * STRIDE)?, 0),
        };
        entries.words = Some((region.clone(), index + 1));
        let offset = index * STRIDE;
        let start = region.memory.host_ptr().ok_or_else(|| {
            Error::misuse(
                "a doorbell word",
                "memory that kernels and the CPU share has no address on the CPU",
            )
        })?;
        // SAFETY: the offset lies within the region.
        let word = unsafe { start.add(offset as usize) }.cast::<AtomicU64>();
        let number = entries.next;
        entries.next += 1;
        let addr = region.addr.add(offset);
        Ok(DoorbellWord { state: Arc::clone(&self.state), number, addr, word, register, _region: region })
    }

    /// Measures the delay between a store to a doorbell word and the thread's store to the register.
    ///
    /// Returns the median of 33 tries, with a stand-in register in host memory.
    pub(super) fn measure(&self, machine: &dyn Machine) -> Result<Duration> {
        const TRIES: usize = 33;
        const LIMIT: Duration = Duration::from_millis(100);
        let register = AtomicU64::new(0);
        // SAFETY: the register is declared before the word, so it outlives the word.
        let word = unsafe { self.word(machine, register.as_ptr()) }?;
        word.set_in_use(true);
        let mut times = Vec::with_capacity(TRIES);
        for value in 1..=TRIES as u64 {
            let start = Instant::now();
            // SAFETY: the word is live.
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
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

/// The memory word in which a kernel stores doorbell values for one register. Once it has been dropped, the doorbell
/// thread no longer accesses the register.
pub(super) struct DoorbellWord {
    state: Arc<ProxyState>,
    number: u64,
    addr: DevAddr,
    word: NonNull<AtomicU64>,
    register: *mut u64,
    _region: Region,
}

// SAFETY: all accesses through the pointer to the word are atomic, and the word keeps the memory allocated. The
// register is only passed on.
unsafe impl Send for DoorbellWord {}
// SAFETY: as for `Send`.
unsafe impl Sync for DoorbellWord {}

impl DoorbellWord {
    /// Returns the device address at which kernels store doorbell values.
    pub(super) fn addr(&self) -> DevAddr {
        self.addr
    }

    /// Sets whether the doorbell thread polls the word. Discards any value the word already has.
    pub(super) fn set_in_use(&self, is_used: bool) {
        let mut entries = self.state.entries();
        entries.list.retain(|entry| entry.number != self.number);
        if is_used {
            // SAFETY: the word is live.
            unsafe { self.word.as_ref() }.store(0, Ordering::Relaxed);
            let word = self.word.as_ptr();
            entries.list.push(DoorbellEntry { number: self.number, word, register: self.register });
        }
    }
}

impl Drop for DoorbellWord {
    fn drop(&mut self) {
        self.set_in_use(false);
    }
}

/// Runs the doorbell thread: forwards values until the proxy is dropped.
fn run(state: &ProxyState, pause: Idle) {
    let mut idle_since = Instant::now();
    while !state.stop.load(Ordering::Relaxed) {
        if state.turn() {
            idle_since = Instant::now();
            continue;
        }
        pause.rest(idle_since.elapsed(), std::thread::sleep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_machine::Native;
    use rushmem_native::Options;

    fn machine() -> Native {
        Native::new(Options::default())
    }

    fn ring(word: &DoorbellWord, value: u64) {
        // SAFETY: the word is live.
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
    fn forwards_equal_values_separately() {
        let (machine, register) = (machine(), AtomicU64::new(0));
        let proxy = DoorbellProxy::start(&machine).unwrap();
        // SAFETY: the register outlives the word.
        let word = unsafe { proxy.word(&machine, register.as_ptr()) }.unwrap();
        word.set_in_use(true);
        for value in [5, 5, 5, u64::MAX, 5] {
            register.store(0, Ordering::Relaxed);
            ring(&word, value);
            await_value(&register, value);
        }
    }

    #[test]
    fn only_words_in_use_are_polled() {
        let (machine, register) = (machine(), AtomicU64::new(0));
        let proxy = DoorbellProxy::start(&machine).unwrap();
        // SAFETY: the register outlives the words.
        let word = || unsafe { proxy.word(&machine, register.as_ptr()) }.unwrap();
        let words: Vec<_> = (0..1000).map(|_| word()).collect();
        let looked_at = || proxy.state.entries().list.len();
        assert_eq!(looked_at(), 0);
        for in_use in [1, 3, 100] {
            words[..in_use].iter().for_each(|word| word.set_in_use(true));
            assert_eq!(looked_at(), in_use);
        }
        words.iter().for_each(|word| word.set_in_use(false));
        ring(&words[0], 7);
        assert!(!proxy.state.turn() && looked_at() == 0);
        // A doorbell of the previous QP is not forwarded for the new one.
        words[0].set_in_use(true);
        ring(&words[0], 9);
        await_value(&register, 9);
    }

    #[test]
    fn forwards_each_word_to_its_register_until_dropped() {
        let machine = machine();
        let registers: Vec<_> = (0..2 * WORDS).map(|_| AtomicU64::new(0)).collect();
        let proxy = DoorbellProxy::start(&machine).unwrap();
        // SAFETY: the registers outlive the words.
        let word = |register: &AtomicU64| unsafe { proxy.word(&machine, register.as_ptr()) }.unwrap();
        let mut words: Vec<_> = registers.iter().map(word).collect();
        for (i, word) in words.iter().enumerate() {
            word.set_in_use(true);
            ring(word, 1000 + i as u64);
        }
        for (i, register) in registers.iter().enumerate() {
            await_value(register, 1000 + i as u64);
        }
        let last = words.pop().unwrap();
        let (cell, region) = (last.word, last._region.clone());
        drop(last);
        // SAFETY: `region` keeps the memory allocated.
        unsafe { cell.as_ref() }.store(7, Ordering::Release);
        ring(&words[0], 8);
        await_value(&registers[0], 8);
        assert_ne!(registers[registers.len() - 1].load(Ordering::Relaxed), 7);
        drop(region);
        assert!(proxy.measure(&machine).unwrap() < Duration::from_millis(100));
    }
}
