//! Tests of queues: wrap-around, doorbells, collapsed and overrun CQs.

use crate::script::{Pe, Setup, both, call, loopback_nic, nic_without_records, pair, until};
use rushmem_mlx5::doorbell::{Doorbell, record_word, uar};
use rushmem_mlx5::prm::cq::{CqStatus, QueryCq};
use rushmem_mlx5::prm::qp::{QpState, ToRst};
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Wqe};
use rushmem_softnic::{Memory, Rule, Violation};
use std::time::Duration;

fn put(b: &Pe, value: u32) -> Wqe {
    Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(value) }
}

#[test]
fn sixteen_bit_indices_wrap() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup { log_sq: 4, log_cq: 4, ..Setup::default() });
    for i in 0..70_000u32 {
        let flags = if i % 8 == 7 { Flags::SIGNALED } else { Flags::NONE };
        let index = a.write(&put(&b, i), flags);
        if i % 8 == 7 {
            a.ring();
            assert_eq!(a.cq.wait().tail.wqe_counter.get(), index);
        }
    }
    assert_eq!(b.heap.load_u32(0), 69_999);
    assert_eq!(nic.violations(), []);
}

#[test]
fn a_driver_may_initialise_the_first_cqe_only() {
    for log_cq in 0..3 {
        both(Setup { log_sq: 3, log_cq, ..Setup::default() }, |a, b| {
            let len = a.cq.memory.len();
            a.cq.memory.write(64, &vec![0; len as usize - 64]).unwrap();
            for i in 0..10 {
                assert!(a.cq.poll().is_none(), "CQE {i} of 2^{log_cq}");
                a.run(&put(b, i));
            }
        });
    }
}

#[test]
fn depth_two() {
    both(Setup { log_sq: 1, log_cq: 1, ..Setup::default() }, |a, b| {
        for i in 0..200 {
            a.run(&put(b, i));
            assert_eq!(b.heap.load_u32(0), i);
        }
    });
}

#[test]
fn an_entry_of_two_blocks_crosses_the_ring_end() {
    both(Setup { log_sq: 2, ..Setup::default() }, |a, b| {
        let (raddr, rkey, laddr, lkey) = (8, b.key, 0, a.key);
        for i in 0..20u64 {
            // Three blocks per round in a ring of four cover every alignment.
            a.run(&Wqe::Nop);
            a.run(&Wqe::MaskedCompareSwap64 {
                raddr,
                rkey,
                laddr,
                lkey,
                compare: i,
                swap: i + 1,
                compare_mask: u64::MAX,
                swap_mask: u64::MAX,
            });
            assert_eq!((a.heap.load_u64(0), b.heap.load_u64(8)), (i, i + 1));
        }
    });
}

#[test]
fn collapsed_cq_holds_the_latest_cqe() {
    both(Setup { collapsed: true, log_sq: 3, log_cq: 3, ..Setup::default() }, |a, b| {
        for i in 0..40u32 {
            let index = a.post(&put(b, i));
            until("completion in slot 0", || a.cq.entry(0).tail.wqe_counter.get() == index);
            assert_eq!(a.cq.entry(0).tail.op_own.owner(), i & 8 != 0, "owner bit of lap {}", i / 8);
            assert_eq!(a.cq.entry(64).tail.wqe_counter.get(), 0xffff, "slot 1 stays as it was");
        }
    });
}

#[test]
fn a_full_cq_stops_the_qp() {
    let nic = loopback_nic();
    let setup = Setup { log_cq: 2, ignore_overrun: false, ..Setup::default() };
    let (mut a, b) = pair(&nic, &nic, setup);
    a.records.store_u64(64, 0);
    for lap in 0..3 {
        for _ in 0..4 {
            a.post(&put(&b, lap));
            a.cq.wait();
        }
        a.cq.report();
    }
    for _ in 0..5 {
        a.write(&Wqe::Nop, Flags::SIGNALED);
    }
    a.ring();
    until("overrun", || nic.violations().iter().any(|violation| violation.rule == Rule::CqOverrun));
    let context = call(&a.context, &QueryCq { cqn: a.cqn, ..QueryCq::default() }).unwrap().context;
    assert_eq!((context.status, context.producer_counter), (CqStatus::OVERFLOW, 16));
    assert_eq!(a.query().state, QpState::ERR);
}

#[test]
fn both_doorbell_styles_and_repeated_ones() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let uar = a.uar.clone();
    // The control segment of the last WQE, as rung by libmlx5, on every register that may be in use.
    for (i, register) in [0x800usize, 0x900, 0xa00, 0xb00].into_iter().enumerate() {
        let emitted = put(&b, i as u32).emit(a.producer, a.qpn, Flags::SIGNALED);
        let ctrl = rushmem_mlx5::CtrlSeg::from_segment(emitted.segments()[0]);
        let index = a.write_segments(emitted.segments());
        a.records.store_u32(4, record_word(a.producer));
        let value = Doorbell::last_wqe(ctrl).raw();
        uar.memory().store_u64(register, value);
        assert_eq!(a.cq.wait().tail.wqe_counter.get(), index);
        uar.memory().store_u64(register, value);
    }
    // A stale doorbell after a newer one.
    let old = Doorbell::producer(a.qpn, a.producer).raw();
    a.run(&put(&b, 9));
    uar.memory().store_u64(0x800, old);
    a.run(&put(&b, 10));
    assert!(a.cq.poll().is_none());
    assert_eq!(nic.violations(), []);
}

#[test]
fn a_doorbell_equal_to_an_old_one_is_in_its_record() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup { far_queues: true, ..Setup::default() });
    for i in 0..100 {
        let index = a.write(&put(&b, i), Flags::SIGNALED);
        a.records.store_u32(4, record_word(a.producer));
        assert_eq!(a.cq.wait().tail.wqe_counter.get(), index);
    }
    assert_eq!(nic.violations(), []);
}

#[test]
fn a_queue_without_doorbell_record_rings_a_separate_register() {
    for far_queues in [false, true] {
        let nic = nic_without_records();
        let (mut a, b) = pair(&nic, &nic, Setup { no_record: true, far_queues, ..Setup::default() });
        // The record, which nobody reads, is ahead of the queue.
        a.records.store_u32(4, record_word(40));
        // More passes than the index has bits.
        for i in 0..100 {
            let index = a.write(&put(&b, i), Flags::SIGNALED);
            a.uar.memory().store_u64(uar::NO_DBR, Doorbell::producer(a.qpn, a.producer).raw());
            assert_eq!(a.cq.wait().tail.wqe_counter.get(), index);
        }
        assert!(a.cq.poll().is_none());
        assert_eq!(nic.violations(), []);
    }
}

#[test]
fn a_register_for_other_queues_rings_nothing() {
    let nic = nic_without_records();
    for (no_record, register) in [(true, uar::DB), (false, uar::NO_DBR)] {
        let (mut a, b) = pair(&nic, &nic, Setup { no_record, ..Setup::default() });
        a.write(&put(&b, 1), Flags::SIGNALED);
        a.uar.memory().store_u64(register, Doorbell::producer(a.qpn, a.producer).raw());
        let is_noticed = |v: &Violation| v.rule == Rule::DoorbellRegister && v.qpn == a.qpn;
        until("violation", || nic.violations().iter().any(is_noticed));
        assert!(a.cq.poll().is_none());
    }
}

#[test]
fn wrong_doorbells_are_violations() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let noticed = |rule: Rule| until("violation", || nic.violations().iter().any(|v| v.rule == rule));
    // Announced by the register, but not by the record.
    let index = a.write(&put(&b, 1), Flags::SIGNALED);
    a.uar.memory().store_u64(0x800, Doorbell::producer(a.qpn, a.producer).raw());
    assert_eq!(a.cq.wait().tail.wqe_counter.get(), index);
    noticed(Rule::DoorbellRecord);
    // More than the queue has.
    a.uar.memory().store_u64(0x800, Doorbell::producer(a.qpn, a.producer + 65).raw());
    noticed(Rule::DoorbellRange);
    // UAR page of another QP.
    b.uar.memory().store_u64(0x800, Doorbell::producer(a.qpn, a.producer).raw());
    noticed(Rule::DoorbellPage);
    // A QP that does not exist.
    a.uar.memory().store_u64(0x800, Doorbell::producer(0xff_fff0, 1).raw());
    noticed(Rule::DoorbellQp);
    a.run(&put(&b, 2));
}

#[test]
fn unsignalled_wqes_write_no_completion() {
    both(Setup::default(), |a, b| {
        for i in 0..10 {
            a.write(&put(b, i), Flags::NONE);
        }
        let last = a.write(&Wqe::Nop, Flags::SIGNALED);
        a.ring();
        assert_eq!(a.cq.wait().tail.wqe_counter.get(), last);
        assert_eq!(b.heap.load_u32(0), 9);
        std::thread::sleep(Duration::from_millis(5));
        assert!(a.cq.poll().is_none());
    });
}

#[test]
fn wait_blocks_until_the_other_queue_arrives() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let (mut c, d) = pair(&nic, &nic, Setup::default());
    a.write(&Wqe::Wait { index: 1, cqn: c.cqn }, Flags::NONE);
    a.post(&put(&b, 5));
    std::thread::sleep(Duration::from_millis(20));
    assert!(a.cq.poll().is_none());
    c.run(&put(&d, 1));
    std::thread::sleep(Duration::from_millis(20));
    assert!(a.cq.poll().is_none(), "entry 1 is the second");
    c.run(&put(&d, 2));
    assert!(a.cq.wait().as_error().is_none());
    assert_eq!(b.heap.load_u32(0), 5);
}

#[test]
fn wqes_posted_before_rts_wait_for_rts() {
    let nic = loopback_nic();
    let (mut a, b) = (Pe::new(&nic, Setup::default()), Pe::new(&nic, Setup::default()));
    b.connect(&a);
    a.to_rtr(&b);
    let index = a.post(&put(&b, 3));
    std::thread::sleep(Duration::from_millis(10));
    assert!(a.cq.poll().is_none());
    a.to_rts();
    assert_eq!(a.cq.wait().tail.wqe_counter.get(), index);
}

#[test]
fn record_stored_after_its_doorbell_is_used() {
    let nic = loopback_nic();
    let target = Pe::new(&nic, Setup::default());
    let (mut a, mut other) = {
        let first = Pe::new(&nic, Setup::default());
        (first.sibling(&nic), first)
    };
    let peers = [target.sibling(&nic), target];
    for (pe, peer) in [&a, &other].into_iter().zip(&peers) {
        pe.connect(peer);
        peer.connect(pe);
    }
    // Overwritten by the doorbell of another queue before its record is stored.
    let index = a.write(&put(&peers[0], 7), Flags::SIGNALED);
    other.run(&put(&peers[1], 8));
    assert!(a.cq.poll().is_none());
    a.records.store_u32(4, record_word(a.producer));
    assert_eq!(a.cq.wait().tail.wqe_counter.get(), index);
    assert_eq!(nic.violations(), []);
}

/// Resets a QP like UCX: the queue is zeroed, and the doorbell record keeps its counter.
#[test]
fn a_record_from_before_a_reset_announces_nothing() {
    let nic = loopback_nic();
    let first = Pe::new(&nic, Setup::default());
    let (mut a, mut other) = (first.sibling(&nic), first);
    a.connect_to_itself();
    other.connect_to_itself();
    let own = |pe: &Pe, value| put(pe, value);
    a.run(&own(&a, 1));
    call(&a.context, &ToRst { qpn: a.qpn, ..ToRst::default() }).unwrap();
    a.queues.write(a.sq_offset(0) as u64, &[0; 64]).unwrap();
    a.producer = 0;
    a.connect_to_itself();
    // The adapter scans the records of a shared page only periodically.
    for i in 0..300 {
        other.run(&own(&other, i));
    }
    assert!(a.cq.poll().is_none());
    // The same counter again, whose doorbell is overwritten.
    let index = a.write(&own(&a, 2), Flags::SIGNALED);
    other.run(&own(&other, 3));
    assert_eq!(a.cq.wait().tail.wqe_counter.get(), index);
    assert_eq!((a.heap.load_u32(0), nic.violations()), (2, vec![]));
}

#[test]
fn queues_sharing_a_page_lose_no_doorbells() {
    let nic = loopback_nic();
    let target = Pe::new(&nic, Setup { heap: 4096, ..Setup::default() });
    let first = Pe::new(&nic, Setup::default());
    let mut pes: Vec<Pe> = (0..3).map(|_| first.sibling(&nic)).collect();
    pes.push(first);
    let peers: Vec<Pe> = pes.iter().map(|_| target.sibling(&nic)).collect();
    for (a, b) in pes.iter().zip(&peers) {
        a.connect(b);
        b.connect(a);
    }
    for round in 0..500 {
        // All ring before the adapter scans, so the register holds only the last doorbell.
        for (a, b) in pes.iter_mut().zip(&peers) {
            a.write(&put(b, round), Flags::SIGNALED);
        }
        pes.iter().for_each(Pe::ring);
        for (a, b) in pes.iter_mut().zip(&peers) {
            assert!(a.cq.wait().as_error().is_none());
            assert_eq!(b.heap.load_u32(0), round);
        }
    }
    assert_eq!(nic.violations(), []);
}
