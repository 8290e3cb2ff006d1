//! The blocks of a failed connection that are not known to be complete, and their replay on another connection.

use std::time::Instant;

use rushmem_device::abi::{MovedKey, reserved};
use rushmem_error::{Error, Result};
use rushmem_mlx5::seg::SEGMENTS_PER_WQEBB;
use rushmem_mlx5::wqe::{Data, KeyOffsets};
use rushmem_mlx5::{CtrlSeg, Emitted, Flags, Opcode, Segment, View, Wqe, Wqebb};

use super::host_queue::{describe, poll, ring, write};
use super::rail::{Qp, Rail};

/// Message counts of a NIC have 24 bits.
const COUNT_MASK: u32 = 0xff_ffff;

/// A send entry that kernels have posted.
#[derive(Clone, Copy)]
struct Entry {
    wqe: Wqe,
    flags: Flags,
    /// Index of its first block.
    block: u64,
    n_blocks: u8,
    /// Heap offset to which an atomic writes the old value, if kernels read it.
    result: Option<u64>,
}

/// Entries of a failed connection, in the order of their posting.
pub(super) struct Salvage {
    entries: Vec<Entry>,
    /// Index of the block at which kernels will continue.
    pub(super) resume: u64,
    /// Number of messages that were posted to the connection before the entries.
    complete: u32,
    /// First block and heap offset of the result, for each atomic that was executed but whose result is lost.
    pub(super) lost: Vec<(u64, u64)>,
}

impl Salvage {
    /// Parses consecutive blocks of a queue, starting with block `first`. `complete` returns how many messages precede them,
    /// given how many of the blocks are the second of their entry.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a block is not one that kernels write.
    pub(super) fn new(
        blocks: &[Wqebb],
        first: u64,
        resume: u64,
        complete: impl FnOnce(u64) -> u64,
    ) -> Result<Self> {
        let segments: Vec<Segment> = blocks.iter().flat_map(|block| block.0).collect();
        let (mut rest, mut entries) = (&segments[..], Vec::new());
        while !rest.is_empty() {
            let view =
                View::parse(rest).map_err(|why| unusable(format!("a block has no valid entry: {why}")))?;
            let wqe = view.to_wqe().ok_or_else(|| unusable(format!("a block holds {}", view.opcode())))?;
            let block = first + ((segments.len() - rest.len()) / SEGMENTS_PER_WQEBB) as u64;
            let address = |data: Data| match data {
                Data::Pointer(at) => Some(at.addr.get()),
                Data::Inline(_) => None,
            };
            let result = view.atomic().and_then(|_| view.data().find_map(address));
            let result = result.filter(|&at| at != reserved::SINK);
            entries.push(Entry { wqe, flags: view.flags(), block, n_blocks: view.n_blocks(), result });
            rest = rest.get(usize::from(view.n_blocks()) * SEGMENTS_PER_WQEBB..).unwrap_or_default();
        }
        let second_blocks = blocks.len() - entries.len();
        Ok(Self { entries, resume, complete: complete(second_blocks as u64) as u32, lost: Vec::new() })
    }

    /// Removes the entries that the peer has executed, given the number of messages that it has executed over the
    /// connection, modulo 2^24. READs stay: their data may not have arrived.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the number cannot be true.
    pub(super) fn executed(&mut self, messages: u32) -> Result<()> {
        let executed = (messages.wrapping_sub(self.complete) & COUNT_MASK) as usize;
        if executed > self.entries.len() {
            let why = format!("the peer counts {executed} of {} messages as executed", self.entries.len());
            return Err(unusable(why));
        }
        let rest = self.entries.split_off(executed);
        self.lost.extend(self.entries.iter().filter_map(|entry| Some((entry.block, entry.result?))));
        self.entries.retain(|entry| matches!(entry.wqe, Wqe::Read { .. }));
        self.entries.extend(rest);
        Ok(())
    }

    /// Checks that all entries may be executed twice, because nobody knows which of them have been executed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if one is an atomic.
    pub(super) fn check_repeatable(&self) -> Result<()> {
        let is_repeatable =
            |entry: &Entry| matches!(entry.wqe.opcode(), Opcode::RDMA_WRITE | Opcode::RDMA_READ);
        if !self.entries.iter().all(is_repeatable) {
            return Err(unusable("the peer's NIC does not tell whether it has executed an atomic".into()));
        }
        Ok(())
    }

    /// Posts the entries to QP `pair`, to which nothing has been posted, such that the next block has index `resume`, and
    /// waits for their completion. `keys` replaces memory keys.
    ///
    /// # Errors
    /// An error if the machine cannot access the queue.
    pub(super) fn replay(
        &mut self,
        rail: &Rail,
        pair: &Qp,
        keys: &[MovedKey; 4],
        is_interrupted: &dyn Fn() -> bool,
        until: Option<Instant>,
    ) -> Result<Replay> {
        // From now on, the peer counts the messages of the new connection.
        self.complete = 0;
        let memory = rail.memory_of(pair);
        let chunk = memory.shape().depth / 2;
        let last = self.entries.len().saturating_sub(1);
        let entries = self.entries.iter().enumerate().map(|(i, entry)| {
            let fence = Flags(entry.flags.0 & !Flags::CQE_AND_EQE.0);
            (entry.wqe, if i == last { fence.or(Flags::SIGNALED) } else { fence })
        });
        let blocks: u64 = self.entries.iter().map(|entry| u64::from(entry.n_blocks)).sum();
        let nops = self.resume.wrapping_sub(blocks) & 0xffff;
        let nop = |i: u64| {
            let is_last = (i + 1).is_multiple_of(chunk) || i + 1 == nops;
            (Wqe::Nop, if is_last { Flags::SIGNALED } else { Flags::NONE })
        };
        let (mut at, mut completions) = (0, 0);
        for (wqe, flags) in (0..nops).map(nop).chain(entries) {
            let first = at;
            at = write(memory, pair, first, &moved(&wqe, first as u16, pair.address.qpn, flags, keys))?;
            if !flags.is_signaled() {
                continue;
            }
            ring(rail, memory, pair, at)?;
            loop {
                match poll(memory, pair, completions, first as u16)? {
                    Some(None) => break,
                    Some(Some((syndrome, vendor))) => {
                        let why = describe(syndrome, vendor);
                        if syndrome.is_connection_failure() {
                            return Ok(Replay::Failed(why));
                        }
                        return Err(unusable(why));
                    }
                    None if is_interrupted() => return Ok(Replay::Interrupted),
                    None if until.is_some_and(|until| Instant::now() > until) => {
                        return Ok(Replay::Failed("it takes too long".into()));
                    }
                    None => std::thread::yield_now(),
                }
            }
            completions += 1;
        }
        Ok(Replay::Done(Replayed { completions, messages: self.entries.len() as u64 }))
    }
}

/// The outcome of [`Salvage::replay`].
pub(super) enum Replay {
    /// Everything is complete.
    Done(Replayed),
    /// The connection has failed for this reason.
    Failed(String),
    Interrupted,
}

/// What a replay leaves on a connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Replayed {
    /// Number of CQEs that the host has consumed.
    pub(super) completions: u64,
    /// Number of messages posted.
    pub(super) messages: u64,
}

/// Returns the error for a failed connection that cannot be replaced.
pub(super) fn unusable(why: String) -> Error {
    Error::Unavailable { what: "another connection".into(), why }
}

/// Encodes an entry with other memory keys. `keys` are local and remote, for data and for words.
fn moved(wqe: &Wqe, index: u16, qpn: u32, flags: Flags, keys: &[MovedKey; 4]) -> Emitted {
    let mut entry = wqe.emit(index, qpn, flags);
    let [Wqebb([control, _, third, _]), _] = entry.blocks;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut entry.blocks);
    let offsets = KeyOffsets::of(CtrlSeg::from_segment(control), third);
    let (local, remote) = keys.split_at(2);
    for (offset, keys) in [(offsets.local, local), (offsets.remote, remote)] {
        if let Some(field) = offset.and_then(|at| bytes.get_mut(at..at + 4)) {
            let mut key = [0; 4];
            key.copy_from_slice(field);
            let key = u32::from_be_bytes(key);
            if let Some(MovedKey { to, .. }) = keys.iter().find(|pair| pair.from == key) {
                field.copy_from_slice(&to.to_be_bytes());
            }
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use rushmem_mlx5::Inline;

    use super::*;

    const RESULT: u64 = 0x1230;

    /// Returns a queue of one entry of each kind, from block `first` on.
    fn salvage(first: u64, complete: u64) -> Salvage {
        let (raddr, rkey, lkey) = (0x1000, 0x100, 0x200);
        let entries = [
            Wqe::Write { raddr, rkey, laddr: 8, lkey, len: 16 },
            Wqe::Read { raddr, rkey, laddr: 8, lkey, len: 16 },
            Wqe::FetchAdd { raddr, rkey, laddr: reserved::SINK, lkey, add: 1 },
            Wqe::MaskedCompareSwap64 {
                raddr,
                rkey,
                laddr: RESULT,
                lkey,
                compare: 0,
                swap: 1,
                compare_mask: 0,
                swap_mask: u64::MAX,
            },
            Wqe::WriteInline { raddr, rkey, data: Inline::from_u64(7) },
        ];
        let emit = |wqe: &Wqe| {
            let entry = wqe.emit(0, 0x77, Flags::NONE);
            entry.blocks.into_iter().take(entry.n_blocks().into())
        };
        let blocks: Vec<Wqebb> = entries.iter().flat_map(emit).collect();
        assert_eq!(blocks.len(), entries.len() + 1);
        Salvage::new(&blocks, first, first + 10, |second| complete - second).unwrap()
    }

    fn opcodes(salvage: &Salvage) -> Vec<Opcode> {
        salvage.entries.iter().map(|entry| entry.wqe.opcode()).collect()
    }

    #[test]
    fn executed_entries_are_not_replayed_except_reads() {
        let all = opcodes(&salvage(0x1_0000, 1));
        for executed in 0..=5 {
            let mut salvage = salvage(0x1_0000, 0x100_0000 - 1);
            // The count wraps after 24 bits.
            salvage.executed((0xff_fffe + executed as u32) & COUNT_MASK).unwrap();
            let reads = all[..executed].iter().filter(|opcode| **opcode == Opcode::RDMA_READ);
            let expected: Vec<Opcode> = reads.chain(&all[executed..]).copied().collect();
            assert_eq!(opcodes(&salvage), expected);
            let lost = if executed > 3 { vec![(0x1_0003, RESULT)] } else { vec![] };
            assert_eq!(salvage.lost, lost);
        }
    }

    #[test]
    fn impossible_counts_are_errors() {
        for messages in [8, 1, 0xff_ffff] {
            assert!(salvage(0x1_0000, 3).executed(messages).is_err(), "{messages}");
        }
        assert!(salvage(0x1_0000, 3).check_repeatable().is_err());
        assert!(Salvage::new(&[Wqebb::ZERO; 2], 0, 0, |_| 0).is_err());
    }

    #[test]
    fn keys_are_replaced_by_side() {
        let key = |from, to| MovedKey { from, to };
        let keys = [key(0x200, 1), key(0x201, 2), key(0x100, 3), key(0x200, 4)];
        let wqe = Wqe::Write { raddr: 0, rkey: 0x100, laddr: 0, lkey: 0x200, len: 8 };
        let entry = moved(&wqe, 5, 6, Flags::SIGNALED, &keys);
        assert_eq!(entry.n_blocks(), 1);
        let expected = Wqe::Write { raddr: 0, rkey: 3, laddr: 0, lkey: 1, len: 8 };
        assert_eq!(View::parse(entry.segments()).unwrap().to_wqe(), Some(expected));
    }
}
