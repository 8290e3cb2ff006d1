//! Steers received frames to receive queues.

use super::hash;
use crate::address::{Gid, Mac, gid_of, is_group};
use crate::frame::datagram::Opened;
use crate::frame::{self, CUSTOMER_TAG, Layers, TCP, datagram, offload};
use crate::objects::Objects;
use crate::objects::ethernet::flow::Steered;
use crate::objects::groups;
use crate::objects::qp::{RawQueue, State};
use crate::queues::{complete_frame, fail_receive, take_receive};
use crate::request::BadReceive;
use crate::roce;
use crate::transport::datagram::{GRH, Sender, deliver_to_members, receive_from};
use crate::transport::datapath::Datapath;
use rushmem_mlx5::cqe::{FrameReception, Reception};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Processes a frame from another adapter.
pub(in super::super) fn receive(path: &mut Datapath, from: SocketAddrV4, frame: &[u8]) {
    // The group delivers to its sender, too.
    if from == path.address {
        return;
    }
    let Some((_, source)) = frame::addresses(frame) else {
        path.report.stats.dropped += 1;
        return;
    };
    path.neighbors.learn(source, from);
    deliver(path, frame, false);
}

/// Delivers a frame to the receive queues that flow tables choose. `is_own` is whether the function has sent it.
pub(super) fn deliver(path: &mut Datapath, frame: &[u8], is_own: bool) {
    let own = path.mac();
    let ethernet = &mut path.objects.ethernet;
    let (Some((to, _)), Some(layers)) = (frame::addresses(frame), frame::parse(frame)) else { return };
    if path.failures.health.port_is_down || !ethernet.vport.accepts(to, own) {
        return;
    }
    if !is_own {
        ethernet.vport.count(true, to, frame.len());
    }
    if receive_datagram(path, (frame, is_own), to, &layers) {
        return;
    }
    let headers = frame::headers(frame, &layers);
    let steered = path.objects.ethernet.flow.steer(&headers, frame.len());
    if steered.is_empty() {
        return;
    }
    let described = describe(frame, &layers);
    for Steered { tirn, flow_tag } in steered {
        let ethernet = &path.objects.ethernet;
        let Some(tir) = ethernet.tirs.get(tirn) else { continue };
        if is_own && tir.blocks(is_group(to)) {
            continue;
        }
        let context = tir.context;
        let (hash, hash_type) = hash::hash(&context, frame, &layers);
        let rqn = match tir.is_indirect() {
            false => Some(context.inline_rqn),
            true => {
                ethernet.rqts.get(context.indirect_table).map(|rqt| rqt.rqns[hash as usize % rqt.rqns.len()])
            }
        };
        if let Some(rqn) = rqn {
            let got = FrameReception { flow_tag, hash, hash_type, ..described };
            store(path, rqn, (frame, &layers), got);
        }
    }
}

/// Delivers a RoCE datagram to its QP, or to those of its group. Returns `false` if the frame is something else.
fn receive_datagram(path: &mut Datapath, (frame, is_own): (&[u8], bool), to: Mac, layers: &Layers) -> bool {
    if !path.is_own(to) && !is_group(to) || !path.objects.ethernet.vport.roce {
        return false;
    }
    let Some(Opened { is_v6, header, packet }) = datagram::open(frame, layers) else { return false };
    let Some(packet) = packet.and_then(|packet| roce::parse(packet).ok()) else {
        path.report.stats.dropped += 1;
        return true;
    };
    // IPv6 with extension headers does not fit into the area of a receive.
    if header.len() > GRH {
        path.report.stats.dropped += 1;
        return true;
    }
    let mut area = [0; GRH];
    area[GRH - header.len()..].copy_from_slice(header);
    let kind = if is_v6 { Reception::ROCE_V2_IPV6 } else { Reception::ROCE_V2_IPV4 };
    let sender = Sender { header: area, has_header: true, lid: 0, sl: kind };
    if is_group(to) {
        if packet.bth.dest_qpn == groups::QPN {
            deliver_to_members(path, &destination(header, is_v6), is_own, &sender, &packet);
        }
        return true;
    }
    let qpn = path.objects.destination(packet.bth.dest_qpn);
    receive_from(path, qpn, &sender, &packet);
    path.enqueue(qpn);
    true
}

/// Returns the destination of an IP header, as a GID.
fn destination(header: &[u8], is_v6: bool) -> Gid {
    match is_v6 {
        true => std::array::from_fn(|i| header[24 + i]),
        false => gid_of(Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| header[16 + i]))),
    }
}

/// Returns what a completion says about the headers of a frame.
fn describe(frame: &[u8], layers: &Layers) -> FrameReception {
    let mut got = FrameReception { correct: FrameReception::L2_OK, ..FrameReception::default() };
    got.check_sum = offload::sum(0, &frame[layers.network..]);
    if let Some(ip) = layers.ip {
        let (of_ip, of_transport) = offload::correct(frame, layers);
        got.correct |= if of_ip { FrameReception::L3_OK } else { 0 };
        got.correct |= if of_transport { FrameReception::L4_OK } else { 0 };
        got.headers |= if ip.is_v6 { FrameReception::IPV6 } else { FrameReception::IPV4 };
        if ip.has_ports() {
            got.headers |= if ip.protocol == TCP { FrameReception::TCP } else { FrameReception::UDP };
        }
    }
    got
}

/// Stores a frame in the next receive of a queue.
fn store(path: &mut Datapath, rqn: u32, (frame, layers): (&[u8], &Layers), got: FrameReception) {
    let Datapath { objects, report, .. } = path;
    let Objects { qps, cqs, mkeys, dma, .. } = objects;
    let Some(qp) = qps.get_mut(rqn).filter(|qp| qp.state == State::Rts) else { return };
    let Some(RawQueue::Receive(context)) = qp.raw.as_deref() else { return };
    let removes_tag = !context.vsd;
    let Some(receive) = take_receive(qp, report) else {
        report.counters.count(&qp.context, |counts| &mut counts.out_of_buffer);
        report.stats.lost += 1;
        return;
    };
    let tag = layers.tag.filter(|(tag, _)| removes_tag && *tag == CUSTOMER_TAG);
    let mut stored = frame.to_vec();
    if tag.is_some() {
        offload::remove_tag(&mut stored);
    }
    let len = stored.len() as u64;
    let placed = receive
        .spread(mkeys, rqn, 0, len, |to, at| dma.write(&to, &stored[at as usize..][..to.len as usize]))
        .and_then(|()| dma.flush().map_err(BadReceive::Memory));
    if let Err(bad) = placed {
        fail_receive(qp, cqs, report, receive.index, bad);
        qp.enter_error(report, bad.refusal().syndrome().0);
        return;
    }
    let got = FrameReception {
        wqe_counter: receive.index,
        byte_cnt: len as u32,
        vlan: tag.map(|(_, control)| control),
        ..got
    };
    complete_frame(qp, cqs, report, got);
}
