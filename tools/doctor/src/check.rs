//! Definitions of the checks of `rushmem doctor`, and their findings.

use serde::{Deserialize, Serialize};

/// A check of a machine or a job by `rushmem doctor`.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// Identifier, such as `N3`. Stable across versions.
    pub id: &'static str,
    /// What the check is about, in a few words: `IOMMU`.
    pub about: &'static str,
    /// Why the checked state matters, for the user.
    pub why: &'static str,
}

/// The result of a check. Worse results compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The check has found no problem.
    Good,
    /// The finding is information, not a problem.
    Note,
    /// The checked state cannot be determined without further privileges or hardware.
    Unknown,
    /// Jobs work, but slower than possible.
    Slow,
    /// Jobs work, but only through a fallback.
    Lesser,
    /// Jobs may fail.
    Risk,
    /// Jobs that need the checked feature cannot run.
    Blocks,
}

/// The result of a check for one device or for the whole machine.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Check that produced this finding.
    pub check: &'static Check,
    /// Name of the checked device. Empty if there is only one.
    pub of: String,
    /// How bad the observed state is.
    pub verdict: Verdict,
    /// The observed state or error, in words.
    pub found: String,
    /// What to do about a problem, if anything.
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
