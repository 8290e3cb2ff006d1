//! Test kernels with structures and flags as arguments.

use rushmem_device::prelude::*;

/// A kernel argument with padding, a flag, a size and a nested structure.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Fill {
    /// Whether to write anything.
    pub enabled: bool,
    /// The words that are written.
    pub to: Cells,
    /// Index of the first word to write, in `to.object`.
    pub first: usize,
    /// The value to write to each word.
    pub value: u16,
}

/// Words at a constant distance within a symmetric object.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Cells {
    /// The symmetric object that contains the words.
    pub object: SymSlice<u64>,
    /// Distance between consecutive words to use.
    pub step: u8,
}

/// Writes `fill.value`, plus `more` if `twice` is set, to every word that `fill` describes.
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
