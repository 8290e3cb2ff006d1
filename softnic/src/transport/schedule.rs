//! The run queue of QPs, and their timers.
//!
//! A QP with work is queued once and runs for one burst, then goes to the back if it has more. Timers are never removed
//! from the heap: a QP stores the time that counts, and an entry with another time is ignored when it expires.

use crate::objects::qp::Qp;
use crate::table::Table;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

/// Decides which QP runs next. Each QP is in the run queue at most once.
#[derive(Default)]
pub(crate) struct Schedule {
    /// QPNs of the QPs in the run queue, which are served round-robin.
    ready: VecDeque<u32>,
    /// Times at which QPs must run. Entries may be stale: one counts only while its QP's `timer` has the same time.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Schedule {
    /// Adds a QP to the run queue, unless it is already there.
    #[inline]
    pub(crate) fn enqueue(&mut self, qp: &mut Qp) {
        if !std::mem::replace(&mut qp.queued, true) {
            self.ready.push_back(qp.qpn);
        }
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Removes the next QP from the run queue and returns its QPN. It may have been destroyed since it was added.
    #[inline]
    pub(crate) fn next(&mut self, qps: &mut Table<Box<Qp>>) -> Option<u32> {
        let qpn = self.ready.pop_front()?;
        if let Some(qp) = qps.get_mut(qpn) {
            qp.queued = false;
        }
        Some(qpn)
    }

    /// Schedules the QP for time `at`, unless it is scheduled for an earlier time.
    pub(crate) fn arm(&mut self, qp: &mut Qp, at: Instant) {
        if qp.timer.is_none_or(|armed| armed > at) {
            qp.timer = Some(at);
            self.timers.push(Reverse((at, qp.qpn)));
        }
    }

    /// Adds the QPs whose timers have expired to the run queue.
    pub(crate) fn fire(&mut self, qps: &mut Table<Box<Qp>>, now: Instant) {
        while let Some(Reverse((at, qpn))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            if let Some(qp) = qps.get_mut(qpn)
                && qp.timer == Some(at)
            {
                qp.timer = None;
                self.enqueue(qp);
            }
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roce::Service;
    use rushmem_mlx5::prm::qp::QpContext;
    use std::time::Duration;

    #[test]
    fn a_qp_has_one_turn_and_its_earliest_timer() {
        let (mut schedule, mut qps, now) = (Schedule::default(), Table::new(1, 8), Instant::now());
        let mut qp = || qps.insert_with(|qpn| Box::new(Qp::new(1, qpn, Service::Rc, QpContext::default())));
        let (a, b) = (qp().unwrap(), qp().unwrap());
        for qpn in [a, b, a] {
            schedule.enqueue(qps.get_mut(qpn).unwrap());
        }
        assert_eq!([(); 3].map(|()| schedule.next(&mut qps)), [Some(a), Some(b), None]);
        for millis in [5, 9, 2] {
            schedule.arm(qps.get_mut(a).unwrap(), now + Duration::from_millis(millis));
        }
        assert_eq!(schedule.next_timer(), Some(now + Duration::from_millis(2)));
        schedule.fire(&mut qps, now + Duration::from_millis(3));
        schedule.fire(&mut qps, now + Duration::from_millis(9));
        assert_eq!((schedule.ready(), schedule.next(&mut qps)), (1, Some(a)), "later timers were replaced");
    }
}
