use super::*;
use crate::testing::bytes;
use std::string::ToString;

/// Hex dump of a completion: a 16 KiB WRITE on QP 0x1a7, user index 7, first lap.
const SUCCESS: &str = "
    00000000 00000000 00000000 00000000
    00000000 00000000 00000000 00000000
    00000007 00000000 00000000 00004000
    00000012 34567890 080001a7 00120000";

/// Hex dump of an error completion: a READ that the target denied, vendor code 0x88, odd lap.
const FAILED: &str = "
    00000000 00000000 00000000 00000000
    00000000 00000000 00000000 00000000
    00000007 00000000 00000000 00000000
    00000000 00008813 100001a7 001300d1";

const COMPLETION: Completion = Completion {
    opcode: Opcode::RDMA_WRITE,
    qpn: 0x1a7,
    wqe_counter: 0x12,
    user_index: 7,
    byte_cnt: 0x4000,
    timestamp: 0x12_3456_7890,
};

const FAILURE: Failure = Failure {
    kind: CqeOpcode::REQ_ERR,
    opcode: Opcode::RDMA_READ,
    qpn: 0x1a7,
    wqe_counter: 0x13,
    srqn_uidx: 7,
    syndrome: Syndrome::REMOTE_ACCESS_ERR,
    vendor_syndrome: 0x88,
};

#[test]
fn emit_success() {
    assert_eq!(Cqe::requester(&COMPLETION, false).to_bytes(), bytes::<64>(SUCCESS));
}

#[test]
fn parse_success() {
    let cqe = Cqe::from_bytes(bytes(SUCCESS));
    assert_eq!(cqe.op_own(), OpOwn::new(CqeOpcode::REQ, false, false));
    let read = Completion {
        opcode: cqe.opcode(),
        qpn: cqe.qpn(),
        wqe_counter: cqe.wqe_counter(),
        user_index: cqe.user_index(),
        byte_cnt: cqe.byte_cnt(),
        timestamp: cqe.timestamp(),
    };
    assert_eq!(read, COMPLETION);
    assert!(cqe.as_error().is_none());
}

#[test]
fn emit_error() {
    assert_eq!(Cqe::error(&FAILURE, true).to_bytes(), bytes::<64>(FAILED));
}

#[test]
fn parse_error() {
    let cqe = Cqe::from_bytes(bytes(FAILED));
    let error = cqe.as_error().unwrap();
    assert_eq!(error.failure(), FAILURE);
    assert!(error.tail.op_own.owner());
}

#[test]
fn emit_reception() {
    let got = Reception {
        kind: CqeOpcode::RESP_WR_IMM,
        qpn: 0x2b8,
        wqe_counter: 3,
        srqn_uidx: 9,
        remote_qpn: 0,
        slid: 0,
        grh: false,
        sl: 0,
        imm: 0xcafe_0001,
        byte_cnt: 64,
        timestamp: 5,
        solicited: true,
    };
    let golden = "
        00000000 00000000 00000000 00000000
        00000000 00000000 00000000 00000000
        00000009 cafe0001 00000000 00000040
        00000000 00000005 000002b8 00030013";
    assert_eq!(Cqe::responder(&got, true).to_bytes(), bytes::<64>(golden));
    let datagram =
        Reception { remote_qpn: 0x1a7, slid: 0x1234, grh: true, sl: Reception::ROCE_V2_IPV4, ..got };
    let golden = "
        00000000 00000000 00000000 00000000
        00000000 00001234 1a0001a7 00000000
        00000009 cafe0001 00000000 00000040
        00000000 00000005 000002b8 00030013";
    assert_eq!(Cqe::responder(&datagram, true).to_bytes(), bytes::<64>(golden));
}

#[test]
fn one_load_of_the_last_eight_bytes_suffices_for_polling() {
    for (text, opcode, counter) in [(SUCCESS, Opcode::RDMA_WRITE, 0x12), (FAILED, Opcode::RDMA_READ, 0x13)] {
        let all = bytes::<64>(text);
        let word = CqeWord(u64::from_le_bytes(*all.last_chunk().unwrap()));
        assert_eq!((word.opcode(), word.qpn(), word.wqe_counter()), (opcode, 0x1a7, counter));
        assert_eq!(word, Cqe::from_bytes(all).word());
        assert_eq!(word.op_own(), Cqe::from_bytes(all).op_own());
        assert_eq!(CqeWord::from(word.tail()), word);
    }
}

#[test]
fn owner_follows_the_lap() {
    let entries = 8;
    for index in 0..4 * entries {
        let lap = index / entries;
        let written = OpOwn::new(CqeOpcode::REQ, false, owner_bit(index, entries));
        assert_eq!(written.owner(), lap % 2 == 1);
        assert!(written.is_ready(index, entries));
        assert!(!written.is_ready(index + entries, entries), "the slot still holds the last lap's entry");
    }
}

#[test]
fn an_empty_ring_has_nothing_ready() {
    for empty in [OpOwn::EMPTY, OpOwn::EMPTY_OWNED_BY_NIC, OpOwn(0xff)] {
        assert!(!Cqe::empty(empty).op_own().is_ready(0, 64));
        assert!(!Cqe::empty(empty).op_own().is_ready(64, 64));
    }
    assert_eq!(Cqe::empty(OpOwn::EMPTY).to_bytes()[..63], [0; 63]);
}

#[test]
fn entries_print_on_one_line() {
    assert_eq!(
        Cqe::from_bytes(bytes(SUCCESS)).to_string(),
        "qp 0x1a7 [0x12] REQ owner 0 RDMA_WRITE uidx 0x7 16384 B at time 0x1234567890",
    );
    let error = Cqe::from_bytes(bytes(FAILED)).to_string();
    assert!(
        error.starts_with(
            "qp 0x1a7 [0x13] REQ_ERR owner 1 RDMA_READ uidx 0x7 REMOTE_ACCESS_ERR (vendor 0x88): the target"
        ),
        "{error}"
    );
    assert!(!error.contains('\n'));
}

#[test]
fn unknown_numbers_print_as_numbers() {
    assert_eq!(Syndrome(0x77).to_string(), "syndrome 0x77");
    assert_eq!(CqeOpcode(9).to_string(), "CQE opcode 9");
    assert_eq!(Opcode(0xee).to_string(), "opcode 0xee");
}
