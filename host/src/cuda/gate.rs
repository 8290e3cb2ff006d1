//! Keeps calls that make the driver wait apart from kernels that wait.
//!
//! Allocating, freeing, page-locking and loading may wait, within the driver, for kernels that run, and hold up copies
//! meanwhile. A kernel that waits for a copy of the software ConnectX would then wait until its deadline. So these calls
//! are made while none of the process's PEs has a kernel running; a kernel may start whenever none of these calls is made.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a call waits for kernels, which have deadlines. Then it is made all the same: kernels may follow each other
/// without a pause.
const PATIENCE: Duration = Duration::from_secs(10);

static GATE: Gate = Gate { state: Mutex::new(State { kernels: 0, calls: 0 }), changed: Condvar::new() };

struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    kernels: usize,
    calls: usize,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// A kernel runs, until this is dropped.
pub(crate) struct Kernel(());

/// Lets a kernel run.
pub(crate) fn kernel() -> Kernel {
    let mut state = GATE.lock();
    while state.calls > 0 {
        state = GATE.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    state.kernels += 1;
    Kernel(())
}

impl Drop for Kernel {
    fn drop(&mut self) {
        GATE.change(|state| state.kernels -= 1);
    }
}

/// A call that may make the driver wait is being made, until this is dropped. Calls may be made at the same time.
pub(super) struct Call(());

/// Waits until no kernel runs.
pub(super) fn call() -> Call {
    let begin = Instant::now();
    let mut state = GATE.lock();
    while state.kernels > 0 {
        let left = PATIENCE.saturating_sub(begin.elapsed());
        if left.is_zero() {
            tracing::debug!("a call that may wait for kernels is made while {} run", state.kernels);
            break;
        }
        state = GATE.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    state.calls += 1;
    Call(())
}

impl Drop for Call {
    fn drop(&mut self) {
        GATE.change(|state| state.calls -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_kernels_exclude_each_other() {
        let running = kernel();
        let also = kernel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let _call = call();
                GATE.lock().kernels
            });
            drop(running);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            drop(also);
            assert_eq!(waiting.join().unwrap(), 0);
        });
        let first = call();
        let second = call();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let _kernel = kernel();
                GATE.lock().calls
            });
            drop(first);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            drop(second);
            assert_eq!(waiting.join().unwrap(), 0);
        });
    }
}
