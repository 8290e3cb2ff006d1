//! Structures and flags as kernel arguments.

use rushmem_device::prelude::*;

/// A kernel argument with padding, a flag, a size and a nested structure.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Fill {
    /// Whether to write anything.
    pub enabled: bool,
    /// The cells to write to.
    pub to: Cells,
    /// Index of the first word to write.
    pub first: usize,
    /// The value to write.
    pub value: u16,
}

/// Words of an object at a constant distance.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Cells {
    /// The object that contains the cells.
    pub object: SymSlice<u64>,
    /// Distance between consecutive cells, in words.
    pub step: u8,
}

/// Writes `fill.value`, plus `more` if `twice` is set, to every `step`th word from `first` on.
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
