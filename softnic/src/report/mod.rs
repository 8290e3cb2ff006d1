//! Collects what the adapter reports: counters, violations, events and observations. Injected faults are decided here
//! too, since each of them is reported.

mod counter;
mod draws;
mod event;
mod log;
mod observe;
mod stats;
mod violation;

use crate::config::Faults;
use crate::rng::Rng;
use crate::roce::{Op, Psn};
pub(crate) use counter::CounterSet;
use counter::CounterSets;
pub use event::Event;
pub(crate) use event::Sink;
pub(crate) use log::Log;
pub(crate) use observe::Lookout;
pub use observe::{Observation, Observer, RemoteAddress};
pub use stats::Stats;
use std::time::Instant;
use violation::Violations;
pub use violation::{Rule, Violation};

/// Counters, violations, events and observations of an adapter, and requests to the engine such as timers.
pub(crate) struct Report {
    pub(crate) stats: Stats,
    pub(crate) counters: CounterSets,
    pub(crate) violations: Violations,
    start: Instant,
    /// When the engine's current pass started.
    pub(crate) now: Instant,
    pub(crate) faults: Faults,
    /// Whether any injected fault may affect the execution of WQEs.
    pub(crate) injects_faults: bool,
    pub(crate) rng: Rng,
    /// QPs that the engine must run again, each with its time.
    pub(crate) wakeups: Vec<(Instant, u32)>,
    /// Events that have not been delivered to the driver yet.
    pub(crate) events: Vec<Event>,
    pub(crate) record: Option<Log>,
    pub(crate) lookout: Lookout,
    /// Contexts whose memory the adapter has changed in this pass, possibly repeated.
    changed: Vec<u32>,
}

impl Report {
    pub(crate) fn new(faults: Faults) -> Report {
        let now = Instant::now();
        Report {
            stats: Stats::default(),
            counters: CounterSets::new(),
            violations: Violations::default(),
            start: now,
            now,
            injects_faults: faults.affect_execution(),
            // Packet faults use a separate generator.
            rng: Rng::new(!faults.seed),
            faults,
            wakeups: Vec::new(),
            events: Vec::new(),
            record: None,
            lookout: Lookout::default(),
            changed: Vec::new(),
        }
    }

    /// Counts an injected fault. `kind` is the name of its setting in [`Faults`].
    pub(crate) fn note_fault(&mut self, qpn: Option<u32>, kind: &'static str) {
        self.stats.faults += 1;
        self.lookout.note(|| Observation::Fault { qpn, kind });
    }

    /// Reports to the observer that a packet of a QP, with `bytes` of payload, was handed to the fabric.
    #[inline]
    pub(crate) fn note_sent(&mut self, qpn: u32, (psn, op): (Psn, Op), bytes: u64, is_retransmission: bool) {
        self.lookout.note(|| {
            let (psn, opcode) = (psn.get(), op.name());
            Observation::PacketSent { qpn, psn, opcode, bytes, is_retransmission }
        });
    }

    /// Records that the memory of a context has changed, so its listener is called.
    #[inline]
    pub(crate) fn note_change(&mut self, context: u32) {
        if self.changed.last() != Some(&context) {
            self.changed.push(context);
        }
    }

    /// Removes and returns the contexts whose memory has changed, each once.
    pub(crate) fn drain_changed(&mut self) -> impl Iterator<Item = u32> {
        self.changed.sort_unstable();
        self.changed.dedup();
        self.changed.drain(..)
    }

    /// Returns the adapter's clock now, in nanoseconds since the adapter started.
    pub(crate) fn clock(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns the adapter's clock at the start of the pass, in nanoseconds since the adapter started.
    pub(crate) fn timestamp(&self) -> u64 {
        self.now.duration_since(self.start).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_mlx5::prm::qp::QpContext;

    #[test]
    fn changed_contexts_are_reported_once() {
        let mut report = Report::new(Faults::default());
        for context in [2, 1, 1, 2] {
            report.note_change(context);
        }
        assert_eq!(report.drain_changed().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(report.drain_changed().next(), None);
    }

    #[test]
    fn drawn_faults_are_counted() {
        let faults = Faults { stall: 1.0, ..Faults::default() };
        let mut report = Report::new(faults);
        assert!(report.injects_faults && report.draw_stall(7).is_some_and(|until| until >= report.now));
        assert_eq!((report.draw_unordered(7), report.stats.faults), (None, 1));
    }

    #[test]
    fn counter_set_zero_counts_nothing() {
        let mut report = Report::new(Faults::default());
        let number = report.counters.0.insert(CounterSet::default()).unwrap();
        for counter_set_id in [0, number as u8] {
            let context = QpContext { counter_set_id, ..QpContext::default() };
            report.counters.count(&context, |counts| &mut counts.packet_seq_err);
        }
        assert_eq!(report.counters.0.get(number).unwrap().counts.packet_seq_err, 1);
        assert!(report.counters.0.get(0).is_none());
    }
}
