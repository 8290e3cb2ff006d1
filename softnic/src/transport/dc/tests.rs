//! Tests of connect packets that are repeated, late or forged, or exceed the room of a target.

use super::{CONNECTIONS, EVICT_AFTER};
use crate::address::mac_of;
use crate::fuzz::{DC_KEY, Harness, PEER};
use crate::roce::{Aeth, AethSyndrome, Connect, Ext, Nak, Op, Psn, Reth};
use crate::route::Route;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Input that makes the harness use dynamic connections.
const DCI: u8 = 3;

/// Processes a connect packet from the peer. Returns the header of the answer, if there is one.
fn connect(harness: &mut Harness, key: u64, source_qpn: u32, sequence: u32) -> Option<Ext> {
    let connect = Connect { key, mtu: 1, source_qpn, sequence };
    harness.receive(Op::Connect, harness.dctn(), 0x10, &Ext::Connect(connect));
    let ((_, to), bth, ext) = harness.core.transports.dynamic.answers.pop()?;
    assert_eq!((to, bth.dest_qpn, bth.psn), (PEER, source_qpn, Psn::new(0x10)));
    Some(ext)
}

fn number(answer: Option<Ext>) -> Option<u32> {
    match answer {
        Some(Ext::Accept(_, _, number)) => Some(number),
        _ => None,
    }
}

fn connections(harness: &Harness) -> usize {
    let connections = &harness.core.path.objects.dcts.get(harness.dctn()).unwrap().connections;
    assert!(connections.values().all(|number| harness.core.path.objects.qps.get(*number).is_some()));
    connections.len()
}

#[test]
fn a_repeated_connect_has_the_same_answer() {
    let mut harness = Harness::new(true, DCI);
    let first = number(connect(&mut harness, DC_KEY, 5, 100)).unwrap();
    assert_eq!(number(connect(&mut harness, DC_KEY, 5, 100)), Some(first));
    // A new connect replaces the connection, and a late one has no effect.
    let second = number(connect(&mut harness, DC_KEY, 5, 101)).unwrap();
    assert_eq!((connect(&mut harness, DC_KEY, 5, 100), connections(&harness)), (None, 1));
    assert!(second != first && harness.core.path.objects.qps.get(first).is_none());
    assert_eq!(harness.core.path.objects.qps.get(second).unwrap().recv_psn, Psn::new(0x11));
    // An adapter that has restarted.
    assert!(number(connect(&mut harness, DC_KEY, 5, 0x8000_0000)).is_some());
}

#[test]
fn a_wrong_key_leaves_nothing_behind() {
    let mut harness = Harness::new(true, DCI);
    let access = AethSyndrome::Nak(Nak::RemoteAccess);
    let refused = Some(Ext::Aeth(Aeth { syndrome: access, msn: 0 }));
    assert_eq!(connect(&mut harness, DC_KEY ^ 1, 5, 100), refused);
    assert_eq!(
        (connections(&harness), harness.core.path.objects.dcts.get(harness.dctn()).unwrap().wrong_keys),
        (0, 1)
    );
}

#[test]
fn a_disconnect_names_its_connection() {
    let mut harness = Harness::new(true, DCI);
    let number = number(connect(&mut harness, DC_KEY, 5, 100)).unwrap();
    harness.receive(Op::Disconnect, number, 0x11, &Ext::Disconnect(99));
    assert_eq!(connections(&harness), 1);
    harness.receive(Op::Disconnect, number, 0x11, &Ext::Disconnect(100));
    assert_eq!(connections(&harness), 0);
}

#[test]
fn packets_at_the_wrong_end_are_dropped() {
    let mut harness = Harness::new(true, DCI);
    let (number, initiator) = (number(connect(&mut harness, DC_KEY, 5, 100)).unwrap(), harness.qpn());
    let dropped = harness.core.path.report.stats.dropped;
    let read = Ext::Reth(Reth { addr: 0, rkey: harness.key(), len: 8 });
    harness.receive(Op::ReadRequest, initiator, 0, &read);
    let ack = Ext::Aeth(Aeth { syndrome: AethSyndrome::Ack, msn: 0 });
    harness.receive(Op::Ack, number, 0x11, &ack);
    assert_eq!(harness.core.path.report.stats.dropped, dropped + 2);
}

#[test]
fn an_accept_answers_the_last_connect_only() {
    let mut harness = Harness::new(true, DCI);
    harness.post_some();
    harness.core.pass(|| false);
    let (qpn, sequence) = (harness.qpn(), harness.core.transports.dynamic.sequence);
    let accept = |sequence| Ext::Accept(Aeth { syndrome: AethSyndrome::Ack, msn: 0 }, sequence, 0x123);
    let is_up = |harness: &Harness| harness.core.path.objects.qps.get(qpn).unwrap().attrs.remote_qpn == 0x123;
    harness.receive(Op::Accept, qpn, 0, &accept(sequence - 1));
    // A plain acknowledgement does not name a connection.
    harness.receive(Op::Ack, qpn, 0, &Ext::Aeth(Aeth { syndrome: AethSyndrome::Ack, msn: 0 }));
    assert!(!is_up(&harness));
    assert_eq!(harness.core.path.report.stats.stale, 2);
    harness.receive(Op::Accept, qpn, 0, &accept(sequence));
    assert!(is_up(&harness));
}

#[test]
fn an_ethernet_function_finds_its_target_by_mac() {
    const STATION: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 77, 77, 78), 4791);
    for learned in [false, true] {
        let mut harness = Harness::new(true, DCI);
        let path = &mut harness.core.path;
        path.objects.ethernet.vport.owner = Some(1);
        if learned {
            path.neighbors.learn(mac_of(PEER.port()), STATION);
        }
        harness.post_some();
        harness.core.pass(|| false);
        let to = if learned { STATION } else { PEER };
        assert_eq!(harness.core.path.objects.qps.get(harness.qpn()).unwrap().route, Route::Peer(to));
    }
}

#[test]
fn a_full_target_forgets_silent_connections_only() {
    let mut harness = Harness::new(true, DCI);
    for source in 0..CONNECTIONS as u32 {
        assert!(number(connect(&mut harness, DC_KEY, source, 1)).is_some());
    }
    let last = CONNECTIONS as u32;
    assert_eq!((connect(&mut harness, DC_KEY, last, 1), connections(&harness)), (None, CONNECTIONS));
    harness.core.path.report.now += EVICT_AFTER;
    // The first connection is no longer silent.
    let first = number(connect(&mut harness, DC_KEY, 0, 1)).unwrap();
    harness.receive(Op::WriteOnly, first, 0x11, &Ext::Reth(Reth { addr: 0, rkey: harness.key(), len: 0 }));
    assert!(number(connect(&mut harness, DC_KEY, last, 1)).is_some());
    assert_eq!(connections(&harness), CONNECTIONS);
    assert!(harness.core.path.objects.qps.get(first).is_some());
}
