//! Worker threads, kept between launches because starting a thread takes longer than a short kernel.
#![allow(unsafe_code, reason = "lends a borrowed task to threads that live longer")]

use rushmem_base::{lock, wait};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which the caller polls for the end of another thread's work before it sleeps.
const POLL: Duration = Duration::from_micros(50);

/// Idle threads. A launch takes threads out and puts them back when it ends.
static IDLE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());

struct Spare {
    orders: Sender<Arc<Order>>,
}

/// Work for one spare thread.
struct Order {
    state: Mutex<State>,
    done: Condvar,
}

enum State {
    Open(&'static (dyn Fn() + Sync)),
    Begun,
    /// Done, or withdrawn before it began.
    Over,
}

impl Order {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Executes the work on the spare thread, unless the order was withdrawn.
    fn carry_out(&self) {
        let mut state = self.state();
        let State::Open(work) = *state else { return };
        *state = State::Begun;
        drop(state);
        // The launching thread must always learn that the work is over. The panic hook has printed the panic.
        let _ = catch_unwind(AssertUnwindSafe(work));
        *self.state() = State::Over;
        self.done.notify_one();
    }

    /// Withdraws the order if no thread has begun it, and otherwise waits for its end.
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
                State::Begun if begin.elapsed() < POLL => {
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

/// Calls `work` once on this thread and on up to `others` more. Returns when all calls have returned.
///
/// A thread that has not begun when the call on this thread returns never begins.
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
    // SAFETY: only the lifetime is erased. `Finish::drop` ends every order before this function returns, even by a
    // panic. So no other thread runs or calls `work` afterwards.
    let erased = unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work) };
    let mut finish = Finish(Vec::with_capacity(others));
    for _ in 0..others {
        let kept = idle().pop();
        let Some(spare) = kept.or_else(start) else { break };
        let order = Arc::new(Order { state: Mutex::new(State::Open(erased)), done: Condvar::new() });
        // Spare threads run until the process ends. If one is gone, its order is withdrawn.
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
    fn all_calls_end_before_it_returns() {
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
    fn a_panic_of_the_caller_waits_for_other_threads() {
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
