//! Describes each operation of host or streams as a kernel call with arguments.
//!
//! Invalid arguments are rejected here, before anything runs.

use std::any::TypeId;

use bytemuck::Pod;
use rushmem_device::abi::team_words;
use rushmem_device::amo::{Amo, AmoWord};
use rushmem_device::{
    Cmp, Element, InvalidRange, LocalBuffer, Scalar, SignalOp, SignalUpdate, Strided, Sym, SymSlice, Team,
};
use rushmem_machine::LaunchConfig;
use rushmem_memory::misuse;
use rushmem_runtime_kernels::code::{self, Atomic, Collective, Order, Transfer, WaitSetOp, WordKind};
use rushmem_runtime_kernels::{
    rushmem_atomic, rushmem_collective, rushmem_grid_collective, rushmem_order, rushmem_p,
    rushmem_put_signal, rushmem_small_collective, rushmem_small_grid_collective, rushmem_strided,
    rushmem_test, rushmem_transfer, rushmem_wait, rushmem_wait_set,
};

use super::wait_set::{WaitSet, WantedValue};
use crate::launch_queue::{NO_BYTES, Operation};
use crate::{Error, Pe, Result};

/// Minimum number of bytes that each block of a transfer copies.
const BYTES_PER_BLOCK: u64 = 64 << 10;

impl Pe {
    pub(crate) fn op_transfer<T: Pod>(
        &self,
        name: &'static str,
        what: Transfer,
        remote: SymSlice<T>,
        local: SymSlice<T>,
        pe: u32,
    ) -> Result<Operation> {
        self.check_pe(name, pe)?;
        same_length(name, remote, local)?;
        let blocks = u32::try_from(local.bytes() / BYTES_PER_BLOCK).unwrap_or(u32::MAX);
        let grid = if self.is_gpu() { blocks.clamp(1, self.grid().blocks()) } else { 1 };
        let grid = self.one_block().with_blocks(grid);
        let call = rushmem_transfer(what as u32, self.bytes(name, remote)?, self.bytes(name, local)?, pe);
        Ok(Operation { name, grid, call })
    }

    pub(crate) fn op_p<T: Scalar>(
        &self,
        name: &'static str,
        dst: Sym<T>,
        value: T,
        pe: u32,
    ) -> Result<Operation> {
        self.check_pe(name, pe)?;
        let dst = self.bytes(name, dst.as_slice())?;
        Ok(Operation { name, grid: ONE_THREAD, call: rushmem_p(dst, word(value), pe) })
    }

    pub(crate) fn op_put_signal<T: Pod>(
        &self,
        name: &'static str,
        nbi: bool,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        update: SignalUpdate,
        pe: u32,
    ) -> Result<Operation> {
        self.check_pe(name, pe)?;
        same_length(name, dst, src)?;
        let SignalUpdate { signal, op, value } = update;
        self.bytes(name, signal.as_slice())?;
        let set = op == SignalOp::Set;
        let (dst, src) = (self.bytes(name, dst)?, self.bytes(name, src)?);
        let call = rushmem_put_signal(nbi.into(), set.into(), dst, src, signal, value, pe);
        Ok(Operation { name, grid: self.one_block(), call })
    }

    pub(crate) fn op_strided<T: Pod>(
        &self,
        name: &'static str,
        what: Transfer,
        remote: Strided<T>,
        local: Strided<T>,
        pe: u32,
    ) -> Result<Operation> {
        self.check_pe(name, pe)?;
        if (remote.len(), remote.block()) != (local.len(), local.block()) {
            let shape = |s: Strided<T>| format!("{} blocks of {} elements", s.len(), s.block());
            let what = format!("{} for {}", shape(local), shape(remote));
            return Err(Error::misuse(name, what));
        }
        let valid = |s: &Strided<T>| s.block() > 0 && s.stride() >= s.block();
        if let Some(bad) = [remote, local].iter().find(|s| !valid(s)) {
            let what = format!("blocks of {} elements, {} elements apart", bad.block(), bad.stride());
            return Err(Error::misuse(name, what));
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
        Ok(Operation { name, grid: self.one_block(), call })
    }

    /// Describes an atomic update as a kernel call. The old value is stored in `result`, if given.
    pub(crate) fn op_atomic<T: AmoWord>(
        &self,
        name: &'static str,
        what: Atomic,
        result: Option<Sym<T>>,
        target: Sym<T>,
        value: T,
        pe: u32,
    ) -> Result<Operation> {
        self.check_pe(name, pe)?;
        let float = [TypeId::of::<f32>(), TypeId::of::<f64>()].contains(&TypeId::of::<T>());
        let what = if what == Atomic::Add && float { Atomic::AddFloat } else { what };
        let result = match result {
            Some(result) => self.bytes(name, result.as_slice())?,
            None => NO_BYTES,
        };
        let target = self.bytes(name, target.as_slice())?;
        let call = rushmem_atomic(what as u32, result, target, word(value), 0, pe);
        Ok(Operation { name, grid: ONE_THREAD, call })
    }

    /// Describes a compare-and-swap as a kernel call. The old value is stored in `result`.
    pub(crate) fn op_compare_swap<T: Amo>(
        &self,
        name: &'static str,
        result: Sym<T>,
        target: Sym<T>,
        compare: T,
        value: T,
        pe: u32,
    ) -> Result<Operation> {
        self.check_pe(name, pe)?;
        let (target, result) = (self.bytes(name, target.as_slice())?, self.bytes(name, result.as_slice())?);
        let (value, compare) = (word(value), word(compare));
        let call = rushmem_atomic(Atomic::CompareSwap as u32, result, target, value, compare, pe);
        Ok(Operation { name, grid: ONE_THREAD, call })
    }

    /// Describes an atomic read as a kernel call: a fetch-and-add of 0.
    pub(crate) fn op_atomic_fetch<T: AmoWord>(
        &self,
        name: &'static str,
        result: Sym<T>,
        target: Sym<T>,
        pe: u32,
    ) -> Result<Operation> {
        self.check_pe(name, pe)?;
        let (target, result) = (self.bytes(name, target.as_slice())?, self.bytes(name, result.as_slice())?);
        let call = rushmem_atomic(Atomic::Add as u32, result, target, 0, 0, pe);
        Ok(Operation { name, grid: ONE_THREAD, call })
    }

    pub(crate) fn op_wait<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        seen: Option<Sym<u64>>,
        target: Sym<T>,
        cmp: Cmp,
        value: T,
    ) -> Result<Operation> {
        let seen = match seen {
            Some(seen) => seen.as_slice(),
            None => NO_BYTES.cast(),
        };
        let target = self.bytes(name, target.as_slice())?;
        let call = rushmem_wait(seen, kind::<T>() as u32, code::cmp(cmp), target, word(value));
        Ok(Operation { name, grid: ONE_THREAD, call })
    }

    /// Describes a wait for a set of words, or a test of them, as a kernel call. The result is stored in `found`.
    pub(crate) fn op_wait_set<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        what: WaitSetOp,
        found: SymSlice<u64>,
        words: &WaitSet<T>,
    ) -> Result<Operation> {
        let (value, values) = match words.wanted {
            WantedValue::One(value) => (word(value), NO_BYTES),
            WantedValue::Each(values) => {
                same_length(name, words.words, values)?;
                (0, self.bytes(name, values)?)
            }
        };
        let except = match words.except {
            Some(except) if except.len() == words.words.len() => self.bytes(name, except)?.cast(),
            Some(except) => {
                let what = format!("a status of {} elements for {}", except.len(), words.words.len());
                return Err(Error::misuse(name, what));
            }
            None => NO_BYTES.cast(),
        };
        let (kind, cmp, first) = (kind::<T>() as u32, code::cmp(words.cmp), words.next as u64);
        let at = self.bytes(name, words.words)?;
        let call = rushmem_wait_set(what as u32, found, kind, cmp, at, value, values, except, first);
        Ok(Operation { name, grid: ONE_THREAD, call })
    }

    pub(crate) fn op_test<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        holds: Sym<u64>,
        target: Sym<T>,
        cmp: Cmp,
        value: T,
    ) -> Result<Operation> {
        let (target, kind) = (self.bytes(name, target.as_slice())?, kind::<T>() as u32);
        let call = rushmem_test(holds.as_slice(), kind, code::cmp(cmp), target, word(value));
        Ok(Operation { name, grid: ONE_THREAD, call })
    }

    pub(crate) fn op_order(&self, name: &'static str, what: Order) -> Operation {
        Operation { name, grid: self.one_block(), call: rushmem_order(what as u32, 0) }
    }

    pub(crate) fn op_quiet_pe(&self, name: &'static str, pe: u32) -> Result<Operation> {
        self.check_pe(name, pe)?;
        Ok(Operation { name, grid: ONE_THREAD, call: rushmem_order(Order::QuietPe as u32, pe) })
    }

    pub(crate) fn op_meet(&self, pe: u32) -> Operation {
        Operation { name: "grow", grid: ONE_THREAD, call: rushmem_order(Order::Meet as u32, pe) }
    }

    /// Describes a collective call that moves data as a kernel call. `root` is only used by broadcasts.
    pub(crate) fn op_collective<T: Pod>(
        &self,
        name: &'static str,
        what: Collective,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        root: u32,
    ) -> Result<Operation> {
        let (dst, src) = (self.bytes(name, dst)?, self.bytes(name, src)?);
        let extra = if what == Collective::Alltoall { size_of::<T>() as u32 } else { root };
        Ok(self.collective(name, what, team, (0, 0), (dst, src), extra))
    }

    /// Describes a reduction or scan as a kernel call. `op` is a [`Reduce`](rushmem_device::Reduce) or a
    /// [`Scan`](rushmem_device::Scan).
    pub(crate) fn op_reduction<T: Element>(
        &self,
        name: &'static str,
        what: Collective,
        team: Team,
        op: u32,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result<Operation> {
        let (dst, src) = (self.bytes(name, dst)?, self.bytes(name, src)?);
        Ok(self.collective(name, what, team, (op, T::KIND as u32), (dst, src), 0))
    }

    /// Describes a collective call with the arguments of [`rushmem_collective`]. If there is data for several blocks,
    /// several blocks perform it.
    fn collective(
        &self,
        name: &'static str,
        what: Collective,
        team: Team,
        (op, kind): (u32, u32),
        (dst, src): (SymSlice<u8>, SymSlice<u8>),
        extra: u32,
    ) -> Operation {
        // All members must use the same number of blocks, so count bytes on which they agree. `collect` has none:
        // lengths differ.
        let bytes = match what {
            Collective::Broadcast | Collective::Reduce | Collective::ReduceScatter => dst.bytes(),
            Collective::Fcollect => src.bytes(),
            Collective::Alltoall => {
                dst.bytes().checked_div(self.team_n_pes(team).unwrap_or(0).into()).unwrap_or(0)
            }
            _ => 0,
        };
        let one = self.one_block();
        let Some(channels) = self.teams.channels(team) else {
            let call = rushmem_collective(what as u32, team, op, kind, dst, src, extra);
            return Operation { name, grid: one, call };
        };
        let most = self.collective_blocks.min(channels.count);
        let wanted = blocks_for(bytes, self.bytes_per_block(), most);
        let blocks = if bytes <= self.bytes_of_one_block(what) { 1 } else { wanted };
        let (by, objects) = ((blocks, channels), (dst, src));
        let call = match self.small_collective(what, team, (op, kind), objects, extra, by) {
            Some(call) if blocks > 1 => rushmem_small_grid_collective(team, call, channels.more),
            Some(call) => rushmem_small_collective(team, call),
            None if blocks > 1 => {
                rushmem_grid_collective(what as u32, team, op, kind, dst, src, extra, channels.more)
            }
            None => rushmem_collective(what as u32, team, op, kind, dst, src, extra),
        };
        Operation { name, grid: one.with_blocks(blocks), call }
    }

    /// Returns the number of bytes of a collective call for which an additional block pays off. Equal on all PEs.
    fn bytes_per_block(&self) -> u64 {
        let all_p2p = self.team_n_pes(Team::SHARED) == Some(self.n_pes());
        if self.is_gpu() && all_p2p {
            team_words::p2p_bytes_per_channel(self.n_pes())
        } else {
            team_words::BYTES_PER_CHANNEL
        }
    }

    /// Returns the number of bytes of a collective call up to which one block is faster than several, which take longer
    /// to start and to find their parts. Equal on all PEs.
    fn bytes_of_one_block(&self, what: Collective) -> u64 {
        let of_two = match what {
            Collective::Reduce | Collective::ReduceScatter => 4096,
            Collective::Fcollect => 2048,
            _ => 0,
        };
        if self.is_gpu() { of_two / u64::from(self.n_pes() - 1).max(1) } else { 0 }
    }

    /// Describes a barrier or another collective call without data as a kernel call.
    pub(crate) fn op_team_sync(&self, name: &'static str, what: Collective, team: Team) -> Operation {
        let call = rushmem_collective(what as u32, team, 0, 0, NO_BYTES, NO_BYTES, 0);
        Operation { name, grid: self.one_block(), call }
    }

    /// Returns the grid of an operation that a single block performs.
    fn one_block(&self) -> LaunchConfig {
        ONE_THREAD.with_threads(if self.is_gpu() { 256 } else { 1 })
    }

    /// Checks that the job has PE `pe`.
    pub(crate) fn check_pe(&self, call: &'static str, pe: u32) -> Result<()> {
        if pe < self.n_pes() {
            return Ok(());
        }
        let what = format!("there is no PE {pe}: the job has {}", self.n_pes());
        Err(Error::misuse(call, what))
    }

    /// Checks the handle of an object, and returns the object as bytes.
    fn bytes<T: Pod>(&self, call: &'static str, object: SymSlice<T>) -> Result<SymSlice<u8>> {
        self.memory().check(object.handle()).map_err(|why| misuse(call, object, why))?;
        if InvalidRange::of_offset(object.offset()).is_some() {
            let what = format!("{object:?} is not inside its object");
            return Err(Error::misuse(call, what));
        }
        Ok(object.cast())
    }
}

/// The grid of an operation that a single thread performs.
pub(super) const ONE_THREAD: LaunchConfig = LaunchConfig::new(1, 1);

/// Returns the number of blocks for a collective call of `bytes` bytes per member: one per `per_block` bytes, but at
/// most `most`, which all PEs can have resident.
fn blocks_for(bytes: u64, per_block: u64, most: u32) -> u32 {
    let wanted = bytes.div_ceil(per_block).clamp(1, team_words::MAX_CHANNELS.into());
    (wanted as u32).min(most.max(1))
}

fn same_length<T: Pod>(call: &'static str, one: SymSlice<T>, other: SymSlice<T>) -> Result<()> {
    if one.len() == other.len() {
        return Ok(());
    }
    let what = format!("{} elements for {}", other.len(), one.len());
    Err(Error::misuse(call, what))
}

/// Zero-extends a value of at most 8 bytes to a word, as kernels expect.
fn word<T: Pod>(value: T) -> u64 {
    let bytes = bytemuck::bytes_of(&value);
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

pub(super) fn one<T: Amo>() -> T {
    let mut one = T::zeroed();
    // Rushmem supports little-endian machines only.
    bytemuck::bytes_of_mut(&mut one)[0] = 1;
    one
}

/// Returns the size and signedness of a word type as kernels expect them. A type is signed if all ones are less than
/// zero.
fn kind<T: Amo + PartialOrd>() -> WordKind {
    let mut ones = T::zeroed();
    bytemuck::bytes_of_mut(&mut ones).fill(0xff);
    match (size_of::<T>(), ones < T::zeroed()) {
        (4, false) => WordKind::U32,
        (4, true) => WordKind::I32,
        (_, false) => WordKind::U64,
        (_, true) => WordKind::I64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_collective_calls_use_several_blocks() {
        assert_eq!([0, 1, 8 << 10].map(|bytes| blocks_for(bytes, 8 << 10, 66)), [1; 3]);
        assert_eq!(
            [(8 << 10) + 1, 64 << 10, 1 << 40].map(|bytes| blocks_for(bytes, 8 << 10, 66)),
            [2, 8, 64]
        );
        assert_eq!([blocks_for(1 << 20, 8 << 10, 3), blocks_for(1 << 20, 8 << 10, 0)], [3, 1]);
    }

    #[test]
    fn packs_values_into_words() {
        assert_eq!(word(-2i16), 0xfffe);
        assert_eq!(word(0x0102_0304u32), 0x0102_0304);
        assert_eq!(word(1.5f64), 1.5f64.to_bits());
        assert_eq!(word(u64::MAX), u64::MAX);
    }

    #[test]
    fn finds_the_kind_of_a_word_type() {
        assert_eq!((kind::<u32>(), kind::<i32>()), (WordKind::U32, WordKind::I32));
        assert_eq!((kind::<u64>(), kind::<i64>()), (WordKind::U64, WordKind::I64));
        assert_eq!((kind::<usize>(), kind::<isize>()), (WordKind::U64, WordKind::I64));
    }
}
