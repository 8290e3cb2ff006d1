//! Contexts for functions that are not inlined.
//!
//! A kernel has its context in parameters, where it costs nothing to look. What is rarely needed, or takes long anyway, is
//! in functions of its own: calls in kernels stay short, and a kernel with many of them stays small. These functions get
//! two words, and find the context in memory.
#![allow(unsafe_code, reason = "finds the context in the table of the launch")]

use crate::abi::{CtxParts, DevAddr, SegmentTable};
use crate::ctx::Ctx;

/// Where a context is, in words that are passed in registers.
#[derive(Clone, Copy)]
pub(crate) struct CtxRef {
    /// The table of the launch, with the context that it has from the host.
    table: DevAddr,
    /// The first set of QPs of this one, and in the upper half how many it has.
    sets: u64,
}

impl CtxRef {
    #[inline(always)]
    pub(crate) fn of<S>(ctx: &Ctx<S>) -> Self {
        let p = ctx.parts_ref();
        Self { table: p.segments, sets: (p.n_sets as u64) << 32 | p.first_set as u64 }
    }

    /// The context again.
    #[inline(always)]
    pub(crate) fn ctx<S>(self) -> Ctx<S> {
        let (first_set, n_sets) = (self.sets as u32, (self.sets >> 32) as u32);
        // SAFETY: `of` had the table and the sets from a context, and the host keeps the table while the kernel runs.
        unsafe {
            let parts = (*self.table.ptr::<SegmentTable>()).parts;
            Ctx::from_ctx_ref(CtxParts { first_set, n_sets, ..parts })
        }
    }
}
