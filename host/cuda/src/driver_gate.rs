//! Keeps calls that make the driver wait apart from kernels that wait.
//!
//! Allocating, freeing, page-locking and loading may wait, within the driver, for kernels that run, and hold up copies
//! meanwhile. A kernel that waits for a copy of the software ConnectX would then wait until its deadline. So these calls
//! are made while none of the process's PEs has a kernel running, and kernels start while none of these calls is made.
//!
//! Both go in the order in which they came: a kernel that starts later than a call is asked for waits for the call, and
//! the call for kernels before it, so that nobody is passed again and again where many jobs come and go. But a job that
//! runs may start more kernels at any time: those that run may wait for them.
//!
//! Whether kernels run is asked of the queues that they were launched into. A queue is asked only after the launch has
//! returned: before that it may say that it is idle, and be forgotten while its kernel begins.

use rushmem_base::{lock, wait, wait_timeout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a call waits for kernels, which have deadlines. Then it is made all the same: kernels may follow each other
/// without a pause.
const PATIENCE: Duration = Duration::from_secs(10);

/// Queues are asked this often.
const PAUSE: Duration = Duration::from_micros(100);

/// The gate of this process.
pub static LAUNCH_GATE: LaunchGate = LaunchGate::new(PATIENCE);

/// A job of this process, whose kernels may wait for each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobId(u64);

impl JobId {
    /// Another one.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A queue of kernels.
pub trait IsBusy: Send + Sync {
    /// Whether a kernel in it runs, or waits to run.
    fn is_busy(&self) -> bool;
}

/// The driver gate of this process: it keeps calls that wait for all kernels away from running kernels.
pub struct LaunchGate {
    state: Mutex<State>,
    changed: Condvar,
    patience: Duration,
}

struct State {
    /// The jobs of launches that are being made.
    launching: Vec<JobId>,
    /// Calls that are being made.
    calls: usize,
    /// Those who wait, in the order in which they came.
    waiters: Vec<(Turn, Wants)>,
    /// Queues whose kernels may run.
    queues: Vec<(JobId, Arc<dyn IsBusy>)>,
}

/// Who came when, among those who wait.
type Turn = u64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    Launch,
    Call,
}

impl State {
    fn come(&mut self, wants: Wants) -> Turn {
        let turn = self.waiters.last().map_or(0, |(last, _)| last + 1);
        self.waiters.push((turn, wants));
        turn
    }

    fn leave(&mut self, turn: Turn) {
        self.waiters.retain(|(other, _)| *other != turn);
    }

    /// Whether one with this wish came before and still waits.
    fn earlier(&self, wants: Wants, turn: Turn) -> bool {
        self.waiters.iter().any(|(other, what)| *other < turn && *what == wants)
    }

    /// Whether the job may have kernels that wait for others of its own.
    fn runs(&self, job: JobId) -> bool {
        self.launching.contains(&job) || self.queues.iter().any(|(of, queue)| *of == job && queue.is_busy())
    }

    /// Whether no kernel runs, and none is being launched.
    fn idle(&mut self) -> bool {
        self.queues.retain(|(_, queue)| queue.is_busy());
        self.launching.is_empty() && self.queues.is_empty()
    }
}

impl LaunchGate {
    const fn new(patience: Duration) -> Self {
        let state = State { launching: Vec::new(), calls: 0, waiters: Vec::new(), queues: Vec::new() };
        Self { state: Mutex::new(state), changed: Condvar::new(), patience }
    }

    /// Lets a kernel of the job be launched.
    pub fn begin_launch(&self, job: JobId) -> LaunchGuard<'_> {
        let mut state = self.lock();
        let turn = state.come(Wants::Launch);
        while state.calls > 0 || state.earlier(Wants::Call, turn) && !state.runs(job) {
            state = wait(&self.changed, state);
        }
        state.leave(turn);
        state.launching.push(job);
        LaunchGuard { gate: self, job }
    }

    /// Waits until no kernel runs.
    pub fn begin_call(&self) -> CallGuard<'_> {
        let begin = Instant::now();
        let mut state = self.lock();
        let turn = state.come(Wants::Call);
        while state.earlier(Wants::Launch, turn) || !state.idle() {
            if begin.elapsed() >= self.patience {
                tracing::debug!("a call that may wait for kernels is made while {} run", state.queues.len());
                break;
            }
            state = wait_timeout(&self.changed, state, PAUSE);
        }
        state.leave(turn);
        state.calls += 1;
        CallGuard { gate: self }
    }

    /// Nothing more will be launched into this queue, and nothing in it runs.
    pub fn forget<Q: IsBusy + 'static>(&self, queue: &Arc<Q>) {
        let queue: Arc<dyn IsBusy> = Arc::clone(queue) as _;
        self.lock().queues.retain(|(_, known)| !Arc::ptr_eq(known, &queue));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn tell(&self, state: &State) {
        if !state.waiters.is_empty() {
            self.changed.notify_all();
        }
    }
}

/// A launch is being made, until this is dropped.
pub struct LaunchGuard<'a> {
    gate: &'a LaunchGate,
    job: JobId,
}

impl LaunchGuard<'_> {
    /// The launch has been made: from now on the queue tells whether its kernel runs.
    pub fn launched<Q: IsBusy + 'static>(self, queue: &Arc<Q>) {
        let queue: Arc<dyn IsBusy> = Arc::clone(queue) as _;
        let mut state = self.gate.lock();
        if !state.queues.iter().any(|(_, known)| Arc::ptr_eq(known, &queue)) {
            state.queues.push((self.job, queue));
        }
    }
}

impl Drop for LaunchGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        if let Some(made) = state.launching.iter().position(|job| *job == self.job) {
            state.launching.swap_remove(made);
        }
        // If its job runs now, others of the job may go.
        self.gate.tell(&state);
    }
}

/// A call that may make the driver wait is being made, until this is dropped. Calls may be made at the same time.
pub struct CallGuard<'a> {
    gate: &'a LaunchGate,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.calls -= 1;
        self.gate.tell(&state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// A queue that stays busy until the test ends it.
    struct Queue(AtomicBool);

    impl IsBusy for Queue {
        fn is_busy(&self) -> bool {
            self.0.load(Ordering::Acquire)
        }
    }

    fn queue(runs: bool) -> Arc<Queue> {
        Arc::new(Queue(AtomicBool::new(runs)))
    }

    impl Queue {
        fn set(&self, runs: bool) {
            self.0.store(runs, Ordering::Release);
        }
    }

    const MOMENT: Duration = Duration::from_millis(20);
    /// No test waits for so long unless something is stuck.
    const LONG: Duration = Duration::from_secs(60);

    /// Waits until so many wait at the gate.
    fn wait_for_line(gate: &LaunchGate, len: usize) {
        let begin = Instant::now();
        while gate.lock().waiters.len() != len {
            assert!(begin.elapsed() < LONG, "{} wait, not {len}", gate.lock().waiters.len());
            thread::yield_now();
        }
    }

    #[test]
    fn calls_and_kernels_exclude_each_other() {
        let gate = LaunchGate::new(LONG);
        let job = JobId::unique();
        let (one, other) = (queue(true), queue(true));
        let launch = gate.begin_launch(job);
        gate.begin_launch(job).launched(&other);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(gate.begin_call()));
            // A queue that is idle says nothing about the launch that is being made.
            other.set(false);
            thread::sleep(MOMENT);
            assert!(!waiting.is_finished());
            launch.launched(&one);
            thread::sleep(MOMENT);
            assert!(!waiting.is_finished());
            one.set(false);
        });
        assert!(gate.lock().queues.is_empty());

        let first = gate.begin_call();
        let second = gate.begin_call();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(gate.begin_launch(job)));
            drop(first);
            thread::sleep(MOMENT);
            assert!(!waiting.is_finished());
            drop(second);
        });
    }

    #[test]
    fn a_queue_is_known_once_and_forgotten() {
        let gate = LaunchGate::new(LONG);
        let (job, queue) = (JobId::unique(), queue(true));
        gate.begin_launch(job).launched(&queue);
        gate.begin_launch(job).launched(&queue);
        assert_eq!(gate.lock().queues.len(), 1);
        gate.forget(&queue);
        drop(gate.begin_call());
    }

    #[test]
    fn who_came_first_goes_first_but_for_jobs_that_run() {
        let gate = LaunchGate::new(LONG);
        let (mine, theirs) = (JobId::unique(), JobId::unique());
        let (one, other) = (queue(true), queue(true));
        gate.begin_launch(mine).launched(&one);
        thread::scope(|scope| {
            let first = scope.spawn(|| gate.begin_call());
            wait_for_line(&gate, 1);
            let launch = scope.spawn(|| gate.begin_launch(theirs).launched(&other));
            wait_for_line(&gate, 2);
            let second = scope.spawn(|| drop(gate.begin_call()));
            wait_for_line(&gate, 3);
            // What runs may wait for a kernel of its own job, and not for one of another.
            drop(gate.begin_launch(mine));
            thread::sleep(MOMENT);
            assert!(!first.is_finished() && !launch.is_finished() && !second.is_finished());

            one.set(false);
            let first = first.join().unwrap();
            thread::sleep(MOMENT);
            assert!(!launch.is_finished() && !second.is_finished());
            drop(first);
            launch.join().unwrap();
            thread::sleep(MOMENT);
            assert!(!second.is_finished());
            other.set(false);
        });
    }

    #[test]
    fn all_of_a_job_may_go_when_its_first_does() {
        let (gate, job) = (LaunchGate::new(LONG), JobId::unique());
        // Who wakes first is chance.
        for _ in 0..200 {
            let queue = queue(true);
            let before = gate.begin_call();
            thread::scope(|scope| {
                let first = scope.spawn(|| gate.begin_launch(job).launched(&queue));
                wait_for_line(&gate, 1);
                scope.spawn(|| drop(gate.begin_call()));
                wait_for_line(&gate, 2);
                let second = scope.spawn(|| drop(gate.begin_launch(job)));
                wait_for_line(&gate, 3);
                drop(before);
                first.join().unwrap();
                let begin = Instant::now();
                while !second.is_finished() && begin.elapsed() < LONG {
                    thread::yield_now();
                }
                let went = second.is_finished();
                queue.set(false);
                assert!(went, "a launch of a job that runs waits");
            });
        }
    }

    #[test]
    fn a_call_is_made_in_the_end() {
        let gate = LaunchGate::new(MOMENT);
        let queue = queue(true);
        gate.begin_launch(JobId::unique()).launched(&queue);
        let begin = Instant::now();
        drop(gate.begin_call());
        assert!(begin.elapsed() >= MOMENT);
    }

    /// Jobs of two PEs whose kernels end when both run, beside others that make calls all the time.
    #[test]
    fn jobs_and_calls_side_by_side_all_end() {
        const JOBS: usize = 6;
        const ROUNDS: usize = 100;
        let gate = LaunchGate::new(LONG);
        let calls = AtomicUsize::new(0);
        let begin = Instant::now();
        thread::scope(|scope| {
            for _ in 0..JOBS {
                let job = JobId::unique();
                let launched: Arc<[AtomicUsize; 2]> = Arc::default();
                for pe in 0..2 {
                    let (launched, gate, calls) = (Arc::clone(&launched), &gate, &calls);
                    scope.spawn(move || {
                        for round in 1..=ROUNDS {
                            let queue = queue(true);
                            let launch = gate.begin_launch(job);
                            launch.launched(&queue);
                            launched[pe].store(round, Ordering::Release);
                            while launched[1 - pe].load(Ordering::Acquire) < round {
                                assert!(
                                    begin.elapsed() < LONG,
                                    "a kernel waits for one that is not launched"
                                );
                                assert_eq!(calls.load(Ordering::Acquire), 0, "a call while a kernel runs");
                                thread::yield_now();
                            }
                            queue.set(false);
                        }
                    });
                }
                let (gate, calls) = (&gate, &calls);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let call = gate.begin_call();
                        calls.fetch_add(1, Ordering::AcqRel);
                        thread::yield_now();
                        calls.fetch_sub(1, Ordering::AcqRel);
                        drop(call);
                    }
                });
            }
        });
    }
}
