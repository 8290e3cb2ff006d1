//! What the driver did wrong. The adapter goes on as hardware would; tests ask that there be none.

use std::fmt;

/// A rule that a driver or kernel broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A doorbell was rung through a UAR page that is not the QP's.
    DoorbellPage,
    /// A doorbell named a QP that does not exist, or whose state does not allow posting.
    DoorbellQp,
    /// A doorbell announced more than the queue holds.
    DoorbellRange,
    /// A doorbell announced more than the doorbell record.
    DoorbellRecord,
    /// A CQ was armed through a UAR page that is not its own.
    CqArm,
    /// An entry's index or QPN is not that of its place, it runs past the producer, or it cannot be parsed.
    Wqe,
    /// A completion found its CQ full.
    CqOverrun,
    /// The adapter itself, or memory that it was given, panicked; all its connections were ended.
    Engine,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The QP concerned, 0 where none is known.
    pub qpn: u32,
    /// What was found.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at QP {:#x}: {}", self.rule, self.qpn, self.detail)
    }
}

/// Keeps the first violations; a broken driver repeats itself.
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
