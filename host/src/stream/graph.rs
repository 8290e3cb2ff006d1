//! Graphs: what a stream does, recorded once and launched many times.
//!
//! Nothing is frozen that changes: all counters of the runtime's (barriers, sequence numbers, queues) lie in memory that
//! kernels update, so each launch goes on where the last one stopped. The application's own values are those of the
//! recording: announce with [`SignalOp::Add`](rushmem_device::SignalOp), and wait for what the kernels themselves count.

use std::sync::{Arc, Mutex, PoisonError};

use rushmem_device::Ctx;
use rushmem_device::abi::DevAddr;
use rushmem_runtime_kernels::code::Order;

use super::{Sink, Stream};
use crate::machine::{Recording, Step};
use crate::work::{Needs, Op, Place, marked};
use crate::{Error, Pe, Result, launch};

/// Operations and kernels that are launched together, in order. Made by [`Stream::capture`].
pub struct Graph<'a> {
    pe: &'a Pe,
    recorded: Arc<Recorded>,
    len: usize,
}

/// What a queue launches, and the word of its kernels.
pub(crate) struct Recorded {
    recording: Recording,
    place: Place,
    /// What its kernels need: memory that is opened later is not seen, what is freed must not be used.
    _needs: Vec<Needs>,
}

impl Recorded {
    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    pub(crate) fn word(&self) -> u32 {
        self.place.index
    }
}

/// Takes down what is queued.
pub(super) struct Recorder {
    word: DevAddr,
    steps: Mutex<Vec<Step>>,
    needs: Mutex<Vec<Needs>>,
}

impl Recorder {
    pub(super) fn record(&self, pe: &Pe, (ctx, needs): (Ctx, Needs), op: Op) -> Result<()> {
        launch::fits(&op.call, op.grid)?;
        let module = needs.module.clone();
        self.needs.lock().unwrap_or_else(PoisonError::into_inner).push(needs);
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        // Each step has a number of its own, so that those behind one that fails can tell that it is not they.
        let ticket = pe.work().board.ticket(steps.len() as u32, op.name);
        let ctx = marked(ctx, self.word, ticket);
        steps.push(Step { ctx, grid: op.grid, call: op.call, module });
        Ok(())
    }
}

impl<'a> Stream<'a> {
    /// Records what `queue` queues on the stream that it is given, instead of doing it. CUDA's stream capture.
    ///
    /// On a GPU the graph becomes one CUDA graph; making it waits until no kernel of the process's PEs runs.
    ///
    /// # Errors
    /// Those of `queue`; [`Error::Misuse`] within another capture; what the machine says of the kernels.
    pub fn capture(&self, queue: impl FnOnce(&Stream<'a>) -> Result<()>) -> Result<Graph<'a>> {
        self.line("Stream::capture")?;
        let pe = self.pe;
        let place = pe.work().board.take(std::time::Duration::ZERO)?;
        let word = pe.work().board.addr(place.index);
        let recorder = Recorder { word, steps: Mutex::default(), needs: Mutex::default() };
        let stream = Stream { pe, sink: Sink::Recorder(recorder), context: self.context };
        queue(&stream)?;
        // The one behind a step that fails keeps that from running again: the last one must have one, too.
        stream.enqueue(pe.op_order("the end of a graph", Order::Nothing))?;
        let Sink::Recorder(recorder) = &stream.sink else { unreachable!("made above") };
        let steps = std::mem::take(&mut *recorder.steps.lock().unwrap_or_else(PoisonError::into_inner));
        let needs = std::mem::take(&mut *recorder.needs.lock().unwrap_or_else(PoisonError::into_inner));
        let len = steps.len() - 1;
        let recording = pe.machine_ref().record(steps)?;
        let recorded = Arc::new(Recorded { recording, place, _needs: needs });
        Ok(Graph { pe, recorded, len })
    }
}

impl Graph<'_> {
    /// Operations and kernels in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it does nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues all of it on a stream of the same PE. A graph does not run beside itself: launched again before it has
    /// ended, on whatever stream, it begins after that.
    ///
    /// If one of its operations fails, the rest of the graph, and of every further launch of it, does nothing until
    /// [`Stream::wait`] has told the error; what else is on the stream goes on.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the stream is another PE's or is being captured; what the machine says.
    pub fn launch(&self, stream: &Stream<'_>) -> Result<()> {
        if !std::ptr::eq(self.pe, stream.pe) {
            let what =
                format!("the stream is PE {}'s, the graph PE {}'s", stream.pe.my_pe(), self.pe.my_pe());
            return Err(Error::Misuse { call: "Graph::launch", what });
        }
        stream.line("Graph::launch")?.replay(self.pe, &self.recorded)
    }
}
