//! Prefetches the payloads of the next packets with one access, from memory that the CPU reaches only through driver
//! calls.
//!
//! Each such call waits for the GPU, and one call per packet would dominate the cost of sending. Prefetching is allowed
//! because a program must not modify the data of a posted WQE before its completion.

use super::start::{Start, start};
use crate::dma::{Dma, FarRanges, Mkeys, Rights, User};
use crate::objects::qp::{Kind, Message, Qp};
use crate::objects::{Objects, access};
use crate::request::RemoteRange;
use crate::roce::Psn;
use crate::route::Route;
use crate::transport::datapath::Datapath;
use crate::wqe::{LocalError, Piece, for_each_piece};
use std::collections::VecDeque;

/// Maximum number of packets sent before other QPs run.
pub(super) const BURST: usize = 64;

/// Payloads of the next packets that have been read from memory in advance, in PSN order.
#[derive(Default)]
pub(super) struct Ahead {
    /// PSN of each packet, and the end of its payload in `bytes`.
    packets: VecDeque<(Psn, usize)>,
    bytes: Vec<u8>,
    /// Offset in `bytes` of the next payload.
    taken: usize,
}

impl Ahead {
    /// Whether the next prefetched payload belongs to the packet at `psn`.
    pub(super) fn is_at(&self, psn: Psn) -> bool {
        self.packets.front().is_some_and(|(next, _)| *next == psn)
    }

    /// Removes and returns the next prefetched payload, if it belongs to the packet at `psn`.
    pub(super) fn take(&mut self, psn: Psn) -> Option<&[u8]> {
        if !self.is_at(psn) {
            return None;
        }
        let (_, end) = self.packets.pop_front()?;
        let start = std::mem::replace(&mut self.taken, end);
        Some(&self.bytes[start..end])
    }

    /// Reads the payloads from memory. An error is only logged, since it will occur again for the packet that it
    /// affects.
    fn read(&mut self, dma: &mut Dma, ranges: &FarRanges) {
        if self.packets.is_empty() {
            return;
        }
        self.bytes.resize(ranges.len(), 0);
        if let Err(error) = dma.gather(ranges, &mut self.bytes) {
            tracing::debug!("payloads are not read ahead: {error}");
            self.packets.clear();
        }
    }
}

/// Prefetches the payloads of the burst of packets that a QP will send next, starting WQEs as necessary.
pub(super) fn payloads(path: &mut Datapath, qpn: u32) -> Ahead {
    let mut ahead = Ahead::default();
    let Datapath { objects: Objects { qps, cqs, mkeys, dma, .. }, scratch, report, fabric, .. } = path;
    let (Some(qp), Some(fabric)) = (qps.get_mut(qpn), fabric) else { return ahead };
    let Route::Peer(peer) = qp.route else { return ahead };
    // Memory that the CPU can access directly is not worth prefetching.
    if qp.req.pause.is_some() || !dma.has_far {
        return ahead;
    }
    let user = User { pd: qp.pd, qpn };
    let mtu_shift = qp.attrs.mtu_shift();
    let (mut next, mut packet) = (qp.req.next, qp.req.next_packet);
    let mut left = None;
    let mut ranges = FarRanges::default();
    while left != Some(0) {
        if next >= qp.req.messages.len() {
            // A DCI starts only the first WQE here, since the next one may need a connection to another target.
            let is_first = left.is_none();
            if !(is_first || qp.dci.is_none())
                || !matches!(start(qp, cqs, mkeys, dma, report, scratch), Start::Started)
            {
                break;
            }
            continue;
        }
        let Some(message) = qp.req.messages.get(next) else { break };
        let (at, psn) = ((next, packet), message.first.plus(packet));
        (next, packet) = message.after(at, 1);
        // Mirrors `sender::step`, which skips these packets too.
        if message.packets == 0 || qp.req.flight.has(psn) {
            continue;
        }
        // Stops at the first packet that cannot be prefetched. The sender reads the rest one by one.
        let Some(is_read) = collect(message, at.1, mtu_shift, (mkeys, user), &mut ranges) else { break };
        let most = match left {
            Some(most) => most,
            None => (qp.req.room(psn) as usize).min(fabric.room_to(peer)).min(BURST),
        };
        if most == 0 {
            return ahead;
        }
        left = Some(most - 1);
        if is_read {
            ahead.packets.push_back((psn, ranges.len()));
        }
    }
    ahead.read(dma, &ranges);
    ahead
}

/// Adds the memory that holds a packet's payload to `ranges`. Returns whether it must be read (inline data need not
/// be), or `None` if one access cannot read it with the others.
fn collect(
    message: &Message,
    packet: u32,
    mtu_shift: u32,
    (mkeys, user): (&Mkeys, User),
    ranges: &mut FarRanges,
) -> Option<bool> {
    if !matches!(message.kind, Kind::Write | Kind::Send) {
        return None;
    }
    let view = message.view().ok()?;
    let skip = u64::from(packet) << mtu_shift;
    let len = message.len.saturating_sub(skip).min(1 << mtu_shift);
    let (mut is_read, mut is_inline) = (false, false);
    for_each_piece(&view, mkeys, user, Rights::LOCAL_READ, skip, len, |piece, _| match piece {
        Piece::Memory(span) if !is_inline && ranges.push(&span) => {
            is_read = true;
            Ok(())
        }
        Piece::Inline(_) if !is_read => {
            is_inline = true;
            Ok(())
        }
        _ => Err(LocalError::Memory),
    })
    .ok()?;
    Some(is_read)
}

/// Prefetches the payloads of up to `most` response packets of a READ, from PSN `psn` on. Their data starts at offset
/// `skip` of the READ's range.
pub(super) fn responses(
    qp: &Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    (at, psn, skip): (RemoteRange, Psn, u64),
    most: u32,
) -> Ahead {
    let mut ahead = Ahead::default();
    let Ok(Some(span)) = access::readable(qp, mkeys, at) else { return ahead };
    let mut ranges = FarRanges::default();
    if !ranges.push(&span.part(skip, u64::from(most) << qp.attrs.mtu_shift())) {
        return ahead;
    }
    let (mtu, len) = (1 << qp.attrs.mtu_shift(), ranges.len());
    let ends = (0..qp.attrs.packets(len as u64)).map(|n| (psn.plus(n), len.min((n as usize + 1) * mtu)));
    ahead.packets.extend(ends);
    ahead.read(dma, &ranges);
    ahead
}
