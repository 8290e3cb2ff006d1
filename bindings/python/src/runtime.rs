//! The class `Runtime`.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PySystemExit, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use rushmem::{Pe, Result};
use rushmem_device::{Cmp, Reduce, Signal, SignalUpdate, Sym};

use crate::allocation::{Allocation, Kept, Place};
use crate::array::Array;
use crate::dtype::DType;
use crate::error::{misuse, reason};
use crate::operation::{Operation, Reduction, Value};
use crate::session::Session;
use crate::storage::{with_checkpoint, with_file};
use crate::stream::StreamHandle;
use crate::team::Team;
use crate::wait::{brief, interruptible};
use crate::window::Window;

/// The runtime of this process: one PE of a job. `rushmem.init` creates it.
///
/// Use it in a `with` statement. A normal end of the block finalizes the runtime, and an exception aborts the job.
///
/// >>> with rushmem.init() as rt:
/// ...     print(rt.rank, rt.world_size)
/// 0 1
#[pyclass(frozen, module = "rushmem")]
pub(crate) struct Runtime {
    session: Arc<Session>,
    rank: u32,
    n_pes: u32,
    gpu: Option<u32>,
    machine: String,
}

impl Runtime {
    pub(crate) fn new(session: Arc<Session>) -> Result<Self> {
        let here = Arc::clone(&session);
        session.with(|started| {
            let pe = started.pe();
            let (rank, n_pes, gpu, machine) = (pe.my_pe(), pe.n_pes(), pe.gpu(), pe.machine());
            Ok(Self { session: here, rank, n_pes, gpu, machine })
        })
    }

    fn check_peer(&self, py: Python<'_>, call: &'static str, pe: u32) -> PyResult<()> {
        if pe < self.n_pes {
            return Ok(());
        }
        Err(misuse(py, call, format!("there is no PE {pe}: the job has {}", self.n_pes)))
    }

    /// Runs an operation on the host, or queues it on a stream.
    fn issue(&self, py: Python<'_>, operation: Operation, stream: Option<StreamHandle>) -> PyResult<()> {
        let session = Arc::clone(&self.session);
        match stream {
            None if operation.waits_for_pes() => {
                interruptible(py, move || session.with(|started| operation.issue(started.pe())))
            }
            None => brief(py, || session.with(|started| operation.issue(started.pe()))),
            Some(StreamHandle(handle)) => {
                brief(py, || session.with(|started| operation.issue(&*started.stream(handle)?)))
            }
        }
    }

    fn team(team: Option<&Team>) -> rushmem_device::Team {
        team.map_or(rushmem_device::Team::WORLD, Team::handle)
    }

    fn members(&self, team: Option<&Team>) -> usize {
        team.map_or(self.n_pes as usize, Team::members)
    }

    fn reduction(
        &self,
        py: Python<'_>,
        op: &str,
        (dst, src): (&Array, &Array),
        team: Option<&Team>,
    ) -> PyResult<Reduction> {
        let (team, op, dtype) = (Self::team(team), reduce(op)?, src.element_type());
        Ok(Reduction { team, op, dtype, dst: dst.operand(py)?, src: src.operand(py)? })
    }
}

#[pymethods]
impl Runtime {
    /// Number of this PE, from 0. The same as `my_pe`.
    ///
    /// >>> rt.rank
    /// 0
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of this PE, from 0. The same as `rank`.
    ///
    /// >>> rt.my_pe
    /// 0
    #[getter]
    fn my_pe(&self) -> u32 {
        self.rank
    }

    /// Number of PEs in the job. The same as `n_pes`.
    ///
    /// >>> rt.world_size
    /// 1
    #[getter]
    fn world_size(&self) -> u32 {
        self.n_pes
    }

    /// Number of PEs in the job. The same as `world_size`.
    ///
    /// >>> rt.n_pes
    /// 1
    #[getter]
    fn n_pes(&self) -> u32 {
        self.n_pes
    }

    /// Whether symmetric memory is used by kernels on a GPU. If not, operations run on the CPU.
    ///
    /// >>> library = torch if rt.is_gpu else numpy
    #[getter]
    fn is_gpu(&self) -> bool {
        self.gpu.is_some()
    }

    /// CUDA ordinal of this PE's GPU, or `None` without one.
    ///
    /// >>> device = "cpu" if rt.device is None else f"cuda:{rt.device}"
    #[getter]
    fn device(&self) -> Option<u32> {
        self.gpu
    }

    /// Description of the machine that runs operations, for people.
    ///
    /// >>> print(rt.machine)  # doctest: +ELLIPSIS
    /// native kernels...
    #[getter]
    fn machine(&self) -> &str {
        &self.machine
    }

    /// Device address of the context that kernels of other languages take as an argument. It never changes.
    ///
    /// >>> rt.context == rt.context
    /// True
    #[getter]
    fn context(&self, py: Python<'_>) -> PyResult<u64> {
        brief(py, || self.session.with(|started| started.pe().resident_context()))
    }

    /// The team of all PEs.
    ///
    /// >>> rt.world.size
    /// 1
    #[getter]
    fn world(&self) -> Team {
        Team::world(&self.session, self.rank, self.n_pes)
    }

    /// Raises the errors that kernels with `context` have recorded since the last call. Does not wait for kernels.
    ///
    /// >>> rt.check()
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        brief(py, || self.session.with(|started| started.pe().check()))
    }

    /// Allocates a symmetric array of zeros on every PE. Collective.
    ///
    /// `shape` is an int or a sequence of ints. `dtype` is a name, or a type of NumPy or PyTorch.
    ///
    /// >>> rt.zeros((2, 3), "float32").nbytes
    /// 24
    #[pyo3(signature = (shape, dtype=DType::F32), text_signature = "($self, shape, dtype='float32')")]
    fn zeros(&self, py: Python<'_>, shape: Shape, dtype: DType) -> PyResult<Array> {
        let Shape(shape) = shape;
        let elements = shape.iter().try_fold(1_usize, |all, &length| all.checked_mul(length));
        let bytes = elements.and_then(|elements| elements.checked_mul(dtype.size()));
        let bytes = bytes.ok_or_else(|| misuse(py, "zeros", "the size of the array overflows"))?;
        let name = format!("{} {shape:?}", dtype.name());
        let (session, gpu) = (Arc::clone(&self.session), self.gpu);
        interruptible(py, move || {
            let allocated = session.with(|started| {
                let pe = started.pe();
                let object = pe.alloc_named::<u8>(&name, bytes)?;
                let guard = if bytes == 0 { None } else { Some(pe.keep(object)?) };
                let place = match (gpu, &guard) {
                    (None, _) => Place::Host,
                    (Some(gpu), Some(guard)) if guard.is_on_gpu() => Place::Gpu(gpu),
                    (Some(_), Some(_)) => Place::PageLocked,
                    (Some(gpu), None) => Place::Gpu(gpu),
                };
                let address = if bytes == 0 { 0 } else { pe.address(object)? };
                Ok((object, address, place, Kept { _guard: guard, owner: None }))
            });
            let (object, address, place, kept) = allocated?;
            Ok(Array::new(Allocation::new(session, object, place, kept), address, shape, dtype))
        })
    }

    /// Allocates a symmetric array on every PE. Collective. Its elements are zero, as those of `zeros`.
    ///
    /// >>> rt.empty(4, "bfloat16").nbytes
    /// 8
    #[pyo3(signature = (shape, dtype=DType::F32), text_signature = "($self, shape, dtype='float32')")]
    fn empty(&self, py: Python<'_>, shape: Shape, dtype: DType) -> PyResult<Array> {
        self.zeros(py, shape, dtype)
    }

    /// Makes an array of another library symmetric, without a copy. Collective; lengths must be equal on all PEs.
    ///
    /// The array is contiguous, writable, aligned to 16 bytes, and exported by DLPack or `__cuda_array_interface__`. The
    /// library's work on it must have finished.
    ///
    /// >>> inbox = numpy.zeros(16)
    /// >>> window = rt.register(inbox)
    fn register(&self, array: &Bound<'_, PyAny>) -> PyResult<Py<Window>> {
        Window::register(&self.session, array, self.gpu)
    }

    /// Copies `src` on this PE to `dst` on `pe`. Returns once `src` may be reused; `quiet` completes the copy.
    ///
    /// >>> dst, src = rt.zeros(4), rt.zeros(4)
    /// >>> rt.put(dst, src, 0)
    /// >>> rt.quiet()
    #[pyo3(signature = (dst, src, pe, *, stream=None))]
    fn put(
        &self,
        py: Python<'_>,
        dst: &Array,
        src: &Array,
        pe: u32,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        check_sizes(py, "put", (dst, 1), (src, 1))?;
        self.issue(py, Operation::Put { dst: dst.operand(py)?, src: src.operand(py)?, pe }, stream)
    }

    /// Copies `src` on `pe` to `dst` on this PE. Returns once the data has arrived.
    ///
    /// >>> dst, src = rt.zeros(4), rt.zeros(4)
    /// >>> rt.get(dst[:2], src[2:], 0)
    #[pyo3(signature = (dst, src, pe, *, stream=None))]
    fn get(
        &self,
        py: Python<'_>,
        dst: &Array,
        src: &Array,
        pe: u32,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        check_sizes(py, "get", (dst, 1), (src, 1))?;
        self.issue(py, Operation::Get { dst: dst.operand(py)?, src: src.operand(py)?, pe }, stream)
    }

    /// Copies `src` to `dst` on `pe`, and then updates `signal` there: `op` is `"set"` or `"add"`.
    ///
    /// Whoever sees the new value of the signal also sees the data. `signal` is an array with one `uint64`.
    ///
    /// >>> dst, src, arrived = rt.zeros(4), rt.zeros(4), rt.zeros(1, "uint64")
    /// >>> rt.put_signal(dst, src, arrived, 1, 0)
    /// >>> rt.wait_until(arrived, "==", 1)
    #[pyo3(signature = (dst, src, signal, value, pe, *, op="set", stream=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of OpenSHMEM's call, by name")]
    fn put_signal(
        &self,
        py: Python<'_>,
        dst: &Array,
        src: &Array,
        signal: &Array,
        value: u64,
        pe: u32,
        op: &str,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        check_sizes(py, "put_signal", (dst, 1), (src, 1))?;
        let (dst, src) = (dst.operand(py)?, src.operand(py)?);
        let update = update(word(py, "put_signal", signal)?, op, value)?;
        self.issue(py, Operation::PutSignal { dst, src, update, pe }, stream)
    }

    /// Updates `signal` on `pe`: `op` is `"set"` or `"add"`. Only `fence` or `quiet` orders it after earlier puts.
    ///
    /// >>> counter = rt.zeros(1, "uint64")
    /// >>> rt.signal(counter, 1, 0, op="add")
    /// >>> rt.wait_until(counter, ">=", 1)
    #[pyo3(signature = (signal, value, pe, *, op="set", stream=None))]
    fn signal(
        &self,
        py: Python<'_>,
        signal: &Array,
        value: u64,
        pe: u32,
        op: &str,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        let update = update(word(py, "signal", signal)?, op, value)?;
        self.issue(py, Operation::Signal { update, pe }, stream)
    }

    /// Waits until `word` on this PE compares to `value` as `cmp` says: `"=="`, `"!="`, `">"`, `">="`, `"<"` or `"<="`.
    ///
    /// `word` is an array with one integer of 32 or 64 bits, such as a signal. Data that was delivered before its update
    /// may be read afterwards. The setting `timeout` is the deadline.
    ///
    /// >>> word = rt.zeros(1, "int32")
    /// >>> rt.wait_until(word, "<", 1)
    #[pyo3(signature = (word, cmp, value, *, stream=None))]
    fn wait_until(
        &self,
        py: Python<'_>,
        word: &Array,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        let value = match word.element_type() {
            DType::I32 => Value::I32(value.extract()?),
            DType::I64 => Value::I64(value.extract()?),
            DType::U32 => Value::U32(value.extract()?),
            DType::U64 => Value::U64(value.extract()?),
            _ => return Err(misuse(py, "wait_until", "the word is not an integer of 32 or 64 bits")),
        };
        let cmp = compare(cmp)?;
        self.issue(py, Operation::WaitUntil { word: single(py, "wait_until", word)?, cmp, value }, stream)
    }

    /// Orders delivery: earlier puts to a PE are delivered before later ones to the same PE.
    ///
    /// >>> data, flag = rt.zeros(4), rt.zeros(1)
    /// >>> rt.put(data[2:], data[:2], 0)
    /// >>> rt.fence()
    /// >>> rt.put(flag, data[0:1], 0)
    #[pyo3(signature = (*, stream=None))]
    fn fence(&self, py: Python<'_>, stream: Option<StreamHandle>) -> PyResult<()> {
        self.issue(py, Operation::Fence, stream)
    }

    /// Completes all earlier operations of this PE: puts have been delivered and are visible.
    ///
    /// >>> rt.quiet()
    #[pyo3(signature = (*, stream=None))]
    fn quiet(&self, py: Python<'_>, stream: Option<StreamHandle>) -> PyResult<()> {
        self.issue(py, Operation::Quiet, stream)
    }

    /// Completes all earlier operations as `quiet` does, and waits for all members of `team`. Collective.
    ///
    /// >>> rt.barrier()
    #[pyo3(signature = (team=None, *, stream=None))]
    fn barrier(&self, py: Python<'_>, team: Option<&Team>, stream: Option<StreamHandle>) -> PyResult<()> {
        self.issue(py, Operation::Barrier(Self::team(team)), stream)
    }

    /// Waits for all members of `team`, without completing operations. Collective.
    ///
    /// >>> rt.sync()
    #[pyo3(signature = (team=None, *, stream=None))]
    fn sync(&self, py: Python<'_>, team: Option<&Team>, stream: Option<StreamHandle>) -> PyResult<()> {
        self.issue(py, Operation::Sync(Self::team(team)), stream)
    }

    /// Waits on the host until all PEs have made the call, without kernels. Collective.
    ///
    /// Puts that a PE has completed by `quiet` are visible afterwards. With live membership, the call succeeds on all living
    /// PEs or on none.
    ///
    /// >>> rt.host_sync()
    fn host_sync(&self, py: Python<'_>) -> PyResult<()> {
        let session = Arc::clone(&self.session);
        interruptible(py, move || session.with(|started| started.pe().host_sync()))
    }

    /// Copies `src` on member `root` of the team to `dst` on every member. Collective.
    ///
    /// >>> dst, src = rt.zeros(4), rt.zeros(4)
    /// >>> rt.broadcast(dst, src, root=0)
    #[pyo3(signature = (dst, src, root=0, *, team=None, stream=None))]
    fn broadcast(
        &self,
        py: Python<'_>,
        dst: &Array,
        src: &Array,
        root: u32,
        team: Option<&Team>,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        check_sizes(py, "broadcast", (dst, 1), (src, 1))?;
        let (dst, src) = (dst.operand(py)?, src.operand(py)?);
        self.issue(py, Operation::Broadcast { team: Self::team(team), dst, src, root }, stream)
    }

    /// Concatenates the `src` of all members, in team order, in `dst` on every member. Collective.
    ///
    /// >>> src, dst = rt.zeros(4), rt.zeros(4 * rt.world_size)
    /// >>> rt.all_gather(dst, src)
    #[pyo3(signature = (dst, src, *, team=None, stream=None))]
    fn all_gather(
        &self,
        py: Python<'_>,
        dst: &Array,
        src: &Array,
        team: Option<&Team>,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        check_sizes(py, "all_gather", (dst, 1), (src, self.members(team)))?;
        let (dst, src) = (dst.operand(py)?, src.operand(py)?);
        self.issue(py, Operation::AllGather { team: Self::team(team), dst, src }, stream)
    }

    /// Sends part `j` of `src` to member `j`, and stores what member `i` sends as part `i` of `dst`. Collective.
    ///
    /// >>> src, dst = rt.zeros((rt.world_size, 4)), rt.zeros((rt.world_size, 4))
    /// >>> rt.all_to_all(dst, src)
    #[pyo3(signature = (dst, src, *, team=None, stream=None))]
    fn all_to_all(
        &self,
        py: Python<'_>,
        dst: &Array,
        src: &Array,
        team: Option<&Team>,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        check_sizes(py, "all_to_all", (dst, 1), (src, 1))?;
        let (dst, src) = (dst.operand(py)?, src.operand(py)?);
        self.issue(py, Operation::AllToAll { team: Self::team(team), dst, src }, stream)
    }

    /// Combines the `src` of all members element by element, and stores the result in `dst` on every member.
    /// Collective.
    ///
    /// `op` is `"sum"`, `"prod"`, `"min"` or `"max"`, or, for integers, `"and"`, `"or"` or `"xor"`.
    ///
    /// >>> src, dst = rt.zeros(4), rt.zeros(4)
    /// >>> rt.all_reduce(dst, src, "max")
    #[pyo3(signature = (dst, src, op="sum", *, team=None, stream=None))]
    fn all_reduce(
        &self,
        py: Python<'_>,
        dst: &Array,
        src: &Array,
        op: &str,
        team: Option<&Team>,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        check_sizes(py, "all_reduce", (dst, 1), (src, 1))?;
        let reduction = self.reduction(py, op, (dst, src), team)?;
        self.issue(py, Operation::AllReduce(reduction), stream)
    }

    /// Combines elements as `all_reduce` does, and stores part `i` of the result in `dst` on member `i`. Collective.
    ///
    /// >>> src, dst = rt.zeros((rt.world_size, 4)), rt.zeros(4)
    /// >>> rt.reduce_scatter(dst, src)
    #[pyo3(signature = (dst, src, op="sum", *, team=None, stream=None))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        dst: &Array,
        src: &Array,
        op: &str,
        team: Option<&Team>,
        stream: Option<StreamHandle>,
    ) -> PyResult<()> {
        check_sizes(py, "reduce_scatter", (dst, self.members(team)), (src, 1))?;
        let reduction = self.reduction(py, op, (dst, src), team)?;
        self.issue(py, Operation::ReduceScatter(reduction), stream)
    }

    /// Waits for the operations that were queued on `stream`, and raises the error of the first that failed.
    ///
    /// >>> if rt.is_gpu:
    /// ...     stream = torch.cuda.current_stream()
    /// ...     rt.barrier(stream=stream)
    /// ...     rt.synchronize(stream)
    fn synchronize(&self, py: Python<'_>, stream: StreamHandle) -> PyResult<()> {
        let (session, StreamHandle(handle)) = (Arc::clone(&self.session), stream);
        interruptible(py, move || session.with(|started| started.stream(handle)?.wait()))
    }

    /// Number of this PE's epoch with the setting `membership="live"`: 1 at the start, or 2 with vacant PEs, and one more
    /// after each `shrink` that follows a loss and each `grow`. PEs with the same number have the same list of living PEs.
    /// `None` with fixed membership.
    ///
    /// >>> print(rt.epoch)
    /// None
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        brief(py, || self.session.with(|started| Ok(started.pe().epoch())))
    }

    /// Whether `pe` was lost. Always `False` with fixed membership, where the job fails with its first loss.
    ///
    /// >>> rt.is_lost(0)
    /// False
    fn is_lost(&self, py: Python<'_>, pe: u32) -> PyResult<bool> {
        self.check_peer(py, "is_lost", pe)?;
        brief(py, || self.session.with(|started| Ok(started.pe().is_lost(pe))))
    }

    /// Agrees with all other living PEs on who is alive, and returns the team of these PEs. Collective over them.
    ///
    /// For jobs with the setting `membership="live"`, after a `PeerLostError`. Without a loss since the last call, returns
    /// the team of that call.
    ///
    /// >>> team = rt.world if rt.epoch is None else rt.shrink()
    /// >>> rt.barrier(team)
    fn shrink(&self, py: Python<'_>) -> PyResult<Team> {
        let session = Arc::clone(&self.session);
        interruptible(py, move || {
            session.with(|started| Team::new(&session, started.pe(), started.pe().shrink()?))
        })
    }

    /// Agrees with all other living PEs on who is alive, as `shrink` does, and takes in the processes that wait to replace lost PEs.
    /// Returns the team of the living PEs. Collective over them.
    ///
    /// Always communicates, and returns the same team as the last call if nothing has changed. A lost PE is replaced at the
    /// earliest by the call after the one that leaves it out; until then, no kernel may communicate with the lost PE or wait
    /// for it.
    ///
    /// >>> team = rt.world if rt.epoch is None else rt.grow()
    /// >>> rt.barrier(team)
    fn grow(&self, py: Python<'_>) -> PyResult<Team> {
        let session = Arc::clone(&self.session);
        interruptible(py, move || {
            session.with(|started| Team::new(&session, started.pe(), started.pe().grow()?))
        })
    }

    /// Whether this process replaces a lost PE. Its first arrays are those of the other PEs, in the order of their allocation, and
    /// its first `grow` returns the team of the call by which they have taken it in.
    ///
    /// >>> rt.is_replacement
    /// False
    #[getter]
    fn is_replacement(&self, py: Python<'_>) -> PyResult<bool> {
        brief(py, || self.session.with(|started| Ok(started.pe().is_replacement())))
    }

    /// Epoch in which the current processes of this PE and of `pe` met: 1, unless one of them replaces a lost PE. Equal on both.
    /// `None` with fixed membership.
    ///
    /// >>> print(rt.together_since(0))
    /// None
    fn together_since(&self, py: Python<'_>, pe: u32) -> PyResult<Option<u32>> {
        self.check_peer(py, "together_since", pe)?;
        brief(py, || self.session.with(|started| Ok(started.pe().together_since(pe))))
    }

    /// Saves arrays of all PEs in the folder `path`, in place of the checkpoint that is there. Collective.
    ///
    /// `arrays` is a dict of arrays by name, the same on all PEs, which must all see the folder. Whatever fails, the folder
    /// has the old or the new checkpoint. The arrays must not change until the call returns.
    ///
    /// >>> import tempfile
    /// >>> cells = rt.zeros(4)
    /// >>> with tempfile.TemporaryDirectory() as folder:
    /// ...     rt.save(folder + "/heat", {"cells": cells})
    /// ...     rt.restore(folder + "/heat", {"cells": cells})
    fn save(&self, path: PathBuf, arrays: &Bound<'_, PyDict>) -> PyResult<()> {
        with_checkpoint(&self.session, path, arrays, |pe, path, objects| pe.save(path, objects))
    }

    /// Restores arrays of all PEs from the checkpoint in the folder `path`. Collective.
    ///
    /// There must be as many PEs, without lost ones, as when it was saved, and each array must have the same name, size and
    /// size of elements. Other arrays of the checkpoint are left out. If it is damaged or does not fit, no array has changed.
    ///
    /// >>> rt.restore("/nowhere", {"cells": rt.zeros(4)})  # doctest: +ELLIPSIS
    /// Traceback (most recent call last):
    /// rushmem.Error: ...
    fn restore(&self, path: PathBuf, arrays: &Bound<'_, PyDict>) -> PyResult<()> {
        with_checkpoint(&self.session, path, arrays, |pe, path, objects| pe.restore(path, objects))
    }

    /// Fills this PE's copies of arrays from part `part` of a checkpoint, however many PEs have saved it. Not collective.
    ///
    /// For jobs that go on with other PEs than those that saved. `rushmem.checkpoint_parts` returns the number of parts.
    ///
    /// >>> import tempfile
    /// >>> cells = rt.zeros(4)
    /// >>> with tempfile.TemporaryDirectory() as folder:
    /// ...     rt.save(folder + "/heat", {"cells": cells})
    /// ...     rt.restore_part(folder + "/heat", 0, {"cells": cells})
    fn restore_part(&self, path: PathBuf, part: u32, arrays: &Bound<'_, PyDict>) -> PyResult<()> {
        with_checkpoint(&self.session, path, arrays, move |pe, path, objects| {
            pe.restore_part(path, part, objects)
        })
    }

    /// Fills this PE's copy of an array with bytes of a file, from byte `offset` on. Not collective.
    ///
    /// If the file is too short, the array does not change.
    ///
    /// >>> import tempfile
    /// >>> cells = rt.zeros(4)
    /// >>> with tempfile.NamedTemporaryFile() as file:
    /// ...     rt.write_file(file.name, cells[:2], offset=8)
    /// ...     rt.read_file(file.name, cells)
    #[pyo3(signature = (path, array, *, offset=0))]
    fn read_file(&self, py: Python<'_>, path: PathBuf, array: &Array, offset: i64) -> PyResult<()> {
        let call = |pe: &Pe, path, at, bytes| pe.read_file(path, at, bytes);
        with_file(py, &self.session, (path, offset), ("read_file", array), call)
    }

    /// Writes this PE's copy of an array to a file, from byte `offset` on. Not collective.
    ///
    /// The file is created if there is none, and its other bytes stay. PEs may write to different places at the same time.
    ///
    /// >>> import tempfile
    /// >>> with tempfile.NamedTemporaryFile() as file:
    /// ...     rt.write_file(file.name, rt.zeros(4))
    #[pyo3(signature = (path, array, *, offset=0))]
    fn write_file(&self, py: Python<'_>, path: PathBuf, array: &Array, offset: i64) -> PyResult<()> {
        let call = |pe: &Pe, path, at, bytes| pe.write_file(path, at, bytes);
        with_file(py, &self.session, (path, offset), ("write_file", array), call)
    }

    /// Shuts this PE down, after all PEs have made the call. Collective. Does nothing if it has been shut down.
    ///
    /// Views of arrays that other libraries hold stay valid. The process may call `init` again.
    ///
    /// >>> rt.finalize()
    fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        let session = Arc::clone(&self.session);
        interruptible(py, move || session.finish(Ok(())))
    }

    /// Aborts the job: calls of all PEs that wait for this one fail, and name `reason`. With live membership, the others go on
    /// without this PE.
    ///
    /// >>> rt.abort("the input is not readable")
    fn abort(&self, py: Python<'_>, reason: String) -> PyResult<()> {
        let session = Arc::clone(&self.session);
        // Waits for calls that an interrupt has left in the background, such as copies of large files.
        interruptible(py, move || {
            // The outcome of the PE is the reason itself.
            drop(session.finish(Err(reason)));
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Finalizes the runtime, or aborts the job if the block raised an exception.
    fn __exit__(
        &self,
        py: Python<'_>,
        class: Option<Bound<'_, PyType>>,
        value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        match class.zip(value) {
            Some((class, value)) if !is_normal_exit(&class, &value) => self.abort(py, reason(&class, &value)),
            _ => self.finalize(py),
        }
    }

    fn __repr__(&self) -> String {
        format!("<rushmem runtime, PE {} of {}, {}>", self.rank, self.n_pes, self.machine)
    }
}

/// Returns whether an exception is `SystemExit` with a code for success.
fn is_normal_exit(class: &Bound<'_, PyType>, value: &Bound<'_, PyAny>) -> bool {
    let succeeds =
        |code: Bound<'_, PyAny>| code.is_none() || code.extract::<i64>().is_ok_and(|code| code == 0);
    class.is_subclass_of::<PySystemExit>().unwrap_or(false) && value.getattr("code").is_ok_and(succeeds)
}

/// A shape: an int or a sequence of ints.
struct Shape(Vec<usize>);

impl<'py> FromPyObject<'_, 'py> for Shape {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let one = object.extract::<usize>().map(|length| vec![length]);
        let wrong =
            |_| PyTypeError::new_err("a shape is an int or a sequence of ints, none of them negative");
        one.or_else(|_| object.extract::<Vec<usize>>()).map(Self).map_err(wrong)
    }
}

/// Checks that `dst` has as many elements as `src`, of the same type, after multiplying each with a number of members.
fn check_sizes(
    py: Python<'_>,
    call: &'static str,
    (dst, dst_times): (&Array, usize),
    (src, src_times): (&Array, usize),
) -> PyResult<()> {
    let bytes = |array: &Array, times| array.lengths().iter().product::<usize>() * times;
    if dst.element_type() == src.element_type() && bytes(dst, dst_times) == bytes(src, src_times) {
        return Ok(());
    }
    let members = match dst_times.max(src_times) {
        1 => String::new(),
        members => format!(" on {members} members"),
    };
    let what = format!("dst ({}) does not fit src ({}){members}", dst.describe(), src.describe());
    Err(misuse(py, call, what))
}

/// Returns the bytes of an array with one element.
fn single(py: Python<'_>, call: &'static str, array: &Array) -> PyResult<rushmem_device::SymSlice<u8>> {
    if array.lengths().iter().product::<usize>() != 1 {
        let what = format!("the word is an array with one element, not one of {}", array.describe());
        return Err(misuse(py, call, what));
    }
    array.operand(py)
}

/// Returns the signal that an array with one `uint64` contains.
fn word(py: Python<'_>, call: &'static str, signal: &Array) -> PyResult<Sym<Signal>> {
    if signal.element_type() != DType::U64 {
        let what = format!("a signal is an array with one uint64, not one of {}", signal.describe());
        return Err(misuse(py, call, what));
    }
    Ok(single(py, call, signal)?.cast().at(0))
}

fn update(signal: Sym<Signal>, op: &str, value: u64) -> PyResult<SignalUpdate> {
    match op {
        "set" => Ok(signal.set(value)),
        "add" => Ok(signal.add(value)),
        _ => Err(PyValueError::new_err(format!("op is \"set\" or \"add\", not {op:?}"))),
    }
}

fn compare(cmp: &str) -> PyResult<Cmp> {
    match cmp {
        "==" => Ok(Cmp::Eq),
        "!=" => Ok(Cmp::Ne),
        ">" => Ok(Cmp::Gt),
        ">=" => Ok(Cmp::Ge),
        "<" => Ok(Cmp::Lt),
        "<=" => Ok(Cmp::Le),
        _ => Err(PyValueError::new_err(format!("cmp is ==, !=, >, >=, < or <=, not {cmp}"))),
    }
}

fn reduce(op: &str) -> PyResult<Reduce> {
    match op {
        "sum" => Ok(Reduce::Sum),
        "prod" => Ok(Reduce::Prod),
        "min" => Ok(Reduce::Min),
        "max" => Ok(Reduce::Max),
        "and" => Ok(Reduce::And),
        "or" => Ok(Reduce::Or),
        "xor" => Ok(Reduce::Xor),
        _ => Err(PyValueError::new_err(format!("op is sum, prod, min, max, and, or or xor, not {op}"))),
    }
}
