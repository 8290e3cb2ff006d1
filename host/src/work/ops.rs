//! From the arguments of an operation to the kernel that does it.
//!
//! What can be seen to be wrong is an error here, before anything runs.

use std::any::TypeId;

use bytemuck::Pod;
use rushmem_device::amo::{Amo, AmoWord};
use rushmem_device::{Cmp, Element, LocalBuffer, Scalar, Signal, SignalOp, Strided, Sym, SymSlice, Team};
use rushmem_runtime_kernels::code::{self, Atomic, Collective, Order, Set, Transfer, Word};
use rushmem_runtime_kernels::{
    rushmem_atomic, rushmem_collective, rushmem_order, rushmem_p, rushmem_put_signal, rushmem_strided,
    rushmem_test, rushmem_transfer, rushmem_wait, rushmem_words,
};

use super::Op;
use crate::initiated::{Wanted, Words};
use crate::machine::Grid;
use crate::memory::misuse;
use crate::{Error, Pe, Result};

/// Bytes that are worth a block of their own.
const BLOCK_BYTES: u64 = 64 << 10;

/// The signal of a put.
pub(crate) struct Announcement {
    pub(crate) signal: Sym<Signal>,
    pub(crate) op: SignalOp,
    pub(crate) value: u64,
}

impl Pe {
    pub(crate) fn op_transfer<T: Pod>(
        &self,
        name: &'static str,
        what: Transfer,
        remote: SymSlice<T>,
        local: SymSlice<T>,
        pe: u32,
    ) -> Result<Op> {
        self.check_pe(name, pe)?;
        same_length(name, remote, local)?;
        let blocks = u32::try_from(local.bytes() / BLOCK_BYTES).unwrap_or(u32::MAX);
        let grid = if self.is_gpu() { blocks.clamp(1, self.grid().blocks) } else { 1 };
        let grid = Grid { blocks: grid, ..self.group() };
        let call = rushmem_transfer(what as u32, self.bytes(name, remote)?, self.bytes(name, local)?, pe);
        Ok(Op { name, grid, call })
    }

    pub(crate) fn op_p<T: Scalar>(&self, name: &'static str, dst: Sym<T>, value: T, pe: u32) -> Result<Op> {
        self.check_pe(name, pe)?;
        let dst = self.bytes(name, dst.as_slice())?;
        Ok(Op { name, grid: ONE, call: rushmem_p(dst, word(value), pe) })
    }

    pub(crate) fn op_put_signal<T: Pod>(
        &self,
        name: &'static str,
        nbi: bool,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        announcement: Announcement,
        pe: u32,
    ) -> Result<Op> {
        self.check_pe(name, pe)?;
        same_length(name, dst, src)?;
        let Announcement { signal, op, value } = announcement;
        self.bytes(name, signal.as_slice())?;
        let set = op == SignalOp::Set;
        let (dst, src) = (self.bytes(name, dst)?, self.bytes(name, src)?);
        let call = rushmem_put_signal(nbi.into(), set.into(), dst, src, signal, value, pe);
        Ok(Op { name, grid: self.group(), call })
    }

    /// Blocks of `remote` at `pe` and `local` here, one by one.
    pub(crate) fn op_strided<T: Pod>(
        &self,
        name: &'static str,
        what: Transfer,
        remote: Strided<T>,
        local: Strided<T>,
        pe: u32,
    ) -> Result<Op> {
        self.check_pe(name, pe)?;
        if (remote.len(), remote.block()) != (local.len(), local.block()) {
            let shape = |s: Strided<T>| format!("{} blocks of {} elements", s.len(), s.block());
            let what = format!("{} for {}", shape(local), shape(remote));
            return Err(Error::Misuse { call: name, what });
        }
        let valid = |s: &Strided<T>| s.block() > 0 && s.stride() >= s.block();
        if let Some(bad) = [remote, local].iter().find(|s| !valid(s)) {
            let what = format!("blocks of {} elements, {} elements apart", bad.block(), bad.stride());
            return Err(Error::Misuse { call: name, what });
        }
        let bytes = |elements: usize| elements as u64 * size_of::<T>() as u64;
        let call = rushmem_strided(
            what as u32,
            self.bytes(name, remote.whole())?,
            bytes(remote.stride()),
            self.bytes(name, local.whole())?,
            bytes(local.stride()),
            bytes(local.block()),
            local.len() as u64,
            pe,
        );
        Ok(Op { name, grid: self.group(), call })
    }

    /// `old` gets the value found; none if nobody wants it.
    #[allow(clippy::too_many_arguments)] // what the operation has
    pub(crate) fn op_atomic<T: AmoWord>(
        &self,
        name: &'static str,
        what: Atomic,
        at: Sym<T>,
        value: T,
        compare: T,
        old: Option<Sym<T>>,
        pe: u32,
    ) -> Result<Op> {
        self.check_pe(name, pe)?;
        let float = [TypeId::of::<f32>(), TypeId::of::<f64>()].contains(&TypeId::of::<T>());
        let what = if what == Atomic::Add && float { Atomic::AddFloat } else { what };
        let old = match old {
            Some(old) => self.bytes(name, old.as_slice())?,
            None => NONE,
        };
        let at = self.bytes(name, at.as_slice())?;
        let call = rushmem_atomic(what as u32, at, word(value), word(compare), old, pe);
        Ok(Op { name, grid: ONE, call })
    }

    /// Reads a word, bit for bit, by adding nothing to it.
    pub(crate) fn op_fetch<T: AmoWord>(
        &self,
        name: &'static str,
        at: Sym<T>,
        old: Sym<T>,
        pe: u32,
    ) -> Result<Op> {
        self.check_pe(name, pe)?;
        let (at, old) = (self.bytes(name, at.as_slice())?, self.bytes(name, old.as_slice())?);
        Ok(Op { name, grid: ONE, call: rushmem_atomic(Atomic::Add as u32, at, 0, 0, old, pe) })
    }

    pub(crate) fn op_wait<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        at: Sym<T>,
        cmp: Cmp,
        value: T,
        seen: Option<Sym<u64>>,
    ) -> Result<Op> {
        let seen = match seen {
            Some(seen) => seen.as_slice(),
            None => NONE.cast(),
        };
        let at = self.bytes(name, at.as_slice())?;
        let call = rushmem_wait(kind::<T>() as u32, code::cmp(cmp), at, word(value), seen);
        Ok(Op { name, grid: ONE, call })
    }

    /// `found` gets what the call tells.
    pub(crate) fn op_words<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        what: Set,
        words: &Words<T>,
        found: SymSlice<u64>,
    ) -> Result<Op> {
        let (value, values) = match words.wanted {
            Wanted::One(value) => (word(value), NONE),
            Wanted::Each(values) => {
                same_length(name, words.words, values)?;
                (0, self.bytes(name, values)?)
            }
        };
        let except = match words.except {
            Some(except) if except.len() == words.words.len() => self.bytes(name, except)?.cast(),
            Some(except) => {
                let what = format!("a status of {} elements for {}", except.len(), words.words.len());
                return Err(Error::Misuse { call: name, what });
            }
            None => NONE.cast(),
        };
        let (kind, cmp, first) = (kind::<T>() as u32, code::cmp(words.cmp), words.next as u64);
        let at = self.bytes(name, words.words)?;
        let call = rushmem_words(what as u32, kind, cmp, at, value, values, except, first, found);
        Ok(Op { name, grid: ONE, call })
    }

    pub(crate) fn op_test<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        at: Sym<T>,
        cmp: Cmp,
        value: T,
        holds: Sym<u64>,
    ) -> Result<Op> {
        let at = self.bytes(name, at.as_slice())?;
        let call = rushmem_test(kind::<T>() as u32, code::cmp(cmp), at, word(value), holds.as_slice());
        Ok(Op { name, grid: ONE, call })
    }

    pub(crate) fn op_order(&self, name: &'static str, what: Order) -> Op {
        Op { name, grid: self.group(), call: rushmem_order(what as u32, 0) }
    }

    pub(crate) fn op_quiet_pe(&self, name: &'static str, pe: u32) -> Result<Op> {
        self.check_pe(name, pe)?;
        Ok(Op { name, grid: ONE, call: rushmem_order(Order::QuietPe as u32, pe) })
    }

    /// A collective call of a team. `root` is the root of a broadcast.
    pub(crate) fn op_collective<T: Pod>(
        &self,
        name: &'static str,
        what: Collective,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        root: u32,
    ) -> Result<Op> {
        let (dst, src) = (self.bytes(name, dst)?, self.bytes(name, src)?);
        let extra = if what == Collective::Alltoall { size_of::<T>() as u32 } else { root };
        let call = rushmem_collective(what as u32, team, 0, 0, dst, src, extra);
        Ok(Op { name, grid: self.group(), call })
    }

    /// A collective call of a team that computes; `op` is a [`Reduce`](rushmem_device::Reduce) or a [`Scan`](rushmem_device::Scan).
    pub(crate) fn op_reduction<T: Element>(
        &self,
        name: &'static str,
        what: Collective,
        team: Team,
        op: u32,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result<Op> {
        let (dst, src) = (self.bytes(name, dst)?, self.bytes(name, src)?);
        let call = rushmem_collective(what as u32, team, op, T::KIND as u32, dst, src, 0);
        Ok(Op { name, grid: self.group(), call })
    }

    /// A collective call of a team without data.
    pub(crate) fn op_meeting(&self, name: &'static str, what: Collective, team: Team) -> Op {
        let call = rushmem_collective(what as u32, team, 0, 0, NONE, NONE, 0);
        Op { name, grid: self.group(), call }
    }

    /// A block of threads that share the work of one operation.
    fn group(&self) -> Grid {
        Grid { threads: if self.is_gpu() { 256 } else { 1 }, ..ONE }
    }

    pub(crate) fn check_pe(&self, call: &'static str, pe: u32) -> Result<()> {
        if pe < self.n_pes() {
            return Ok(());
        }
        let what = format!("there is no PE {pe}: the job has {}", self.n_pes());
        Err(Error::Misuse { call, what })
    }

    /// An object as bytes, if it is one.
    fn bytes<T: Pod>(&self, call: &'static str, object: SymSlice<T>) -> Result<SymSlice<u8>> {
        self.memory().check(object.handle()).map_err(|why| misuse(call, object, why))?;
        if object.offset() == u64::MAX {
            let what = format!("{object:?} is not inside of its object");
            return Err(Error::Misuse { call, what });
        }
        Ok(object.cast())
    }
}

/// For what a thread does by itself.
const ONE: Grid = Grid { blocks: 1, threads: 1, shared_bytes: 0 };

// SAFETY: no bytes at all.
const NONE: SymSlice<u8> = unsafe { SymSlice::from_raw(0, 0) };

fn same_length<T: Pod>(call: &'static str, one: SymSlice<T>, other: SymSlice<T>) -> Result<()> {
    if one.len() == other.len() {
        return Ok(());
    }
    let what = format!("{} elements for {}", other.len(), one.len());
    Err(Error::Misuse { call, what })
}

/// The bytes of a value of at most 8, as a kernel takes them.
fn word<T: Pod>(value: T) -> u64 {
    let bytes = bytemuck::bytes_of(&value);
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// What a word is: a type is signed if all ones are less than zero.
fn kind<T: Amo + PartialOrd>() -> Word {
    let mut ones = T::zeroed();
    bytemuck::bytes_of_mut(&mut ones).fill(0xff);
    match (size_of::<T>(), ones < T::zeroed()) {
        (4, false) => Word::U32,
        (4, true) => Word::I32,
        (_, false) => Word::U64,
        (_, true) => Word::I64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_as_words() {
        assert_eq!(word(-2i16), 0xfffe);
        assert_eq!(word(0x0102_0304u32), 0x0102_0304);
        assert_eq!(word(1.5f64), 1.5f64.to_bits());
        assert_eq!(word(u64::MAX), u64::MAX);
    }

    #[test]
    fn words_are_told_by_their_types() {
        assert_eq!((kind::<u32>(), kind::<i32>()), (Word::U32, Word::I32));
        assert_eq!((kind::<u64>(), kind::<i64>()), (Word::U64, Word::I64));
        assert_eq!((kind::<usize>(), kind::<isize>()), (Word::U64, Word::I64));
    }
}
