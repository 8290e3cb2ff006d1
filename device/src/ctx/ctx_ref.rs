//! References to contexts, for outlined functions.
//!
//! A kernel has its context in parameters, which are free to read. Rare or long operations are outlined into functions
//! of their own, so that call sites and kernels stay small. These functions get a [`CtxRef`], two words in registers,
//! and find the context in memory.
#![allow(unsafe_code, reason = "finds the context in the table of the launch")]

use super::Ctx;
use crate::abi::{CtxParts, DevAddr, SegmentTable, ctx_flags};

/// The bit of [`ctx_flags::P2P_ATOMICS`], which contexts of one launch may differ in. No launch has so many QP sets.
const P2P_ATOMICS: u32 = 31;
const _: () = assert!(ctx_flags::P2P_ATOMICS == 1);

/// A context by reference: two words that are passed in registers.
#[derive(Clone, Copy)]
pub(crate) struct CtxRef {
    /// The segment table of the launch, which contains the context from the host.
    table: DevAddr,
    /// The first QP set of this context beside [`P2P_ATOMICS`], and in the upper half their number.
    sets: u64,
}

impl CtxRef {
    /// Returns a reference to `ctx`.
    #[inline(always)]
    pub(crate) fn of<S>(ctx: &Ctx<S>) -> Self {
        let p = ctx.parts_ref();
        let first_set = p.first_set | p.flags << P2P_ATOMICS;
        Self { table: p.segments, sets: (p.n_sets as u64) << 32 | first_set as u64 }
    }

    /// Returns the context.
    #[inline(always)]
    pub(crate) fn ctx<'k, S>(self) -> Ctx<'k, S> {
        let (first_set, n_sets) = (self.sets as u32 & !(1 << P2P_ATOMICS), (self.sets >> 32) as u32);
        let p2p_atomics = self.sets as u32 >> P2P_ATOMICS;
        // SAFETY: `of` had the table and the sets from a context, and the host keeps the table while the kernel runs.
        unsafe {
            let parts = (*self.table.ptr::<SegmentTable>()).parts;
            let flags = parts.flags & !ctx_flags::P2P_ATOMICS | p2p_atomics;
            Ctx::from_parts(CtxParts { first_set, n_sets, flags, ..parts })
        }
    }
}
