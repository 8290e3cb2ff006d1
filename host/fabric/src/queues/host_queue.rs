//! A loopback QP to which the CPU posts, used for probes and flushes.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rushmem_error::{NicError, Result};
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::doorbell::{Doorbell, Record, record_word};
use rushmem_mlx5::{CqeOpcode, CqeWord, Emitted, Flags, Syndrome, Wqe};

use super::queue_memory::QueueMemory;
use super::rail::{Loop, Qp, Rail, RetryPolicy};
use super::shape::{CQE_BYTES, WQEBB_BYTES};
use crate::provider::DoorbellForm;

/// A loopback QP: it is connected to itself, or to a second QP on the same port. Fields drop in order.
pub(super) struct HostQueue {
    pair: Qp,
    /// The QP on the receiving side, unless the QP is connected to itself.
    receiver: Option<Qp>,
    /// Number of basic blocks posted.
    posted: u64,
    /// Number of CQEs consumed.
    completed: u64,
}

pub(super) enum Outcome {
    /// The operation completed, this long after the doorbell.
    Completed(Duration),
    /// The NIC reported an error CQE.
    Failed { syndrome: Syndrome, vendor: u8 },
    /// The operation did not complete before the deadline.
    Late,
}

impl Qp {
    /// Encodes a signalled WQE that starts at block `index` of the send queue. For a DC initiator, `target` is the
    /// address vector of the DC target.
    pub(super) fn emit(&self, wqe: &Wqe, index: u64, target: Option<&AvSeg>) -> Emitted {
        let (index, qpn) = (index as u16, self.address.qpn);
        match target {
            Some(target) => wqe.emit_to(target, index, qpn, Flags::SIGNALED),
            None => wqe.emit(index, qpn, Flags::SIGNALED),
        }
    }
}

impl HostQueue {
    /// Wraps a QP to which nothing has been posted, and the QP on the receiving side if it is a different one.
    pub(super) fn new((pair, receiver): (Qp, Option<Qp>)) -> Self {
        Self { pair, receiver, posted: 0, completed: 0 }
    }

    /// Returns the QP to which the CPU posts, and the QP on the receiving side if it is a different one.
    pub(super) fn qps(&self) -> (&Qp, Option<&Qp>) {
        (&self.pair, self.receiver.as_ref())
    }

    /// Posts one WQE, and waits until `until` for its completion. `memory` holds the queues.
    ///
    /// # Errors
    /// Fails if the machine cannot access the queues.
    pub(super) fn post(
        &mut self,
        rail: &Rail,
        memory: &QueueMemory,
        wqe: &Wqe,
        until: Instant,
    ) -> Result<Outcome> {
        let first = self.posted;
        self.posted = post(rail, memory, &self.pair, first, &self.pair.emit(wqe, first, None))?;
        let rung = Instant::now();
        loop {
            match poll(memory, &self.pair, self.completed, first as u16)? {
                Some(None) => {
                    self.completed += 1;
                    return Ok(Outcome::Completed(rung.elapsed()));
                }
                Some(Some((syndrome, vendor))) => return Ok(Outcome::Failed { syndrome, vendor }),
                None if Instant::now() > until => return Ok(Outcome::Late),
                None => std::thread::yield_now(),
            }
        }
    }
}

/// Polls for the completion of the WQE at block `index` of a QP, of whose CQ `completed` entries have been consumed. Returns
/// `None` if it is not complete, `Some(None)` on success, and else the syndrome and vendor code of the error.
pub(super) fn poll(
    memory: &QueueMemory,
    pair: &Qp,
    completed: u64,
    index: u16,
) -> Result<Option<Option<(Syndrome, u8)>>> {
    let (depth, collapsed) = (memory.shape().depth, memory.shape().collapsed);
    let slot = if collapsed { 0 } else { completed & (depth - 1) };
    let at = memory.shape().place(pair.slot).cq + slot * CQE_BYTES;
    let mut word = 0u64;
    memory.region().read(at + CqeWord::OFFSET as u64, bytemuck::bytes_of_mut(&mut word))?;
    let word = CqeWord(u64::from_le(word));
    let kind = word.op_own();
    let is_error = !matches!(kind.opcode(), CqeOpcode::REQ | CqeOpcode::INVALID);
    let fresh = if collapsed {
        // All completions of a collapsed CQ go to the same entry. Only the WQE counter tells them apart, and no success
        // follows an error.
        is_error || kind.opcode() == CqeOpcode::REQ && word.wqe_counter() == index
    } else {
        kind.is_ready(completed as u32, depth as u32)
    };
    if !fresh {
        return Ok(None);
    }
    // Orders later reads after that of the word, which the NIC writes last: those of data, and of the rest of the CQE.
    fence(Ordering::Acquire);
    if !is_error {
        return Ok(Some(None));
    }
    let mut codes = [0u8; 2];
    memory.region().read(at + CqeWord::OFFSET as u64 - codes.len() as u64, &mut codes)?;
    let [vendor, syndrome] = codes;
    Ok(Some(Some((Syndrome(syndrome), vendor))))
}

/// Connects a QP to `receiver`, or to itself if there is none.
///
/// # Errors
/// Fails if the NIC refuses a command.
pub(super) fn connect(
    rail: &Rail,
    pair: &Qp,
    receiver: Option<&Qp>,
    retries: RetryPolicy,
) -> Result<(), NicError> {
    let port = rail.nic().port();
    rail.connect(pair, &port, receiver.unwrap_or(pair).address, retries)?;
    receiver.map_or(Ok(()), |receiver| rail.connect(receiver, &port, pair.address, retries))
}

/// Creates the QPs of a loopback connection by calling `make` with a slot: the sender, and the receiver if it is a
/// different QP.
///
/// # Errors
/// The errors of `make`.
pub(super) fn make(qps: Loop, make: impl Fn(u64) -> Result<Qp>) -> Result<(Qp, Option<Qp>)> {
    let receiver = if qps == Loop::TwoQps { Some(make(1)?) } else { None };
    Ok((make(0)?, receiver))
}

/// Posts a WQE at block `first` of a QP, and rings the doorbell. Returns the index of the next free block. `memory`
/// holds the queues.
///
/// # Errors
/// Fails if the machine cannot write the queues or the doorbell.
pub(super) fn post(rail: &Rail, memory: &QueueMemory, pair: &Qp, first: u64, entry: &Emitted) -> Result<u64> {
    let end = write(memory, pair, first, entry)?;
    ring(rail, memory, pair, end)?;
    Ok(end)
}

/// Writes a WQE at block `first` of a QP, whose queues are in `memory`. Returns the index of the next free block.
///
/// # Errors
/// Fails if the machine cannot write the queues.
pub(super) fn write(memory: &QueueMemory, pair: &Qp, first: u64, entry: &Emitted) -> Result<u64> {
    let (at, depth) = (memory.shape().place(pair.slot), memory.shape().depth);
    let mut end = first;
    for block in &entry.blocks[..entry.n_blocks().into()] {
        let slot = end & (depth - 1);
        memory.region().write(at.sq + slot * WQEBB_BYTES, bytemuck::bytes_of(block))?;
        end += 1;
    }
    Ok(end)
}

/// Announces all blocks of a QP before `end` to the NIC: updates the doorbell record, if there is one, and rings the doorbell.
///
/// # Errors
/// Fails if the machine cannot write the record or the doorbell.
pub(super) fn ring(rail: &Rail, memory: &QueueMemory, pair: &Qp, end: u64) -> Result<()> {
    // Block counts are 64-bit, but the NIC's producer index has 16 bits.
    let producer = end as u16;
    if pair.form == DoorbellForm::Record {
        let record = memory.shape().place(pair.slot).sq_record + Record::SND_OFFSET as u64;
        memory.region().write(record, &record_word(producer).to_le_bytes())?;
    }
    rail.uar(pair.slot).ring(pair.form, Doorbell::producer(pair.address.qpn, producer).raw())
}

/// Formats the syndrome and vendor code of an error CQE for messages.
pub(super) fn describe(syndrome: Syndrome, vendor: u8) -> String {
    let name = syndrome.name().unwrap_or("unknown syndrome");
    format!("{name} (syndrome {:#04x}, vendor {vendor:#04x}): {}", syndrome.0, syndrome.meaning())
}
