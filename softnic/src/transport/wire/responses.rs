//! Sends the responder's queued responses in order, a burst at a time.

use super::ahead::{self, Ahead};
use crate::dma::{Dma, Mkeys};
use crate::link::Fabric;
use crate::objects::qp::{Qp, Response};
use crate::objects::{Objects, access};
use crate::report::Report;
use crate::request::{RemoteError, RemoteRange};
use crate::roce::{Aeth, AethSyndrome, Bth, Ext, Nak, Op, Psn};
use crate::route::Route;
use crate::transport::datapath::Datapath;
use std::net::SocketAddrV4;

/// Maximum number of packets sent before other QPs run.
const BURST: usize = 64;

/// Sends queued responses of a QP. Returns whether there are more to send right away.
pub(super) fn run(path: &mut Datapath, qpn: u32) -> bool {
    let Datapath { objects: Objects { qps, mkeys, dma, .. }, fabric, report, .. } = path;
    let (Some(qp), Some(fabric)) = (qps.get_mut(qpn), fabric.as_mut()) else { return false };
    let Route::Peer(peer) = qp.route else { return false };
    let mut visit = Visit { qp, mkeys, dma, fabric, report, peer, ahead: Ahead::default() };
    for left in (1..=BURST).rev() {
        let Some(answer) = visit.qp.resp.responses.front().copied() else { return false };
        if visit.fabric.room_to(peer) == 0 {
            return true;
        }
        // Responses are in PSN order, so a delayed one holds back all that follow.
        if let Some(due) = answer.due().filter(|due| *due > visit.report.now) {
            visit.report.wakeups.push((due, qpn));
            return false;
        }
        // An acknowledgement promises that the data is in memory, including writes that are still posted.
        match visit.dma.flush() {
            Ok(()) => visit.send(answer, left),
            Err(error) => visit.refuse(answer.psn(), RemoteError::Failed(error)),
        }
    }
    !visit.qp.resp.responses.is_empty()
}

/// A burst of responses that is sent by one QP.
struct Visit<'p> {
    qp: &'p mut Qp,
    mkeys: &'p Mkeys,
    dma: &'p mut Dma,
    fabric: &'p mut Fabric,
    report: &'p mut Report,
    peer: SocketAddrV4,
    ahead: Ahead,
}

impl Visit<'_> {
    /// Sends one packet of the response at the head of the queue. `left` packets may still be sent in this burst, this
    /// one included.
    #[inline]
    fn send(&mut self, answer: Response, left: usize) {
        match answer {
            Response::Ack { psn, syndrome } => {
                self.send_last(Op::Ack, psn, Ext::Aeth(self.aeth(syndrome)), &[])
            }
            // The report's PSN acknowledges everything before it, so it must not overtake the data of an earlier READ
            // or atomic.
            Response::Selective { .. } if self.qp.resp.responses.iter().any(Response::has_data) => {
                self.qp.resp.responses.rotate_left(1);
            }
            Response::Selective { .. } => {
                // Built now rather than when it was queued, so it reports the latest arrivals.
                let psn = self.qp.recv_psn;
                let ext = Ext::Aeth(self.aeth(AethSyndrome::Nak(Nak::Sequence)));
                let bits = self.qp.resp.early.bits(psn);
                self.send_last(Op::SelectiveAck, psn, ext, &bits);
            }
            Response::Atomic { psn, old, .. } => {
                self.send_last(Op::AtomicAck, psn, Ext::AtomicAck(self.aeth(AethSyndrome::Ack), old), &[]);
            }
            Response::Read { psn, pd, reth, sent, .. } => {
                let at = RemoteRange { pd, addr: reth.addr, rkey: reth.rkey, len: reth.len.into() };
                self.send_read(psn, at, sent, left);
            }
        }
    }

    /// Sends the last or only packet of a response, and removes the response.
    #[inline]
    fn send_last(&mut self, op: Op, psn: Psn, ext: Ext, payload: &[u8]) {
        let bth = self.bth(op, psn);
        self.fabric.send_bytes((self.qp.qpn, self.peer), &bth, &ext, payload);
        self.report.note_sent(self.qp.qpn, (psn, op), 0, false);
        self.qp.resp.responses.pop_front();
    }

    /// Sends packet `sent` of the response to a READ of range `at`. `first` is the PSN of the response's first packet.
    #[inline]
    fn send_read(&mut self, first: Psn, at: RemoteRange, sent: u32, left: usize) {
        let is_last = sent + 1 == self.qp.attrs.packets(at.len);
        let op = match (sent == 0, is_last) {
            (true, true) => Op::ReadOnly,
            (true, false) => Op::ReadFirst,
            (false, true) => Op::ReadLast,
            (false, false) => Op::ReadMiddle,
        };
        match self.send_read_packet(op, first.plus(sent), at, sent, left) {
            Err(refusal) => self.refuse(first.plus(sent), refusal),
            Ok(()) if is_last => {
                self.qp.resp.responses.pop_front();
            }
            Ok(()) => {
                if let Some(Response::Read { sent, .. }) = self.qp.resp.responses.front_mut() {
                    *sent += 1;
                }
            }
        }
    }

    /// Sends a packet with the data that follows the first `sent` packets of range `at`. If it fails, no packet was
    /// sent.
    #[inline]
    fn send_read_packet(
        &mut self,
        op: Op,
        psn: Psn,
        at: RemoteRange,
        sent: u32,
        left: usize,
    ) -> Result<(), RemoteError> {
        let bth = self.bth(op, psn);
        let ext = match op {
            Op::ReadMiddle => Ext::None,
            _ => Ext::Aeth(self.aeth(AethSyndrome::Ack)),
        };
        let Visit { qp, mkeys, dma, fabric, report, peer, ahead } = self;
        let skip = u64::from(sent) << qp.attrs.mtu_shift();
        let len = at.len.saturating_sub(skip).min(1 << qp.attrs.mtu_shift());
        if !ahead.is_at(psn) {
            let most = left.min(fabric.room_to(*peer)) as u32;
            *ahead = ahead::responses(qp, mkeys, dma, (at, psn, skip), most);
        }
        fabric.send((qp.qpn, *peer), &bth, &ext, len as usize, |payload| {
            // The key is checked for each packet, since it may be destroyed while a long response is being sent.
            match access::readable(qp, mkeys, at)? {
                Some(_) if ahead.is_at(psn) => {
                    payload.copy_from_slice(ahead.take(psn).unwrap_or_default());
                    Ok(())
                }
                Some(span) => dma.read(&span.part(skip, len), payload).map_err(RemoteError::Failed),
                None => Ok(()),
            }
        })?;
        report.note_sent(qp.qpn, (psn, op), len, false);
        Ok(())
    }

    fn bth(&self, op: Op, psn: Psn) -> Bth {
        Bth {
            service: self.qp.service,
            op,
            solicited: false,
            pkey: self.qp.attrs.pkey,
            ack_req: false,
            dest_qpn: self.qp.attrs.remote_qpn,
            psn,
            srqn: None,
        }
    }

    fn aeth(&self, syndrome: AethSyndrome) -> Aeth {
        Aeth { syndrome, msn: self.qp.msn }
    }

    /// Closes the connection with a NAK, because the memory of a request that was accepted is gone.
    fn refuse(&mut self, psn: Psn, refusal: RemoteError) {
        let responses = &mut self.qp.resp.responses;
        // Nothing queued after this response can be sent any more.
        responses.clear();
        responses.push_back(Response::Ack { psn, syndrome: AethSyndrome::Nak(refusal.nak()) });
        self.qp.enter_error(self.report, refusal.syndrome().0);
    }
}
