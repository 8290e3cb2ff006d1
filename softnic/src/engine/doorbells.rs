//! Reads the UAR pages: doorbells of send queues, and arm requests of CQs.
//!
//! A register holds only the last value written. If several queues share it, the overwritten doorbells can be recovered
//! from the doorbell records. A record may change after its register, because a GPU need not order the two stores.

use crate::objects::qp::{Qp, State};
use crate::objects::{Cq, Objects, Rung};
use crate::queues::PER_BLOCK;
use crate::report::{Event, Observation, Report, Rule};
use crate::table::Table;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::be::Be64;
use rushmem_mlx5::doorbell::{ArmWord, CqArm, Doorbell};
use rushmem_mlx5::{CtrlSeg, Segment};

/// Number of scans of the UAR pages between scans of the doorbell records of pages that several QPs share. Also the
/// number of polls of a record that lags behind its doorbell.
const PATIENCE: u32 = 64;

#[derive(Default)]
pub(super) struct Doorbells {
    rung: Vec<Rung>,
    scans: u32,
}

impl Doorbells {
    /// Scans every UAR page in use. Returns whether there was a doorbell or an arm request.
    pub(super) fn scan(&mut self, path: &mut Datapath) -> bool {
        let Datapath { objects: Objects { uars, cqs, qps, .. }, report, schedule, .. } = path;
        let mut busy = false;
        let mut shared = Vec::new();
        self.scans = self.scans.wrapping_add(1);
        let late = self.scans.is_multiple_of(PATIENCE);
        // A panic in an earlier scan may have left some.
        self.rung.clear();
        for (page, uar) in uars.iter() {
            if uar.qps.is_empty() && uar.cqs.is_empty() {
                continue;
            }
            let before = self.rung.len();
            if let Some(value) = uar.take(&mut self.rung) {
                busy = true;
                arm_cqs(cqs, report, page, &uar.cqs, CqArm(Be64::from_raw(value)));
            }
            // A doorbell that was seen may have overwritten others. The periodic scan finds those whose record became
            // visible later than the register, or whose register looks unchanged.
            let is_overwritten = self.rung.len() != before && uar.qps.len() > 1;
            if is_overwritten || late && uar.loses_doorbells() {
                shared.extend_from_slice(&uar.qps);
            }
            for value in self.rung.drain(before..) {
                busy = true;
                report.stats.doorbells += 1;
                if let Some(qp) = announce(qps, report, page, value) {
                    schedule.enqueue(qp);
                }
            }
        }
        for qpn in shared {
            let qp = qps.get_mut(qpn).filter(|qp| qp.state != State::Reset && qp.has_send_record());
            if let Some(qp) = qp {
                let producer = qp.record_producer();
                // Advances the producer as the lost doorbell would have.
                if !is_left_over(qp, producer) && advance(qp, producer, report).is_some() {
                    busy = true;
                    schedule.enqueue(qp);
                }
            }
        }
        busy
    }

    /// Drops the doorbells collected by a scan that a panic has interrupted.
    pub(super) fn abandon(&mut self) {
        self.rung.clear();
    }
}

/// Processes a request to arm a CQ of a UAR page, of a context or one of its users.
pub(crate) fn arm(path: &mut Datapath, context: u32, page: u32, request: CqArm) {
    let Datapath { objects, report, .. } = path;
    let named = request.cqn();
    let is_own = |cq: &Cq| cq.uar == page && objects.may_use(context, cq.owner);
    if !objects.cqs.get(named).is_some_and(is_own) {
        return report_foreign_arm(report, page, named);
    }
    arm_cq(&mut objects.cqs, report, named, |_| Some(request.arm()));
}

/// Processes a request to arm a CQ that was read from the register of a UAR page, and the requests in the records of
/// the page's other CQs, which it may have overwritten.
fn arm_cqs(cqs: &mut Table<Cq>, report: &mut Report, page: u32, of_page: &[u32], request: CqArm) {
    let named = request.cqn();
    if !of_page.contains(&named) {
        report_foreign_arm(report, page, named);
    }
    for cqn in of_page {
        arm_cq(cqs, report, *cqn, |cq| if *cqn == named { Some(request.arm()) } else { cq.unseen_request() });
    }
}

fn report_foreign_arm(report: &mut Report, page: u32, cqn: u32) {
    let detail =
        format!("arm request for CQ {cqn:#x} through UAR page {page:#x}, which belongs to another CQ");
    report.violations.record(Rule::CqArm, 0, detail);
}

/// Arms a CQ if there is a request, and raises its event if the requested CQE exists.
fn arm_cq(cqs: &mut Table<Cq>, report: &mut Report, cqn: u32, request: impl FnOnce(&Cq) -> Option<ArmWord>) {
    let Some(cq) = cqs.get_mut(cqn) else { return };
    if request(cq).is_some_and(|request| cq.arm(request)) {
        report.events.push(Event::Completion { cqn });
    }
}

/// Processes a doorbell. Returns its QP if that has new work.
fn announce<'q>(
    qps: &'q mut Table<Box<Qp>>,
    report: &mut Report,
    page: u32,
    rung: Rung,
) -> Option<&'q mut Qp> {
    let doorbell = Doorbell::from_raw(rung.value);
    let qpn = doorbell.qpn();
    let Some(qp) = qps.get_mut(qpn) else {
        report.violations.record(Rule::DoorbellQp, qpn, "doorbell for a QP that does not exist".into());
        return None;
    };
    if qp.uar != page {
        let detail = format!("doorbell through UAR page {page:#x}, the QP's is {:#x}", qp.uar);
        report.violations.record(Rule::DoorbellPage, qpn, detail);
        return None;
    }
    if qp.state == State::Reset {
        report.violations.record(Rule::DoorbellQp, qpn, "doorbell in state RST".into());
        return None;
    }
    if qp.has_send_record() != rung.has_record {
        let detail = match rung.has_record {
            true => "doorbell through the register for QPs with a doorbell record, this one has none",
            false => "doorbell through the register for QPs without a doorbell record, this one has one",
        };
        report.violations.record(Rule::DoorbellRegister, qpn, detail.into());
        return None;
    }
    let producer = doorbell.producer_index();
    match advance(qp, producer, report) {
        Some(()) => {
            // The driver must update the record before it rings, or a lost doorbell could not be recovered.
            if qp.has_send_record()
                && let Some(record) = record_behind(qp, producer)
            {
                let detail = format!("doorbell announces {producer:#06x}, the record only {record:#06x}");
                report.violations.record(Rule::DoorbellRecord, qpn, detail);
            }
            Some(qp)
        }
        None => {
            let sq = qp.sq.as_ref()?;
            // A duplicate or stale value is not an error: registers of shared pages may be read twice.
            let ahead = producer.wrapping_sub(sq.producer) as i16;
            if ahead > 0 {
                let detail = format!(
                    "doorbell announces {producer:#06x}, the queue of {} blocks is at {:#06x}",
                    sq.depth(),
                    sq.consumer
                );
                report.violations.record(Rule::DoorbellRange, qpn, detail);
            }
            None
        }
    }
}

/// Whether a QP's doorbell record still holds the counter from before a reset, and the send queue has no WQE that the
/// counter could announce.
fn is_left_over(qp: &Qp, producer: u16) -> bool {
    let Some(sq) = qp.sq.as_ref().filter(|_| qp.left_in_record == Some(producer)) else { return false };
    let mut first = [Segment::ZERO; PER_BLOCK];
    // A valid WQE at the producer means that the driver has posted as many as before the reset.
    sq.ring.load_block(sq.producer, &mut first);
    let ctrl = CtrlSeg::from_segment(first[0]);
    ctrl.index() != sq.producer || ctrl.qpn() != qp.qpn
}

/// Returns the QP's doorbell record if it is still less than `producer` after a short spin, since its store may be
/// delayed.
fn record_behind(qp: &Qp, producer: u16) -> Option<u16> {
    let mut record = qp.record_producer();
    for _ in 0..PATIENCE {
        if record.wrapping_sub(producer) as i16 >= 0 {
            return None;
        }
        std::hint::spin_loop();
        record = qp.record_producer();
    }
    Some(record)
}

/// Advances the QP's producer index to `producer` if that is within the free part of the send queue. Ignores duplicate
/// and stale values.
fn advance(qp: &mut Qp, producer: u16, report: &mut Report) -> Option<()> {
    let (qpn, sq) = (qp.qpn, qp.sq.as_mut()?);
    // In 16-bit arithmetic a step back is a huge step forward, which exceeds any room.
    let (index, blocks) = (sq.producer, producer.wrapping_sub(sq.producer));
    let room = sq.depth() - u32::from(sq.pending());
    if !(1..=room).contains(&u32::from(blocks)) {
        return None;
    }
    sq.producer = producer;
    qp.left_in_record = None;
    report.lookout.note(|| Observation::Doorbell { qpn, index, blocks });
    Some(())
}
