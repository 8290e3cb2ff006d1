//! Tests of every operation, over loopback and by packets.

use crate::script::{Pe, Setup, both, loopback_nic, pattern};
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{CqeOpcode, Flags, Opcode, Wqe};

fn heap_word(pe: &Pe, offset: usize) -> u64 {
    pe.heap.load_u64(offset)
}

#[test]
fn write_arrives() {
    both(Setup::default(), |a, b| {
        for (i, len) in [1usize, 7, 64, 1023, 1024, 1025, 5000, 100_000].into_iter().enumerate() {
            let data = pattern(len, i as u64);
            a.fill(3, &data);
            let cqe = a.run(&Wqe::Write { raddr: 9, rkey: b.key, laddr: 3, lkey: a.key, len: len as u32 });
            assert_eq!((cqe.opcode(), cqe.byte_cnt.get()), (Opcode::RDMA_WRITE, 0));
            assert!(b.bytes(9, len) == data, "{len} bytes");
        }
        a.run(&Wqe::Write { raddr: 9, rkey: b.key, laddr: 3, lkey: a.key, len: 0 });
    });
}

#[test]
fn inline_write_arrives() {
    both(Setup::default(), |a, b| {
        for len in 0..=Inline::MAX {
            let data = pattern(len, 5);
            let inline = Inline::new(&data).unwrap();
            a.run(&Wqe::WriteInline { raddr: 40, rkey: b.key, data: inline });
            assert_eq!(b.bytes(40, len), data);
        }
    });
}

#[test]
fn gather_and_scatter_lists() {
    both(Setup::default(), |a, b| {
        let data = pattern(6000, 8);
        a.fill(0, &data);
        // Eight pieces, which make a WQE of ten segments in three blocks.
        let list: Vec<(u64, u32)> = (0..8).map(|i| (700 * i, 100 * (i as u32 + 1))).collect();
        let gathered: Vec<u8> = list
            .iter()
            .flat_map(|(at, len)| &data[*at as usize..(*at + u64::from(*len)) as usize])
            .copied()
            .collect();
        a.write_list(Opcode::RDMA_WRITE, 128, b.key, &list, Flags::SIGNALED);
        a.ring();
        assert!(a.cq.wait().as_error().is_none());
        assert!(b.bytes(128, gathered.len()) == gathered);

        let list: Vec<(u64, u32)> = (0..5).map(|i| (500_000 + 1000 * i, 720)).collect();
        a.write_list(Opcode::RDMA_READ, 128, b.key, &list, Flags::SIGNALED);
        a.ring();
        let cqe = a.cq.wait();
        assert_eq!((cqe.as_error().is_none(), cqe.byte_cnt.get()), (true, 3600));
        for (i, (at, len)) in list.iter().enumerate() {
            assert!(a.bytes(*at, *len as usize) == gathered[720 * i..720 * (i + 1)]);
        }
    });
}

#[test]
fn read_fetches() {
    both(Setup::default(), |a, b| {
        for (i, len) in [1usize, 8, 1024, 1025, 40_000, 300_001].into_iter().enumerate() {
            let data = pattern(len, 100 + i as u64);
            b.fill(11, &data);
            let cqe = a.run(&Wqe::Read { raddr: 11, rkey: b.key, laddr: 64, lkey: a.key, len: len as u32 });
            assert_eq!((cqe.opcode(), cqe.byte_cnt.get()), (Opcode::RDMA_READ, len as u32));
            assert!(a.bytes(64, len) == data, "{len} bytes");
        }
    });
}

#[test]
fn atomics_of_eight_bytes() {
    both(Setup::default(), |a, b| {
        let (raddr, rkey, laddr, lkey) = (24, b.key, 8, a.key);
        b.heap.store_u64(24, 0x1122_3344_5566_7788);
        let cqe = a.run(&Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 0x10 });
        assert_eq!(cqe.byte_cnt.get(), 8);
        // Endianness mode 1: results are in host order.
        assert_eq!((heap_word(a, 8), heap_word(b, 24)), (0x1122_3344_5566_7788, 0x1122_3344_5566_7798));

        a.run(&Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: 1, swap: 2 });
        assert_eq!((heap_word(a, 8), heap_word(b, 24)), (0x1122_3344_5566_7798, 0x1122_3344_5566_7798));
        a.run(&Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: 0x1122_3344_5566_7798, swap: 2 });
        assert_eq!(heap_word(b, 24), 2);

        b.heap.store_u64(24, 0xff);
        a.run(&Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add: 1, boundary: 0x80 });
        assert_eq!((heap_word(a, 8), heap_word(b, 24)), (0xff, 0));
        let xor = 0x8000_0000_0000_0001;
        a.run(&Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add: xor, boundary: u64::MAX });
        assert_eq!(heap_word(b, 24), xor);
        let (swap, swap_mask) = (0x0102_0304_0506_0708, 0x00ff_ffff_0000_ffff);
        let (compare, compare_mask) = (0x8000_0000_ffff_0000, 0xff00_0000_0000_0000);
        a.run(&Wqe::MaskedCompareSwap64 { raddr, rkey, laddr, lkey, compare, swap, compare_mask, swap_mask });
        assert_eq!((heap_word(a, 8), heap_word(b, 24)), (xor, 0x8002_0304_0000_0708));
    });
}

#[test]
fn atomics_of_four_bytes() {
    both(Setup::default(), |a, b| {
        let (raddr, rkey, laddr, lkey) = (28, b.key, 8, a.key);
        let result = |a: &Pe| u32::from_be(a.heap.load_u32(8));
        b.heap.store_u32(28, 0xffff_fffe);
        let cqe = a.run(&Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: 3, boundary: 0 });
        assert_eq!(cqe.byte_cnt.get(), 4);
        assert_eq!((result(a), b.heap.load_u32(28)), (0xffff_fffe, 1));
        a.run(&Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: 0x8000_0001, boundary: u32::MAX });
        assert_eq!(b.heap.load_u32(28), 0x8000_0000);
        let wqe = |compare, swap| Wqe::MaskedCompareSwap32 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare,
            swap,
            compare_mask: u32::MAX,
            swap_mask: u32::MAX,
        };
        a.run(&wqe(0x8000_0000, 0x1234_5678));
        assert_eq!((result(a), b.heap.load_u32(28)), (0x8000_0000, 0x1234_5678));
        a.run(&wqe(0, 1));
        assert_eq!((result(a), b.heap.load_u32(28)), (0x1234_5678, 0x1234_5678));
        assert_eq!(b.heap.load_u32(24), 0, "the neighbours are untouched");
        assert_eq!(b.heap.load_u32(32), 0);
    });
}

#[test]
fn nop_and_dump_complete() {
    both(Setup::default(), |a, b| {
        a.run(&Wqe::Nop);
        a.run(&Wqe::Dump { laddr: 0, lkey: a.key, len: 1 });
        a.run(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(1) });
    });
}

#[test]
fn send_fills_receives_in_order() {
    both(Setup { log_rq: Some(3), ..Setup::default() }, |a, b| {
        let data = pattern(9000, 77);
        a.fill(0, &data);
        b.post_receive(100_000, 4096);
        b.post_receive(200_000, 9000);
        b.post_receive(300_000, 64);
        let (laddr, lkey) = (0, a.key);
        a.run(&Wqe::Send { laddr, lkey, len: 3000 });
        a.run(&Wqe::SendImm { laddr, lkey, len: 9000, imm: 0xcafe_0001 });
        a.run(&Wqe::WriteImm { raddr: 50_000, rkey: b.key, laddr, lkey, len: 2000, imm: 7 });
        let got = [b.recv_cq.wait(), b.recv_cq.wait(), b.recv_cq.wait()];
        let kinds = got.map(|cqe| cqe.tail.op_own.opcode());
        assert_eq!(kinds, [CqeOpcode::RESP_SEND, CqeOpcode::RESP_SEND_IMM, CqeOpcode::RESP_WR_IMM]);
        assert_eq!(got.map(|cqe| cqe.byte_cnt.get()), [3000, 9000, 2000]);
        assert_eq!(got.map(|cqe| cqe.tail.wqe_counter.get()), [0, 1, 2]);
        assert_eq!([got[1].imm_inval_pkey.get(), got[2].imm_inval_pkey.get()], [0xcafe_0001, 7]);
        assert!(b.bytes(100_000, 3000) == data[..3000]);
        assert!(b.bytes(200_000, 9000) == data);
        assert!(b.bytes(50_000, 2000) == data[..2000]);
    });
}

#[test]
fn requester_waits_for_a_receive() {
    both(Setup { log_rq: Some(2), ..Setup::default() }, |a, b| {
        a.fill(0, b"late");
        a.post(&Wqe::Send { laddr: 0, lkey: a.key, len: 4 });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(a.cq.poll().is_none());
        b.post_receive(64, 64);
        assert!(a.cq.wait().as_error().is_none());
        assert_eq!(b.recv_cq.wait().byte_cnt.get(), 4);
        assert_eq!(b.bytes(64, 4), b"late");
    });
}

#[test]
fn mixed_burst_keeps_order() {
    both(Setup { log_sq: 8, log_cq: 8, ..Setup::default() }, |a, b| {
        let mut expected = Vec::new();
        for i in 0..30u64 {
            a.heap.store_u64(1024 + 8 * i as usize, i + 1);
            let at = 1024 + 8 * i;
            let (rkey, lkey) = (b.key, a.key);
            let ops = [
                Wqe::Write { raddr: at, rkey, laddr: at, lkey, len: 8 },
                Wqe::FetchAdd { raddr: at, rkey, laddr: 8192, lkey, add: 100 },
                Wqe::Read { raddr: at, rkey, laddr: 16_384 + 8 * i, lkey, len: 8 },
                Wqe::Nop,
            ];
            expected.extend(ops.iter().map(|op| a.write(op, Flags::SIGNALED)));
        }
        a.ring();
        let got: Vec<u16> = expected.iter().map(|_| a.cq.wait().tail.wqe_counter.get()).collect();
        assert_eq!(got, expected);
        for i in 0..30 {
            assert_eq!(
                heap_word(a, 16_384 + 8 * i),
                i as u64 + 101,
                "a READ sees what was written before it"
            );
        }
    });
}

#[test]
fn large_messages() {
    let size = 8usize << 20;
    let setup = Setup { heap: size + 4096, mtu: rushmem_mlx5::prm::qp::Mtu::B4096, ..Setup::default() };
    both(setup, |a, b| {
        let data = pattern(size, 3);
        a.fill(5, &data);
        a.run(&Wqe::Write { raddr: 8, rkey: b.key, laddr: 5, lkey: a.key, len: size as u32 });
        assert!(b.bytes(8, size) == data);
        let (raddr, laddr) = (8, 0);
        a.run(&Wqe::Read { raddr, rkey: b.key, laddr, lkey: a.key, len: size as u32 });
        assert!(a.bytes(0, size) == data);
    });
}

#[test]
fn a_key_may_start_anywhere() {
    both(Setup { start: 0x7f00_0000_1000, ..Setup::default() }, |a, b| {
        a.fill(0x100, b"hello");
        let base = a.setup.start;
        a.run(&Wqe::Write { raddr: base + 0x200, rkey: b.key, laddr: base + 0x100, lkey: a.key, len: 5 });
        assert_eq!(b.bytes(0x200, 5), b"hello");
    });
}

#[test]
fn a_qp_may_be_its_own_peer() {
    let nic = loopback_nic();
    let mut a = Pe::new(&nic, Setup::default());
    let init2rtr = a.init2rtr(&a);
    a.to_init();
    crate::script::call(&a.context, &init2rtr).unwrap();
    a.to_rts();
    a.fill(0, b"echo");
    a.run(&Wqe::Write { raddr: 64, rkey: a.key, laddr: 0, lkey: a.key, len: 4 });
    assert_eq!(a.bytes(64, 4), b"echo");
}
