//! Violations: mistakes of drivers. The adapter carries on as hardware would, and tests require that there are none.

use std::fmt;

/// A rule that a driver or a kernel has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A doorbell was rung on another UAR page than the one that the QP was created with.
    DoorbellPage,
    /// A doorbell named a QP that does not exist, or whose state does not allow posting.
    DoorbellQp,
    /// A doorbell announced more blocks than the queue has.
    DoorbellRange,
    /// A doorbell was rung on the wrong register: there is one for QPs with a doorbell record, and one for those
    /// without.
    DoorbellRegister,
    /// A doorbell announced more blocks than the QP's doorbell record.
    DoorbellRecord,
    /// A CQ was armed through another UAR page than the one that it was created with.
    CqArm,
    /// A WQE has a wrong index or QPN, extends past the producer, or cannot be parsed.
    Wqe,
    /// A CQ has overrun: it was full when a CQE was due.
    CqOverrun,
    /// The adapter or a [`Memory`](crate::Memory) has panicked, and all connections were closed.
    Engine,
}

/// One case in which a driver or a kernel has broken a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule was broken.
    pub rule: Rule,
    /// QPN of the QP concerned, or 0 if unknown.
    pub qpn: u32,
    /// Description of the case, including the offending values.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at QP {:#x}: {}", self.rule, self.qpn, self.detail)
    }
}

/// The first violations of an adapter. Later ones are dropped, since a broken driver repeats itself.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    list: Vec<Violation>,
}

const MAX_VIOLATIONS: usize = 256;

impl Violations {
    #[cold]
    pub(crate) fn record(&mut self, rule: Rule, qpn: u32, detail: String) {
        tracing::debug!(?rule, qpn, detail, "violation");
        if self.list.len() < MAX_VIOLATIONS {
            self.list.push(Violation { rule, qpn, detail });
        }
    }

    pub(crate) fn list(&self) -> &[Violation] {
        &self.list
    }
}
