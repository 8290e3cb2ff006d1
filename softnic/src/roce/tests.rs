use super::*;
use proptest::prelude::*;

/// A WRITE ONLY of five bytes is encoded as the header tables of the specification require.
#[test]
fn write_only_by_hand() {
    let bth = Bth {
        service: Service::Rc,
        op: Op::WriteOnly,
        solicited: false,
        pkey: DEFAULT_PKEY,
        ack_req: true,
        dest_qpn: 0x1a7,
        psn: Psn::new(0x12_3456),
        srqn: None,
    };
    let ext = Ext::Reth(Reth { addr: 0x7f4a_2000_1000, rkey: 0x18_1ef0, len: 5 });
    let mut packet = vec![0xa5; packet_len(bth.len() + ext.len(), 5)];
    emit(&bth, &ext, 5, &mut packet).copy_from_slice(b"hello");
    let expected = [
        0x0a, 0x70, 0xff, 0xff, 0x00, 0x00, 0x01, 0xa7, 0x80, 0x12, 0x34,
        0x56, // BTH, three bytes of padding
        0x00, 0x00, 0x7f, 0x4a, 0x20, 0x00, 0x10, 0x00, 0x00, 0x18, 0x1e, 0xf0, 0x00, 0x00, 0x00,
        0x05, // RETH
        b'h', b'e', b'l', b'l', b'o', 0, 0, 0,
    ];
    assert_eq!(packet[..packet.len() - ICRC], expected);
    assert_eq!(parse(&packet), Ok(Packet { bth, ext, payload: b"hello" }));
}

/// A UD SEND ONLY WITH IMMEDIATE of two bytes is encoded as the header tables of the specification require.
#[test]
fn datagram_by_hand() {
    let bth = Bth {
        service: Service::Ud,
        op: Op::SendOnlyImm,
        solicited: true,
        pkey: 0x8001,
        ack_req: false,
        dest_qpn: 0x1a7,
        psn: Psn::new(7),
        srqn: None,
    };
    let ext = Ext::DethImm(Deth { qkey: 0x1111_2222, source_qpn: 0x2b8 }, 0xcafe_0001);
    let mut packet = vec![0xa5; packet_len(bth.len() + ext.len(), 2)];
    emit(&bth, &ext, 2, &mut packet).copy_from_slice(b"hi");
    let expected = [
        0x65, 0xe0, 0x80, 0x01, 0x00, 0x00, 0x01, 0xa7, 0x00, 0x00, 0x00,
        0x07, // BTH, two bytes of padding
        0x11, 0x11, 0x22, 0x22, 0x00, 0x00, 0x02, 0xb8, // DETH
        0xca, 0xfe, 0x00, 0x01, // immediate
        b'h', b'i', 0, 0,
    ];
    assert_eq!(packet[..packet.len() - ICRC], expected);
    assert_eq!(parse(&packet), Ok(Packet { bth, ext, payload: b"hi" }));
}

/// An XRC WRITE LAST WITH IMMEDIATE of four bytes is encoded as the header tables of the specification require.
#[test]
fn requests_of_extended_connections_by_hand() {
    let bth = Bth {
        service: Service::Xrc,
        op: Op::WriteLastImm,
        solicited: false,
        pkey: DEFAULT_PKEY,
        ack_req: true,
        dest_qpn: 0x1a7,
        psn: Psn::new(9),
        srqn: Some(0x2b8),
    };
    let ext = Ext::Imm(0xcafe_0001);
    let mut packet = vec![0xa5; packet_len(bth.len() + ext.len(), 4)];
    emit(&bth, &ext, 4, &mut packet).copy_from_slice(b"last");
    let expected = [
        0xa9, 0x40, 0xff, 0xff, 0x00, 0x00, 0x01, 0xa7, 0x80, 0x00, 0x00, 0x09, // BTH
        0x00, 0x00, 0x02, 0xb8, // XRC header
        0xca, 0xfe, 0x00, 0x01, // immediate
        b'l', b'a', b's', b't',
    ];
    assert_eq!(packet[..packet.len() - ICRC], expected);
    assert_eq!(parse(&packet), Ok(Packet { bth, ext, payload: b"last" }));
    assert_eq!(parse(&packet[..16]), Err(BadPacket::Short), "no room for the XRC header");
    let answer = Bth { op: Op::Ack, srqn: None, ..bth };
    let ext = Ext::Aeth(Aeth { syndrome: AethSyndrome::Ack, msn: 1 });
    let mut packet = vec![0xa5; packet_len(answer.len() + ext.len(), 0)];
    emit(&answer, &ext, 0, &mut packet);
    assert_eq!((packet.len(), packet[0]), (20, 0xb1), "a response has no XRC header");
    assert_eq!(parse(&packet), Ok(Packet { bth: answer, ext, payload: b"" }));
}

#[test]
fn acknowledgements_by_hand() {
    let cases = [
        (AethSyndrome::Ack, 0x1f),
        (AethSyndrome::Rnr(12), 0x2c),
        (AethSyndrome::Nak(Nak::Sequence), 0x60),
        (AethSyndrome::Nak(Nak::InvalidRequest), 0x61),
        (AethSyndrome::Nak(Nak::RemoteAccess), 0x62),
        (AethSyndrome::Nak(Nak::RemoteOperational), 0x63),
    ];
    for (syndrome, byte) in cases {
        assert_eq!(syndrome.to_byte(), byte);
        assert_eq!(AethSyndrome::from_byte(byte), syndrome);
    }
}

#[test]
fn packet_numbers_compare_across_the_wrap() {
    let (last, first) = (Psn::new(0xff_ffff), Psn::new(0));
    assert_eq!(last.plus(1), first);
    assert_eq!((first.since(last), last.since(first)), (1, -1));
    assert_eq!(first.plus(0x7f_ffff).since(first), 0x7f_ffff);
}

#[test]
fn limited_members_communicate_with_full_members_only() {
    assert!(pkeys_match(DEFAULT_PKEY, DEFAULT_PKEY) && pkeys_match(0x8001, 1) && pkeys_match(1, 0x8001));
    assert!(!pkeys_match(1, 1) && !pkeys_match(0x8001, 0x8002) && !pkeys_match(0x8001, DEFAULT_PKEY));
}

#[test]
fn rejects_invalid_packets() {
    let bth = Bth {
        service: Service::Rc,
        op: Op::Ack,
        solicited: false,
        pkey: DEFAULT_PKEY,
        ack_req: false,
        dest_qpn: 1,
        psn: Psn::new(0),
        srqn: None,
    };
    let ext = Ext::Aeth(Aeth { syndrome: AethSyndrome::Ack, msn: 0 });
    let mut packet = vec![0; packet_len(bth.len() + ext.len(), 0)];
    emit(&bth, &ext, 0, &mut packet);
    assert!(parse(&packet).is_ok());
    assert_eq!(parse(&packet[..15]), Err(BadPacket::Short));
    assert_eq!(parse(&packet[..16]), Err(BadPacket::Short), "no room for the AETH");
    let changed = |at: usize, value: u8| {
        let mut other = packet.clone();
        other[at] = value;
        parse(&other).err()
    };
    assert_eq!(changed(1, 0x41), Some(BadPacket::Version));
    assert_eq!(changed(0, 0xff), Some(BadPacket::Opcode(0xff)));
    assert_eq!(changed(1, 0x50), Some(BadPacket::Padding));
}

fn any_ext((service, op): (Service, Op)) -> BoxedStrategy<Ext> {
    let deth = || (any::<u32>(), 0..1u32 << 24).prop_map(|(qkey, source_qpn)| Deth { qkey, source_qpn });
    let reth =
        || (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(addr, rkey, len)| Reth { addr, rkey, len });
    let aeth = || {
        (any::<u8>(), 0..1u32 << 24)
            .prop_map(|(byte, msn)| Aeth { syndrome: AethSyndrome::from_byte(byte), msn })
            // Acknowledgements with credits are parsed but never emitted.
            .prop_filter("credits", |aeth| AethSyndrome::from_byte(aeth.syndrome.to_byte()) == aeth.syndrome)
    };
    match op.ext_kind(service) {
        ExtKind::None => Just(Ext::None).boxed(),
        ExtKind::Imm => any::<u32>().prop_map(Ext::Imm).boxed(),
        ExtKind::Reth => reth().prop_map(Ext::Reth).boxed(),
        ExtKind::RethImm => (reth(), any::<u32>()).prop_map(|(reth, imm)| Ext::RethImm(reth, imm)).boxed(),
        ExtKind::Deth => deth().prop_map(Ext::Deth).boxed(),
        ExtKind::DethImm => (deth(), any::<u32>()).prop_map(|(deth, imm)| Ext::DethImm(deth, imm)).boxed(),
        ExtKind::Aeth => aeth().prop_map(Ext::Aeth).boxed(),
        ExtKind::AtomicAck => {
            (aeth(), any::<u64>()).prop_map(|(aeth, old)| Ext::AtomicAck(aeth, old)).boxed()
        }
        ExtKind::Atomic => (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>())
            .prop_map(|(addr, rkey, swap_add, compare)| Ext::Atomic { addr, rkey, swap_add, compare })
            .boxed(),
        ExtKind::Masked => (any::<u64>(), any::<u32>(), any::<u32>(), any::<[u64; 4]>())
            .prop_map(|(addr, rkey, width, operands)| Ext::Masked { addr, rkey, width, operands })
            .boxed(),
        ExtKind::Connect => (any::<u64>(), any::<u8>(), 0..1u32 << 24, any::<u32>())
            .prop_map(|(key, mtu, source_qpn, sequence)| {
                Ext::Connect(Connect { key, mtu, source_qpn, sequence })
            })
            .boxed(),
        ExtKind::Accept => (aeth(), any::<u32>(), 0..1u32 << 24)
            .prop_map(|(aeth, sequence, qpn)| Ext::Accept(aeth, sequence, qpn))
            .boxed(),
        ExtKind::Disconnect => any::<u32>().prop_map(Ext::Disconnect).boxed(),
    }
}

proptest! {
    #[test]
    fn any_packet_round_trips(
        ((service, op), ext) in (0u8..=0xff)
            .prop_filter_map("no opcode", Op::from_byte)
            .prop_flat_map(|known| (Just(known), any_ext(known))),
        (solicited, ack_req, pkey) in any::<(bool, bool, u16)>(),
        (dest_qpn, psn, srqn) in (0..1u32 << 24, any::<u32>(), 0..1u32 << 24),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let srqn = (service == Service::Xrc && !op.is_response()).then_some(srqn);
        let bth = Bth { service, op, solicited, pkey, ack_req, dest_qpn, psn: Psn::new(psn), srqn };
        let mut packet = vec![0xa5; packet_len(bth.len() + ext.len(), payload.len())];
        emit(&bth, &ext, payload.len(), &mut packet).copy_from_slice(&payload);
        prop_assert_eq!(parse(&packet), Ok(Packet { bth, ext, payload: &payload }));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(packet) = parse(&bytes) {
            prop_assert!(packet.payload.len() + packet.bth.len() + ICRC + packet.ext.len() <= bytes.len());
        }
    }
}
