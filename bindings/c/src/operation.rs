//! Operations that a host or a stream can issue.

use rushmem::{Operations, Result};
use rushmem_device::{Bf16, Cmp, Element, F16, Reduce, Signal, SignalUpdate, Sym, SymSlice, Team};

use crate::types::rushmem_type;

type Bytes = SymSlice<u8>;

/// An operation with its arguments. PE numbers are those of the job.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Put { dst: Bytes, src: Bytes, peer: u32 },
    Get { dst: Bytes, src: Bytes, peer: u32 },
    PutSignal { dst: Bytes, src: Bytes, update: SignalUpdate, peer: u32 },
    SignalOp { update: SignalUpdate, peer: u32 },
    Wait { signal: Sym<Signal>, cmp: Cmp, value: u64 },
    Quiet,
    BarrierAll,
    SyncAll,
    Barrier(Team),
    Broadcast { team: Team, dst: Bytes, src: Bytes, root: u32 },
    Fcollect { team: Team, dst: Bytes, src: Bytes },
    Alltoall { team: Team, dst: Bytes, src: Bytes },
    Reduce(Reduction),
    ReduceScatter(Reduction),
}

/// The arguments of a reduction.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) team: Team,
    pub(crate) dst: Bytes,
    pub(crate) src: Bytes,
    pub(crate) element: rushmem_type,
    pub(crate) op: Reduce,
}

impl Operation {
    pub(crate) fn issue(self, on: &impl Operations) -> Result<()> {
        match self {
            Self::Put { dst, src, peer } => on.put(dst, src, peer),
            Self::Get { dst, src, peer } => on.get(dst, src, peer),
            Self::PutSignal { dst, src, update, peer } => on.put_signal(dst, src, update, peer),
            Self::SignalOp { update, peer } => on.signal_op(update, peer),
            Self::Wait { signal, cmp, value } => on.wait_until(signal, cmp, value),
            Self::Quiet => on.quiet(),
            Self::BarrierAll => on.barrier_all(),
            Self::SyncAll => on.sync_all(),
            Self::Barrier(team) => on.team_barrier(team),
            Self::Broadcast { team, dst, src, root } => on.broadcast(team, dst, src, root),
            Self::Fcollect { team, dst, src } => on.fcollect(team, dst, src),
            Self::Alltoall { team, dst, src } => on.alltoall(team, dst, src),
            Self::Reduce(reduction) => reduction.issue(on, false),
            Self::ReduceScatter(reduction) => reduction.issue(on, true),
        }
    }
}

impl Reduction {
    fn issue(self, on: &impl Operations, scatter: bool) -> Result<()> {
        use rushmem_type as Type;
        match self.element {
            Type::Int8 => self.issue_as::<i8>(on, scatter),
            Type::Uint8 => self.issue_as::<u8>(on, scatter),
            Type::Int16 => self.issue_as::<i16>(on, scatter),
            Type::Uint16 => self.issue_as::<u16>(on, scatter),
            Type::Int32 => self.issue_as::<i32>(on, scatter),
            Type::Uint32 => self.issue_as::<u32>(on, scatter),
            Type::Int64 => self.issue_as::<i64>(on, scatter),
            Type::Uint64 => self.issue_as::<u64>(on, scatter),
            Type::Float16 => self.issue_as::<F16>(on, scatter),
            Type::Bfloat16 => self.issue_as::<Bf16>(on, scatter),
            Type::Float32 => self.issue_as::<f32>(on, scatter),
            Type::Float64 => self.issue_as::<f64>(on, scatter),
        }
    }

    fn issue_as<T: Element>(self, on: &impl Operations, scatter: bool) -> Result<()> {
        let Self { team, dst, src, op, .. } = self;
        match scatter {
            false => on.reduce::<T>(team, op, dst.cast(), src.cast()),
            true => on.reduce_scatter::<T>(team, op, dst.cast(), src.cast()),
        }
    }
}
