//! The races and deadlocks that the sanitizer reports.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::deadlock::Deadlock;
use crate::report::Race;

/// A race or a deadlock, as reported by the sanitizer.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Two conflicting accesses that are not ordered.
    Race(Box<Race>),
    /// Waits that can never be satisfied.
    Deadlock(Deadlock),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Race(race) => race.fmt(f),
            Self::Deadlock(deadlock) => deadlock.fmt(f),
        }
    }
}
