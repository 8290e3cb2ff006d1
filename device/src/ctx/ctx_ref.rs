//! References to contexts, for outlined functions.
//!
//! A kernel has its context in parameters, which are free to read. Rare or long operations are outlined into functions
//! of their own, so that call sites and kernels stay small. These functions get a [`CtxRef`], two words in registers,
//! and find the context in memory.
#![allow(unsafe_code, reason = "finds the context in the table of the launch")]

use super::Ctx;
use crate::abi::{CtxParts, DevAddr, SegmentTable};

/// A context by reference: two words that are passed in registers.
#[derive(Clone, Copy)]
pub(crate) struct CtxRef {
    /// The segment table of the launch, which contains the context from the host.
    table: DevAddr,
    /// The first QP set of this context, and in the upper half their number.
    sets: u64,
}

impl CtxRef {
    /// Returns a reference to `ctx`.
    #[inline(always)]
    pub(crate) fn of<S>(ctx: &Ctx<S>) -> Self {
        let p = ctx.parts_ref();
        Self { table: p.segments, sets: (p.n_sets as u64) << 32 | p.first_set as u64 }
    }

    /// Returns the context.
    #[inline(always)]
    pub(crate) fn ctx<'k, S>(self) -> Ctx<'k, S> {
        let (first_set, n_sets) = (self.sets as u32, (self.sets >> 32) as u32);
        // SAFETY: `of` had the table and the sets from a context, and the host keeps the table while the kernel runs.
        unsafe {
            let parts = (*self.table.ptr::<SegmentTable>()).parts;
            Ctx::from_parts(CtxParts { first_set, n_sets, ..parts })
        }
    }
}
