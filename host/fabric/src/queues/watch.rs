//! Derives failures of a NIC from its events.

use std::time::{Duration, Instant};

use crate::provider::NicEvent;

/// Longest time a port may be down without an error. Retransmissions of the NIC cover such a gap.
const GRACE: Duration = Duration::from_secs(1);
/// The same with failover, which replaces connections sooner than the NIC gives up.
const FAILOVER_GRACE: Duration = Duration::from_millis(20);

/// A conclusion drawn from the events of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The port was down for less than the grace period, and is up again.
    Bridged,
    /// The port is up again after a reported failure.
    Repaired,
    /// All QPs of the NIC have failed, for the given reason.
    Failed(String),
    /// The CQ with this CQN has failed.
    CqFailed(u32),
    /// The QP with this QPN has failed.
    QpFailed(u32),
    /// The QP with this QPN has refused a request of its peer.
    RequestRefused(u32),
}

/// Tracks the state of one NIC, based on its events.
pub(super) struct NicWatch {
    /// Longest time that the port may be down without a failure.
    grace: Duration,
    /// When the port went down. `None` while it is up, and once its failure has been reported.
    down_since: Option<Instant>,
    /// Set once a failure of the port or the device has been reported. Cleared when the port is up again.
    is_reported: bool,
}

impl NicWatch {
    pub(super) fn new(failover: bool) -> Self {
        let grace = if failover { FAILOVER_GRACE } else { GRACE };
        Self { grace, down_since: None, is_reported: false }
    }

    /// Returns what follows from `events`, which occurred since the last call, and from the time `now`.
    pub(super) fn observe(&mut self, events: Vec<NicEvent>, now: Instant) -> Vec<Notice> {
        let mut notices: Vec<Notice> =
            events.into_iter().filter_map(|event| self.conclude(event, now)).collect();
        if self.down_since.is_some_and(|since| now.saturating_duration_since(since) >= self.grace) {
            self.down_since = None;
            notices.extend(self.fail(format!("its port has been down for {:?}", self.grace)));
        }
        notices
    }

    fn conclude(&mut self, event: NicEvent, now: Instant) -> Option<Notice> {
        match event {
            NicEvent::PortDown => {
                if !self.is_reported {
                    self.down_since.get_or_insert(now);
                }
                None
            }
            NicEvent::PortUp if self.down_since.take().is_some() => Some(Notice::Bridged),
            NicEvent::PortUp => std::mem::take(&mut self.is_reported).then_some(Notice::Repaired),
            NicEvent::AddressChanged(how) => self.fail(how),
            NicEvent::DeviceFailed => self.fail("the device reports a fatal error; see dmesg".into()),
            NicEvent::CqFailed { cqn } => Some(Notice::CqFailed(cqn)),
            NicEvent::QpFailed { qpn } => Some(Notice::QpFailed(qpn)),
            NicEvent::RequestRefused { qpn } => Some(Notice::RequestRefused(qpn)),
        }
    }

    /// Returns a failure notice, unless a failure has been reported since the port was last up.
    fn fail(&mut self, why: String) -> Option<Notice> {
        (!std::mem::replace(&mut self.is_reported, true)).then_some(Notice::Failed(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(why: &str) -> Vec<Notice> {
        vec![Notice::Failed(why.into())]
    }

    #[test]
    fn a_port_may_be_down_for_a_second() {
        let (mut watch, start) = (NicWatch::new(false), Instant::now());
        let mut at = |millis, events| watch.observe(events, start + Duration::from_millis(millis));
        assert_eq!(at(0, vec![NicEvent::PortDown]), []);
        assert_eq!(at(999, vec![]), []);
        assert_eq!(at(999, vec![NicEvent::PortUp]), [Notice::Bridged]);
        assert_eq!(at(5000, vec![]), []);
        assert_eq!(at(6000, vec![NicEvent::PortDown]), []);
        // A second PortDown does not restart the grace period.
        assert_eq!(at(6500, vec![NicEvent::PortDown]), []);
        assert_eq!(at(7000, vec![]), failed("its port has been down for 1s"));
        assert_eq!(at(9000, vec![NicEvent::PortDown]), []);
        assert_eq!(at(11000, vec![]), []);
        assert_eq!(at(12000, vec![NicEvent::PortUp]), [Notice::Repaired]);
        assert_eq!(at(12000, vec![NicEvent::PortUp]), []);
        assert_eq!(at(13000, vec![NicEvent::PortDown]), []);
        assert_eq!(at(14000, vec![]), failed("its port has been down for 1s"));
    }

    #[test]
    fn other_failures_are_reported_immediately_and_once() {
        let now = Instant::now();
        let mut watch = NicWatch::new(false);
        let events = vec![NicEvent::PortDown, NicEvent::DeviceFailed, NicEvent::DeviceFailed];
        assert_eq!(watch.observe(events, now), failed("the device reports a fatal error; see dmesg"));
        assert_eq!(watch.observe(vec![], now + 2 * GRACE), []);
        let mut watch = NicWatch::new(false);
        let changed = NicEvent::AddressChanged("its LID was 0x1 and is 0x2".into());
        let events = vec![changed, NicEvent::CqFailed { cqn: 4 }, NicEvent::QpFailed { qpn: 5 }];
        let [failed, cq, qp] = &watch.observe(events, now)[..] else { panic!("three notices") };
        assert_eq!(*failed, Notice::Failed("its LID was 0x1 and is 0x2".into()));
        assert_eq!((cq, qp), (&Notice::CqFailed(4), &Notice::QpFailed(5)));
    }
}
