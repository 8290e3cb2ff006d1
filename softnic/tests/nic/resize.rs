//! Tests of CQs that move to a ring of another size while they hold unpolled CQEs.

use crate::script::{Pe, Setup, call, loopback_nic};
use rushmem_mlx5::cqe::{CQE_BYTES, OpOwn, owner_bit};
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::cq::{CqContext, ModifyCq, QueryCq};
use rushmem_mlx5::{CqeOpcode, Flags, Wqe};
use rushmem_softnic::{HostBuffer, Memory};
use std::sync::Arc;

/// Moves the send CQ of a PE to a ring of `1 << log` entries, and copies the unpolled CQEs like libmlx5.
fn resize(pe: &mut Pe, log: u8) -> Result<(), CmdStatus> {
    let (slot, bytes) = (pe.cq.slot, pe.cq.slot << log);
    let memory = Arc::new(HostBuffer::new(bytes));
    let invalid = CqeOpcode::INVALID.0 << 4;
    (0..1 << log).for_each(|index: usize| {
        memory.write(((index + 1) * slot - 1) as u64, &[invalid]).unwrap();
    });
    let umem_id = pe.context.umem_reg(Arc::clone(&memory) as _, 0, bytes as u64).unwrap();
    let command = ModifyCq {
        op_mod: ModifyCq::RESIZE,
        cqn: pe.cqn,
        field_select: ModifyCq::LOG_SIZE,
        context: CqContext { log_cq_size: log, cqe_sz: u8::from(slot != CQE_BYTES), ..CqContext::default() },
        umem_id,
        umem_valid: true,
        ..ModifyCq::default()
    };
    if let Err(error) = call(&pe.context, &command) {
        pe.context.umem_dereg(umem_id).unwrap();
        return Err(error.status);
    }
    loop {
        let cqe = pe.cq.poll().expect("the entry that ends the ring");
        let index = pe.cq.consumer;
        if cqe.op_own().opcode() == CqeOpcode::RESIZE_CQ {
            break;
        }
        let owner = owner_bit(index, 1 << log);
        let mut entry = cqe.to_bytes();
        entry[CQE_BYTES - 1] = OpOwn::new(cqe.op_own().opcode(), false, owner).0;
        let at = ((index as usize & ((1 << log) - 1)) + 1) * slot - CQE_BYTES;
        memory.write(at as u64, &entry).unwrap();
    }
    Ok((pe.cq.memory, pe.cq.log) = (memory, log))
}

/// Posts `count` signaled WQEs, and waits until the adapter has completed them.
fn complete(pe: &mut Pe, count: u32) {
    let query = QueryCq { cqn: pe.cqn, ..QueryCq::default() };
    let produced = |pe: &Pe| call(&pe.context, &query).unwrap().context.producer_counter;
    let before = produced(pe);
    (0..count).for_each(|_| {
        pe.write(&Wqe::Nop, Flags::SIGNALED);
    });
    pe.ring();
    crate::script::until("all completions", || produced(pe) == before + count);
}

#[test]
fn entries_move_to_larger_and_smaller_rings() {
    for cqe_sz in [0, 1] {
        let nic = loopback_nic();
        let mut pe = Pe::new(&nic, Setup { log_cq: 3, cqe_sz, ignore_overrun: false, ..Setup::default() });
        pe.connect_to_itself();
        let mut next: u16 = 0;
        for (log, unpolled) in [(4, 5), (3, 6), (6, 0), (3, 7), (2, 3), (5, 1)] {
            complete(&mut pe, unpolled);
            // The counter of a CQE that moves is its position minus one.
            let first = pe.cq.consumer;
            resize(&mut pe, log).unwrap();
            pe.cq.consumer = first + 1;
            pe.cq.report();
            for _ in 0..unpolled {
                let cqe = pe.cq.poll().expect("a copied entry");
                assert_eq!((cqe.op_own().opcode(), cqe.wqe_counter()), (CqeOpcode::REQ, next));
                next += 1;
            }
            pe.cq.report();
            // Wraps around the ring.
            for _ in 0..3 << log {
                assert_eq!(pe.run(&Wqe::Nop).wqe_counter(), next);
                next += 1;
                pe.cq.report();
            }
        }
        assert_eq!(nic.violations(), []);
    }
}

#[test]
fn rings_without_room_are_refused() {
    let nic = loopback_nic();
    let mut pe = Pe::new(&nic, Setup { log_cq: 3, ignore_overrun: false, ..Setup::default() });
    pe.connect_to_itself();
    complete(&mut pe, 4);
    assert_eq!(resize(&mut pe, 2), Err(CmdStatus::BAD_SIZE_OUTS_CQES));
    complete(&mut pe, 4);
    assert_eq!(resize(&mut pe, 6), Err(CmdStatus::BAD_SIZE_OUTS_CQES));
    // A refused command has no effect.
    for _ in 0..8 {
        assert!(pe.cq.wait().as_error().is_none());
    }
    pe.cq.report();
    assert_eq!((resize(&mut pe, 23), resize(&mut pe, 2)), (Err(CmdStatus::BAD_PARAM), Ok(())));

    let mut collapsed = Pe::new(&nic, Setup { collapsed: true, ..Setup::default() });
    assert_eq!(resize(&mut collapsed, 4), Err(CmdStatus::BAD_PARAM));
}

#[test]
fn moderation_is_returned() {
    let nic = loopback_nic();
    let pe = Pe::new(&nic, Setup::default());
    let context = CqContext { cq_period: 16, cq_max_count: 64, ..CqContext::default() };
    let modify = ModifyCq { cqn: pe.cqn, field_select: ModifyCq::COUNT, context, ..ModifyCq::default() };
    call(&pe.context, &modify).unwrap();
    let query = QueryCq { cqn: pe.cqn, ..QueryCq::default() };
    let found = call(&pe.context, &query).unwrap().context;
    assert_eq!((found.cq_period, found.cq_max_count), (0, 64));
}
