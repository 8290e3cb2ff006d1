//! The driver gate: keeps blocking driver calls away from running kernels.
//!
//! Some calls of the CUDA driver block until all running kernels have completed: allocating, freeing and page-locking
//! memory, loading modules, and sometimes creating or destroying streams. While such a call blocks, the driver also
//! delays other work of the process, including copies.
//!
//! This can deadlock. A kernel of one PE may wait for a kernel of another PE, or for data that the software ConnectX
//! copies. The blocking call waits for the first kernel and holds up the launch or copy that would release it. The
//! kernel then spins until its deadline and reports an error.
//!
//! The gate therefore ensures that:
//!
//! - a blocking call starts only while no PE of this process runs or launches a kernel
//! - a kernel is launched only while no blocking call is in progress
//!
//! **Callers.** `Device::exclusive` passes the gate for every blocking call of this crate. The GPU machine of the
//! runtime passes it for every launch, with [`DriverGate::begin_launch`].
//!
//! **Order.** Waiting launches and waiting calls are admitted in arrival order, so neither kind starves. There is one
//! exception: a job that already runs kernels may launch more at any time, ahead of waiting calls, because its running
//! kernels may wait for the new ones.
//!
//! **Services.** A service is a kernel of the runtime that runs while other kernels need it. It exits when idle or when
//! asked to. [`DriverGate::try_begin_service`] admits a service without ever waiting. Services do not count as running
//! kernels: a blocking call asks them to retire, but only once no other kernel runs.
//!
//! **Running kernels.** The gate polls the queues into which kernels were launched, but only after the launch has
//! returned. Before that, the queue may report that it is idle although its kernel is about to start.
//!
//! **Limit.** A blocking call waits at most ten seconds for kernels and then proceeds. Without the limit, kernels that
//! follow each other without a gap would delay it forever.

use rushmem_base::{lock, wait, wait_timeout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longest time that a blocking driver call waits for running kernels. It then proceeds anyway.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Interval at which a blocking driver call polls the kernel queues while it waits.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// The process's only driver gate, which all its blocking driver calls and kernel launches pass.
pub static DRIVER_GATE: DriverGate = DriverGate::new(MAX_WAIT);

/// Identifies a job within this process. Kernels of one job may wait for each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobId(u64);

impl JobId {
    /// Returns an ID that no other job of this process has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A queue of kernels that the gate can poll.
pub trait KernelQueue: Send + Sync {
    /// Returns whether a kernel of the queue is running or waiting to run.
    fn is_busy(&self) -> bool;
}

/// A kernel of the runtime that exits on request.
pub trait Service: KernelQueue {
    /// Asks the kernel to exit soon. Does not wait for it.
    fn retire(&self);
}

/// Admits blocking driver calls while no kernel is running, and kernel launches while no such call is in progress.
///
/// A process has one gate: [`DRIVER_GATE`].
pub struct DriverGate {
    state: Mutex<State>,
    changed: Condvar,
    max_wait: Duration,
}

struct State {
    /// Jobs with launches in progress, one entry per launch.
    launching: Vec<JobId>,
    /// Number of blocking calls in progress. Launches and services start only while this is 0.
    calls: usize,
    /// Threads that wait at the gate, in arrival order.
    waiters: Vec<Waiter>,
    /// Queues that may still run kernels, each with its job. Idle ones are removed lazily, in `poll_idle`.
    queues: Vec<(JobId, Arc<dyn KernelQueue>)>,
    /// Number of services whose launch is in progress.
    starting: usize,
    /// Services that may still be running.
    services: Vec<Arc<dyn Service>>,
}

struct Waiter {
    /// Position in the line of waiting threads. Strictly increasing along `State::waiters`.
    arrival: u64,
    kind: WaiterKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WaiterKind {
    Launch,
    Call,
}

impl State {
    /// Adds a waiter at the back of the line. Returns its arrival number.
    fn enqueue(&mut self, kind: WaiterKind) -> u64 {
        let arrival = self.waiters.last().map_or(0, |last| last.arrival + 1);
        self.waiters.push(Waiter { arrival, kind });
        arrival
    }

    fn dequeue(&mut self, arrival: u64) {
        self.waiters.retain(|waiter| waiter.arrival != arrival);
    }

    /// Returns whether a waiter of this kind arrived before the waiter with number `arrival`.
    fn has_earlier(&self, kind: WaiterKind, arrival: u64) -> bool {
        self.waiters.iter().any(|waiter| waiter.arrival < arrival && waiter.kind == kind)
    }

    /// Returns whether kernels of the job may be running, which may wait for further kernels of the job.
    fn is_running(&self, job: JobId) -> bool {
        self.launching.contains(&job)
            || self.queues.iter().any(|(owner, queue)| *owner == job && queue.is_busy())
    }

    /// Forgets queues that have become idle. Returns whether no kernel is running and no launch is in progress.
    fn poll_idle(&mut self) -> bool {
        self.queues.retain(|(_, queue)| queue.is_busy());
        self.launching.is_empty() && self.queues.is_empty()
    }

    /// Asks all running services to exit. Returns whether none is running or starting.
    fn retire_services(&mut self) -> bool {
        self.services.retain(|service| service.is_busy());
        self.services.iter().for_each(|service| service.retire());
        self.starting == 0 && self.services.is_empty()
    }
}

impl DriverGate {
    const fn new(max_wait: Duration) -> Self {
        let state = State {
            launching: Vec::new(),
            calls: 0,
            waiters: Vec::new(),
            queues: Vec::new(),
            starting: 0,
            services: Vec::new(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), max_wait }
    }

    /// Blocks until the job may launch a kernel. No blocking call starts while the guard exists.
    ///
    /// After a successful launch, call [`LaunchGuard::watch`] to tell the gate about the running kernel. If the launch
    /// failed or was captured, just drop the guard.
    pub fn begin_launch(&self, job: JobId) -> LaunchGuard<'_> {
        let mut state = self.lock();
        let arrival = state.enqueue(WaiterKind::Launch);
        // An earlier call goes first, unless this job already runs kernels: they may wait for this launch, and the call
        // waits for them. No polling is needed here, since every event that can unblock a launch notifies.
        while state.calls > 0 || state.has_earlier(WaiterKind::Call, arrival) && !state.is_running(job) {
            state = wait(&self.changed, state);
        }
        state.dequeue(arrival);
        state.launching.push(job);
        LaunchGuard { gate: self, job }
    }

    /// Starts the launch of a service. Returns `None` if no running kernel can need it, or if a blocking call is in
    /// progress. Never blocks: callers are in the middle of an access that running kernels may wait for.
    ///
    /// After a successful launch, call [`ServiceGuard::watch`] to tell the gate about the service.
    pub fn try_begin_service(&self) -> Option<ServiceGuard<'_>> {
        let mut state = self.lock();
        // A service must not start merely because a blocking call waits for kernels: those kernels may need it to
        // complete.
        if state.calls > 0 || state.poll_idle() {
            return None;
        }
        state.starting += 1;
        Some(ServiceGuard { gate: self })
    }

    /// Blocks until no kernel is running, for at most ten seconds. No launch starts while the guard exists.
    ///
    /// Any number of blocking calls may be in progress at the same time.
    pub fn begin_blocking_call(&self) -> BlockingCallGuard<'_> {
        let begin = Instant::now();
        let mut state = self.lock();
        let arrival = state.enqueue(WaiterKind::Call);
        // The order of the conditions matters: services retire only once all kernels are idle, since a running kernel
        // may wait for a service.
        while state.has_earlier(WaiterKind::Launch, arrival) || !state.poll_idle() || !state.retire_services()
        {
            if begin.elapsed() >= self.max_wait {
                let busy = state.queues.len();
                tracing::debug!("a blocking driver call proceeds although {busy} streams still run kernels");
                break;
            }
            state = wait_timeout(&self.changed, state, POLL_INTERVAL);
        }
        state.dequeue(arrival);
        state.calls += 1;
        BlockingCallGuard { gate: self }
    }

    /// Stops polling a queue. The caller guarantees that nothing is running in it, and launches nothing more into it.
    pub fn forget<Q: KernelQueue + 'static>(&self, queue: &Arc<Q>) {
        let queue: Arc<dyn KernelQueue> = Arc::clone(queue) as _;
        self.lock().queues.retain(|(_, known)| !Arc::ptr_eq(known, &queue));
    }

    /// Stops asking a service to exit. The caller guarantees that it is not running, and does not launch it again.
    pub fn forget_service<S: Service + 'static>(&self, service: &Arc<S>) {
        let service: Arc<dyn Service> = Arc::clone(service) as _;
        self.lock().services.retain(|known| !Arc::ptr_eq(known, &service));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wake_waiters(&self, state: &State) {
        if !state.waiters.is_empty() {
            self.changed.notify_all();
        }
    }
}

/// Guard of a kernel launch. No blocking driver call starts while it exists.
pub struct LaunchGuard<'a> {
    gate: &'a DriverGate,
    job: JobId,
}

impl LaunchGuard<'_> {
    /// Registers `queue`, which the gate polls to find out whether the launched kernel is running. Call this after the
    /// launch has returned.
    pub fn watch<Q: KernelQueue + 'static>(self, queue: &Arc<Q>) {
        let queue: Arc<dyn KernelQueue> = Arc::clone(queue) as _;
        let mut state = self.gate.lock();
        if !state.queues.iter().any(|(_, known)| Arc::ptr_eq(known, &queue)) {
            // `self` is dropped after this, and with it the launch: the gate never takes the job for idle in between.
            state.queues.push((self.job, queue));
        }
    }
}

impl Drop for LaunchGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        if let Some(ended) = state.launching.iter().position(|job| *job == self.job) {
            state.launching.swap_remove(ended);
        }
        // The job may be running now, which allows its other launches to pass the waiting calls.
        self.gate.wake_waiters(&state);
    }
}

/// Guard of a launch of a service. No blocking driver call starts while it exists.
pub struct ServiceGuard<'a> {
    gate: &'a DriverGate,
}

impl ServiceGuard<'_> {
    /// Registers `service`, which blocking calls ask to exit. Call this after the launch has returned.
    pub fn watch<S: Service + 'static>(self, service: &Arc<S>) {
        let service: Arc<dyn Service> = Arc::clone(service) as _;
        let mut state = self.gate.lock();
        if !state.services.iter().any(|known| Arc::ptr_eq(known, &service)) {
            state.services.push(service);
        }
    }
}

impl Drop for ServiceGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.starting -= 1;
        self.gate.wake_waiters(&state);
    }
}

/// Guard of a blocking driver call. No kernel is launched while it exists.
pub struct BlockingCallGuard<'a> {
    gate: &'a DriverGate,
}

impl Drop for BlockingCallGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.calls -= 1;
        self.gate.wake_waiters(&state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// A queue that is busy until the test changes that.
    struct Queue(AtomicBool);

    impl KernelQueue for Queue {
        fn is_busy(&self) -> bool {
            self.0.load(Ordering::Acquire)
        }
    }

    fn queue(busy: bool) -> Arc<Queue> {
        Arc::new(Queue(AtomicBool::new(busy)))
    }

    impl Queue {
        fn set_busy(&self, busy: bool) {
            self.0.store(busy, Ordering::Release);
        }
    }

    /// Long enough for a thread to pass the gate if nothing holds it up.
    const SHORT_WAIT: Duration = Duration::from_millis(20);

    /// Time after which a test counts as stuck.
    const STUCK_AFTER: Duration = Duration::from_secs(60);

    /// Waits until `count` threads wait at the gate.
    fn await_waiters(gate: &DriverGate, count: usize) {
        let begin = Instant::now();
        while gate.lock().waiters.len() != count {
            assert!(begin.elapsed() < STUCK_AFTER, "{} threads wait, not {count}", gate.lock().waiters.len());
            thread::yield_now();
        }
    }

    #[test]
    fn blocking_calls_and_kernels_exclude_each_other() {
        let gate = DriverGate::new(STUCK_AFTER);
        let job = JobId::unique();
        let (one, other) = (queue(true), queue(true));
        let launch = gate.begin_launch(job);
        gate.begin_launch(job).watch(&other);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(gate.begin_blocking_call()));
            // The other launch is still in progress, so the idle queue does not open the gate.
            other.set_busy(false);
            thread::sleep(SHORT_WAIT);
            assert!(!waiting.is_finished());
            launch.watch(&one);
            thread::sleep(SHORT_WAIT);
            assert!(!waiting.is_finished());
            one.set_busy(false);
        });
        assert!(gate.lock().queues.is_empty());

        let first = gate.begin_blocking_call();
        let second = gate.begin_blocking_call();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(gate.begin_launch(job)));
            drop(first);
            thread::sleep(SHORT_WAIT);
            assert!(!waiting.is_finished());
            drop(second);
        });
    }

    #[test]
    fn watches_a_queue_once_and_forgets_it() {
        let gate = DriverGate::new(STUCK_AFTER);
        let (job, queue) = (JobId::unique(), queue(true));
        gate.begin_launch(job).watch(&queue);
        gate.begin_launch(job).watch(&queue);
        assert_eq!(gate.lock().queues.len(), 1);
        gate.forget(&queue);
        drop(gate.begin_blocking_call());
    }

    #[test]
    fn admits_in_arrival_order_except_for_running_jobs() {
        let gate = DriverGate::new(STUCK_AFTER);
        let (mine, theirs) = (JobId::unique(), JobId::unique());
        let (one, other) = (queue(true), queue(true));
        gate.begin_launch(mine).watch(&one);
        thread::scope(|scope| {
            let first = scope.spawn(|| gate.begin_blocking_call());
            await_waiters(&gate, 1);
            let launch = scope.spawn(|| gate.begin_launch(theirs).watch(&other));
            await_waiters(&gate, 2);
            let second = scope.spawn(|| drop(gate.begin_blocking_call()));
            await_waiters(&gate, 3);
            // A running kernel may wait for a kernel of the same job, but not of another.
            drop(gate.begin_launch(mine));
            thread::sleep(SHORT_WAIT);
            assert!(!first.is_finished() && !launch.is_finished() && !second.is_finished());

            one.set_busy(false);
            let first = first.join().unwrap();
            thread::sleep(SHORT_WAIT);
            assert!(!launch.is_finished() && !second.is_finished());
            drop(first);
            launch.join().unwrap();
            thread::sleep(SHORT_WAIT);
            assert!(!second.is_finished());
            other.set_busy(false);
        });
    }

    #[test]
    fn admits_all_launches_of_a_job_after_its_first() {
        let (gate, job) = (DriverGate::new(STUCK_AFTER), JobId::unique());
        // The order in which threads wake up varies, so the test runs many times.
        for _ in 0..200 {
            let queue = queue(true);
            let before = gate.begin_blocking_call();
            thread::scope(|scope| {
                let first = scope.spawn(|| gate.begin_launch(job).watch(&queue));
                await_waiters(&gate, 1);
                scope.spawn(|| drop(gate.begin_blocking_call()));
                await_waiters(&gate, 2);
                let second = scope.spawn(|| drop(gate.begin_launch(job)));
                await_waiters(&gate, 3);
                drop(before);
                first.join().unwrap();
                let begin = Instant::now();
                while !second.is_finished() && begin.elapsed() < STUCK_AFTER {
                    thread::yield_now();
                }
                let admitted = second.is_finished();
                queue.set_busy(false);
                assert!(admitted, "a launch of a running job still waits");
            });
        }
    }

    impl Service for Queue {
        fn retire(&self) {
            self.set_busy(false);
        }
    }

    #[test]
    fn blocking_call_retires_services_once_no_kernel_needs_them() {
        let gate = DriverGate::new(STUCK_AFTER);
        let (kernel, service) = (queue(true), queue(true));
        gate.begin_launch(JobId::unique()).watch(&kernel);
        gate.try_begin_service().unwrap().watch(&service);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.begin_blocking_call());
            await_waiters(&gate, 1);
            thread::sleep(SHORT_WAIT);
            // The kernel may wait for the service, so the service keeps running and another one may start.
            assert!(service.is_busy() && gate.try_begin_service().is_some());
            let launching = gate.try_begin_service().unwrap();
            kernel.set_busy(false);
            while service.is_busy() {
                thread::yield_now();
            }
            assert!(gate.try_begin_service().is_none());
            thread::sleep(SHORT_WAIT);
            assert!(!waiting.is_finished());
            drop(launching);
            let call = waiting.join().unwrap();
            assert!(gate.try_begin_service().is_none());
            drop(call);
        });
        assert!(gate.try_begin_service().is_none(), "no kernel needs a service now");
        gate.begin_launch(JobId::unique()).watch(&queue(true));
        let again = gate.try_begin_service().unwrap();
        again.watch(&service);
        gate.forget_service(&service);
        assert!(gate.lock().services.is_empty());
    }

    #[test]
    fn blocking_call_proceeds_after_the_time_limit() {
        let gate = DriverGate::new(SHORT_WAIT);
        let queue = queue(true);
        gate.begin_launch(JobId::unique()).watch(&queue);
        let begin = Instant::now();
        drop(gate.begin_blocking_call());
        assert!(begin.elapsed() >= SHORT_WAIT);
    }

    /// Runs several jobs of two PEs next to threads that make blocking calls. Each kernel waits for the kernel of the
    /// other PE.
    #[test]
    fn concurrent_jobs_and_blocking_calls_make_progress() {
        const JOBS: usize = 6;
        const ROUNDS: usize = 100;
        let gate = DriverGate::new(STUCK_AFTER);
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
                            launch.watch(&queue);
                            launched[pe].store(round, Ordering::Release);
                            while launched[1 - pe].load(Ordering::Acquire) < round {
                                assert!(
                                    begin.elapsed() < STUCK_AFTER,
                                    "a kernel waits for one that is not launched"
                                );
                                assert_eq!(
                                    calls.load(Ordering::Acquire),
                                    0,
                                    "a blocking call ran beside a kernel"
                                );
                                thread::yield_now();
                            }
                            queue.set_busy(false);
                        }
                    });
                }
                let (gate, calls) = (&gate, &calls);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let call = gate.begin_blocking_call();
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
