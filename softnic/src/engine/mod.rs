//! The engine: scans doorbells, schedules QPs, and runs the thread that stands in for the hardware.

pub(crate) mod alarm;
pub(crate) mod clock;
mod contexts;
pub(crate) mod core;
mod doorbells;
mod failure;
pub(crate) mod thread;
