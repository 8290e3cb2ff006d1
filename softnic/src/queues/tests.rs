//! Tests of fetching WQEs and writing CQEs in memory, without an engine.

use super::completion::{complete, fail};
use super::flush;
use super::receive::take_receive;
use super::send::{MAX_SEGMENTS, fetch};
use crate::config::Faults;
use crate::memory::{HostBuffer, Memory, PAGE};
use crate::objects::Cq;
use crate::objects::qp::{Qp, Rq, Sq, State};
use crate::queue_memory::QueueMemory;
use crate::report::{Report, Rule};
use crate::roce::Service;
use crate::table::Table;
use crate::wqe::Done;
use rushmem_mlx5::doorbell::record_word;
use rushmem_mlx5::prm::cq::CqContext;
use rushmem_mlx5::prm::qp::QpContext;
use rushmem_mlx5::{Flags, Opcode, Segment, Syndrome, Wqe};
use std::sync::Arc;

const QPN: u32 = 0x123;
// Offsets of the queues in their memory.
const SEND: u64 = 0;
const RECEIVE: u64 = 512;
const RECORD: u64 = 1024;
const CQ_RECORD: u64 = 1088;
const CQ: u64 = 2048;

/// A QP whose CQ has two entries.
struct Queues {
    memory: Arc<HostBuffer>,
    qp: Qp,
    cqs: Table<Cq>,
    report: Report,
}

impl Queues {
    fn new() -> Queues {
        let buffer = Arc::new(HostBuffer::new(PAGE));
        let memory: Arc<dyn Memory> = Arc::clone(&buffer) as _;
        let part = |offset, len| QueueMemory::new(&memory, offset, len, 8).unwrap();
        let mut cqs = Table::new(1, 1);
        let context = CqContext { log_cq_size: 1, ..CqContext::default() };
        let cq = Cq::new(1, &context, part(CQ, 128), part(CQ_RECORD, 8));
        let cqn = cqs.insert(cq);
        let mut qp = Qp::new(1, QPN, Service::Rc, QpContext::default());
        (qp.cq_send, qp.cq_recv, qp.state) = (cqn, cqn, State::Rts);
        qp.sq = Some(Sq { ring: part(SEND, 512), log_size: 3, producer: 0, consumer: 0 });
        qp.rq = Some(Rq { ring: part(RECEIVE, 64), log_size: 2, stride: 16, consumer: 0 });
        qp.record = Some(part(RECORD, 8));
        Queues { memory: buffer, qp, cqs, report: Report::new(Faults::default()) }
    }

    fn post(&mut self, wqe: &Wqe, index: u16) {
        let entry = wqe.emit(index, QPN, Flags::SIGNALED);
        self.memory.write(SEND + 64 * u64::from(index), Segment::bytes_of(entry.segments())).unwrap();
        self.qp.sq.as_mut().unwrap().producer = index + u16::from(entry.n_blocks());
    }

    fn opcode_of_cqe(&self, slot: u64) -> u8 {
        let mut last = [0];
        self.memory.read(CQ + 64 * slot + 63, &mut last).unwrap();
        last[0] >> 4
    }
}

fn done(index: u16) -> Done {
    Done { index, opcode: Opcode::RDMA_WRITE, byte_cnt: 0 }
}

#[test]
fn an_entry_is_decoded_from_the_ring() {
    let mut queues = Queues::new();
    queues.post(&Wqe::Write { raddr: 0x1000, rkey: 5, laddr: 0x2000, lkey: 6, len: 77 }, 0);
    let Queues { qp, report, .. } = &mut queues;
    let mut scratch = [Segment::ZERO; MAX_SEGMENTS];
    let sq = qp.sq.as_ref().unwrap();
    let view = fetch(sq, (Service::Rc, QPN), 0, &mut scratch, report).unwrap();
    assert_eq!(
        (view.opcode(), view.data_len(), view.remote().unwrap().addr.get()),
        (Opcode::RDMA_WRITE, 77, 0x1000)
    );
    let bad = fetch(sq, (Service::Rc, QPN + 1), 0, &mut scratch, report).unwrap_err();
    assert!(bad.blocks == 1 && bad.detail.contains("0x123"), "{bad:?}");
}

#[test]
fn receives_are_taken_in_order() {
    let mut queues = Queues::new();
    queues.memory.store_u32(RECORD as usize, record_word(2));
    let Queues { qp, report, .. } = &mut queues;
    let taken: Vec<u16> =
        std::iter::from_fn(|| take_receive(qp, report)).map(|receive| receive.index).collect();
    assert_eq!(taken, [0, 1]);
}

#[test]
fn an_overrun_puts_the_qp_into_error() {
    let mut queues = Queues::new();
    let Queues { qp, cqs, report, .. } = &mut queues;
    for index in 0..4 {
        complete(qp, cqs, report, done(index));
    }
    assert_eq!((report.stats.cqes, qp.state), (2, State::Error));
    let rules: Vec<Rule> = report.violations.list().iter().map(|violation| violation.rule).collect();
    assert_eq!((rules, report.events.len()), (vec![Rule::CqOverrun], 2), "the CQ and the QP, once");
}

#[test]
fn delayed_completions_precede_an_error() {
    let mut queues = Queues::new();
    queues.report.faults.completion_delay = 1.0;
    let Queues { qp, cqs, report, .. } = &mut queues;
    complete(qp, cqs, report, done(0));
    assert_eq!((report.stats.cqes, qp.held.len()), (0, 1));
    fail(qp, cqs, report, done(1), Syndrome::LOCAL_PROT_ERR, 0);
    assert_eq!((report.stats.cqes, report.stats.error_cqes, qp.state), (2, 1, State::Error));
    assert_eq!((queues.opcode_of_cqe(0), queues.opcode_of_cqe(1)), (0, 0xd));
}

#[test]
fn a_flush_completes_all_entries() {
    let mut queues = Queues::new();
    queues.post(&Wqe::Nop, 0);
    queues.memory.store_u32(RECORD as usize, record_word(1));
    let Queues { qp, cqs, report, .. } = &mut queues;
    qp.state = State::Error;
    assert!(!flush::run(qp, cqs, report));
    assert_eq!((report.stats.wqes, report.stats.error_cqes), (1, 2));
}
