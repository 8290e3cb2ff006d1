//! Structures and flags as arguments.

use rushmem_device::prelude::*;

/// An argument with padding, a flag, a size and a structure inside.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Fill {
    /// Whether to write at all.
    pub enabled: bool,
    /// The words.
    pub to: Cells,
    /// The word to begin with.
    pub first: usize,
    /// The value to write.
    pub value: u16,
}

/// Cells in symmetric memory, and the distance from one to the next.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Cells {
    /// The object.
    pub object: SymSlice<u64>,
    /// The distance in words.
    pub step: u8,
}

/// Writes `fill.value` to each `step`th word from `first` on, plus `more` if `twice` is set.
#[kernel]
pub fn fill_structured(ctx: &Ctx, twice: bool, fill: Fill, more: usize) {
    if !fill.enabled || Thread::index() != 0 {
        return;
    }
    let words = ctx.local(fill.to.object);
    let mut at = fill.first;
    while at < words.len() {
        words.store(at, u64::from(fill.value) + if twice { more as u64 } else { 0 });
        at += fill.to.step as usize;
    }
}
