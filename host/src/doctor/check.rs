//! What was looked at, what was found, and what to do about it.

use serde::{Deserialize, Serialize};

/// A thing to look at on a machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name, such as `N3`, which does not change from version to version.
    pub id: &'static str,
    /// What is looked at.
    pub about: &'static str,
    /// What it is good for.
    pub why: &'static str,
}

/// How good it is, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Nothing to judge, but good to know.
    Note,
    /// It cannot be seen from here.
    Unknown,
    /// It works, slower than it could.
    Slow,
    /// It works another way than the best one.
    Lesser,
    /// It may fail.
    Risk,
    /// It does not work.
    Blocks,
}

/// One look.
#[derive(Clone, Debug)]
pub struct Check {
    /// At what.
    pub kind: &'static Kind,
    /// At which of several: a GPU, a NIC; empty if there is one only.
    pub of: String,
    /// How good it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do, if anything.
    pub advice: Option<String>,
}

impl Kind {
    /// It is as it should be.
    pub(super) fn good(&'static self, of: impl Into<String>, found: impl Into<String>) -> Check {
        self.check(of, Verdict::Good, found, None)
    }

    /// Nothing to judge.
    pub(super) fn note(&'static self, of: impl Into<String>, found: impl Into<String>) -> Check {
        self.check(of, Verdict::Note, found, None)
    }

    /// It cannot be seen, for this reason.
    pub(super) fn unknown(&'static self, of: impl Into<String>, why: impl Into<String>) -> Check {
        self.check(of, Verdict::Unknown, why, None)
    }

    /// It is not as it should be, and this helps.
    pub(super) fn bad(
        &'static self,
        of: impl Into<String>,
        verdict: Verdict,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        self.check(of, verdict, found, Some(advice.into()))
    }

    /// As [`Kind::bad`], with an error that tells itself what helps.
    pub(super) fn fails(
        &'static self,
        of: impl Into<String>,
        verdict: Verdict,
        error: impl Into<String>,
    ) -> Check {
        self.check(of, verdict, error, None)
    }

    fn check(
        &'static self,
        of: impl Into<String>,
        verdict: Verdict,
        found: impl Into<String>,
        advice: Option<String>,
    ) -> Check {
        Check { kind: self, of: of.into(), verdict, found: found.into(), advice }
    }
}
