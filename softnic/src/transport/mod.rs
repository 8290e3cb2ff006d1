//! The transports, which execute send WQEs and process packets.
//!
//! All of them work on one [`Datapath`](datapath::Datapath). State that only one transport needs is kept in that
//! transport.
//!
//! | file | does |
//! |---|---|
//! | `schedule` | decides which QP runs next |
//! | `datapath` | holds the shared state |
//! | `loopback` | executes WQEs whose destination QP is on the same adapter |
//! | `wire` | implements connections over packets |
//! | `dc` | establishes and closes dynamic connections |
//! | `ethernet` | sends and receives Ethernet frames |
//! | `datagram` | sends and receives datagrams |
//! | `subnet` | answers datagrams to the subnet manager |

pub(crate) mod datagram;
pub(crate) mod datapath;
pub(crate) mod dc;
pub(crate) mod ethernet;
mod loopback;
mod schedule;
pub(crate) mod subnet;
mod wire;

use crate::link::Rest;
use crate::management::{self, introduction};
use crate::objects::Objects;
use crate::objects::qp::State;
use crate::queues::{flush, release};
use crate::report::{Observation, Stats};
use crate::roce::{self, Op, Service};
use crate::route::Route;
use datagram::Datagrams;
use datapath::Datapath;
use dc::Dynamic;
use loopback::Loopback;
use std::net::SocketAddrV4;
pub use wire::PACKET_TOO_LONG;
pub(crate) use wire::finish_executed;

#[derive(Default)]
pub(crate) struct Transports {
    loopback: Loopback,
    pub(crate) datagrams: Datagrams,
    pub(crate) dynamic: Dynamic,
}

impl Transports {
    /// Creates the transports. The first dynamic connection gets the sequence number after `sequence`.
    pub(crate) fn new(sequence: u32) -> Transports {
        let mut transports = Transports::default();
        transports.dynamic.sequence = sequence;
        transports
    }

    /// Runs one QP for a bounded time. Returns whether it has more to do immediately.
    pub(crate) fn run(&mut self, path: &mut Datapath, qpn: u32) -> bool {
        let Objects { qps, cqs, .. } = &mut path.objects;
        let Some(qp) = qps.get_mut(qpn) else { return false };
        if !qp.held.is_empty() {
            release(qp, cqs, &mut path.report, false);
        }
        if qp.dci.is_none() {
            return self.execute(path, qpn);
        }
        self.dynamic.turn(path, qpn);
        self.execute(path, qpn) | dc::wants_turn(path, qpn)
    }

    /// Executes WQEs of a QP and sends its responses. Returns whether it has more to do immediately.
    #[inline]
    fn execute(&mut self, path: &mut Datapath, qpn: u32) -> bool {
        let Objects { qps, cqs, .. } = &mut path.objects;
        let Some(qp) = qps.get_mut(qpn) else { return false };
        match (qp.service, qp.route, qp.state) {
            (Service::Ud, _, State::Rts) => {
                let has_more = self.datagrams.run(path, qpn);
                ethernet::send_datagrams(path);
                has_more
            }
            (Service::Ud, _, State::Error) => flush::run(qp, cqs, &mut path.report),
            (Service::Ud, ..) => false,
            (Service::Raw, _, State::Rts) => ethernet::run(path, qpn),
            (Service::Raw, _, State::Error) if qp.flushes() => flush::run(qp, cqs, &mut path.report),
            (Service::Raw, ..) => false,
            (_, Route::Peer(_), _) => wire::run(path, qpn),
            (_, Route::Loopback, State::Rts) => self.loopback.run(path, qpn),
            (_, Route::Loopback, State::Error) => flush::run(qp, cqs, &mut path.report),
            (_, Route::Loopback, _) => false,
        }
    }

    /// Drops the loopback WQEs in progress, after the engine has panicked.
    pub(crate) fn abandon(&mut self) {
        self.loopback.finished.clear();
    }

    /// Processes one burst of packets from other adapters. Returns whether there were any.
    pub(crate) fn receive(&mut self, path: &mut Datapath, rest: Rest) -> bool {
        // Taking the fabric out allows the packet handlers to borrow the rest. They queue their responses, which are
        // sent later.
        let Some(mut fabric) = path.fabric.take() else { return false };
        let mut received = Stats::default();
        let now = path.report.now;
        let mut busy = fabric.receive(now, rest, &mut received, |from, bytes| self.packet(path, from, bytes));
        busy |= fabric.receive_groups(&mut received, |from, to, bytes| match roce::parse(bytes) {
            Ok(packet) if packet.bth.op == Op::Frame => ethernet::receive(path, from, packet.payload),
            _ => datagram::receive_group(path, from, *to.ip(), bytes),
        });
        for (way, bth, ext) in self.dynamic.answers.drain(..) {
            fabric.send_empty(way, &bth, &ext);
        }
        for group in path.objects.groups.take_empty() {
            fabric.leave(group);
        }
        path.fabric = Some(fabric);
        path.introduce();
        let stats = &mut path.report.stats;
        stats.packets_received += received.packets_received;
        stats.bytes_received += received.bytes_received;
        stats.shared_received += received.shared_received;
        stats.dropped += received.dropped;
        for _ in 0..received.faults {
            path.report.note_fault(None, "black_hole");
        }
        busy
    }

    /// Processes one packet from the fabric.
    pub(crate) fn packet(&mut self, path: &mut Datapath, from: SocketAddrV4, bytes: &[u8]) {
        let packet = match roce::parse(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                tracing::trace!(%from, ?error, "broken packet");
                path.report.stats.dropped += 1;
                return;
            }
        };
        let qpn = path.objects.destination(packet.bth.dest_qpn);
        let service = packet.bth.service;
        if packet.bth.op == Op::Frame {
            return ethernet::receive(path, from, packet.payload);
        }
        if packet.bth.op == Op::Connect {
            return self.dynamic.connect(path, from, &packet);
        }
        // Introductions are for this adapter, whatever uses its QP 1.
        let is_introduction = || introduction::is_one(packet.payload);
        if packet.bth.dest_qpn == management::QPN && (qpn == management::QPN || is_introduction()) {
            let taken = service == Service::Ud && path.mads.receive(*from.ip(), &packet);
            path.report.stats.dropped += u64::from(!taken);
            return;
        }
        if !is_expected(path, qpn, from, &packet) {
            tracing::trace!(%from, qpn, "packet from a stranger");
            path.report.stats.dropped += 1;
            return;
        }
        path.report.lookout.note(|| {
            let (psn, opcode) = (packet.bth.psn.get(), packet.bth.op.name());
            Observation::PacketReceived { qpn, psn, opcode, bytes: packet.payload.len() as u64 }
        });
        let now = path.report.now;
        if let Some(of) = path.objects.qps.get_mut(qpn).and_then(|qp| qp.of_dct.as_mut()) {
            of.used = now;
            if packet.bth.op == Op::Disconnect {
                if of.ends_with(&packet.ext) {
                    path.objects.remove_connection(qpn);
                }
                return;
            }
        }
        match service {
            Service::Ud => datagram::receive(path, qpn, from, &packet),
            Service::Raw => {}
            Service::Uc | Service::Rc | Service::Dc | Service::Xrc => {
                wire::receive(path, qpn, &packet, bytes)
            }
        }
        path.enqueue(qpn);
    }
}

/// Whether the destination of a packet, QP `qpn`, is a connected QP of the right service, and the source its peer.
#[inline]
fn is_expected(path: &Datapath, qpn: u32, from: SocketAddrV4, packet: &roce::Packet<'_>) -> bool {
    let service = packet.bth.service;
    path.objects.qps.get(qpn).is_some_and(|qp| {
        // A DCI serves no requests, and neither does an XRC initiator. Targets send none.
        let is_response = packet.bth.op.is_response();
        let is_at_its_end = match service {
            Service::Dc => is_response == qp.dci.is_some(),
            Service::Xrc => is_response != qp.is_xrc_target(),
            Service::Rc | Service::Uc | Service::Ud => true,
            Service::Raw => false,
        };
        qp.service == service
            && is_at_its_end
            && (service == Service::Ud || qp.route == Route::Peer(from))
            && roce::pkeys_match(qp.attrs.pkey, packet.bth.pkey)
    })
}
