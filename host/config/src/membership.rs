//! The setting `membership`.

use crate::value::Choice;

/// What the loss of a PE means for its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It ends the job.
    Fixed,
    /// The other PEs go on without the lost one.
    Live,
}

impl Choice for Membership {
    const NAMES: &'static [(&'static str, Self)] =
        &[("fixed", Membership::Fixed), ("live", Membership::Live)];
}
