//! Checks the handshake with loom: a request is executed by the kernel or returned to the host, never both and never
//! neither.
#![allow(clippy::disallowed_methods, reason = "loom's atomics")]

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use rushmem_service::{Handshake, State, announce, leave};

struct LoomRing {
    posted: AtomicU64,
    state: AtomicU64,
    /// The request, which the kernel reads without further synchronization.
    request: loom::cell::UnsafeCell<u64>,
}

impl LoomRing {
    /// Creates an empty ring that a kernel serves.
    fn new() -> Self {
        Self {
            posted: AtomicU64::new(0),
            state: AtomicU64::new(State::Alive as u64),
            request: loom::cell::UnsafeCell::new(0),
        }
    }
}

impl Handshake for LoomRing {
    fn posted(&self) -> u64 {
        self.posted.load(Relaxed)
    }

    fn set_posted(&self, number: u64) {
        self.posted.store(number, Release);
    }

    fn state(&self) -> State {
        match self.state.load(Acquire) {
            0 => State::Gone,
            1 => State::Starting,
            2 => State::Alive,
            _ => State::Leaving,
        }
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u64, Release);
    }

    fn fence(&self) {
        fence(SeqCst);
    }
}

#[test]
fn each_request_is_executed_once() {
    loom::model(|| {
        let words = Arc::new(LoomRing::new());
        let kernel = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                if leave(&*words, 0, false) {
                    return 0;
                }
                assert_eq!(words.posted(), 1, "the kernel stays without a request");
                fence(Acquire);
                // SAFETY: loom checks that no write races with it.
                words.request.with(|request| unsafe { *request })
            })
        };
        // SAFETY: loom checks that no read races with it.
        words.request.with_mut(|request| unsafe { *request = 1 });
        let executes = announce(&*words, 1, || {
            thread::yield_now();
            Ok::<(), ()>(())
        });
        let left = u64::from(!executes.unwrap());
        if left == 1 {
            assert_eq!(words.state(), State::Gone);
        }
        assert_eq!(kernel.join().unwrap() + left, 1);
    });
}

#[test]
fn host_notices_a_forced_exit() {
    loom::model(|| {
        let words = Arc::new(LoomRing::new());
        let kernel = {
            let words = Arc::clone(&words);
            thread::spawn(move || assert!(leave(&*words, 0, true)))
        };
        let wait = || {
            thread::yield_now();
            Ok::<(), ()>(())
        };
        let executes = announce(&*words, 1, wait).unwrap();
        kernel.join().unwrap();
        // The kernel had not started to leave, so it looked alive. Its exit shows in the state afterwards.
        assert!(!executes || words.state() == State::Gone);
    });
}
