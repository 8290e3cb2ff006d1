//! References to contexts, for outlined functions.
//!
//! A kernel has its context in its parameters, which cost nothing to read. Rare or long operations are outlined to keep
//! call sites and kernels small. They take a [`CtxRef`], two words in registers, and read the rest of the context from
//! memory.
#![allow(unsafe_code, reason = "finds the context in the table of the launch")]

use super::Ctx;
use crate::abi::{CtxParts, DevAddr, SegmentTable, ctx_flags};

/// Position, in the lower half of [`CtxRef::sets`], of the bit that holds [`ctx_flags::P2P_ATOMICS`], the one flag in
/// which contexts of a launch differ. No launch has that many QP sets.
const P2P_ATOMICS: u32 = 31;
const _: () = assert!(ctx_flags::P2P_ATOMICS == 1);

/// Reference to a context, as two words that fit in registers.
#[derive(Clone, Copy)]
pub(crate) struct CtxRef {
    /// Address of the launch's segment table, which also holds the context from the host.
    table: DevAddr,
    /// Lower half: first QP set of the context, and bit [`P2P_ATOMICS`]. Upper half: number of QP sets.
    sets: u64,
}

impl CtxRef {
    #[inline(always)]
    pub(crate) fn of<S>(ctx: &Ctx<S>) -> Self {
        let p = ctx.parts_ref();
        let first_set = p.first_set | p.flags << P2P_ATOMICS;
        Self { table: p.segments, sets: (p.n_sets as u64) << 32 | first_set as u64 }
    }

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
