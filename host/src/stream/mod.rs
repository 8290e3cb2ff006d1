//! Streams: operations and kernels of one PE that are done one after the other, beside those of other streams.
//!
//! Each operation is a kernel of the runtime's that makes the very call of the device API which it is named after, on the
//! PE's default context, or on that of [`Stream::with_context`]; so what holds there holds here. An operation begins when
//! the one before it in its stream has ended, and ends when that call would return: a `put` when its source may be reused,
//! a `put_nbi` when it is posted, a wait when the word compares so. Nothing is ordered with other streams, with the host's
//! own calls, or with [`Pe::launch`], unless an event or a signal does it.
//!
//! | to order | use |
//! |---|---|
//! | a put before the delivery of a later one to the same PE | [`Stream::fence`] |
//! | delivery of all that the PE issued before, on whatever stream | [`Stream::quiet`], [`Stream::barrier_all`] |
//! | a stream behind another one of the PE | [`Stream::record`], [`Stream::follow`] |
//! | a stream behind another PE | signals, [`Stream::barrier_all`] |
//!
//! A kernel's end does not deliver what it put: `quiet` after it on the stream does, since a stream's operations and a
//! kernel's default context are one.

mod collectives;
mod graph;
mod ops;

use rushmem_device::abi::CtxParts;
use rushmem_device::kernel::Call;
use rushmem_device::{Context, Ctx};

pub use graph::Graph;
pub(crate) use graph::Recorded;
use graph::Recorder;

use crate::machine::{self, Grid};
use crate::work::{Line, Op, Place};
use crate::{Error, Pe, Result};

/// A stream of a PE: made by [`Pe::stream`]. Dropping it waits for all that is in it.
///
/// Any thread may use it; what two threads queue at once goes in either order.
pub struct Stream<'a> {
    pe: &'a Pe,
    sink: Sink,
    /// What its operations go through; none for the PE's default context.
    context: Option<Context>,
}

/// Where operations go.
enum Sink {
    /// Into a queue, where they run. The place is its word on the board.
    Line(Line, #[expect(dead_code, reason = "kept as long as the queue")] Place),
    /// Into a graph that is being captured.
    Recorder(Recorder),
}

/// A place in a stream, behind all that was queued when it was recorded.
#[derive(Clone)]
pub struct Mark(machine::Mark);

impl Pe {
    /// A new stream of this PE. On a GPU: a CUDA stream that does not wait for the default stream. Natively: a thread
    /// that launches one kernel after the other.
    ///
    /// On a GPU a PE has two dozen streams in reserve, to which they return when they are dropped. When it has none left, more
    /// are made while no kernel of this process runs, for which this waits, 10 seconds at most: the driver may wait for kernels
    /// when it makes a stream. Who needs many makes them before kernels run that wait for this PE.
    ///
    /// A GPU does the work of 32 streams of a process at a time; that of a 33rd one may begin only when another one's has ended.
    /// So kernels that wait for each other are in 32 streams at most, those of all PEs of the process on that GPU counted.
    /// A stream has room for about 1000 operations and kernels that have not ended; who queues more waits.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there are 511 streams and graphs already; what the machine says.
    pub fn stream(&self) -> Result<Stream<'_>> {
        self.stream_on(self.machine_ref().queue()?)
    }

    /// The application's own CUDA stream as a stream of this PE: operations are queued on it behind what it holds, and
    /// take part in a CUDA graph that is captured from it. It must be of the PE's GPU and its primary context, and should
    /// be non-blocking: one that waits for the default stream may wait for ever beside a kernel that waits. Make it while
    /// no kernel runs that waits for this process: the driver may wait for that kernel.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where kernels run natively, [`Error::Cuda`] if it is of another GPU; as [`Pe::stream`].
    pub fn stream_from(&self, stream: &std::sync::Arc<cudarc::driver::CudaStream>) -> Result<Stream<'_>> {
        self.stream_on(self.machine_ref().queue_of(stream)?)
    }

    fn stream_on(&self, queue: Box<dyn machine::Queue>) -> Result<Stream<'_>> {
        let place = self.work().board.take(std::time::Duration::ZERO)?;
        Ok(Stream { pe: self, sink: Sink::Line(Line::new(queue, place.index), place), context: None })
    }
}

impl Stream<'_> {
    /// The PE that it belongs to.
    pub fn pe(&self) -> &Pe {
        self.pe
    }

    /// The same stream, whose operations go through `context` from now on: what they issue is ordered and completed by
    /// itself. [`Stream::fence`], [`Stream::quiet`] and barriers then cover what was issued to that context, by whatever
    /// stream or kernel, and nothing else. Kernels that are launched on the stream are given the context as an argument, if
    /// they are to use it. OpenSHMEM 1.6 section 9.5, the calls with a context.
    ///
    /// ```ignore
    /// let halo = pe.context::<PerGpu>()?;
    /// let stream = pe.stream()?.with_context(halo)?;
    /// stream.put_nbi(dst, src, 1)?;
    /// stream.quiet()?;
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] if the context has been destroyed; so do operations that are queued after that.
    pub fn with_context(mut self, context: Context) -> Result<Self> {
        self.pe.contexts.set("Stream::with_context", context)?;
        self.context = Some(context);
        Ok(self)
    }

    /// Queues a kernel. As [`Pe::launch`], other PEs need to launch nothing.
    ///
    /// # Errors
    /// What keeps the machine from launching it; what goes wrong in the kernel is for [`Stream::wait`].
    pub fn launch(&self, grid: Grid, call: Call) -> Result<()> {
        self.queue(Op { name: call.name, grid, call }, None)
    }

    /// Waits until all that is in the stream has ended. NVSHMEM's users call `cudaStreamSynchronize`.
    ///
    /// # Errors
    /// [`Error::Operation`] with the name and the error of the first operation or kernel that failed; what was queued
    /// behind it has done nothing, and what is queued from now on runs. [`Error::PeerLost`] if a PE died.
    /// [`Error::Misuse`] on a stream that is being captured.
    pub fn wait(&self) -> Result<()> {
        self.line("Stream::wait")?.wait(self.pe)
    }

    /// Marks the place behind all that is in the stream now. CUDA's `cudaEventRecord`.
    ///
    /// # Errors
    /// What the machine says; [`Error::Misuse`] on a stream that is being captured.
    pub fn record(&self) -> Result<Mark> {
        Ok(Mark(self.line("Stream::record")?.mark()?))
    }

    /// What is queued from now on begins after all that is before the mark, in whatever stream of the process. CUDA's
    /// `cudaStreamWaitEvent`.
    ///
    /// # Errors
    /// As [`Stream::record`].
    pub fn follow(&self, mark: &Mark) -> Result<()> {
        self.line("Stream::follow")?.follow(&mark.0)
    }

    fn line(&self, call: &'static str) -> Result<&Line> {
        match &self.sink {
            Sink::Line(line, _) => Ok(line),
            Sink::Recorder(_) => {
                let what = "the stream is being captured: nothing runs in it".into();
                Err(Error::Misuse { call, what })
            }
        }
    }

    fn enqueue(&self, op: Op) -> Result<()> {
        let set = self.context.map(|context| self.pe.contexts.set(op.name, context));
        self.queue(op, set.transpose()?)
    }

    /// Queues a kernel, which posts to the sets of queues from `set` on unless it takes others.
    fn queue(&self, op: Op, set: Option<u32>) -> Result<()> {
        let (ctx, needs) = self.pe.context_for(&op.call)?;
        let ctx = set.map_or(ctx, |set| narrowed(ctx, set));
        match &self.sink {
            Sink::Line(line, _) => line.launch(self.pe, (ctx, needs), op.name, op.grid, op.call).map(drop),
            Sink::Recorder(recorder) => recorder.record(self.pe, (ctx, needs), op),
        }
    }
}

/// A context that posts to the sets of queues from `set` on, one for each rail.
fn narrowed(ctx: Ctx, set: u32) -> Ctx {
    let parts = CtxParts { first_set: set, n_sets: ctx.parts().rails, ..*ctx.parts() };
    // SAFETY: the parts are a context's, and the sets those of a context of the host's, which all threads may post to.
    unsafe { Ctx::from_parts(parts) }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if let Sink::Line(line, _) = &self.sink {
            line.close(self.pe, "a stream");
        }
    }
}
