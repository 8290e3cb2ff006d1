//! Fetches WQEs from a send queue and checks them.

use super::completion::fail;
use crate::objects::Cq;
use crate::objects::qp::{Qp, Sq};
use crate::report::{Report, Rule};
use crate::roce::Service;
use crate::table::Table;
use crate::wqe::{Done, LocalError, parse};
use rushmem_mlx5::seg::blocks_for;
use rushmem_mlx5::wqe::{Malformed, View};
use rushmem_mlx5::{CtrlSeg, Opcode, Segment, Syndrome};

/// Number of segments of the largest send WQE, rounded up to whole blocks.
pub(crate) const MAX_SEGMENTS: usize = 64;
pub(crate) const PER_BLOCK: usize = 4;

/// Error: a WQE is in the wrong slot or cannot be parsed.
#[derive(Debug)]
pub(crate) struct BadWqe {
    pub(crate) opcode: Opcode,
    /// Number of blocks to skip to the next WQE.
    pub(crate) blocks: u16,
    pub(crate) detail: String,
}

/// Copies the WQE at `index` out of the send queue, and checks that it belongs there. Returns its control segment and
/// all segments.
#[inline]
pub(crate) fn load<'a>(
    sq: &Sq,
    qpn: u32,
    index: u16,
    scratch: &'a mut [Segment; MAX_SEGMENTS],
) -> Result<(CtrlSeg, &'a [Segment]), BadWqe> {
    let available = sq.producer.wrapping_sub(index);
    sq.ring.fetch_ahead(index, available);
    sq.ring.load_block(index, &mut scratch[..PER_BLOCK]);
    let ctrl = CtrlSeg::from_segment(scratch[0]);
    let ds = ctrl.ds();
    let blocks = u16::from(blocks_for(ds)).max(1);
    // The length of a WQE is only trusted if the rest identifies the slot.
    if ctrl.index() != index || ctrl.qpn() != qpn || blocks > available {
        return Err(misplaced(ctrl, qpn, index, available));
    }
    for block in 1..blocks {
        let at = usize::from(block) * PER_BLOCK;
        sq.ring.load_block(index.wrapping_add(block), &mut scratch[at..at + PER_BLOCK]);
    }
    Ok((ctrl, &scratch[..usize::from(ds).max(1)]))
}

/// Copies the WQE at `index` out of the send queue and checks it.
#[inline]
pub(crate) fn fetch<'a>(
    sq: &Sq,
    (service, qpn): (Service, u32),
    index: u16,
    scratch: &'a mut [Segment; MAX_SEGMENTS],
    report: &mut Report,
) -> Result<View<'a>, BadWqe> {
    let (ctrl, segments) = load(sq, qpn, index, scratch)?;
    let view = parse(service, segments).map_err(|error| unparsed(ctrl, index, &error))?;
    tracing::trace!(entry = %view, "send entry");
    if let Some(record) = &mut report.record {
        record.wqe(service, &view);
    }
    Ok(view)
}

/// Describes a WQE that cannot be parsed.
#[cold]
pub(crate) fn unparsed(ctrl: CtrlSeg, index: u16, error: &Malformed) -> BadWqe {
    let blocks = u16::from(blocks_for(ctrl.ds())).max(1);
    BadWqe { opcode: ctrl.opcode(), blocks, detail: format!("entry {index:#06x}: {error}") }
}

#[cold]
fn misplaced(ctrl: CtrlSeg, qpn: u32, index: u16, available: u16) -> BadWqe {
    let detail = format!(
        "entry {index:#06x} of QP {qpn:#x} says index {:#06x}, QP {:#x}, {} segments, {available} blocks announced",
        ctrl.index(),
        ctrl.qpn(),
        ctrl.ds()
    );
    BadWqe { opcode: ctrl.opcode(), blocks: 1, detail }
}

/// Returns index, opcode and block count of the WQE at the head of the send queue. The count is 1 unless the WQE is
/// plausible.
pub(crate) fn blocks_at_head(qp: &Qp) -> Option<(u16, Opcode, u16)> {
    let sq = qp.sq.as_ref().filter(|sq| sq.pending() != 0)?;
    let mut first = [Segment::ZERO; PER_BLOCK];
    sq.ring.load_block(sq.consumer, &mut first);
    let ctrl = CtrlSeg::from_segment(first[0]);
    let believable = ctrl.index() == sq.consumer && ctrl.qpn() == qp.qpn;
    let blocks = if believable { u16::from(blocks_for(ctrl.ds())).clamp(1, sq.pending()) } else { 1 };
    Some((sq.consumer, ctrl.opcode(), blocks))
}

/// Completes a malformed WQE with an error.
pub(crate) fn malformed(qp: &mut Qp, cqs: &mut Table<Cq>, report: &mut Report, index: u16, bad: BadWqe) {
    report.violations.record(Rule::Wqe, qp.qpn, bad.detail);
    report.stats.wqes += 1;
    if let Some(sq) = &mut qp.sq {
        sq.consumer = sq.consumer.wrapping_add(bad.blocks.clamp(1, sq.pending()));
    }
    let done = Done { index, opcode: bad.opcode, byte_cnt: 0 };
    fail(qp, cqs, report, done, Syndrome::LOCAL_QP_OP_ERR, 0);
}

/// Whether the CQ of a WAIT WQE has produced the CQE whose 16-bit index the WQE names. `true` for any other WQE.
pub(crate) fn cq_reached(view: &View<'_>, cqs: &Table<Cq>) -> Result<bool, LocalError> {
    let Some(wait) = view.wait() else { return Ok(true) };
    let cq = cqs.get(wait.cqn.get()).ok_or(LocalError::Operation)?;
    Ok((cq.produced as u16).wrapping_sub(wait.index.get() as u16).wrapping_sub(1) < 0x8000)
}
