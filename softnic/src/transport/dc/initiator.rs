//! The initiators of dynamic connections: finds the target of the next WQE, and connects to it.

use super::{Dynamic, RENEW_AFTER, target};
use crate::link::udp::path_mtu;
use crate::objects::Objects;
use crate::objects::qp::{DcTarget, Link, Message, Qp, Refusal, State};
use crate::queues::fetch;
use crate::roce::{Bth, Ext, Op, Service};
use crate::route::Route;
use crate::transport::datapath::Datapath;
use crate::wqe::LocalError;
use rushmem_mlx5::Opcode;
use rushmem_mlx5::prm::qp::Mtu;
use std::net::SocketAddrV4;

/// Returns whether the initiator has no WQE in progress.
fn is_idle(qp: &Qp) -> bool {
    qp.req.messages.is_empty() && qp.progress == 0 && !qp.faults.has_unanswered()
}

/// Returns whether an initiator that has completed its WQEs must [connect to another target](Dynamic::turn).
pub(crate) fn wants_turn(path: &mut Datapath, qpn: u32) -> bool {
    let Some(qp) = path.objects.qps.get_mut(qpn).filter(|qp| qp.state == State::Rts && is_idle(qp)) else {
        return false;
    };
    qp.dci.as_mut().is_some_and(|dci| std::mem::take(&mut dci.turn))
}

/// The WQE at the head of an initiator's send queue.
struct Head {
    index: u16,
    blocks: u8,
    opcode: Opcode,
    target: DcTarget,
}

impl Dynamic {
    /// Connects an initiator to the target of its next WQE, once all WQEs to the previous target have completed.
    pub(crate) fn turn(&mut self, path: &mut Datapath, qpn: u32) {
        let Some(head) = next_target(path, qpn) else { return };
        disconnect(path, qpn);
        // A new number distinguishes this connection from earlier ones of the same initiator.
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let route = path.route_to(&head.target.address);
        let Some(qp) = path.objects.qps.get_mut(qpn) else { return };
        let Some(dci) = &mut qp.dci else { return };
        (dci.target, dci.sequence) = (Some(head.target), sequence);
        qp.route = Route::Loopback;
        qp.attrs.mtu = qp.context.mtu.0;
        match route {
            Ok(Route::Loopback) => ask_neighbour(path, qpn),
            Ok(Route::Peer(peer)) => self.ask_peer(path, qpn, peer, &head),
            Err(_) => dci.link = Link::Refused(Refusal::Local(LocalError::Operation)),
        }
    }

    /// Sends a connect packet to the adapter at `peer`, as a message ahead of the WQE.
    fn ask_peer(&mut self, path: &mut Datapath, qpn: u32, peer: SocketAddrV4, head: &Head) {
        let fits = self.path_mtu(path, peer);
        let has_fabric = path.fabric.is_some();
        let Some(qp) = path.objects.qps.get_mut(qpn) else { return };
        let Some(dci) = &mut qp.dci else { return };
        let Some(fits) = fits.filter(|_| has_fabric) else {
            dci.link = Link::Refused(Refusal::Local(LocalError::Operation));
            return;
        };
        dci.link = Link::Asked;
        qp.route = Route::Peer(peer);
        qp.attrs.mtu = qp.attrs.mtu.min(Mtu::within(fits).0);
        // The connect packet consumes one PSN, and its accept acknowledges it.
        let first = qp.send_psn;
        qp.send_psn = first.plus(1);
        qp.req.start(first);
        qp.req.started = head.index;
        qp.req.messages.push_back(Message::connect(head.index, head.blocks, head.opcode, first));
        path.meet(peer, path.is_software(&head.target.address), path.report.now);
    }

    /// Returns the path MTU to a peer, asking the system again after [`RENEW_AFTER`], since links change.
    fn path_mtu(&mut self, path: &Datapath, peer: SocketAddrV4) -> Option<u32> {
        let (own, now) = (*path.address.ip(), path.report.now);
        match self.path_mtus.get(peer.ip()) {
            Some((asked, mtu)) if now.saturating_duration_since(*asked) < RENEW_AFTER => *mtu,
            _ => {
                let mtu = path_mtu(own, peer);
                self.path_mtus.insert(*peer.ip(), (now, mtu));
                mtu
            }
        }
    }
}

/// Returns the next WQE if the initiator is idle and must connect to the WQE's target first.
fn next_target(path: &mut Datapath, qpn: u32) -> Option<Head> {
    let Datapath { objects: Objects { qps, .. }, scratch, report, .. } = path;
    let now = report.now;
    let qp = qps.get(qpn).filter(|qp| qp.state == State::Rts && is_idle(qp))?;
    let (dci, sq) = (qp.dci.as_ref()?, qp.sq.as_ref().filter(|sq| sq.pending() != 0)?);
    // A malformed WQE fails when it is executed, and needs no connection.
    let view = fetch(sq, (Service::Dc, qpn), sq.consumer, scratch, report).ok()?;
    let target = DcTarget::of(&view.av()?);
    // A refused target stays refused, so its WQE fails instead of connecting again and again.
    let is_up = match (dci.link, qp.route) {
        (Link::None | Link::Asked, _) => false,
        (Link::Refused(_), _) => true,
        // The target may have been destroyed or reset since, together with its connections.
        (Link::Up, Route::Loopback) => qps.get(qp.attrs.remote_qpn).is_some_and(|peer| {
            peer.of_dct.is_some() && peer.route == Route::Loopback && peer.attrs.remote_qpn == qpn
        }),
        (Link::Up, Route::Peer(_)) => {
            qp.req.silent_since().is_some_and(|since| now.saturating_duration_since(since) < RENEW_AFTER)
        }
    };
    if is_up && dci.target == Some(target) {
        return None;
    }
    Some(Head { index: sq.consumer, blocks: view.n_blocks(), opcode: view.opcode(), target })
}

/// Connects to a DCT of the same adapter. If the DCT does not answer, the WQE waits as for a silent peer.
fn ask_neighbour(path: &mut Datapath, qpn: u32) {
    let own = path.address;
    let Some(qp) = path.objects.qps.get(qpn) else { return };
    let (pkey, psn) = (qp.attrs.pkey, qp.send_psn);
    let request = qp.dci.as_ref().and_then(|dci| dci.request(qpn, qp.attrs.mtu));
    let Some((dctn, request)) = request else { return };
    let answer = target::accept(path, dctn, (own, Route::Loopback), (pkey, psn), &request);
    let Some(qp) = path.objects.qps.get_mut(qpn) else { return };
    let Some(dci) = &mut qp.dci else { return };
    match answer {
        Some(Ok(number)) => (dci.link, qp.attrs.remote_qpn) = (Link::Up, number),
        Some(Err(refusal)) => dci.link = Link::Refused(Refusal::Remote(refusal)),
        None => {}
    }
}

/// Closes the connection of an initiator, without waiting for an answer.
pub(crate) fn disconnect(path: &mut Datapath, qpn: u32) {
    let Datapath { objects, fabric, report, .. } = path;
    let Some(qp) = objects.qps.get_mut(qpn) else { return };
    let Some(dci) = &mut qp.dci else { return };
    let link = std::mem::take(&mut dci.link);
    let peer_qpn = std::mem::take(&mut qp.attrs.remote_qpn);
    match (link, qp.route, fabric) {
        (Link::Up, Route::Loopback, _) => objects.remove_connection(peer_qpn),
        (Link::Up, Route::Peer(peer), Some(fabric)) => {
            let bth = Bth {
                service: Service::Dc,
                op: Op::Disconnect,
                solicited: false,
                pkey: qp.attrs.pkey,
                ack_req: false,
                dest_qpn: peer_qpn,
                psn: qp.send_psn,
                srqn: None,
            };
            fabric.send_empty((qpn, peer), &bth, &Ext::Disconnect(dci.sequence));
            report.note_sent(qpn, (bth.psn, bth.op), 0, false);
        }
        _ => {}
    }
}
