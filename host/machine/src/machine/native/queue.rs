//! A native stream: a dedicated thread runs its kernels in order.
#![allow(unsafe_code, reason = "a test makes a context without a PE")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

use rushmem_base::{lock, wait};
use rushmem_error::{Error, Result};
use rushmem_native::Options;
use rushmem_observe::sanitize::{Knowledge, PeWatch, Seen, StreamWatch};
use rushmem_observe::trace::StreamTrace;

use super::super::{Event, ExecGraph, KernelLaunch, KernelStream, Queued, other_machine};
use super::run;

/// The kernels of a graph. As on a GPU, launches of one graph never overlap.
pub struct NativeGraph(Mutex<Kernels>);

struct Kernels {
    steps: Vec<KernelLaunch>,
    /// Accesses that the sanitizer knows to have happened before the end of the graph's last launch.
    seen: Seen,
}

impl NativeGraph {
    pub(super) fn new(steps: Vec<KernelLaunch>) -> Self {
        Self(Mutex::new(Kernels { steps, seen: None }))
    }

    fn alone(&self) -> MutexGuard<'_, Kernels> {
        lock(&self.0)
    }
}

/// An event of a native stream.
#[derive(Default)]
pub struct Completion {
    passed: Mutex<bool>,
    changed: Condvar,
    /// Accesses that the sanitizer knows to have happened before the event.
    seen: OnceLock<Seen>,
}

impl Completion {
    /// Marks the event as passed. `seen` has the accesses that the sanitizer knows to have happened before it.
    fn set(&self, seen: Seen) {
        // An event is recorded once, so the cell is empty.
        let _ = self.seen.set(seen);
        *lock(&self.passed) = true;
        self.changed.notify_all();
    }

    fn seen(&self) -> Option<&Knowledge> {
        self.seen.get()?.as_ref()
    }

    /// Returns whether all work before the event has completed.
    pub(crate) fn has_passed(&self) -> bool {
        *lock(&self.passed)
    }

    /// Blocks until the event has passed. There is no deadline: kernels return, or the watchdog terminates the process.
    fn wait(&self) {
        let mut passed = lock(&self.passed);
        while !*passed {
            passed = wait(&self.changed, passed);
        }
    }
}

pub(super) struct NativeStream {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    host: PeWatch,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    watch: StreamWatch,
    trace: StreamTrace,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// Launch ID and error of the first kernel that failed. Later kernels are skipped until a caller takes it.
    failure: Option<(u64, Error)>,
    closed: bool,
    /// Whether the thread is executing an item, which is no longer in `items`.
    works: bool,
}

enum Item {
    /// Launch of a kernel, with the accesses that the sanitizer knows to have happened before it on the host.
    Kernel(Box<KernelLaunch>, Seen),
    /// Launch of a graph, with the accesses that the sanitizer knows to have happened before it on the host.
    Graph(Arc<NativeGraph>, Seen),
    Event(Arc<Completion>),
    WaitEvent(Arc<Completion>),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn push(&self, item: Item) {
        self.lock().items.push_back(item);
        self.changed.notify_all();
    }

    /// Blocks for the next item. Returns `None` once the stream is closed and empty.
    fn next(&self) -> Option<Item> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                // Set under the same lock as the removal, so `is_busy` never sees an idle stream in between.
                state.works = true;
                return Some(item);
            }
            if state.closed {
                return None;
            }
            self.watch.idles();
            state = wait(&self.changed, state);
        }
    }

    /// Executes the items of the stream in order.
    fn work(&self, options: &Options) {
        while let Some(item) = self.next() {
            match &item {
                Item::Kernel(step, seen) => {
                    self.watch.acquire(seen.as_ref());
                    self.run(step, options);
                }
                Item::Graph(graph, seen) => {
                    self.watch.acquire(seen.as_ref());
                    // Hold the graph's lock for the whole launch: a launch of the graph in another stream waits here.
                    let mut kernels = graph.alone();
                    self.watch.acquire(kernels.seen.as_ref());
                    kernels.steps.iter().for_each(|step| self.run(step, options));
                    kernels.seen = self.watch.release();
                }
                Item::Event(event) => event.set(self.watch.release()),
                // This cannot wait forever on its own stream: an event is recorded before it can be waited for.
                Item::WaitEvent(event) => {
                    event.wait();
                    self.watch.acquire(event.seen());
                }
            }
            self.lock().works = false;
        }
    }

    /// Runs a kernel, unless an earlier one failed.
    fn run(&self, step: &KernelLaunch, options: &Options) {
        if self.lock().failure.is_some() {
            return;
        }
        let watch = self.watch.launch(step.grid, &step.call);
        let trace = self.trace.launch(step.grid, &step.call);
        // A panic outside the lanes must not kill the thread, since then every later event would never pass.
        let outcome = catch_unwind(AssertUnwindSafe(|| run(step, options, watch, trace)));
        let outcome = outcome.unwrap_or_else(|_| Err(Error::Panic("while launching a kernel".into())));
        if let Err(error) = outcome {
            self.lock().failure = Some((step.ctx.mark, error));
        }
    }
}

impl NativeStream {
    pub(super) fn start(options: Options, host: PeWatch, trace: StreamTrace) -> Result<Self> {
        let watch = host.stream();
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), watch, trace });
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("rushmem-stream".into());
        let thread = thread.spawn(move || worker.work(&options)).map_err(Error::Thread)?;
        Ok(Self { shared, thread: Some(thread), host })
    }
}

impl KernelStream for NativeStream {
    fn launch(&self, step: KernelLaunch) -> Result<Queued> {
        self.shared.push(Item::Kernel(Box::new(step), self.host.release()));
        Ok(Queued::Runs)
    }

    fn launch_graph(&self, recording: &ExecGraph) -> Result<()> {
        let ExecGraph::Native(steps) = recording else { return Err(other_machine()) };
        self.shared.push(Item::Graph(Arc::clone(steps), self.host.release()));
        Ok(())
    }

    fn record_event(&self) -> Result<Event> {
        let event = Arc::new(Completion::default());
        self.shared.push(Item::Event(Arc::clone(&event)));
        Ok(Event::Native(event))
    }

    fn wait_event(&self, event: &Event) -> Result<()> {
        let Event::Native(event) = event else { return Err(other_machine()) };
        self.shared.push(Item::WaitEvent(Arc::clone(event)));
        Ok(())
    }

    fn wait(&self, event: &Event) -> Result<()> {
        let Event::Native(event) = event else { return Err(other_machine()) };
        self.shared.watch.is_awaited(|| event.wait());
        self.host.acquire(event.seen());
        Ok(())
    }

    fn is_busy(&self) -> bool {
        let state = self.shared.lock();
        state.works || !state.items.is_empty()
    }

    fn failed(&self) -> Option<u64> {
        self.shared.lock().failure.as_ref().map(|(launch, _)| *launch)
    }

    fn take_failure(&self) -> Option<Error> {
        self.shared.lock().failure.take().map(|(_, error)| error)
    }
}

impl Drop for NativeStream {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // `run` catches all panics of kernels, so the thread cannot have panicked.
            let _ = thread.join();
        }
        self.shared.watch.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use bytemuck::Zeroable;
    use rushmem_device::abi::CtxParts;
    use rushmem_device::kernel::Call;

    use super::*;
    use rushmem_native::LaunchConfig;
    use rushmem_observe::trace::PeTrace;

    const ONE: LaunchConfig = LaunchConfig::new(1, 1);

    fn queue() -> NativeStream {
        NativeStream::start(Options::default(), PeWatch::default(), PeTrace::default().stream()).unwrap()
    }

    fn push(queue: &NativeStream, kernel: impl Fn() + Send + Sync + 'static) {
        // SAFETY: there is no entry in PTX, and the kernel has no arguments.
        let call = unsafe { Call::new("test", move |_| kernel()) };
        queue.launch(KernelLaunch { ctx: CtxParts::zeroed(), grid: ONE, call, module: None }).unwrap();
    }

    #[test]
    fn kernels_of_a_stream_run_in_order() {
        let (queue, seen) = (queue(), Arc::new(Mutex::new(Vec::new())));
        for i in 0..100 {
            let seen = Arc::clone(&seen);
            push(&queue, move || seen.lock().unwrap().push(i));
        }
        let event = queue.record_event().unwrap();
        queue.wait(&event).unwrap();
        assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn streams_run_concurrently_and_wait_for_events() {
        let (first, second, word) = (queue(), queue(), Arc::new(AtomicU32::new(0)));
        let (a, b, c) = (Arc::clone(&word), Arc::clone(&word), Arc::clone(&word));
        push(&first, move || {
            while a.load(Ordering::Acquire) == 0 {
                rushmem_device::arch::spin();
            }
            a.store(2, Ordering::Release);
        });
        let before = first.record_event().unwrap();
        push(&second, move || b.store(1, Ordering::Release));
        second.wait_event(&before).unwrap();
        push(&second, move || {
            c.fetch_add(10, Ordering::AcqRel);
        });
        second.wait(&second.record_event().unwrap()).unwrap();
        assert_eq!(word.load(Ordering::Acquire), 12);
    }

    #[test]
    fn kernels_after_a_panic_do_not_run_until_the_failure_is_taken() {
        let (queue, ran) = (queue(), Arc::new(AtomicU32::new(0)));
        push(&queue, || panic!("on purpose"));
        let after = Arc::clone(&ran);
        push(&queue, move || {
            after.fetch_add(1, Ordering::AcqRel);
        });
        let event = queue.record_event().unwrap();
        queue.wait(&event).unwrap();
        assert_eq!(queue.failed(), Some(0));
        let error = queue.take_failure().unwrap();
        assert!(error.to_string().contains("on purpose"), "{error}");
        assert_eq!(ran.load(Ordering::Acquire), 0);
        let after = Arc::clone(&ran);
        push(&queue, move || {
            after.fetch_add(1, Ordering::AcqRel);
        });
        queue.wait(&queue.record_event().unwrap()).unwrap();
        assert_eq!(ran.load(Ordering::Acquire), 1);
    }
}
