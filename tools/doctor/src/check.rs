//! Checks and their findings: state, reason and remedy.

use serde::{Deserialize, Serialize};

/// A check of a machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// Identifier, such as `N3`. It does not change between versions.
    pub id: &'static str,
    /// Subject of the check.
    pub about: &'static str,
    /// Reason why it matters.
    pub why: &'static str,
}

/// The result of a check. Worse results are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No problem.
    Good,
    /// Information only.
    Note,
    /// The state cannot be read from here.
    Unknown,
    /// It works, but slower than possible.
    Slow,
    /// It works by a fallback.
    Lesser,
    /// It may fail.
    Risk,
    /// It does not work.
    Blocks,
}

/// The finding of one check.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The check.
    pub check: &'static Check,
    /// Name of the checked device, or empty if there is only one.
    pub of: String,
    /// Result.
    pub verdict: Verdict,
    /// State that was found.
    pub found: String,
    /// Remedy, if there is one.
    pub remedy: Option<String>,
}

impl Check {
    /// Reports that there is no problem.
    pub(super) fn good(&'static self, of: impl Into<String>, found: impl Into<String>) -> Finding {
        self.check(of, Verdict::Good, found, None)
    }

    /// Reports information.
    pub(super) fn note(&'static self, of: impl Into<String>, found: impl Into<String>) -> Finding {
        self.check(of, Verdict::Note, found, None)
    }

    /// Reports that the state cannot be read, with the reason.
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

    /// Reports a problem with an error text that contains the remedy.
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
