//! The type of settings that switch a feature off or on.

use crate::value::Choice;

/// Value of a setting that switches a feature off or on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The feature is off.
    Off,
    /// The feature is on.
    On,
}

impl Choice for Switch {
    const NAMES: &'static [(&'static str, Self)] =
        &[("off", Switch::Off), ("on", Switch::On), ("0", Switch::Off), ("1", Switch::On)];
}
