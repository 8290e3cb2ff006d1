//! Send queues: fetches WQEs and dispatches their execution.

use crate::core::{Core, MAX_SEGMENTS, release};
use crate::datagram;
use crate::dc;
use crate::flush;
use crate::loopback;
use crate::qp::{Qp, Sq, State};
use crate::report::Report;
use crate::roce::Service;
use crate::route::Route;
use crate::wire;
use rushmem_mlx5::seg::blocks_for;
use rushmem_mlx5::wqe::{Malformed, View};
use rushmem_mlx5::{CtrlSeg, Opcode, Segment};

/// Segments of one block.
pub(crate) const PER_BLOCK: usize = 4;

/// Works on one QP for a bounded time. Returns whether it has more to do at once.
pub(crate) fn run(core: &mut Core, qpn: u32) -> bool {
    let Some(qp) = core.qps.get_mut(qpn) else { return false };
    if !qp.held.is_empty() {
        release(qp, &mut core.cqs, &mut core.report, false);
    }
    if qp.dci.is_none() {
        return execute(core, qpn);
    }
    dc::turn(core, qpn);
    execute(core, qpn) | dc::wants_turn(core, qpn)
}

/// Executes WQEs and answers packets of a QP.
#[inline]
fn execute(core: &mut Core, qpn: u32) -> bool {
    let Some(qp) = core.qps.get_mut(qpn) else { return false };
    match (qp.service, qp.route, qp.state) {
        (Service::Ud, _, State::Rts) => datagram::run(core, qpn),
        (Service::Ud, _, State::Error) => flush::run(qp, &mut core.cqs, &mut core.report),
        (Service::Ud, ..) => false,
        (_, Route::Peer(_), _) => wire::run(core, qpn),
        (_, Route::Loopback, State::Rts) => loopback::run(core, qpn),
        (_, Route::Loopback, State::Error) => flush::run(qp, &mut core.cqs, &mut core.report),
        (_, Route::Loopback, _) => false,
    }
}

/// A WQE that is in the wrong slot or cannot be parsed.
#[derive(Debug)]
pub(crate) struct BadWqe {
    pub(crate) opcode: Opcode,
    /// Blocks to skip.
    pub(crate) blocks: u16,
    pub(crate) detail: String,
}

/// Copies the WQE at `index` out of the ring and checks it.
#[inline]
pub(crate) fn fetch<'a>(
    sq: &Sq,
    (service, qpn): (Service, u32),
    index: u16,
    scratch: &'a mut [Segment; MAX_SEGMENTS],
    report: &mut Report,
) -> Result<View<'a>, BadWqe> {
    let available = sq.producer.wrapping_sub(index);
    sq.ring.fetch_ahead(index, available);
    sq.ring.load_block(index, &mut scratch[..PER_BLOCK]);
    let ctrl = CtrlSeg::from_segment(scratch[0]);
    let ds = ctrl.ds();
    let blocks = u16::from(blocks_for(ds)).max(1);
    if ctrl.index() != index || ctrl.qpn() != qpn || blocks > available {
        return Err(misplaced(ctrl, qpn, index, available));
    }
    for block in 1..blocks {
        let at = usize::from(block) * PER_BLOCK;
        sq.ring.load_block(index.wrapping_add(block), &mut scratch[at..at + PER_BLOCK]);
    }
    let segments = &scratch[..usize::from(ds).max(1)];
    let view = parse(service, segments).map_err(|error| BadWqe {
        opcode: ctrl.opcode(),
        blocks,
        detail: format!("entry {index:#06x}: {error}"),
    })?;
    tracing::trace!(entry = %view, "send entry");
    if let Some(record) = &mut report.record {
        record.entry(service, &view);
    }
    Ok(view)
}

/// Parses a WQE of a QP of this service.
pub(crate) fn parse(service: Service, segments: &[Segment]) -> Result<View<'_>, Malformed> {
    match service {
        Service::Ud => View::parse_datagram(segments),
        Service::Dc => View::parse_dc(segments),
        Service::Xrc => View::parse_xrc(segments),
        Service::Rc | Service::Uc => View::parse(segments),
    }
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

/// Returns index, opcode and plausible block count of the WQE at the head of the queue.
pub(crate) fn blocks_at_head(qp: &Qp) -> Option<(u16, Opcode, u16)> {
    let sq = qp.sq.as_ref().filter(|sq| sq.pending() != 0)?;
    let mut first = [Segment::ZERO; PER_BLOCK];
    sq.ring.load_block(sq.consumer, &mut first);
    let ctrl = CtrlSeg::from_segment(first[0]);
    let believable = ctrl.index() == sq.consumer && ctrl.qpn() == qp.qpn;
    let blocks = if believable { u16::from(blocks_for(ctrl.ds())).clamp(1, sq.pending()) } else { 1 };
    Some((sq.consumer, ctrl.opcode(), blocks))
}
