//! Runs the service kernel on CPU threads and compares its effects with a model.
#![allow(unsafe_code, reason = "the kernel works on raw addresses")]
#![allow(clippy::disallowed_methods, reason = "the threads here are the CPU's")]

mod gpu;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::convert::Infallible;
use std::ptr::NonNull;
use std::thread::{self, JoinHandle};

use proptest::prelude::*;
use rushmem_mlx5::{AtomicOp, Width};
use rushmem_service::{Client, Limits, Operation, Request, Ring, State};

/// The kernel exits only when asked to.
const RUN_UNTIL_STOPPED: Limits = Limits { idle_ns: u64::MAX, life_ns: u64::MAX };

/// The kernel exits whenever the ring is empty.
const EXIT_WHEN_EMPTY: Limits = Limits { idle_ns: 0, life_ns: u64::MAX };

/// Zeroed memory that kernels use by address.
struct Bytes(NonNull<u8>, Layout);

impl Bytes {
    fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len, 128).unwrap();
        // SAFETY: the layout is not empty.
        Self(NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap(), layout)
    }

    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    fn fill(&mut self, data: &[u8]) {
        // SAFETY: no kernel uses the bytes now.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), data.len()) }.copy_from_slice(data);
    }

    fn contents(&self) -> Vec<u8> {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.1.size()) }.to_vec()
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), self.1) };
    }
}

/// A ring, its client and its kernels.
struct Service {
    client: Client,
    _ring: Bytes,
    kernel: Vec<JoinHandle<()>>,
    threads: u32,
    limits: Limits,
    launches: u32,
}

impl Service {
    fn new(threads: u32, limits: Limits) -> Self {
        let ring = Bytes::new(size_of::<Ring>());
        // SAFETY: a zeroed ring, which the service keeps.
        let client = unsafe { Client::new(ring.0.cast(), ring.address()) };
        Self { client, _ring: ring, kernel: Vec::new(), threads, limits, launches: 0 }
    }

    /// Launches a kernel and waits until it has started. It may have exited again already.
    fn launch(&mut self) {
        self.kernel.drain(..).for_each(|thread| thread.join().unwrap());
        self.client.prepare_launch();
        self.launches += 1;
        self.kernel = gpu::launch(self.client.address(), self.threads, self.limits);
        while self.client.state() == State::Starting {
            thread::yield_now();
        }
    }

    /// Posts a request repeatedly until a kernel accepts it. Returns its sequence number.
    fn post(&mut self, make: impl Fn(u64) -> Request) -> u64 {
        loop {
            if self.client.state() == State::Gone {
                self.launch();
            }
            while self.client.is_full() {
                thread::yield_now();
            }
            let wait = || {
                thread::yield_now();
                Ok::<(), Infallible>(())
            };
            let (number, left) = self.client.post(&make, wait).unwrap();
            if left.is_empty() {
                return number;
            }
            assert_eq!(left.len(), 1, "the kernel left requests that it had accepted");
        }
    }

    fn finish(&mut self) {
        while !self.client.is_settled() {
            thread::yield_now();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.client.stopper()();
        self.kernel.drain(..).for_each(|thread| thread.join().unwrap());
        assert_eq!(self.client.state(), State::Gone);
    }
}

const SIZE: usize = 1024;

#[derive(Clone, Debug)]
enum Step {
    Copy { to: usize, from: usize, len: usize },
    Store { to: usize, data: Vec<u8> },
    Atomic { word: usize, width: Width, op: AtomicOp, result: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let half = SIZE / 2;
    let copy = (0..half, 0..half, 0..200usize).prop_map(move |(to, from, len)| Step::Copy {
        to,
        from: from + half - 200,
        len: len.min(half - to).min(half + 200 - from),
    });
    let copy = copy.prop_map(|step| match step {
        // The ranges of one copy do not overlap.
        Step::Copy { to, from, len } => Step::Copy { to, from, len: len.min(from.saturating_sub(to)) },
        other => other,
    });
    let store = (0..SIZE - 32, prop::collection::vec(any::<u8>(), 0..=32))
        .prop_map(|(to, data)| Step::Store { to, data });
    let mask = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), Just(0x8080_8080_8080_8080)];
    let small = prop_oneof![0..4u64, any::<u64>()];
    let op = prop_oneof![
        (any::<u64>(), mask.clone()).prop_map(|(add, boundary)| AtomicOp::Add { add, boundary }),
        (small.clone(), small, mask.clone(), mask).prop_map(|(compare, swap, compare_mask, swap_mask)| {
            AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask }
        }),
    ];
    let width = prop_oneof![Just(Width::Four), Just(Width::Eight)];
    let atomic = (0..SIZE / 8, width, op, 0..SIZE - 8).prop_map(|(word, width, op, result)| Step::Atomic {
        word,
        width,
        op,
        result,
    });
    prop::collection::vec(prop_oneof![copy, store, atomic], 1..100)
}

/// Applies a step to plain bytes.
fn model(bytes: &mut [u8], step: &Step) {
    match step {
        Step::Copy { to, from, len } => bytes.copy_within(*from..from + len, *to),
        Step::Store { to, data } => bytes[*to..to + data.len()].copy_from_slice(data),
        Step::Atomic { word, width: Width::Eight, op, result } => {
            let at = 8 * word;
            let old = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let new = op.apply(old, Width::Eight).unwrap_or(old);
            bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
            bytes[*result..result + 8].copy_from_slice(&old.to_le_bytes());
        }
        Step::Atomic { word, width: Width::Four, op, result } => {
            let at = 8 * word;
            let old = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let new = op.apply(old.into(), Width::Four).map_or(old, |new| new as u32);
            bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
            bytes[*result..result + 4].copy_from_slice(&old.to_be_bytes());
        }
    }
}

fn request(base: u64, step: &Step) -> Request {
    let at = |offset: usize| base + offset as u64;
    match step {
        Step::Copy { to, from, len } => Request::copy(at(*to), at(*from), *len as u64),
        Step::Store { to, data } => Request::store(at(*to), data).unwrap(),
        Step::Atomic { word, width, op, result } => Request::atomic(at(8 * word), *width, *op, at(*result)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn executes_requests_in_order(steps in steps(), hasty in any::<bool>()) {
        let start: Vec<u8> = (0..SIZE).map(|i| (i * 7) as u8).collect();
        let (mut memory, mut expected) = (Bytes::new(SIZE), start.clone());
        memory.fill(&start);
        let mut service = Service::new(1, if hasty { EXIT_WHEN_EMPTY } else { RUN_UNTIL_STOPPED });
        for step in &steps {
            model(&mut expected, step);
            service.post(|_| request(memory.address(), step));
        }
        service.finish();
        drop(service);
        prop_assert_eq!(memory.contents(), expected);
    }
}

#[test]
fn successive_kernels_execute_each_request_once() {
    let word = Bytes::new(8);
    let mut service = Service::new(1, EXIT_WHEN_EMPTY);
    const REQUESTS: u64 = 3000;
    for i in 0..REQUESTS {
        let add = AtomicOp::Add { add: 1, boundary: 0 };
        let number = service.post(|result| Request::atomic(word.address(), Width::Eight, add, result));
        if i % 7 == 0 {
            service.finish();
            let mut old = [0; 8];
            service.client.read_result(number, &mut old);
            assert_eq!(u64::from_le_bytes(old), i);
        }
        // Elsewhere, it depends on the scheduler whether the kernel leaves between two requests.
        while i % 210 == 0 && service.client.state() != State::Gone {
            thread::yield_now();
        }
    }
    service.finish();
    assert!(service.launches > 10, "the kernel left {} times only", service.launches);
    drop(service);
    assert_eq!(word.contents(), REQUESTS.to_le_bytes());
}

#[test]
fn relaunch_after_everything_was_executed() {
    let word = Bytes::new(8);
    let mut service = Service::new(1, RUN_UNTIL_STOPPED);
    for i in 0..2u8 {
        service.launch();
        service.post(|_| Request::store(word.address() + u64::from(i), &[1]).unwrap());
        service.client.stopper()();
        while service.client.state() != State::Gone {
            thread::yield_now();
        }
    }
    service.finish();
    drop(service);
    assert_eq!(word.contents(), 0x0101u64.to_le_bytes());
}

#[test]
fn large_copies_use_all_warps() {
    const LEN: usize = 20_000;
    let data: Vec<u8> = (0..LEN).map(|i| (i * 13 + i / 256) as u8).collect();
    let (mut from, to) = (Bytes::new(LEN), Bytes::new(LEN + 64));
    from.fill(&data);
    let mut service = Service::new(33, RUN_UNTIL_STOPPED);
    // Lengths around the threshold for block copies, aligned and not.
    let copies = [(0, 0, 4095), (4112, 16, 4096), (8216, 3, 5001), (13_301, 8, 6000), (19_310, 1, 7)];
    let mut expected = vec![0; LEN + 64];
    for (at, source, len) in copies {
        let (to, from) = (to.address() + at as u64, from.address() + source as u64);
        service.post(|_| Request::copy(to, from, len as u64));
        expected[at..at + len].copy_from_slice(&data[source..source + len]);
    }
    service.finish();
    drop(service);
    assert!(to.contents() == expected);
}

#[test]
fn rejects_stores_longer_than_a_request() {
    assert!(Request::store(0, &[0; 33]).is_none() && Request::store(0, &[0; 32]).is_some());
}

#[test]
fn exited_kernel_returns_requests_to_the_host() {
    let mut service = Service::new(1, Limits { idle_ns: u64::MAX, life_ns: 0 });
    service.launch();
    while service.client.state() != State::Gone {
        thread::yield_now();
    }
    let word = Bytes::new(8);
    let store = || Request::store(word.address(), &[1; 8]).unwrap();
    let wait = || Ok::<(), Infallible>(());
    let (_, left) = service.client.post(|_| store(), wait).unwrap();
    assert_eq!(left, [store()]);
    let Operation::Store { to, bytes, len: 8 } = left[0].operation() else { panic!("{left:?}") };
    assert_eq!((to, &bytes[..8]), (word.address(), &[1; 8][..]));
    assert!(service.client.is_settled());
    assert_eq!(word.contents(), [0; 8]);
}
