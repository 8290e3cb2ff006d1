//! Graphs: operations and kernels of a stream, recorded once and launched many times.
//!
//! The runtime's counters (barriers, sequence numbers, queues) are in memory that kernels update, so each launch
//! continues where the previous one stopped. The application's arguments, however, are those of the recording: signal
//! with [`SignalOp::Add`](rushmem_device::SignalOp), and have kernels compute the values they wait for.

use std::panic::Location;
use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_device::abi::CtxParts;
use rushmem_device::abi::DevAddr;
use rushmem_error::call_site::{self, CallSite};
use rushmem_machine::KernelLaunch;
use rushmem_runtime_kernels::code::Order;

use super::{Sink, Stream};
use crate::launch_queue::{LaunchResources, Operation, RecordedGraph, check_grid, for_launch};
use crate::{Error, Pe, Result};

/// A recorded sequence of operations and kernels that is launched as a whole. [`Stream::capture`] creates it.
pub struct Graph<'a> {
    pe: &'a Pe,
    recorded: Arc<RecordedGraph>,
    len: usize,
}

/// Collects the operations and kernels of a stream while it is being captured.
pub(super) struct GraphRecorder {
    word: DevAddr,
    steps: Mutex<Vec<KernelLaunch>>,
    resources: Mutex<Vec<LaunchResources>>,
}

impl GraphRecorder {
    pub(super) fn record(
        &self,
        pe: &Pe,
        (ctx, resources): (CtxParts, LaunchResources),
        operation: Operation,
        asked: CallSite,
    ) -> Result<()> {
        check_grid(&operation.call, operation.grid)?;
        let module = resources.module.clone();
        lock(&self.resources).push(resources);
        let mut steps = lock(&self.steps);
        // Each step has its own launch number. Steps after a failed one then know that another step failed.
        let launch_id = pe.launch_queues().table.launch_id(steps.len() as u32, operation.name, asked);
        let ctx = for_launch(ctx, operation.grid, self.word, launch_id);
        steps.push(KernelLaunch { ctx, grid: operation.grid, call: operation.call, module });
        Ok(())
    }
}

impl<'a> Stream<'a> {
    /// Records the operations and kernels that `queue` submits to the stream it is given. None of them runs.
    ///
    /// On a GPU, the recording becomes a CUDA graph. Creating it waits until no kernel of this process's PEs runs.
    /// Therefore all PEs must create their graphs before any PE launches a kernel that waits for the others;
    /// [`Pe::host_sync`](crate::Pe::host_sync) in between ensures that. CUDA's stream capture.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), rushmem::Error> {
    /// # rushmem::Job::new()?.run(|pe| {
    /// use rushmem::Operations;
    ///
    /// let data = pe.alloc::<f32>(1024)?;
    /// let stream = pe.stream()?;
    /// let graph = stream.capture(|stream| {
    ///     stream.put_nbi(data, data, 0)?;
    ///     stream.barrier_all()
    /// })?;
    /// pe.host_sync()?;
    /// for _ in 0..100 {
    ///     graph.launch(&stream)?;
    /// }
    /// stream.wait()
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - The errors of `queue`.
    /// - [`Error::Misuse`] within another capture.
    /// - [`Error::Unavailable`] if there are 511 streams and graphs already, or a block has too many threads.
    /// - [`Error::Cuda`] or [`Error::Native`] if the machine cannot record the kernels.
    #[track_caller]
    pub fn capture(&self, queue: impl FnOnce(&Stream<'a>) -> Result<()>) -> Result<Graph<'a>> {
        let _site = call_site::enter();
        self.launch_queue("Stream::capture")?;
        let pe = self.pe;
        let entry = pe.launch_queues().table.take(std::time::Duration::ZERO)?;
        let word = pe.launch_queues().table.addr(entry.index);
        let recorder = GraphRecorder { word, steps: Mutex::default(), resources: Mutex::default() };
        let stream = Stream { pe, sink: Sink::Graph(recorder), context: self.context };
        queue(&stream)?;
        // The step after a failed one seals the status word, or a replay would run the failed step again. This step
        // does so for the last one.
        stream.enqueue(pe.op_order("the end of a graph", Order::Nothing))?;
        let Sink::Graph(recorder) = &stream.sink else { unreachable!("made above") };
        let steps = std::mem::take(&mut *lock(&recorder.steps));
        let resources = std::mem::take(&mut *lock(&recorder.resources));
        let len = steps.len() - 1;
        let per_block = steps.iter().any(|step| step.call.uses_per_block());
        let recording = pe.machine_ref().record(steps)?;
        let recorded = Arc::new(RecordedGraph::new(recording, entry, per_block, resources));
        Ok(Graph { pe, recorded, len })
    }
}

impl Graph<'_> {
    /// Returns the number of recorded operations and kernels.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the graph contains no operations or kernels.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues the whole graph on a stream of the same PE.
    ///
    /// A graph never runs concurrently with itself: a second launch, on any stream, starts after the first has
    /// finished. If an operation fails, the rest of the graph and its later launches do nothing until [`Stream::wait`]
    /// has reported the error. Other work on the stream is not affected.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the stream belongs to another PE or is being captured.
    /// - [`Error::Cuda`] or [`Error::Native`] if the machine cannot launch it.
    #[track_caller]
    pub fn launch(&self, stream: &Stream<'_>) -> Result<()> {
        let _site = call_site::enter();
        if !std::ptr::eq(self.pe, stream.pe) {
            let what = format!(
                "the stream belongs to PE {}, the graph to PE {}: use a stream of the same PE",
                stream.pe.my_pe(),
                self.pe.my_pe()
            );
            return Err(Error::misuse("Graph::launch", what));
        }
        stream.launch_queue("Graph::launch")?.replay(self.pe, &self.recorded, Location::caller())
    }
}
