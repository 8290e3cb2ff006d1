//! Mistakes of drivers. The adapter continues like hardware; tests require that there are none.

use std::fmt;

/// A rule that a driver or kernel broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A doorbell was rung through a UAR page of another QP.
    DoorbellPage,
    /// A doorbell named a QP that does not exist, or that is in a state without posting.
    DoorbellQp,
    /// A doorbell announced more than the queue holds.
    DoorbellRange,
    /// A doorbell was rung at the register for the other kind of QPs, with a doorbell record or without.
    DoorbellRegister,
    /// A doorbell announced more than its doorbell record.
    DoorbellRecord,
    /// A CQ was armed through a UAR page of another CQ.
    CqArm,
    /// A WQE has a wrong index or QPN, runs past the producer, or cannot be parsed.
    Wqe,
    /// A CQ overran.
    CqOverrun,
    /// The adapter or a [`Memory`](crate::Memory) panicked; all connections were ended.
    Engine,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The QP, 0 if none is known.
    pub qpn: u32,
    /// The values found.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at QP {:#x}: {}", self.rule, self.qpn, self.detail)
    }
}

/// The first violations; a broken driver repeats itself.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    list: Vec<Violation>,
}

const KEPT: usize = 256;

impl Violations {
    #[cold]
    pub(crate) fn record(&mut self, rule: Rule, qpn: u32, detail: String) {
        tracing::debug!(?rule, qpn, detail, "violation");
        if self.list.len() < KEPT {
            self.list.push(Violation { rule, qpn, detail });
        }
    }

    pub(crate) fn list(&self) -> &[Violation] {
        &self.list
    }
}
