//! Operations that the host runs or a stream queues.

use rushmem::dlpack::TensorElement;
use rushmem::{Operations, Result};
use rushmem_device::{Cmp, Element, Reduce, SignalUpdate, SymSlice, Team};

use crate::dtype::{DType, Visitor};

type Bytes = SymSlice<u8>;

/// An operation with its arguments. Lengths and types have been checked.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Put { dst: Bytes, src: Bytes, pe: u32 },
    Get { dst: Bytes, src: Bytes, pe: u32 },
    PutSignal { dst: Bytes, src: Bytes, update: SignalUpdate, pe: u32 },
    Signal { update: SignalUpdate, pe: u32 },
    WaitUntil { word: Bytes, cmp: Cmp, value: Value },
    Fence,
    Quiet,
    Barrier(Team),
    Sync(Team),
    Broadcast { team: Team, dst: Bytes, src: Bytes, root: u32 },
    AllGather { team: Team, dst: Bytes, src: Bytes },
    AllToAll { team: Team, dst: Bytes, src: Bytes },
    AllReduce(Reduction),
    ReduceScatter(Reduction),
}

/// The value that a wait compares a word with.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    I32(i32),
    I64(i64),
    U32(u32),
    U64(u64),
}

/// Arguments of a reduction.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) team: Team,
    pub(crate) op: Reduce,
    pub(crate) dtype: DType,
    pub(crate) dst: Bytes,
    pub(crate) src: Bytes,
}

impl Operation {
    /// Returns whether the operation waits for another PE, rather than for NICs or kernels only.
    pub(crate) fn waits_for_pes(self) -> bool {
        use Operation::{Fence, Get, Put, PutSignal, Quiet, Signal};
        !matches!(self, Put { .. } | Get { .. } | PutSignal { .. } | Signal { .. } | Fence | Quiet)
    }

    /// Runs the operation on a PE, or queues it on a stream.
    pub(crate) fn issue(self, to: &impl Operations) -> Result<()> {
        match self {
            Self::Put { dst, src, pe } => to.put(dst, src, pe),
            Self::Get { dst, src, pe } => to.get(dst, src, pe),
            Self::PutSignal { dst, src, update, pe } => to.put_signal(dst, src, update, pe),
            Self::Signal { update, pe } => to.signal_op(update, pe),
            Self::WaitUntil { word, cmp, value } => match value {
                Value::I32(value) => to.wait_until(word.cast().at(0), cmp, value),
                Value::I64(value) => to.wait_until(word.cast().at(0), cmp, value),
                Value::U32(value) => to.wait_until(word.cast().at(0), cmp, value),
                Value::U64(value) => to.wait_until(word.cast().at(0), cmp, value),
            },
            Self::Fence => to.fence(),
            Self::Quiet => to.quiet(),
            Self::Barrier(Team::WORLD) => to.barrier_all(),
            Self::Barrier(team) => to.team_barrier(team),
            Self::Sync(Team::WORLD) => to.sync_all(),
            Self::Sync(team) => to.team_sync(team),
            Self::Broadcast { team, dst, src, root } => to.broadcast(team, dst, src, root),
            Self::AllGather { team, dst, src } => to.fcollect(team, dst, src),
            Self::AllToAll { team, dst, src } => to.alltoall(team, dst, src),
            Self::AllReduce(reduction) => {
                reduction.dtype.dispatch(Reducer { to, reduction, scatters: false })
            }
            Self::ReduceScatter(reduction) => {
                reduction.dtype.dispatch(Reducer { to, reduction, scatters: true })
            }
        }
    }
}

/// Issues a reduction of the visited element type.
struct Reducer<'a, O> {
    to: &'a O,
    reduction: Reduction,
    scatters: bool,
}

impl<O: Operations> Visitor for Reducer<'_, O> {
    type Output = Result<()>;
    fn visit<T: Element + TensorElement>(self) -> Result<()> {
        let Reduction { team, op, dst, src, .. } = self.reduction;
        let (dst, src) = (dst.cast::<T>(), src.cast::<T>());
        match self.scatters {
            true => self.to.reduce_scatter(team, op, dst, src),
            false => self.to.reduce(team, op, dst, src),
        }
    }
}
