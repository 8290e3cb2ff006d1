//! OpenSHMEM names of the collectives.

use bytemuck::Pod;

use crate::{CollectiveGroup, Ctx, Element, Group, Reduce, Result, Scan, Sharing, SymSlice, Team};

names! {
    shmem_team_sync = team_sync [G: Group] (group: G, team: Team) -> Result;
    shmem_barrier = barrier [G: Group] (group: G, team: Team) -> Result;
    shmem_broadcast = broadcast [C: CollectiveGroup, T: Pod]
        (callers: C, team: Team, dst: SymSlice<T>, src: SymSlice<T>, root: u32) -> Result;
    shmem_fcollect = fcollect [C: CollectiveGroup, T: Pod]
        (callers: C, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result;
    shmem_collect = collect [G: Group, T: Pod]
        (group: G, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result;
    shmem_alltoall = alltoall [C: CollectiveGroup, T: Pod]
        (callers: C, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result;
    shmem_alltoalls = alltoalls [G: Group, T: Pod]
        (group: G, team: Team, dst: SymSlice<T>, src: SymSlice<T>, dst_stride: usize, src_stride: usize, len: usize)
        -> Result;
}

macro_rules! reductions {
    ($($name:ident, $method:ident, $callers:ident, $op:expr, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[inline(always)]
        #[track_caller]
        pub fn $name<S: Sharing, C: $callers, T: Element>(
            ctx: &Ctx<S>,
            callers: C,
            team: Team,
            dst: SymSlice<T>,
            src: SymSlice<T>,
        ) -> Result {
            ctx.$method(callers, team, $op, dst, src)
        }
    )*};
}
reductions! {
    shmem_sum_reduce, reduce, CollectiveGroup, Reduce::Sum, "Calls [`Ctx::reduce`] by [`Reduce::Sum`], and returns its errors.";
    shmem_prod_reduce, reduce, CollectiveGroup, Reduce::Prod, "Calls [`Ctx::reduce`] by [`Reduce::Prod`], and returns its errors.";
    shmem_min_reduce, reduce, CollectiveGroup, Reduce::Min, "Calls [`Ctx::reduce`] by [`Reduce::Min`], and returns its errors.";
    shmem_max_reduce, reduce, CollectiveGroup, Reduce::Max, "Calls [`Ctx::reduce`] by [`Reduce::Max`], and returns its errors.";
    shmem_and_reduce, reduce, CollectiveGroup, Reduce::And, "Calls [`Ctx::reduce`] by [`Reduce::And`], and returns its errors.";
    shmem_or_reduce, reduce, CollectiveGroup, Reduce::Or, "Calls [`Ctx::reduce`] by [`Reduce::Or`], and returns its errors.";
    shmem_xor_reduce, reduce, CollectiveGroup, Reduce::Xor, "Calls [`Ctx::reduce`] by [`Reduce::Xor`], and returns its errors.";
    shmem_sum_reducescatter, reduce_scatter, CollectiveGroup, Reduce::Sum, "Calls [`Ctx::reduce_scatter`] by [`Reduce::Sum`], and returns its errors.";
    shmem_prod_reducescatter, reduce_scatter, CollectiveGroup, Reduce::Prod, "Calls [`Ctx::reduce_scatter`] by [`Reduce::Prod`], and returns its errors.";
    shmem_min_reducescatter, reduce_scatter, CollectiveGroup, Reduce::Min, "Calls [`Ctx::reduce_scatter`] by [`Reduce::Min`], and returns its errors.";
    shmem_max_reducescatter, reduce_scatter, CollectiveGroup, Reduce::Max, "Calls [`Ctx::reduce_scatter`] by [`Reduce::Max`], and returns its errors.";
    shmem_and_reducescatter, reduce_scatter, CollectiveGroup, Reduce::And, "Calls [`Ctx::reduce_scatter`] by [`Reduce::And`], and returns its errors.";
    shmem_or_reducescatter, reduce_scatter, CollectiveGroup, Reduce::Or, "Calls [`Ctx::reduce_scatter`] by [`Reduce::Or`], and returns its errors.";
    shmem_xor_reducescatter, reduce_scatter, CollectiveGroup, Reduce::Xor, "Calls [`Ctx::reduce_scatter`] by [`Reduce::Xor`], and returns its errors.";
    shmem_sum_inscan, sum_scan, Group, Scan::Inclusive, "Calls [`Ctx::sum_scan`] with this member, and returns its errors.";
    shmem_sum_exscan, sum_scan, Group, Scan::Exclusive, "Calls [`Ctx::sum_scan`] without this member, and returns its errors.";
}
