//! Streams run operations and kernels of a PE in order, concurrently with other streams.
//!
//! A stream is not ordered with other streams, with the host's own operations or with [`Pe::launch`], except through an
//! event or a signal.
//!
//! | to order | use |
//! |---|---|
//! | a put before a later put to the same PE | [`fence`](crate::Operations::fence) |
//! | delivery of all earlier operations of the PE, on any stream | [`quiet`](crate::Operations::quiet), [`barrier_all`](crate::Operations::barrier_all) |
//! | a stream after another stream of the PE | [`Stream::record`], [`Stream::follow`] |
//! | a stream after another PE | signals, [`barrier_all`](crate::Operations::barrier_all) |
//!
//! A kernel's puts are not delivered just because it has finished. A `quiet` after the kernel delivers them, since both
//! use the same context.

#![allow(unsafe_code, reason = "`Pe::stream_from_raw` relies on a stream of the caller")]

mod graph;

use std::ffi::c_void;
use std::panic::Location;
use std::sync::Arc;

use rushmem_device::abi::CtxParts;
use rushmem_device::kernel::Call;
use rushmem_device::{Cmp, Context, Scalar, Signal, Sym};
use rushmem_error::call_site::{self, CallSite};
use rushmem_machine::{Event as MachineEvent, KernelStream, LaunchConfig, LaunchSite, Launched};
use rushmem_runtime_kernels::code::Transfer;

pub use graph::Graph;
use graph::GraphRecorder;

use crate::launch_queue::{Dropped, LaunchQueue, Operation, QueueOwner as _};
use crate::{Error, Pe, Result};

/// A queue of operations and kernels of a PE, which run one after the other. [`Pe::stream`] creates it.
///
/// The operations are methods of [`Operations`](crate::Operations). Any thread may use a stream. Operations queued
/// concurrently by several threads run in any order.
///
/// If a stream is dropped, the next call of the PE waits for everything in it, as for a dropped
/// [`Launch`](crate::Launch).
///
/// ```no_run
/// # fn main() -> Result<(), rushmem::Error> {
/// # rushmem::Job::new()?.run(|pe| {
/// use rushmem::Operations;
///
/// let (dst, src) = (pe.alloc::<f32>(1024)?, pe.alloc::<f32>(1024)?);
/// let stream = pe.stream()?;
/// stream.put_nbi(dst, src, 0)?;
/// stream.quiet()?;
/// stream.wait()
/// # })?;
/// # Ok(())
/// # }
/// ```
pub struct Stream<'a> {
    pe: &'a Pe,
    sink: Sink,
    /// Context used by the stream's operations. `None` for the PE's default context.
    context: Option<Context>,
}

/// The destination of the operations submitted to a stream.
enum Sink {
    /// The stream's launch queue, which runs them.
    Queue(Arc<LaunchQueue>),
    /// A graph that is being captured, which records them.
    Graph(GraphRecorder),
}

/// A point in a stream: an event that occurs after everything queued before it. [`Stream::record`] creates it.
#[derive(Clone)]
pub struct Event {
    event: MachineEvent,
    /// Number of the last use of the per-block queues that the event comes after.
    per_block_use: u64,
}

/// # Streams
///
/// Methods that create streams: ordered queues of launches and operations.
impl Pe {
    /// Creates a stream of this PE. Not collective.
    ///
    /// On a GPU, this is a CUDA stream that does not synchronize with the default stream. Natively, it is a thread that
    /// launches one kernel after the other.
    ///
    /// On a GPU, a PE keeps two dozen streams in reserve, to which dropped streams return. When the reserve is empty,
    /// more streams are created while no kernel of this process runs, because the driver may wait for kernels when it
    /// creates a stream. The call waits for such a moment for at most 10 seconds. So create the streams you need before
    /// running kernels that wait for this PE.
    ///
    /// A GPU works on 32 streams of a process at a time. Work in a 33rd stream may not start before another stream is
    /// idle. Kernels that wait for each other must therefore use at most 32 streams, counting all PEs of the process on
    /// that GPU. A stream holds about 1000 unfinished operations and kernels; a call that queues more waits.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if there already are 511 streams and graphs.
    /// - [`Error::Cuda`] or [`Error::Native`] if the machine cannot create a stream.
    #[track_caller]
    pub fn stream(&self) -> Result<Stream<'_>> {
        let _site = call_site::enter();
        self.stream_on(self.machine_ref().queue()?)
    }

    /// Returns the application's CUDA stream as a stream of this PE.
    ///
    /// Operations are queued after the stream's other work. The stream must belong to the PE's GPU and its primary
    /// context. It should be non-blocking: a stream that synchronizes with the default stream may deadlock with a
    /// waiting kernel. Make this call while no kernel is running that waits for this process, because the driver may
    /// wait for that kernel.
    ///
    /// # Capture
    ///
    /// While the application captures the stream into a CUDA graph, launches and operations become part of that graph
    /// and do not run. Each launch of the graph runs them. This method may be called before or during the capture.
    ///
    /// - Capture in thread-local or relaxed mode, since other threads of the runtime call the driver.
    /// - Before the capture, wait for the PE's earlier launches in the stream.
    /// - During the capture, [`Stream::wait`], [`Stream::record`], [`Graph::launch`] and kernels with per-block queues
    ///   are refused.
    /// - Keep the [`Stream`], and call [`Stream::wait`] after launching the graph on it. That reports failed kernels.
    /// - Wait for the graph before any call that allocates or registers memory.
    /// - Buffers registered before the capture stay registered until [`release_captured`](Self::release_captured) or
    ///   until the PE shuts down. Do not launch the graph after that.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if kernels run natively, or if there already are 511 streams and graphs.
    /// - [`Error::Cuda`] if the stream belongs to another GPU.
    #[track_caller]
    pub fn stream_from(&self, stream: &Arc<cudarc::driver::CudaStream>) -> Result<Stream<'_>> {
        let _site = call_site::enter();
        self.stream_on(self.machine_ref().queue_of(stream)?)
    }

    /// Returns the application's CUDA stream as a stream of this PE, given its `CUstream`. Null is the default stream.
    ///
    /// For libraries that use another version of cudarc, or none. Otherwise like [`stream_from`](Self::stream_from).
    ///
    /// ```no_run
    /// # fn app(pe: &rushmem::Pe, cu_stream: *mut std::ffi::c_void) -> rushmem::Result<()> {
    /// // SAFETY: the library destroys its stream after the job.
    /// let stream = unsafe { pe.stream_from_raw(cu_stream) }?;
    /// stream.wait()
    /// # }
    /// ```
    ///
    /// # Errors
    /// - The errors of [`stream_from`](Self::stream_from).
    ///
    /// # Safety
    /// `stream` must be null, or a stream that exists until the PE shuts down. It may be destroyed earlier, once the
    /// returned stream has been waited for and dropped.
    #[track_caller]
    pub unsafe fn stream_from_raw(&self, stream: *mut c_void) -> Result<Stream<'_>> {
        let _site = call_site::enter();
        // SAFETY: promised by the caller.
        self.stream_on(unsafe { self.machine_ref().queue_of_raw(stream) }?)
    }

    /// Releases what captured kernels need, after the application has destroyed its CUDA graphs.
    ///
    /// CUDA does not report when a graph is destroyed, so the PE keeps what captured kernels need. Until this call,
    /// [`Pe::unregister`] and [`Pe::unregister_symmetric`] refuse buffers that were registered before the capture, and
    /// [`Pe::reset_queues`] is refused.
    ///
    /// ```no_run
    /// # fn app(pe: &rushmem::Pe, graph: rushmem::cudarc::driver::CudaGraph) {
    /// drop(graph);
    /// // SAFETY: the only graph with kernels of the PE is gone, and its launches have been waited for.
    /// unsafe { pe.release_captured() };
    /// # }
    /// ```
    ///
    /// # Safety
    /// Graphs with such kernels must not be launched any more, and all their launches must have finished.
    pub unsafe fn release_captured(&self) {
        if self.launch_queues().captured.clear() {
            self.ended();
        }
    }

    fn stream_on(&self, queue: Box<dyn KernelStream>) -> Result<Stream<'_>> {
        self.wait_for_dropped();
        let entry = self.launch_queues().table.take(std::time::Duration::ZERO)?;
        Ok(Stream {
            pe: self,
            sink: Sink::Queue(Arc::new(LaunchQueue::of_stream(queue, entry))),
            context: None,
        })
    }
}

impl Stream<'_> {
    /// Returns the PE that the stream belongs to.
    pub fn pe(&self) -> &Pe {
        self.pe
    }

    /// Switches the stream's operations to `context`. Not collective.
    ///
    /// [`quiet`](crate::Operations::quiet), [`fence`](crate::Operations::fence) and the barriers of the stream then
    /// cover this context only. Kernels in the stream still use the PE's default context, unless they take another one.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), rushmem::Error> {
    /// # rushmem::Job::new()?.run(|pe| {
    /// use rushmem::Operations;
    ///
    /// let (dst, src) = (pe.alloc::<f32>(1024)?, pe.alloc::<f32>(1024)?);
    /// let halo = pe.context()?;
    /// let stream = pe.stream()?.with_context(halo)?;
    /// stream.put_nbi(dst, src, 0)?;
    /// stream.quiet()?;
    /// stream.wait()
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the context has been destroyed. Operations queued after it is destroyed fail with the
    ///   same error.
    #[track_caller]
    pub fn with_context(mut self, context: Context) -> Result<Self> {
        let _site = call_site::enter();
        self.pe.contexts.set("Stream::with_context", context)?;
        self.context = Some(context);
        Ok(self)
    }

    /// Queues a kernel. As with [`Pe::launch`], other PEs do not have to launch anything. [`Stream::wait`] reports its
    /// errors.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the handle of an argument is invalid.
    /// - [`Error::Unavailable`] if a block has more threads than the kernel's `max_threads`.
    /// - [`Error::Cuda`] or [`Error::Native`] if the machine cannot launch it.
    #[track_caller]
    pub fn launch(&self, grid: LaunchConfig, call: Call) -> Result<()> {
        let _site = call_site::enter();
        let _span = self.pe.trace.call("launch");
        self.queue(Operation { name: call.name(), grid, call }, None, Some(Location::caller()))
    }

    /// Waits until everything in the stream has finished. CUDA's `cudaStreamSynchronize`.
    ///
    /// If the stream is dropped instead, [`Job::run`](crate::Job::run) returns the error that this call would return.
    ///
    /// # Errors
    /// - [`Error::Operation`] with the name and the error of the first operation or kernel that failed. Later work in
    ///   the stream has done nothing. Work queued after this call runs again.
    /// - [`Error::PeerLost`] if a PE is lost.
    /// - [`Error::Misuse`] on a stream that is being captured.
    #[track_caller]
    pub fn wait(&self) -> Result<()> {
        let _site = call_site::enter();
        self.pe.watch.announce_wait("wait");
        let _span = self.pe.trace.call("wait");
        self.launch_queue("Stream::wait")?.wait(self.pe)
    }

    /// Returns an event after everything queued in the stream so far. CUDA's `cudaEventRecord`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] on a stream that is being captured.
    /// - [`Error::Cuda`] if the driver refuses.
    #[track_caller]
    pub fn record(&self) -> Result<Event> {
        let _site = call_site::enter();
        let queue = self.launch_queue("Stream::record")?;
        // In this order: if another thread launches in between, the event is later than this number says, which is
        // safe.
        let per_block_use = queue.per_block_use();
        Ok(Event { event: queue.mark()?, per_block_use })
    }

    /// Orders later work in this stream after `event`, which may come from any stream of the process. CUDA's
    /// `cudaStreamWaitEvent`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] on a stream that is being captured.
    /// - [`Error::Cuda`] if the driver refuses.
    #[track_caller]
    pub fn follow(&self, event: &Event) -> Result<()> {
        let _site = call_site::enter();
        self.launch_queue("Stream::follow")?.follow(&event.event, event.per_block_use)
    }

    /// Reads `src` on `pe` into `result` on this PE. NVSHMEM's `nvshmemx_g_on_stream`.
    ///
    /// The result is available to later operations in the stream, and to the host after [`Stream::wait`].
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn g<T: Scalar>(&self, result: Sym<T>, src: Sym<T>, pe: u32) -> Result<()> {
        let _site = call_site::enter();
        self.enqueue(self.pe.op_transfer("g", Transfer::Get, src.as_slice(), result.as_slice(), pe)?)
    }

    /// Waits in the stream until a signal on this PE meets the condition that `cmp` and `value` express. Other streams
    /// keep running.
    ///
    /// Later work in the stream sees the data delivered before the signal, such as that of a `put_signal`. NVSHMEM's
    /// `nvshmemx_signal_wait_until_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    /// - `WaitTimeout`, from [`Stream::wait`], if the deadline (setting `timeout`) expires.
    #[track_caller]
    pub fn signal_wait_until(&self, signal: Sym<Signal>, cmp: Cmp, value: u64) -> Result<()> {
        let _site = call_site::enter();
        self.enqueue(self.pe.op_wait("signal_wait_until", None, signal, cmp, value)?)
    }

    /// Returns the stream's launch queue. Fails if the stream is being captured.
    fn launch_queue(&self, call: &'static str) -> Result<&LaunchQueue> {
        self.pe.wait_for_dropped();
        match &self.sink {
            Sink::Queue(queue) => Ok(queue),
            Sink::Graph(_) => {
                let what = "the stream is being captured: call it after the capture";
                Err(Error::misuse(call, what))
            }
        }
    }

    /// Queues an operation of the runtime, in the stream's context.
    #[track_caller]
    pub(crate) fn enqueue(&self, operation: Operation) -> Result<()> {
        let Operation { name, grid, call } = operation;
        let operation = Operation { name, grid, call: call.of_operation(name, Location::caller()) };
        let set = self.context.map(|context| self.pe.contexts.set(operation.name, context));
        self.queue(operation, set.transpose()?, None)
    }

    /// Queues a kernel, launched at `site`. If `set` is given, the kernel's default context uses the QP sets from `set`
    /// on, one per rail.
    fn queue(&self, operation: Operation, set: Option<u32>, site: Option<LaunchSite>) -> Result<()> {
        let (ctx, resources) = self.pe.launch_context(&operation.call)?;
        let ctx = set.map_or(ctx, |set| with_queue_sets(ctx, set));
        // Errors of a kernel name lines of the kernel. Those of an operation name the line of its call.
        let asked = if site.is_some() { CallSite::default() } else { CallSite::current() };
        match &self.sink {
            Sink::Queue(queue) => {
                let Operation { name, grid, call } = operation;
                queue.launch(self.pe, (ctx, resources), Launched { name, site }, asked, grid, call).map(drop)
            }
            Sink::Graph(recorder) => recorder.record(self.pe, (ctx, resources), operation, asked),
        }
    }
}

/// Returns `ctx` with a default context that uses the QP sets from `set` on, one per rail.
fn with_queue_sets(ctx: CtxParts, set: u32) -> CtxParts {
    CtxParts { first_set: set, n_sets: ctx.rails, ..ctx }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if let Sink::Queue(queue) = &self.sink
            && queue.is_used()
        {
            self.pe.keep_dropped(Dropped::Stream(Arc::clone(queue)));
        }
    }
}
