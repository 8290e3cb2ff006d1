//! Models of a driver and the adapter for loom. Data is in loom's `UnsafeCell`s, which panic on a race.
#![allow(unsafe_code, reason = "accesses cells that loom checks")]
#![allow(clippy::disallowed_methods, reason = "loom's atomics")]

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64 as LoomWord, fence};
use loom::thread;

impl Word for LoomWord {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }
}

fn words<const N: usize>() -> [LoomWord; N] {
    std::array::from_fn(|_| LoomWord::new(0))
}

/// A send queue with a WQE, its data, and the doorbell.
struct Send {
    data: UnsafeCell<u64>,
    wqe: [LoomWord; 2],
    record: LoomWord,
    register: LoomWord,
}

impl Send {
    fn new() -> Arc<Send> {
        let [record, register] = words();
        Arc::new(Send { data: UnsafeCell::new(0), wqe: words(), record, register })
    }

    /// Posts a WQE as a driver does, and stores the register with this order.
    fn post(&self, order: Ordering) {
        // SAFETY: loom checks that no read races with it.
        self.data.with_mut(|data| unsafe { *data = 1 });
        self.wqe.iter().for_each(|word| word.store(1, Ordering::Relaxed));
        self.record.store(1, Ordering::Release);
        self.register.store(1, order);
    }

    /// Executes the announced WQE, as the adapter does.
    fn execute(&self) {
        let mut wqe = [0; 2];
        load_words(&self.wqe, &mut wqe);
        // SAFETY: loom checks that no write races with it.
        let data = self.data.with(|data| unsafe { *data });
        assert_eq!((wqe, data), ([1; 2], 1));
    }
}

#[test]
fn a_doorbell_announces_its_wqe_and_record() {
    loom::model(|| {
        let queue = Send::new();
        let driver = Arc::clone(&queue);
        let driver = thread::spawn(move || driver.post(Ordering::Release));
        if take(&queue.register).is_some() {
            queue.execute();
            assert_eq!(queue.record.load(Ordering::Acquire), 1);
            assert_eq!(take(&queue.register), None, "a doorbell is taken once");
        }
        driver.join().unwrap();
    });
}

#[test]
fn a_record_announces_its_wqe_without_the_doorbell() {
    loom::model(|| {
        let queue = Send::new();
        let driver = Arc::clone(&queue);
        let driver = thread::spawn(move || driver.post(Ordering::Release));
        if Word::load(&queue.record, Ordering::Acquire) == 1 {
            queue.execute();
        }
        driver.join().unwrap();
    });
}

#[test]
#[should_panic]
fn a_doorbell_without_release_announces_nothing() {
    loom::model(|| {
        let queue = Send::new();
        let driver = Arc::clone(&queue);
        let driver = thread::spawn(move || driver.post(Ordering::Relaxed));
        if take(&queue.register).is_some() {
            queue.execute();
        }
        driver.join().unwrap();
    });
}

/// Memory that the adapter writes: data, a flag that announces it, and a CQE.
struct Receive {
    data: UnsafeCell<u64>,
    flag: LoomWord,
    cqe: [LoomWord; 8],
}

impl Receive {
    fn new() -> Arc<Receive> {
        let [flag] = words();
        Arc::new(Receive { data: UnsafeCell::new(0), flag, cqe: words() })
    }

    fn write_data(&self) {
        // SAFETY: loom checks that no read races with it.
        self.data.with_mut(|data| unsafe { *data = 1 });
    }

    fn read_data(&self) -> u64 {
        // SAFETY: loom checks that no write races with it.
        self.data.with(|data| unsafe { *data })
    }
}

#[test]
fn a_cqe_comes_after_its_data() {
    loom::model(|| {
        let memory = Receive::new();
        let adapter = Arc::clone(&memory);
        let adapter = thread::spawn(move || {
            adapter.write_data();
            store_cqe(&adapter.cqe, &[1; 8]);
        });
        if memory.cqe[7].load(Ordering::Acquire) == 1 {
            assert_eq!(memory.read_data(), 1);
            assert!(memory.cqe[..7].iter().all(|word| word.load(Ordering::Relaxed) == 1));
        }
        adapter.join().unwrap();
    });
}

/// Writes data by one WQE and then a flag by the next, ordered by `between`.
fn flag_after_data(between: fn()) {
    loom::model(move || {
        let memory = Receive::new();
        let adapter = Arc::clone(&memory);
        let adapter = thread::spawn(move || {
            adapter.write_data();
            between();
            adapter.flag.store(1, Ordering::Relaxed);
        });
        if memory.flag.load(Ordering::Acquire) == 1 {
            assert_eq!(memory.read_data(), 1);
        }
        adapter.join().unwrap();
    });
}

#[test]
fn a_flag_comes_after_the_data_of_an_earlier_wqe() {
    flag_after_data(|| fence(Ordering::Release));
}

#[test]
#[should_panic]
fn a_flag_without_the_fence_may_come_before_its_data() {
    flag_after_data(|| ());
}
