//! Tests of frames from send queues, through flow tables, to receive queues.

use crate::frame::tests::frame;
use crate::frame::{TCP, UDP, offload};
use crate::fuzz::station::{ENTRIES, Numbers, RECEIVE, Station};
use crate::objects::qp::State;
use rushmem_mlx5::cqe::FrameReception;
use rushmem_mlx5::prm::flow::{DestinationType, DestroyFlowTable};
use rushmem_mlx5::prm::sq::{
    DestroyRq, ModifyRq, ModifySq, QueryRq, QuerySq, QueueState, RqContext, SqContext,
};
use rushmem_mlx5::prm::tir::{DestroyTir, ModifyTir, TirContext};
use rushmem_mlx5::prm::vport::{ModifyNicVportContext, NicVportContext, QueryVportCounter};
use rushmem_mlx5::seg::DataSeg;
use rushmem_mlx5::{CqeOpcode, Opcode};

/// Offloads: both checksums, and the maximum length of a segment's data.
fn offloads(size: u16) -> [u8; 16] {
    let [high, low] = size.to_be_bytes();
    [0, 0, 0, 0, 0xc0, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Returns a station with posted receives, and a frame for it.
fn station(protocol: u8, data: &[u8]) -> (Station, Vec<u8>) {
    let station = Station::new();
    station.post_receives();
    let mut frame = frame(protocol, data);
    frame[..6].copy_from_slice(&station.mac());
    (station, frame)
}

#[test]
fn a_frame_is_completed_by_sender_and_receiver() {
    let (mut station, frame) = station(UDP, b"some data that is longer than padding");
    station.send(Opcode::SEND, offloads(0), &frame);
    let sent = station.completions(0);
    assert_eq!((sent.len(), sent[0].op_own().opcode(), sent[0].opcode()), (1, CqeOpcode::REQ, Opcode::SEND));
    let got = station.completions(1);
    assert_eq!((got.len(), got[0].wqe_counter(), got[0].byte_cnt()), (1, 0, frame.len() as u32));
    // The checksums are filled in.
    let stored = station.stored(0, frame.len());
    assert!(stored[..24] == frame[..24] && stored[24..26] != [0; 2] && stored[40..42] != [0; 2]);
    assert_eq!(got[0].hds_ip_ext, FrameReception::L2_OK | FrameReception::L3_OK | FrameReception::L4_OK);
    assert_eq!(got[0].l4_hdr_type, FrameReception::IPV4 | FrameReception::UDP);
    assert!(got[0].rss_hash_result.get() != 0 && got[0].rss_hash_type == FrameReception::HASH_IP);
    assert_eq!(got[0].check_sum.get(), offload::sum(0, &stored[14..]));
}

#[test]
fn the_driver_uses_the_queues_of_its_programs() {
    let mut station = Station::new();
    station.give_to_program();
    let Numbers { sqn, rqn, tirn, .. } = station.numbers;
    assert_eq!(station.call(&QuerySq { sqn, ..QuerySq::default() }).context.state, QueueState::RDY);
    assert_eq!(station.call(&QueryRq { rqn, ..QueryRq::default() }).context.state, QueueState::RDY);
    station.set_entry(1, DestinationType::TIR, tirn).unwrap();
    // Without the user context, they are those of a stranger.
    station.core.path.objects.buses.retain(|context, _| *context == station.context);
    assert!(station.set_entry(2, DestinationType::TIR, tirn).is_err());
    assert!(station.call_with(&QuerySq { sqn, ..QuerySq::default() }, &[]).is_err());
}

#[test]
fn a_short_frame_is_padded() {
    let (mut station, frame) = station(UDP, b"");
    station.send(Opcode::SEND, [0; 16], &frame);
    assert_eq!(station.completions(1)[0].byte_cnt(), 60);
}

#[test]
fn data_is_sent_as_segments() {
    let data: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
    let (mut station, frame) = station(TCP, &data);
    // The headers of 54 bytes are inline, so the rest is in the heap.
    let mut inline = [0; 80];
    inline[..12].copy_from_slice(&offloads(1000)[..12]);
    inline[13] = 54;
    inline[14..68].copy_from_slice(&frame[..54]);
    station.heap_write(&frame[54..]);
    station.post_long(&inline, 3000);
    let got = station.completions(1);
    assert_eq!(got.iter().map(|cqe| cqe.byte_cnt()).collect::<Vec<_>>(), [1054; 3]);
    assert!(got.iter().all(|cqe| cqe.hds_ip_ext & FrameReception::L4_OK != 0));
    let stored: Vec<u8> = (0..3).flat_map(|i| station.stored(u64::from(RECEIVE) * i + 54, 1000)).collect();
    assert_eq!((stored, station.completions(0).len()), (data, 1));
}

#[test]
fn frames_without_a_receive_are_lost() {
    let mut station = Station::new();
    let mut frame = frame(UDP, b"data");
    frame[..6].copy_from_slice(&station.mac());
    station.receive(&frame);
    assert_eq!((station.completions(1).len(), station.core.path.report.stats.lost), (0, 1));
    station.post_receives();
    for _ in 0..=ENTRIES {
        station.receive(&frame);
    }
    assert_eq!((station.completions(1).len() as u64, station.core.path.report.stats.lost), (ENTRIES, 2));
}

#[test]
fn a_bad_key_fails_only_its_queue() {
    let (mut station, frame) = station(UDP, b"data");
    station.set_receive(0, DataSeg::new(u64::MAX, station.key, RECEIVE));
    station.receive(&frame);
    let failed = station.completions(1)[0];
    assert_eq!(failed.op_own().opcode(), CqeOpcode::RESP_ERR);
    let state = |station: &Station, number| station.core.path.objects.qps.get(number).unwrap().state;
    let numbers = station.numbers;
    assert_eq!((state(&station, numbers.rqn), state(&station, numbers.sqn)), (State::Error, State::Rts));
    station.post_send_of(DataSeg::new(0, station.key ^ 1, 64));
    assert_eq!(station.completions(0)[0].op_own().opcode(), CqeOpcode::REQ_ERR);
    // The driver resets the queue, and posts again.
    let context = station.call(&QuerySq { sqn: numbers.sqn, ..QuerySq::default() }).context;
    assert_eq!(context.state, QueueState::ERR);
    for (sq_state, state) in [(QueueState::ERR, QueueState::RST), (QueueState::RST, QueueState::RDY)] {
        let context = SqContext { state, ..SqContext::default() };
        station.call(&ModifySq { sq_state, sqn: numbers.sqn, context, ..ModifySq::default() });
    }
    station.restart();
    station.post_send_of(DataSeg::new(0, station.key, 64));
    assert_eq!(station.completions(0)[0].op_own().opcode(), CqeOpcode::REQ);
}

#[test]
fn a_malformed_entry_fails_the_queue() {
    for (opcode, segments) in [(Opcode::RDMA_WRITE, 2), (Opcode::SEND, 0), (Opcode::TSO, 1)] {
        let mut station = Station::new();
        let mut all = [offloads(0); 2].map(rushmem_mlx5::Segment::from_bytes);
        // Inline headers that are longer than the entry.
        all[0].0[3] = u32::from_ne_bytes([0, 200, 0, 0]);
        station.post(opcode, &all[..segments]);
        assert_eq!(station.completions(0)[0].op_own().opcode(), CqeOpcode::REQ_ERR, "{opcode}");
    }
}

#[test]
fn tiny_segments_of_long_data_are_refused() {
    let mut station = Station::new();
    let mut inline = [0; 80];
    (inline[13], inline[7]) = (54, 1);
    station.post_long(&inline, 3000);
    assert_eq!(station.completions(0)[0].op_own().opcode(), CqeOpcode::REQ_ERR);
}

#[test]
fn tags_are_removed_unless_the_queue_keeps_them() {
    let (mut station, mut frame) = station(UDP, b"data with a tag, longer than the padding");
    offload::insert_tag(&mut frame, (0x8100, 0x2005));
    station.receive(&frame);
    let context = RqContext { state: QueueState::RDY, vsd: true, ..RqContext::default() };
    let (rqn, rq_state, modify_bitmask) = (station.numbers.rqn, QueueState::RDY, ModifyRq::VSD);
    station.call(&ModifyRq { rqn, rq_state, modify_bitmask, context, ..ModifyRq::default() });
    station.receive(&frame);
    let got = station.completions(1);
    assert_eq!(
        (got[0].vlan_info.get(), got[0].l4_hdr_type & 1, got[0].byte_cnt()),
        (0x2005, 1, frame.len() as u32 - 4)
    );
    assert_eq!(
        (got[1].vlan_info.get(), got[1].l4_hdr_type & 1, got[1].byte_cnt()),
        (0, 0, frame.len() as u32)
    );
}

#[test]
fn only_frames_of_the_port_arrive() {
    let (mut station, mut frame) = station(UDP, b"data");
    frame[5] ^= 1;
    station.receive(&frame);
    assert!(station.completions(1).is_empty());
    let context = NicVportContext { promisc_all: true, ..NicVportContext::default() };
    station.call(&ModifyNicVportContext { sets_promisc: true, context, ..ModifyNicVportContext::default() });
    station.receive(&frame);
    assert_eq!(station.completions(1).len(), 1);
    let counters = station.call(&QueryVportCounter::default());
    assert_eq!((counters.received_eth_unicast.packets, counters.received_eth_multicast.packets), (1, 0));
}

#[test]
fn a_tir_blocks_frames_of_its_own_function() {
    let (mut station, mut frame) = station(UDP, b"data");
    let context = TirContext { self_lb_block: TirContext::BLOCK_UNICAST, ..TirContext::default() };
    let tirn = station.numbers.tirn;
    station.call(&ModifyTir { tirn, sets_loopback: true, context, ..ModifyTir::default() });
    station.send(Opcode::SEND, [0; 16], &frame);
    assert!(station.completions(1).is_empty());
    station.receive(&frame);
    frame[..6].fill(0xff);
    station.send(Opcode::SEND, [0; 16], &frame);
    assert_eq!(station.completions(1).len(), 2);
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let mut station = Station::new();
    let numbers = station.numbers;
    assert!(station.call_with(&DestroyRq { rqn: numbers.rqn, ..DestroyRq::default() }, &[]).is_err());
    assert!(station.call_with(&DestroyTir { tirn: numbers.tirn, ..DestroyTir::default() }, &[]).is_err());
    let destroy = DestroyFlowTable { table_id: numbers.table, ..DestroyFlowTable::default() };
    assert!(station.call_with(&destroy, &[]).is_err());
    // An entry must be free, and lead to a TIR or to a table of a higher level.
    assert!(station.set_entry(0, DestinationType::TIR, numbers.tirn).is_err());
    assert!(station.set_entry(1, DestinationType::FLOW_TABLE, numbers.table).is_err());
    assert!(station.set_entry(1, DestinationType::TIR, numbers.tirn + 1).is_err());
    station.core.close_context(station.context);
    let objects = &station.core.path.objects;
    let left = objects.qps.iter().count() + objects.ethernet.tirs.iter().count();
    assert_eq!((left, objects.ethernet.flow.entries(), objects.ethernet.flow.root), (0, 0, None));
}
