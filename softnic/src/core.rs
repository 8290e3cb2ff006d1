//! The adapter's state, and the pass that moves it on.

use crate::config::Config;
use crate::cq::Cq;
use crate::dma::{Dma, Mkeys, Umem};
use crate::qp::{Qp, State};
use crate::stats::Stats;
use crate::table::Table;
use crate::uar::UarPage;
use crate::violation::{Clause, Violations};
use crate::{flush, sq};
use rushmem_mlx5::cqe::{Completion, Failure};
use rushmem_mlx5::doorbell::Doorbell;
use rushmem_mlx5::{Cqe, CqeOpcode, Opcode, Segment, Syndrome};
use std::collections::{BinaryHeap, VecDeque};
use std::cmp::Reverse;
use std::time::Instant;

/// Segments of the largest send entry, rounded up to whole blocks.
pub(crate) const MAX_SEGMENTS: usize = 64;

/// Everything that the adapter knows. The engine thread and command callers take turns with it.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) pds: Table<Pd>,
    pub(crate) uars: Table<UarPage>,
    pub(crate) umems: Table<Umem>,
    pub(crate) mkeys: Mkeys,
    pub(crate) cqs: Table<Cq>,
    pub(crate) qps: Table<Box<Qp>>,
    pub(crate) dma: Dma,
    pub(crate) out: Output,
    /// QPs with work, in turn.
    pub(crate) ready: VecDeque<u32>,
    pub(crate) timers: BinaryHeap<Reverse<(Instant, u32)>>,
    pub(crate) scratch: Box<[Segment; MAX_SEGMENTS]>,
    pub(crate) now: Instant,
    rung: Vec<u64>,
}

/// What every part reports to.
pub(crate) struct Output {
    pub(crate) stats: Stats,
    pub(crate) violations: Violations,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
}

/// A protection domain.
pub(crate) struct Pd {
    pub(crate) owner: u32,
    /// Keys and QPs in it.
    pub(crate) users: u32,
}

impl Core {
    pub(crate) fn new(config: Config) -> Core {
        let now = Instant::now();
        Core {
            config,
            pds: Table::new(1, 1 << 16),
            uars: Table::new(0x10, 1 << 16),
            umems: Table::new(1, 1 << 20),
            mkeys: Table::new(0x100, 1 << 20),
            cqs: Table::new(0x400, 1 << 18),
            qps: Table::new(0x100, 1 << 18),
            dma: Dma::default(),
            out: Output { stats: Stats::default(), violations: Violations::default(), start: now, now },
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            scratch: Box::new([Segment::ZERO; MAX_SEGMENTS]),
            now,
            rung: Vec::new(),
        }
    }

    /// One round: doorbells, send queues, timers. Returns whether there was anything to do.
    pub(crate) fn pass(&mut self) -> bool {
        self.now = Instant::now();
        self.out.now = self.now;
        let mut busy = self.doorbells();
        for _ in 0..self.ready.len() {
            let Some(qpn) = self.ready.pop_front() else { break };
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.queued = false;
            }
            busy = true;
            if sq::run(self, qpn) {
                self.enqueue(qpn);
            }
        }
        self.fire_timers();
        busy
    }

    /// Puts a QP into the list of those with work.
    pub(crate) fn enqueue(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && !std::mem::replace(&mut qp.queued, true)
        {
            self.ready.push_back(qpn);
        }
    }

    /// Looks at the QP again at `at`.
    pub(crate) fn arm(&mut self, qpn: u32, at: Instant) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && qp.timer.is_none_or(|armed| armed > at)
        {
            qp.timer = Some(at);
            self.timers.push(Reverse((at, qpn)));
        }
    }

    fn fire_timers(&mut self) {
        while let Some(Reverse((at, qpn))) = self.timers.peek().copied()
            && at <= self.now
        {
            self.timers.pop();
            if let Some(qp) = self.qps.get_mut(qpn)
                && qp.timer == Some(at)
            {
                qp.timer = None;
                self.enqueue(qpn);
            }
        }
    }

    fn doorbells(&mut self) -> bool {
        let mut rung = std::mem::take(&mut self.rung);
        let mut busy = false;
        let mut shared = Vec::new();
        for (page, uar) in self.uars.iter() {
            if uar.qps.is_empty() {
                continue;
            }
            let before = rung.len();
            uar.take(&mut rung);
            if rung.len() != before && uar.qps.len() > 1 {
                shared.extend_from_slice(&uar.qps);
            }
            for value in rung.drain(before..) {
                busy = true;
                self.out.stats.doorbells += 1;
                let doorbell = Doorbell::from_raw(value);
                if let Some(qpn) = announce(&mut self.qps, &mut self.out, page, doorbell) {
                    let qp = self.qps.get_mut(qpn);
                    if qp.is_some_and(|qp| !std::mem::replace(&mut qp.queued, true)) {
                        self.ready.push_back(qpn);
                    }
                }
            }
        }
        // A page has one register for all its QPs: the last doorbell may have covered others, whose records tell.
        for qpn in shared {
            if let Some(qp) = self.qps.get_mut(qpn) {
                let producer = qp.record_producer();
                if advance(qp, producer).is_some() {
                    self.enqueue(qpn);
                }
            }
        }
        self.rung = rung;
        busy
    }
}

/// Takes a doorbell for what it says; gives the QP that has new work.
fn announce(qps: &mut Table<Box<Qp>>, out: &mut Output, page: u32, doorbell: Doorbell) -> Option<u32> {
    let qpn = doorbell.qpn();
    let Some(qp) = qps.get_mut(qpn) else {
        out.violations.record(Clause::DoorbellQp, qpn, "doorbell for a QP that does not exist".into());
        return None;
    };
    if qp.uar != page {
        let detail = format!("doorbell through UAR page {page:#x}, the QP's is {:#x}", qp.uar);
        out.violations.record(Clause::DoorbellPage, qpn, detail);
        return None;
    }
    if qp.state == State::Reset {
        out.violations.record(Clause::DoorbellQp, qpn, "doorbell in state RST".into());
        return None;
    }
    let producer = doorbell.producer_index();
    match advance(qp, producer) {
        Some(()) => {
            let record = qp.record_producer();
            if (record.wrapping_sub(producer) as i16) < 0 {
                let detail = format!("doorbell announces {producer:#06x}, the record only {record:#06x}");
                out.violations.record(Clause::DoorbellRecord, qpn, detail);
            }
            Some(qpn)
        }
        None => {
            let sq = qp.sq.as_ref()?;
            let ahead = producer.wrapping_sub(sq.producer) as i16;
            if ahead > 0 {
                let detail = format!(
                    "doorbell announces {producer:#06x}, the queue of {} blocks is at {:#06x}",
                    sq.depth(),
                    sq.consumer
                );
                out.violations.record(Clause::DoorbellRange, qpn, detail);
            }
            None
        }
    }
}

/// Moves the producer on if that is a step forward within the queue; duplicates and stale values are not.
fn advance(qp: &mut Qp, producer: u16) -> Option<()> {
    let sq = qp.sq.as_mut()?;
    let step = u32::from(producer.wrapping_sub(sq.producer));
    let room = sq.depth() - u32::from(sq.pending());
    (1..=room).contains(&step).then(|| sq.producer = producer)
}

/// The facts of one send entry that its completion repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) index: u16,
    pub(crate) opcode: Opcode,
    pub(crate) byte_cnt: u32,
}

/// Writes the completion of a send entry. On overrun the QP goes into error.
#[inline]
pub(crate) fn complete(qp: &mut Qp, cqs: &mut Table<Cq>, out: &mut Output, done: Done) {
    let completion = Completion {
        opcode: done.opcode,
        qpn: qp.qpn,
        wqe_counter: done.index,
        user_index: qp.user_index,
        byte_cnt: done.byte_cnt,
        timestamp: out.timestamp(),
    };
    push(qp, qp.cq_send, cqs, out, |owner| Cqe::requester(&completion, owner));
}

/// Writes the error completion of a send entry, and puts the QP into error.
#[cold]
pub(crate) fn fail(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    out: &mut Output,
    done: Done,
    syndrome: Syndrome,
    vendor: u8,
) {
    if syndrome != Syndrome::WR_FLUSH_ERR {
        tracing::debug!(qpn = qp.qpn, index = done.index, opcode = %done.opcode, ?syndrome, vendor, "send entry failed");
    }
    qp.state = State::Error;
    let failure = Failure {
        kind: CqeOpcode::REQ_ERR,
        opcode: done.opcode,
        qpn: qp.qpn,
        wqe_counter: done.index,
        srqn_uidx: qp.user_index,
        syndrome,
        vendor_syndrome: vendor,
    };
    out.stats.error_cqes += 1;
    push(qp, qp.cq_send, cqs, out, |owner| Cqe::error(&failure, owner));
}

/// Writes any entry to a CQ.
pub(crate) fn push(
    qp: &mut Qp,
    cqn: Option<u32>,
    cqs: &mut Table<Cq>,
    out: &mut Output,
    make: impl FnOnce(bool) -> Cqe,
) {
    let Some(cq) = cqn.and_then(|cqn| cqs.get_mut(cqn)) else { return };
    let first = !cq.overrun;
    match cq.push(make) {
        Ok(()) => out.stats.cqes += 1,
        Err(_) => {
            qp.state = State::Error;
            if first {
                let detail = format!("CQ {:#x} of {} entries is full", cqn.unwrap_or(0), 1u32 << cq.log_size);
                out.violations.record(Clause::CqOverrun, qp.qpn, detail);
            }
        }
    }
}

impl Output {
    /// The adapter's clock: nanoseconds since it started.
    pub(crate) fn timestamp(&self) -> u64 {
        self.now.duration_since(self.start).as_nanos() as u64
    }
}
