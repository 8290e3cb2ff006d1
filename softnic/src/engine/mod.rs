//! The engine: scans doorbells, gives QPs their turns, and runs the thread that takes the place of the hardware.

pub(crate) mod alarm;
pub(crate) mod clock;
mod contexts;
pub(crate) mod core;
mod doorbells;
mod failure;
pub(crate) mod thread;
