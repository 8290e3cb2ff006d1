//! Checks and their findings: state, reason and remedy.

use serde::{Deserialize, Serialize};

/// A check of a machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// Identifier, such as `N3`. Stable across versions.
    pub id: &'static str,
    /// What is checked.
    pub about: &'static str,
    /// Why it matters.
    pub why: &'static str,
}

/// The result of a check. Worse results compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No problem.
    Good,
    /// Information only.
    Note,
    /// The state cannot be determined without further privileges or hardware.
    Unknown,
    /// It works, but slower than possible.
    Slow,
    /// It works, but only through a fallback.
    Lesser,
    /// It may fail.
    Risk,
    /// It does not work.
    Blocks,
}

/// What a check found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The check.
    pub check: &'static Check,
    /// Name of the checked device. Empty if there is only one.
    pub of: String,
    /// Result.
    pub verdict: Verdict,
    /// The observed state.
    pub found: String,
    /// What to do about it, if anything.
    pub remedy: Option<String>,
}

impl Check {
    /// Reports that there is no problem.
    pub(super) fn good(&'static self, of: impl Into<String>, found: impl Into<String>) -> Finding {
        self.check(of, Verdict::Good, found, None)
    }

    /// Reports information that is not a problem.
    pub(super) fn note(&'static self, of: impl Into<String>, found: impl Into<String>) -> Finding {
        self.check(of, Verdict::Note, found, None)
    }

    /// Reports that the state cannot be read, and why.
    pub(super) fn unknown(&'static self, of: impl Into<String>, why: impl Into<String>) -> Finding {
        self.check(of, Verdict::Unknown, why, None)
    }

    /// Reports a problem and its remedy.
    pub(super) fn bad(
        &'static self,
        of: impl Into<String>,
        verdict: Verdict,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        self.check(of, verdict, found, Some(remedy.into()))
    }

    /// Reports a problem by an error message that already contains the remedy.
    pub(super) fn fails(
        &'static self,
        of: impl Into<String>,
        verdict: Verdict,
        error: impl Into<String>,
    ) -> Finding {
        self.check(of, verdict, error, None)
    }

    fn check(
        &'static self,
        of: impl Into<String>,
        verdict: Verdict,
        found: impl Into<String>,
        remedy: Option<String>,
    ) -> Finding {
        Finding { check: self, of: of.into(), verdict, found: found.into(), remedy }
    }
}
