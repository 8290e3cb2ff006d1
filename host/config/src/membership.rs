//! The setting `membership`.

use crate::value::Choice;

/// What the loss of a PE means for its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The job fails.
    Fixed,
    /// The other PEs continue without the lost one.
    Live,
}

impl Choice for Membership {
    const NAMES: &'static [(&'static str, Self)] =
        &[("fixed", Membership::Fixed), ("live", Membership::Live)];
}
