//! Initiators: which target the next WQE has, and the connection to it.

use super::{RENEW, target};
use crate::core::Core;
use crate::link::udp::path_mtu;
use crate::qp::{Qp, State};
use crate::report::observe::Observation;
use crate::roce::{Bth, Connect, Ext, Op, Packet, Service};
use crate::route::{Address, Route};
use crate::sq;
use crate::target::RemoteError;
use crate::wire::message::Message;
use crate::wqe::LocalError;
use rushmem_mlx5::Opcode;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::prm::qp::Mtu;
use rushmem_mlx5::wqe::View;
use std::net::SocketAddrV4;

/// The state of an initiator.
#[derive(Debug, Default)]
pub(crate) struct Dci {
    /// The target of the last WQE that had one.
    target: Option<DcTarget>,
    link: Link,
    /// Sequence number of the connection.
    sequence: u32,
    /// Set when the next WQE has another target, or a connection that must be made.
    turn: bool,
}

/// The target that a WQE names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DcTarget {
    address: Address,
    dctn: u32,
    key: u64,
}

impl DcTarget {
    fn of(av: &AvSeg) -> DcTarget {
        let address = Address { gid: av.rgid, mac: av.rmac, lid: av.rlid.get() };
        DcTarget { address, dctn: av.qpn(), key: av.dc_key() }
    }
}

/// The connection of an initiator.
#[derive(Clone, Copy, Debug, Default)]
enum Link {
    #[default]
    None,
    /// A connect packet is under way.
    Asked,
    Up,
    Refused(Refusal),
}

/// The reason why a WQE cannot be sent to its target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// The address has no route.
    Local(LocalError),
    /// The target refuses the initiator.
    Remote(RemoteError),
}

impl Dci {
    /// Returns whether a WQE may be executed on the present connection. Otherwise the initiator takes a [`turn`] first.
    pub(crate) fn serves(&mut self, view: &View<'_>) -> bool {
        let Some(av) = view.av() else { return true };
        let serves = self.target == Some(DcTarget::of(&av)) && !self.is_connecting();
        self.turn |= !serves;
        serves
    }

    /// Returns whether a connect packet is under way.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.link, Link::Asked)
    }

    /// Returns the reason why the target cannot be reached.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self.link {
            Link::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Returns the number of the target.
    pub(crate) fn dctn(&self) -> Option<u32> {
        self.target.map(|target| target.dctn)
    }

    /// Returns the target's number and the request of a connect packet.
    pub(crate) fn request(&self, qpn: u32, mtu: u8) -> Option<(u32, Connect)> {
        let DcTarget { dctn, key, .. } = self.target?;
        Some((dctn, Connect { key, mtu, source_qpn: qpn, sequence: self.sequence }))
    }
}

/// Returns whether nothing of the send queue is under way.
fn is_idle(qp: &Qp) -> bool {
    qp.req.messages.is_empty() && qp.progress == 0 && !qp.faults.has_unanswered()
}

/// Returns whether an initiator that finished its WQEs must take a [`turn`].
pub(crate) fn wants_turn(core: &mut Core, qpn: u32) -> bool {
    let Some(qp) = core.qps.get_mut(qpn).filter(|qp| qp.state == State::Rts && is_idle(qp)) else {
        return false;
    };
    qp.dci.as_mut().is_some_and(|dci| std::mem::take(&mut dci.turn))
}

/// The head of the send queue of an initiator.
struct Head {
    index: u16,
    blocks: u8,
    opcode: Opcode,
    target: DcTarget,
}

/// Connects an initiator to the target of its next WQE, if it has finished all WQEs to its last target.
pub(crate) fn turn(core: &mut Core, qpn: u32) {
    let Some(head) = next_target(core, qpn) else { return };
    core.disconnect(qpn);
    core.connections = core.connections.wrapping_add(1);
    let (sequence, own) = (core.connections, core.address);
    let Some(qp) = core.qps.get_mut(qpn) else { return };
    let Some(dci) = &mut qp.dci else { return };
    (dci.target, dci.sequence) = (Some(head.target), sequence);
    qp.route = Route::Loopback;
    qp.attrs.mtu = qp.context.mtu.0;
    match head.target.address.route(own) {
        Ok(Route::Loopback) => ask_neighbour(core, qpn),
        Ok(Route::Peer(peer)) => ask_peer(core, qpn, peer, &head),
        Err(_) => dci.link = Link::Refused(Refusal::Local(LocalError::Operation)),
    }
}

/// Returns the next WQE if the initiator is idle and the present connection does not serve the WQE.
fn next_target(core: &mut Core, qpn: u32) -> Option<Head> {
    let Core { qps, scratch, report, now, .. } = core;
    let qp = qps.get(qpn).filter(|qp| qp.state == State::Rts && is_idle(qp))?;
    let (dci, sq) = (qp.dci.as_ref()?, qp.sq.as_ref().filter(|sq| sq.pending() != 0)?);
    // A malformed WQE fails when it is executed.
    let view = sq::fetch(sq, (Service::Dc, qpn), sq.consumer, scratch, report).ok()?;
    let target = DcTarget::of(&view.av()?);
    let is_up = match (dci.link, qp.route) {
        (Link::None | Link::Asked, _) => false,
        (Link::Refused(_), _) => true,
        (Link::Up, Route::Loopback) => qps.get(qp.attrs.remote_qpn).is_some_and(|peer| {
            peer.of_dct.is_some() && peer.route == Route::Loopback && peer.attrs.remote_qpn == qpn
        }),
        (Link::Up, Route::Peer(_)) => {
            qp.req.silent_since().is_some_and(|since| now.saturating_duration_since(since) < RENEW)
        }
    };
    if is_up && dci.target == Some(target) {
        return None;
    }
    Some(Head { index: sq.consumer, blocks: view.n_blocks(), opcode: view.opcode(), target })
}

/// Connects to a target of the same adapter. Without an answer, the WQE waits as for a silent peer.
fn ask_neighbour(core: &mut Core, qpn: u32) {
    let own = core.address;
    let Some(qp) = core.qps.get(qpn) else { return };
    let (pkey, psn) = (qp.attrs.pkey, qp.send_psn);
    let request = qp.dci.as_ref().and_then(|dci| dci.request(qpn, qp.attrs.mtu));
    let Some((dctn, request)) = request else { return };
    let answer = target::accept(core, dctn, (own, Route::Loopback), (pkey, psn), &request);
    let Some(qp) = core.qps.get_mut(qpn) else { return };
    let Some(dci) = &mut qp.dci else { return };
    match answer {
        Some(Ok(number)) => (dci.link, qp.attrs.remote_qpn) = (Link::Up, number),
        Some(Err(refusal)) => dci.link = Link::Refused(Refusal::Remote(refusal)),
        None => {}
    }
}

/// Sends a connect packet to another adapter, as a message in front of the WQE.
fn ask_peer(core: &mut Core, qpn: u32, peer: SocketAddrV4, head: &Head) {
    let fits = path_mtu_to(core, peer);
    let has_fabric = core.fabric.is_some();
    let Some(qp) = core.qps.get_mut(qpn) else { return };
    let Some(dci) = &mut qp.dci else { return };
    let Some(fits) = fits.filter(|_| has_fabric) else {
        dci.link = Link::Refused(Refusal::Local(LocalError::Operation));
        return;
    };
    dci.link = Link::Asked;
    qp.route = Route::Peer(peer);
    qp.attrs.mtu = qp.attrs.mtu.min(Mtu::within(fits).0);
    let first = qp.send_psn;
    qp.send_psn = first.plus(1);
    qp.req.start(first);
    qp.req.started = head.index;
    qp.req.messages.push_back(Message::connect(head.index, head.blocks, head.opcode, first));
    core.failures.connected(core.now);
    core.meet(peer, head.target.address.is_software());
}

/// Returns the path MTU to a peer. The system is asked again after [`RENEW`], since links change.
fn path_mtu_to(core: &mut Core, peer: SocketAddrV4) -> Option<u32> {
    let (own, now) = (*core.address.ip(), core.now);
    match core.path_mtus.get(peer.ip()) {
        Some((asked, mtu)) if now.saturating_duration_since(*asked) < RENEW => *mtu,
        _ => {
            let mtu = path_mtu(own, peer);
            core.path_mtus.insert(*peer.ip(), (now, mtu));
            mtu
        }
    }
}

/// Handles the answer to a connect packet.
pub(crate) fn accepted(qp: &mut Qp, packet: &Packet<'_>) -> bool {
    let (Ext::Accept(_, sequence, number), Some(dci)) = (packet.ext, &mut qp.dci) else { return false };
    let is_answer = dci.is_connecting() && sequence == dci.sequence && packet.bth.psn == qp.req.acked();
    if is_answer {
        (dci.link, qp.attrs.remote_qpn) = (Link::Up, number);
    }
    is_answer
}

impl Core {
    /// Ends the connection of an initiator. Other QPs stay as they are.
    pub(crate) fn disconnect(&mut self, qpn: u32) {
        let Core { qps, fabric, report, .. } = self;
        let Some(qp) = qps.get_mut(qpn) else { return };
        let Some(dci) = &mut qp.dci else { return };
        let link = std::mem::take(&mut dci.link);
        let peer_qpn = std::mem::take(&mut qp.attrs.remote_qpn);
        match (link, qp.route, fabric) {
            (Link::Up, Route::Loopback, _) => self.remove_connection(peer_qpn),
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
                let (psn, opcode) = (bth.psn.get(), bth.op.name());
                let is_retransmission = false;
                report.lookout.note(|| Observation::PacketSent {
                    qpn,
                    psn,
                    opcode,
                    bytes: 0,
                    is_retransmission,
                });
            }
            _ => {}
        }
    }
}
