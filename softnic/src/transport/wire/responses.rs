//! Sends the responder's queued responses, in order and in portions.

use super::ahead::{self, Ahead};
use crate::objects::qp::{Qp, Response};
use crate::objects::{Objects, access};
use crate::report::Report;
use crate::request::{RemoteError, RemoteRange};
use crate::roce::{Aeth, AethSyndrome, Bth, Ext, Nak, Op, Psn};
use crate::route::Route;
use crate::transport::datapath::Datapath;

/// Packets sent in one visit.
const BURST: usize = 64;

/// Sends responses of a QP. Returns whether there are more.
pub(super) fn run(path: &mut Datapath, qpn: u32) -> bool {
    let Datapath { objects: Objects { qps, mkeys, dma, .. }, fabric, report, .. } = path;
    let (Some(qp), Some(fabric)) = (qps.get_mut(qpn), fabric.as_mut()) else { return false };
    let Route::Peer(peer) = qp.route else { return false };
    let mut ahead = Ahead::default();
    for left in (1..=BURST).rev() {
        let Some(answer) = qp.resp.responses.front().copied() else { return false };
        if fabric.room_to(peer) == 0 {
            return true;
        }
        if let Some(due) = answer.due().filter(|due| *due > report.now) {
            report.wakeups.push((due, qpn));
            return false;
        }
        // Data must be in memory before its acknowledgement.
        if let Err(error) = dma.flush() {
            refuse(qp, report, answer.psn(), RemoteError::Failed(error));
            continue;
        }
        let mut bth = Bth {
            service: qp.service,
            op: Op::Ack,
            solicited: false,
            pkey: qp.attrs.pkey,
            ack_req: false,
            dest_qpn: qp.attrs.remote_qpn,
            psn: answer.psn(),
            srqn: None,
        };
        let way = (qpn, peer);
        let aeth = |syndrome| Aeth { syndrome, msn: qp.msn };
        match answer {
            Response::Ack { syndrome, .. } => {
                fabric.send_empty(way, &bth, &Ext::Aeth(aeth(syndrome)));
                report.note_sent(qpn, (bth.psn, bth.op), 0, false);
                qp.resp.responses.pop_front();
            }
            Response::Selective { .. } if qp.resp.responses.iter().any(Response::has_data) => {
                // It must not overtake data that its number covers.
                qp.resp.responses.rotate_left(1);
            }
            Response::Selective { .. } => {
                (bth.op, bth.psn) = (Op::SelectiveAck, qp.recv_psn);
                let (ext, bits) =
                    (Ext::Aeth(aeth(AethSyndrome::Nak(Nak::Sequence))), qp.resp.early.bits(qp.recv_psn));
                let Ok(()) = fabric.send(way, &bth, &ext, bits.len(), |payload| {
                    payload.copy_from_slice(&bits);
                    Ok::<(), std::convert::Infallible>(())
                });
                report.note_sent(qpn, (bth.psn, bth.op), 0, false);
                qp.resp.responses.pop_front();
            }
            Response::Atomic { old, .. } => {
                bth.op = Op::AtomicAck;
                fabric.send_empty(way, &bth, &Ext::AtomicAck(aeth(AethSyndrome::Ack), old));
                report.note_sent(qpn, (bth.psn, bth.op), 0, false);
                qp.resp.responses.pop_front();
            }
            Response::Read { psn, pd, reth, sent, .. } => {
                let packets = qp.attrs.packets(reth.len.into());
                let (first, last) = (sent == 0, sent + 1 == packets);
                bth.psn = psn.plus(sent);
                let ext;
                (bth.op, ext) = match (first, last) {
                    (true, true) => (Op::ReadOnly, Ext::Aeth(aeth(AethSyndrome::Ack))),
                    (true, false) => (Op::ReadFirst, Ext::Aeth(aeth(AethSyndrome::Ack))),
                    (false, true) => (Op::ReadLast, Ext::Aeth(aeth(AethSyndrome::Ack))),
                    (false, false) => (Op::ReadMiddle, Ext::None),
                };
                let skip = u64::from(sent) << qp.attrs.mtu_shift();
                let part = (u64::from(reth.len) - skip.min(reth.len.into())).min(1 << qp.attrs.mtu_shift());
                let at = RemoteRange { pd, addr: reth.addr, rkey: reth.rkey, len: reth.len.into() };
                if !ahead.is_at(bth.psn) {
                    let most = left.min(fabric.room_to(peer)) as u32;
                    ahead = ahead::responses(qp, mkeys, dma, (at, bth.psn, skip), most);
                }
                let built = fabric.send(way, &bth, &ext, part as usize, |payload| {
                    match access::readable(qp, mkeys, at)? {
                        Some(_) if ahead.is_at(bth.psn) => {
                            payload.copy_from_slice(ahead.take(bth.psn).unwrap_or_default());
                            Ok(())
                        }
                        Some(span) => dma.read(&span.part(skip, part), payload).map_err(RemoteError::Failed),
                        None => Ok(()),
                    }
                });
                if built.is_ok() {
                    report.note_sent(qpn, (bth.psn, bth.op), part, false);
                }
                match built {
                    Err(refusal) => {
                        let refusal: RemoteError = refusal;
                        refuse(qp, report, bth.psn, refusal);
                    }
                    Ok(()) if last => {
                        qp.resp.responses.pop_front();
                    }
                    Ok(()) => {
                        if let Some(Response::Read { sent, .. }) = qp.resp.responses.front_mut() {
                            *sent += 1;
                        }
                    }
                }
            }
        }
    }
    !qp.resp.responses.is_empty()
}

/// Ends the connection with a NAK: the memory of an accepted request is gone.
fn refuse(qp: &mut Qp, report: &mut Report, psn: Psn, refusal: RemoteError) {
    qp.resp.responses.clear();
    qp.resp.responses.push_back(Response::Ack { psn, syndrome: AethSyndrome::Nak(refusal.nak()) });
    qp.enter_error(report, refusal.syndrome().0);
}
