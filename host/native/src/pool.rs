//! A pool of worker threads for native launches, kept between launches: starting a thread takes longer than a short
//! kernel.
#![allow(unsafe_code, reason = "lends a borrowed task to threads that live longer")]

use rushmem_base::{lock, wait};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which the launching thread polls for another thread to finish before it sleeps.
const POLL_TIME: Duration = Duration::from_micros(50);

/// Idle threads of the pool. A launch removes those that it uses, and puts them back when it returns.
static IDLE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());

struct Spare {
    orders: Sender<Arc<Order>>,
}

/// A call that one thread of the pool is to make for a launch.
struct Order {
    state: Mutex<State>,
    done: Condvar,
}

enum State {
    Open(&'static (dyn Fn() + Sync)),
    Begun,
    /// The call has returned, or was withdrawn before a thread started it.
    Over,
}

impl Order {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Runs the call on the pool's thread, unless it was withdrawn.
    fn carry_out(&self) {
        let mut state = self.state();
        let State::Open(work) = *state else { return };
        *state = State::Begun;
        drop(state);
        // The launching thread waits for `Over`, so set it even after a panic. The panic hook has printed the message.
        let _ = catch_unwind(AssertUnwindSafe(work));
        *self.state() = State::Over;
        self.done.notify_one();
    }

    /// Withdraws the call if no thread has started it. Otherwise waits until it has returned.
    fn finish(&self) {
        let begin = Instant::now();
        loop {
            let mut state = self.state();
            match *state {
                State::Over => return,
                State::Open(_) => {
                    *state = State::Over;
                    return;
                }
                State::Begun if begin.elapsed() < POLL_TIME => {
                    drop(state);
                    thread::yield_now();
                }
                State::Begun => {
                    drop(wait(&self.done, state));
                }
            }
        }
    }
}

/// Calls `work` on this thread, and on up to `others` threads of the pool. Returns when all calls have returned.
///
/// If a pool thread has not started its call by the time the call on this thread returns, the call is not made.
pub(crate) fn share_out(others: usize, work: &(dyn Fn() + Sync)) {
    struct Finish(Vec<(Spare, Arc<Order>)>);
    impl Drop for Finish {
        fn drop(&mut self) {
            for (_, order) in &self.0 {
                order.finish();
            }
            idle().extend(self.0.drain(..).map(|(spare, _)| spare));
        }
    }
    // SAFETY: only the lifetime is erased. `Finish::drop` settles every order before this function returns, even if it
    // unwinds. After that, no other thread runs `work` or will call it.
    let erased = unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work) };
    let mut finish = Finish(Vec::with_capacity(others));
    for _ in 0..others {
        let kept = idle().pop();
        let Some(spare) = kept.or_else(start) else { break };
        let order = Arc::new(Order { state: Mutex::new(State::Open(erased)), done: Condvar::new() });
        // Threads of the pool run until the process exits. If one is gone, its order is just withdrawn.
        let _ = spare.orders.send(Arc::clone(&order));
        finish.0.push((spare, order));
    }
    work();
    drop(finish);
}

fn idle() -> MutexGuard<'static, Vec<Spare>> {
    lock(&IDLE)
}

fn start() -> Option<Spare> {
    let (orders, inbox) = mpsc::channel::<Arc<Order>>();
    let run = move || inbox.iter().for_each(|order| order.carry_out());
    match thread::Builder::new().name("kernel".to_owned()).spawn(run) {
        Ok(_) => Some(Spare { orders }),
        Err(error) => {
            tracing::warn!(%error, "cannot start another thread for kernels; the existing threads share the blocks");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::*};

    use super::*;

    #[test]
    fn returns_after_all_calls() {
        let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        for round in 1..=200 {
            share_out(3, &|| {
                begun.fetch_add(1, Relaxed);
                thread::yield_now();
                ended.fetch_add(1, Relaxed);
            });
            let counts = (begun.load(Relaxed), ended.load(Relaxed));
            assert_eq!(counts.0, counts.1);
            assert!((round..=round * 4).contains(&counts.0), "{counts:?} after {round} rounds");
        }
    }

    #[test]
    fn other_threads_run_concurrently_with_the_caller() {
        let here = AtomicU32::new(0);
        share_out(2, &|| {
            here.fetch_add(1, AcqRel);
            while here.load(Acquire) < 3 {
                thread::yield_now();
            }
        });
        assert_eq!(here.into_inner(), 3);
    }

    #[test]
    fn waits_for_other_threads_even_if_the_caller_panics() {
        let caller = thread::current().id();
        let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            share_out(1, &|| {
                if thread::current().id() == caller {
                    while begun.load(Acquire) == 0 {
                        thread::yield_now();
                    }
                    panic!("on purpose");
                }
                begun.store(1, Release);
                thread::sleep(Duration::from_millis(20));
                ended.store(1, Release);
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(ended.into_inner(), 1);
    }
}
