//! Keeps calls that make the driver wait apart from kernels that wait.
//!
//! Allocating, freeing, page-locking and loading may wait, within the driver, for kernels that run, and hold up copies
//! meanwhile. A kernel that waits for a copy of the software ConnectX would then wait until its deadline. So these calls
//! are made while none of the process's PEs has a kernel running; a kernel may start whenever none of these calls is made.
//! Where one is to be made, kernels start only in jobs that run some, which may be waited for: of several jobs at once,
//! one or another would always run.
//!
//! Whether kernels run is asked of the queues that they were launched into. A queue is asked only after the launch has
//! returned: before that it may say that it is idle, and be forgotten while its kernel begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a call waits for kernels, which have deadlines. Then it is made all the same: kernels may follow each other
/// without a pause.
const PATIENCE: Duration = Duration::from_secs(10);

/// Queues are asked this often.
const PAUSE: Duration = Duration::from_micros(100);

static GATE: Gate = Gate {
    state: Mutex::new(State { launching: Vec::new(), calls: 0, waiting: 0, queues: Vec::new() }),
    changed: Condvar::new(),
};

/// A job of this process, whose kernels may wait for each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job(u64);

impl Job {
    /// Another one.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A queue of kernels.
pub(crate) trait Runs: Send + Sync {
    /// Whether a kernel in it runs, or waits to run.
    fn runs(&self) -> bool;
}

struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The jobs of launches that are being made.
    launching: Vec<Job>,
    /// Calls that are being made.
    calls: usize,
    /// Calls that are to be made.
    waiting: usize,
    /// Queues whose kernels may run.
    queues: Vec<(Job, Arc<dyn Runs>)>,
}

impl State {
    /// Whether the job may have kernels that wait for others of its own.
    fn runs(&self, job: Job) -> bool {
        self.launching.contains(&job) || self.queues.iter().any(|(of, queue)| *of == job && queue.runs())
    }
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

/// A launch is being made, until this is dropped.
pub(crate) struct Launching(Job);

/// Lets a kernel of the job be launched.
pub(crate) fn launching(job: Job) -> Launching {
    let mut state = GATE.lock();
    while state.calls > 0 || state.waiting > 0 && !state.runs(job) {
        state = GATE.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    state.launching.push(job);
    Launching(job)
}

impl Launching {
    /// The launch has been made: from now on the queue tells whether its kernel runs.
    pub(crate) fn launched<Q: Runs + 'static>(self, queue: &Arc<Q>) {
        let queue: Arc<dyn Runs> = Arc::clone(queue) as _;
        let mut state = GATE.lock();
        if !state.queues.iter().any(|(_, known)| Arc::ptr_eq(known, &queue)) {
            state.queues.push((self.0, queue));
        }
    }
}

impl Drop for Launching {
    fn drop(&mut self) {
        GATE.change(|state| {
            if let Some(made) = state.launching.iter().position(|job| *job == self.0) {
                state.launching.swap_remove(made);
            }
        });
    }
}

/// Nothing more will be launched into this queue, and nothing in it runs.
pub(crate) fn forget<Q: Runs + 'static>(queue: &Arc<Q>) {
    let queue: Arc<dyn Runs> = Arc::clone(queue) as _;
    GATE.change(|state| state.queues.retain(|(_, known)| !Arc::ptr_eq(known, &queue)));
}

/// A call that may make the driver wait is being made, until this is dropped. Calls may be made at the same time.
pub(super) struct Call(());

/// Waits until no kernel runs.
pub(super) fn call() -> Call {
    let begin = Instant::now();
    let mut state = GATE.lock();
    state.waiting += 1;
    loop {
        state.queues.retain(|(_, queue)| queue.runs());
        if state.launching.is_empty() && state.queues.is_empty() {
            break;
        }
        if begin.elapsed() >= PATIENCE {
            tracing::debug!("a call that may wait for kernels is made while {} run", state.queues.len());
            break;
        }
        state = GATE.changed.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
    }
    state.waiting -= 1;
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Queue(AtomicBool);

    impl Runs for Queue {
        fn runs(&self) -> bool {
            self.0.load(Ordering::Acquire)
        }
    }

    fn queue(runs: bool) -> Arc<Queue> {
        Arc::new(Queue(AtomicBool::new(runs)))
    }

    /// One test, since the gate is the process's.
    #[test]
    fn calls_and_kernels_exclude_each_other() {
        let (mine, theirs) = (Job::new(), Job::new());
        let (one, other) = (queue(false), queue(true));
        let launch = launching(mine);
        launching(mine).launched(&other);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(call()));
            // A queue that is idle says nothing about the launch that is being made.
            other.0.store(false, Ordering::Release);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            one.0.store(true, Ordering::Release);
            launch.launched(&one);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            // What runs may wait for a kernel of its own job, and not for one of another.
            drop(launching(mine));
            let held = scope.spawn(|| drop(launching(theirs)));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!held.is_finished());
            one.0.store(false, Ordering::Release);
            waiting.join().unwrap();
            held.join().unwrap();
        });
        assert!(GATE.lock().queues.is_empty());

        launching(mine).launched(&one);
        launching(mine).launched(&one);
        assert_eq!(GATE.lock().queues.len(), 1);
        forget(&one);
        assert!(GATE.lock().queues.is_empty());

        let first = call();
        let second = call();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(launching(mine)));
            drop(first);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            drop(second);
            waiting.join().unwrap();
        });
    }
}
