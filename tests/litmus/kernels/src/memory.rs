//! Memory of litmus tests: separate words, bytes and registers for each round of an actor's program.

use rushmem_device::{Cmp, Ctx, Lock, Sym, SymSlice};

use crate::code::Op;

/// Number of 8-byte words that each round has.
pub const WORDS: usize = 128;
/// Number of half words (4 bytes) and of floats that each round has.
pub const HALVES: usize = 4;
/// Number of bytes that each round has: a third each for the destination of pieces, their source, and single bytes.
pub const BYTES: usize = 3 * 192;
/// Number of registers that an actor has per round.
pub const REGS: usize = 8;
/// First index that refers to words in `kept`, which all rounds share.
pub const KEPT: u64 = 1 << 20;
/// First value of `k` that names a register. Smaller values are factors of the round.
pub const REG: u64 = 1 << 32;

#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) words: SymSlice<u64>,
    pub(crate) kept: SymSlice<u64>,
    pub(crate) halves: SymSlice<u32>,
    pub(crate) bytes: SymSlice<u8>,
    pub(crate) floats: SymSlice<f32>,
    pub(crate) lock: Sym<Lock>,
    pub(crate) regs: SymSlice<u64>,
    pub(crate) round: u64,
    pub(crate) actor: u64,
    pub(crate) actors: u64,
}

impl Memory {
    /// Returns `n` words of the current round, or of `kept`, starting at index `a`.
    #[inline(always)]
    pub(crate) fn array(&self, a: u64, n: u64) -> SymSlice<u64> {
        let (array, a) =
            if a >= KEPT { (self.kept, a - KEPT) } else { (self.words, self.round * WORDS as u64 + a) };
        array.slice(a as usize..(a + n) as usize)
    }

    #[inline(always)]
    pub(crate) fn word(&self, a: u64) -> Sym<u64> {
        self.array(a, 1).at(0)
    }

    #[inline(always)]
    pub(crate) fn half(&self, a: u64) -> Sym<u32> {
        self.halves.at(self.round as usize * HALVES + a as usize)
    }

    #[inline(always)]
    pub(crate) fn float(&self, a: u64) -> Sym<f32> {
        self.floats.at(self.round as usize * HALVES + a as usize)
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> SymSlice<u8> {
        let from = self.round as usize * BYTES;
        self.bytes.slice(from..from + BYTES)
    }

    #[inline(always)]
    fn register(&self, r: u64) -> usize {
        (self.round * self.actors + self.actor) as usize * REGS + r as usize
    }

    #[inline(always)]
    pub(crate) fn keep(&self, ctx: &Ctx, r: u64, value: u64) {
        ctx.local(self.regs).store(self.register(r), value);
    }

    #[inline(always)]
    pub(crate) fn value(&self, ctx: &Ctx, op: &Op) -> u64 {
        if op.k >= REG {
            op.v.wrapping_add(ctx.local(self.regs).load(self.register(op.k - REG)))
        } else {
            op.v.wrapping_add(op.k.wrapping_mul(self.round))
        }
    }

    /// Returns the destination and source offset and the length of the piece that this round transfers, in bytes.
    #[inline(always)]
    pub(crate) fn piece(&self) -> (usize, usize, usize) {
        let round = self.round as usize;
        (round & 31, round >> 2 & 31, (round * 7) & 127)
    }
}

#[inline(always)]
pub(crate) fn comparison(n: u64) -> Cmp {
    match n {
        0 => Cmp::Eq,
        1 => Cmp::Ne,
        2 => Cmp::Gt,
        3 => Cmp::Ge,
        4 => Cmp::Lt,
        5 => Cmp::Le,
        _ => Cmp::Reached,
    }
}
