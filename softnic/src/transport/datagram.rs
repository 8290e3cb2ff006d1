//! Datagrams: SENDs of a single packet, each with its own destination.
//!
//! Nothing is acknowledged: an undeliverable datagram is lost, and the sender's WQE completes anyway. The first 40
//! bytes of a receive buffer are reserved for a global route header. RoCE zeroes the first 20 and stores the IPv4
//! header in the rest (InfiniBand Architecture Specification, annex A17.4.5.1).

use super::datapath::Datapath;
use super::subnet;
use crate::address::{Gid, lid_of, port_guid};
use crate::dma::{Dma, Mkeys, User};
use crate::frame;
use crate::frame::datagram::{IPV4_HEADER, ipv4_header, ipv6_header};
use crate::management::MAD;
use crate::management::subnet::SUBNET_PREFIX;
use crate::objects::Objects;
use crate::objects::groups;
use crate::objects::qp::{Qp, State};
use crate::queues::{
    Origin, ReceivedMessage, complete, complete_receive, fail, fail_receive, fetch, malformed, take_receive,
};
use crate::report::{Observation, Report};
use crate::request::BadReceive;
use crate::roce::{self, Bth, Deth, Ext, Op, Packet, Psn, Service};
use crate::route::{Address, Route};
use crate::wqe::{self, Done, LocalError};
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::cqe::Reception;
use rushmem_mlx5::prm::qp::ServiceType;
use rushmem_mlx5::wqe::View;
use rushmem_mlx5::{CqeOpcode, Opcode};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Maximum number of WQEs executed before other QPs run.
const BURST: usize = 64;
/// Length of the area for a global route header, which precedes the payload in every receive buffer, in bytes.
pub(super) const GRH: usize = 40;
/// Bit of the Q_Key in a WQE that selects the QP's own Q_Key instead.
const OWN_KEY: u32 = 1 << 31;

enum Step {
    Sent,
    /// The send queue is empty until the next doorbell.
    Idle,
    /// The send queue of the UDP socket is full.
    Full,
    /// The QP has entered the error state, and its queues must be flushed.
    Failed,
}

/// State of the datagram transport.
#[derive(Default)]
pub(crate) struct Datagrams {
    /// Buffer for the payload of the current datagram.
    payload: Vec<u8>,
}

impl Datagrams {
    /// Sends datagrams posted to a QP. Returns whether it can send more immediately.
    pub(super) fn run(&mut self, path: &mut Datapath, qpn: u32) -> bool {
        for _ in 0..BURST {
            match step(path, &mut self.payload, qpn) {
                Step::Sent => {}
                Step::Idle => return false,
                Step::Full | Step::Failed => return true,
            }
        }
        true
    }

    /// Sends all datagrams posted to a QP, before a command destroys it.
    pub(crate) fn finish(&mut self, path: &mut Datapath, qpn: u32) {
        /// Number of bursts in the largest possible send queue.
        const MAX_BURSTS: usize = (1 << 16) / BURST;

        for _ in 0..MAX_BURSTS {
            let has_more = self.run(path, qpn);
            path.flush(path.report.now);
            if !has_more || path.objects.qps.get(qpn).is_none_or(|qp| qp.state != State::Rts) {
                break;
            }
        }
    }
}

fn step(path: &mut Datapath, payload: &mut Vec<u8>, qpn: u32) -> Step {
    let Datapath { objects, scratch, report, fabric, config, .. } = path;
    let Objects { qps, cqs, mkeys, dma, .. } = objects;
    let Some(qp) = qps.get_mut(qpn).filter(|qp| qp.state == State::Rts) else { return Step::Idle };
    let Some(sq) = qp.sq.as_mut().filter(|sq| sq.pending() != 0) else { return Step::Idle };
    if fabric.as_ref().is_some_and(|fabric| fabric.room() == 0) {
        return Step::Full;
    }
    let index = sq.consumer;
    let view = match fetch(sq, (Service::Ud, qpn), index, scratch, report) {
        Ok(view) => view,
        Err(bad) => {
            malformed(qp, cqs, report, index, bad);
            return Step::Failed;
        }
    };
    // The WQE is executed from here on, whatever becomes of the datagram.
    sq.consumer = index.wrapping_add(u16::from(view.n_blocks()));
    report.stats.wqes += 1;
    report.lookout.note(|| wqe::begins(qpn, &view, None));
    let done = Done { index, opcode: view.opcode(), byte_cnt: 0 };
    let user = User { pd: qp.pd, qpn };
    if let Err(refused) = gather(&view, mkeys, dma, user, config.mtu, payload) {
        let (syndrome, vendor) = refused.syndrome();
        fail(qp, cqs, report, done, syndrome, vendor);
        return Step::Failed;
    }
    // Completes before delivery, since no acknowledgement will come.
    if view.flags().is_signaled() {
        complete(qp, cqs, report, done);
    } else {
        report.lookout.note(|| wqe::ends(qpn, done, None));
    }
    // A WQE without an address vector is a NOP.
    let Some(av) = view.av() else { return Step::Sent };
    report.stats.bytes += payload.len() as u64;
    let psn = qp.send_psn;
    qp.send_psn = psn.plus(1);
    let qkey = if av.qkey.get() & OWN_KEY == 0 { av.qkey.get() } else { qp.attrs.qkey };
    let datagram = Datagram {
        deth: Deth { qkey, source_qpn: qp.special().unwrap_or(qpn) },
        pkey: qp.attrs.pkey,
        imm: view.imm(),
        solicited: view.flags().is_solicited(),
        payload,
    };
    let is_special = qp.special().is_some();
    if config.infiniband && is_special && subnet::is_for_switch(av.rlid.get()) {
        if let Some(mad) = datagram.payload.first_chunk().copied() {
            ask_switch(path, qpn, av.rlid.get(), &mad);
        }
        return Step::Sent;
    }
    send(path, (qpn, psn), &av, datagram);
    Step::Sent
}

/// Sends a datagram of a QP to the address of its WQE. It is lost if there is no such address.
fn send(path: &mut Datapath, (qpn, psn): (u32, Psn), av: &AvSeg, datagram: Datagram<'_>) {
    let Datapath { objects, report, fabric, config, address, frames, .. } = path;
    let (bth, ext) = (datagram.bth(av.qpn(), psn), datagram.ext());
    if objects.ethernet.vport.owner.is_some() {
        let index = (av.grh_gid_fl.get() >> 20 & 0xff) as u16;
        let source = objects.ethernet.vport.addresses.get(&index);
        match source.and_then(|source| frame::datagram::build(source, av, (&bth, &ext), datagram.payload)) {
            Some(frame) => frames.push(frame),
            None => report.stats.lost += 1,
        }
        return;
    }
    match (address_of(av).route(*address), fabric) {
        (Ok(Route::Loopback), _) => {
            let sender = Sender::of(*address, *address, config.infiniband, &datagram);
            let qpn = objects.destination(av.qpn());
            deliver(objects, report, qpn, &sender, datagram);
        }
        (Ok(Route::Peer(peer)), Some(fabric)) => {
            fabric.send_bytes((qpn, peer), &bth, &ext, datagram.payload);
            report.note_sent(qpn, (psn, bth.op), datagram.payload.len() as u64, false);
        }
        _ => report.stats.lost += 1,
    }
}

/// Delivers the switch's answer to a datagram that QP 0 or 1, here `qpn`, has sent to `lid`, if there is one.
fn ask_switch(path: &mut Datapath, qpn: u32, lid: u16, mad: &[u8; MAD]) {
    let answers = subnet::answer(path, qpn, lid, mad);
    let Some(qp) = path.objects.qps.get(qpn) else { return };
    let (number, attrs) = (qp.special().unwrap_or(qpn), qp.attrs);
    path.report.stats.lost += u64::from(answers.is_empty());
    for payload in &answers {
        let deth = Deth { qkey: attrs.qkey, source_qpn: number };
        let datagram = Datagram { deth, pkey: attrs.pkey, imm: None, solicited: false, payload };
        let from = subnet::manager(path.address);
        let sender = Sender::of(from, path.address, true, &datagram);
        deliver(&mut path.objects, &mut path.report, qpn, &sender, datagram);
    }
}

/// Collects the payload of a WQE, which must fit into one packet.
fn gather(
    view: &View<'_>,
    mkeys: &Mkeys,
    dma: &mut Dma,
    user: User,
    mtu: u32,
    payload: &mut Vec<u8>,
) -> Result<(), LocalError> {
    let len = view.data_len();
    if len > u64::from(mtu) {
        return Err(LocalError::Length);
    }
    payload.clear();
    payload.resize(len as usize, 0);
    wqe::read_data(view, mkeys, dma, user, 0, payload)
}

fn address_of(av: &AvSeg) -> Address {
    Address { gid: av.rgid, mac: av.rmac, lid: av.rlid.get() }
}

/// Processes a packet for a datagram QP.
pub(super) fn receive(path: &mut Datapath, qpn: u32, from: SocketAddrV4, packet: &Packet<'_>) {
    let Some(datagram) = Datagram::of(packet) else { return };
    let sender = Sender::of(from, path.address, path.config.infiniband, &datagram);
    deliver(&mut path.objects, &mut path.report, qpn, &sender, datagram);
}

/// Delivers a packet that was sent to the address `to` of multicast groups.
pub(super) fn receive_group(path: &mut Datapath, from: SocketAddrV4, to: Ipv4Addr, bytes: &[u8]) {
    let packet = roce::parse(bytes)
        .ok()
        .filter(|packet| packet.bth.service == Service::Ud && packet.bth.dest_qpn == groups::QPN);
    let Some((packet, datagram)) = packet.and_then(|packet| Some((packet, Datagram::of(&packet)?))) else {
        path.report.stats.dropped += 1;
        return;
    };
    let is_own = from == path.address;
    let groups: Vec<Gid> = path.objects.groups.at(to).copied().collect();
    for group in groups {
        let sender = match path.config.infiniband {
            true => Sender::to_group(from, group, &datagram),
            false => Sender::of(from, SocketAddrV4::new(to, roce::PORT), false, &datagram),
        };
        deliver_to_members(path, &group, is_own, &sender, &packet);
    }
}

/// Delivers a packet to each member of a multicast group. If a QP of this adapter has sent it (`is_own`), that one does
/// not receive it.
pub(super) fn deliver_to_members(
    path: &mut Datapath,
    group: &Gid,
    is_own: bool,
    sender: &Sender,
    packet: &Packet<'_>,
) {
    let Some(source) = Datagram::of(packet).map(|datagram| datagram.deth.source_qpn) else { return };
    for qpn in path.objects.groups.members(group).to_vec() {
        if !is_own || qpn != source {
            receive_from(path, qpn, sender, packet);
            path.enqueue(qpn);
        }
    }
}

/// Processes a packet for a datagram QP from a sender that the caller describes.
pub(super) fn receive_from(path: &mut Datapath, qpn: u32, sender: &Sender, packet: &Packet<'_>) {
    let Some(datagram) = Datagram::of(packet) else { return };
    deliver(&mut path.objects, &mut path.report, qpn, sender, datagram);
}

struct Datagram<'a> {
    deth: Deth,
    pkey: u16,
    imm: Option<u32>,
    solicited: bool,
    payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Returns the datagram in a packet, if it has one.
    fn of(packet: &Packet<'a>) -> Option<Datagram<'a>> {
        let (deth, imm) = match packet.ext {
            Ext::Deth(deth) => (deth, None),
            Ext::DethImm(deth, imm) => (deth, Some(imm)),
            _ => return None,
        };
        let (pkey, solicited, payload) = (packet.bth.pkey, packet.bth.solicited, packet.payload);
        Some(Datagram { deth, pkey, imm, solicited, payload })
    }

    /// Returns the base transport header of the datagram's packet to QP `dest_qpn` of another adapter.
    fn bth(&self, dest_qpn: u32, psn: Psn) -> Bth {
        let op = if self.imm.is_some() { Op::SendOnlyImm } else { Op::SendOnly };
        let (service, solicited, pkey) = (Service::Ud, self.solicited, self.pkey);
        Bth { service, op, solicited, pkey, ack_req: false, dest_qpn, psn, srqn: None }
    }

    fn ext(&self) -> Ext {
        self.imm.map_or(Ext::Deth(self.deth), |imm| Ext::DethImm(self.deth, imm))
    }
}

/// What a receiver learns of the sender of a datagram, besides its QPN.
pub(super) struct Sender {
    /// The area for a global route header.
    pub(super) header: [u8; GRH],
    /// Whether the area has a header, as on Ethernet.
    pub(super) has_header: bool,
    pub(super) lid: u16,
    /// Service level on InfiniBand, or packet type on Ethernet.
    pub(super) sl: u8,
}

impl Sender {
    /// Describes the adapter at `from`, which sent a datagram to the address `to`.
    fn of(from: SocketAddrV4, to: SocketAddrV4, infiniband: bool, datagram: &Datagram<'_>) -> Sender {
        let len = roce::packet_len(roce::BTH + datagram.ext().len(), datagram.payload.len());
        let sl = if infiniband { 0 } else { Reception::ROCE_V2_IPV4 };
        let header = header(*from.ip(), *to.ip(), len);
        Sender { header, has_header: !infiniband, lid: lid_of(*from.ip()).unwrap_or(0), sl }
    }

    /// Describes the adapter at `from`, which sent a datagram to a multicast group of InfiniBand.
    fn to_group(from: SocketAddrV4, group: Gid, datagram: &Datagram<'_>) -> Sender {
        /// Next header: a base transport header.
        const TRANSPORT: u8 = 0x1b;

        let len = roce::packet_len(roce::BTH + datagram.ext().len(), datagram.payload.len());
        let mut own = [0; 16];
        own[..8].copy_from_slice(&SUBNET_PREFIX);
        own[8..].copy_from_slice(&port_guid(*from.ip()).to_be_bytes());
        let header = ipv6_header([own, group], 0, (TRANSPORT, 0xff), len);
        Sender { header, has_header: true, lid: lid_of(*from.ip()).unwrap_or(0), sl: 0 }
    }
}

fn deliver(objects: &mut Objects, report: &mut Report, qpn: u32, sender: &Sender, datagram: Datagram<'_>) {
    let Objects { qps, cqs, mkeys, dma, .. } = objects;
    let Datagram { deth, pkey, imm, solicited, payload } = datagram;
    let open = |qp: &&mut Box<Qp>| {
        let keys_fit = qp.attrs.qkey == deth.qkey && roce::pkeys_match(qp.attrs.pkey, pkey);
        qp.service == Service::Ud && qp.state.receives() && keys_fit
    };
    let qp = qps.get_mut(qpn).filter(open);
    let Some((qp, receive)) = qp.and_then(|qp| take_receive(qp, report).map(|receive| (qp, receive))) else {
        tracing::trace!(
            qpn,
            lid = sender.lid,
            source = deth.source_qpn,
            "datagram dropped: no QP or no posted receive"
        );
        report.stats.lost += 1;
        return;
    };
    let len = GRH + payload.len();
    let parts = [(0, &sender.header[..]), (GRH, payload)];
    let since = report.lookout.time();
    // Nothing is written if the datagram does not fit.
    let placed = receive.fits(len as u64).and_then(|()| {
        parts.into_iter().try_for_each(|(start, bytes)| {
            receive.spread(mkeys, qpn, start as u64, bytes.len() as u64, |to, at| {
                dma.write(&to, &bytes[at as usize..][..to.len as usize])
            })
        })
    });
    // The completion announces the data, so the data must be visible first.
    let placed = placed.and_then(|()| dma.flush().map_err(BadReceive::Memory));
    if let Err(bad) = placed {
        fail_receive(qp, cqs, report, receive.index, bad);
        qp.enter_error(report, bad.refusal().syndrome().0);
        return;
    }
    if let Some(since) = since {
        let opcode = if imm.is_some() { Opcode::SEND_IMM } else { Opcode::SEND };
        let bytes = payload.len() as u64;
        report.lookout.note(|| Observation::Arrival { qpn, opcode, remote: None, bytes, since });
    }
    let message = ReceivedMessage {
        kind: if imm.is_some() { CqeOpcode::RESP_SEND_IMM } else { CqeOpcode::RESP_SEND },
        index: receive.index,
        byte_cnt: len as u32,
        // Agents of QP 1 see the partition of a datagram, since they serve all.
        imm: if qp.context.st == ServiceType::QP1 { pkey.into() } else { imm.unwrap_or(0) },
        solicited,
        origin: Origin { qpn: deth.source_qpn, lid: sender.lid, grh: sender.has_header, sl: sender.sl },
    };
    complete_receive(qp, cqs, report, message);
}

/// Returns the 40 bytes before the payload of a received datagram. The last 20 are the IPv4 header of a UDP packet with
/// `len` bytes of payload.
fn header(from: Ipv4Addr, to: Ipv4Addr, len: usize) -> [u8; GRH] {
    let mut area = [0; GRH];
    area[GRH - IPV4_HEADER..].copy_from_slice(&ipv4_header(from, to, (0, 64), len));
    area
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_header_by_hand() {
        let area = header([127, 64, 0, 1].into(), [127, 64, 0xbf, 0xff].into(), 32);
        assert_eq!(area[..20], [0; 20]);
        let words = [0x4500u32, 60, 0, 0x4000, 0x4011, 0x7f40, 0x0001, 0x7f40, 0xbfff];
        let sum: u32 = words.iter().sum();
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let expected: Vec<u8> = words.iter().flat_map(|word| (*word as u16).to_be_bytes()).collect();
        assert_eq!((&area[20..30], &area[32..]), (&expected[..10], &expected[10..]));
        assert_eq!(area[30..32], checksum.to_be_bytes());
    }
}
