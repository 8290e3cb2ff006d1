//! Names of collective calls.

use bytemuck::Pod;

use crate::{Ctx, Element, Group, Reduce, Result, Scan, Sharing, SymSlice, Team};

/// [`Ctx::team_sync`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_team_sync<S: Sharing, G: Group>(ctx: &Ctx<S>, group: G, team: Team) -> Result {
    ctx.team_sync(group, team)
}

/// [`Ctx::barrier`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_barrier<S: Sharing, G: Group>(ctx: &Ctx<S>, group: G, team: Team) -> Result {
    ctx.barrier(group, team)
}

/// [`Ctx::broadcast`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_broadcast<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    team: Team,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    root: u32,
) -> Result {
    ctx.broadcast(group, team, dst, src, root)
}

/// [`Ctx::alltoalls`]; its errors.
#[inline(always)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // the field's signature
pub fn shmem_alltoalls<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    team: Team,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    dst_stride: usize,
    src_stride: usize,
    len: usize,
) -> Result {
    ctx.alltoalls(group, team, dst, src, dst_stride, src_stride, len)
}

macro_rules! moves {
    ($($name:ident, $method:ident, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[inline(always)]
        #[track_caller]
        pub fn $name<S: Sharing, G: Group, T: Pod>(
            ctx: &Ctx<S>,
            group: G,
            team: Team,
            dst: SymSlice<T>,
            src: SymSlice<T>,
        ) -> Result {
            ctx.$method(group, team, dst, src)
        }
    )*};
}
moves! {
    shmem_fcollect, fcollect, "[`Ctx::fcollect`]; its errors.";
    shmem_collect, collect, "[`Ctx::collect`]; its errors.";
    shmem_alltoall, alltoall, "[`Ctx::alltoall`]; its errors.";
}

macro_rules! reductions {
    ($($name:ident, $method:ident, $op:expr, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[inline(always)]
        #[track_caller]
        pub fn $name<S: Sharing, G: Group, T: Element>(
            ctx: &Ctx<S>,
            group: G,
            team: Team,
            dst: SymSlice<T>,
            src: SymSlice<T>,
        ) -> Result {
            ctx.$method(group, team, $op, dst, src)
        }
    )*};
}
reductions! {
    shmem_sum_reduce, reduce, Reduce::Sum, "[`Ctx::reduce`] by [`Reduce::Sum`]; its errors.";
    shmem_prod_reduce, reduce, Reduce::Prod, "[`Ctx::reduce`] by [`Reduce::Prod`]; its errors.";
    shmem_min_reduce, reduce, Reduce::Min, "[`Ctx::reduce`] by [`Reduce::Min`]; its errors.";
    shmem_max_reduce, reduce, Reduce::Max, "[`Ctx::reduce`] by [`Reduce::Max`]; its errors.";
    shmem_and_reduce, reduce, Reduce::And, "[`Ctx::reduce`] by [`Reduce::And`]; its errors.";
    shmem_or_reduce, reduce, Reduce::Or, "[`Ctx::reduce`] by [`Reduce::Or`]; its errors.";
    shmem_xor_reduce, reduce, Reduce::Xor, "[`Ctx::reduce`] by [`Reduce::Xor`]; its errors.";
    shmem_sum_reducescatter, reduce_scatter, Reduce::Sum, "[`Ctx::reduce_scatter`] by [`Reduce::Sum`]; its errors.";
    shmem_prod_reducescatter, reduce_scatter, Reduce::Prod, "[`Ctx::reduce_scatter`] by [`Reduce::Prod`]; its errors.";
    shmem_min_reducescatter, reduce_scatter, Reduce::Min, "[`Ctx::reduce_scatter`] by [`Reduce::Min`]; its errors.";
    shmem_max_reducescatter, reduce_scatter, Reduce::Max, "[`Ctx::reduce_scatter`] by [`Reduce::Max`]; its errors.";
    shmem_and_reducescatter, reduce_scatter, Reduce::And, "[`Ctx::reduce_scatter`] by [`Reduce::And`]; its errors.";
    shmem_or_reducescatter, reduce_scatter, Reduce::Or, "[`Ctx::reduce_scatter`] by [`Reduce::Or`]; its errors.";
    shmem_xor_reducescatter, reduce_scatter, Reduce::Xor, "[`Ctx::reduce_scatter`] by [`Reduce::Xor`]; its errors.";
    shmem_sum_inscan, scan, Scan::Inclusive, "[`Ctx::scan`] with this member; its errors.";
    shmem_sum_exscan, scan, Scan::Exclusive, "[`Ctx::scan`] without this member; its errors.";
}
