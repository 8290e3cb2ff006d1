//! Features that are off or on.

use crate::value::Choice;

/// A feature that is off or on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Off.
    Off,
    /// On.
    On,
}

impl Choice for Switch {
    const NAMES: &'static [(&'static str, Self)] =
        &[("off", Switch::Off), ("on", Switch::On), ("0", Switch::Off), ("1", Switch::On)];
}
