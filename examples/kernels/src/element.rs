//! Access to elements of views that ignores an index out of bounds.
//!
//! The explicit check lets the compiler drop the check in [`View::load`], and with it the registers that its error
//! report occupies.

use rushmem_device::prelude::*;

/// Returns element `i` of a view, or zero if `i` is out of bounds.
#[inline(always)]
pub(crate) fn get<T: Pod>(view: View<T>, i: usize) -> T {
    if i < view.len() { view.load(i) } else { T::zeroed() }
}

/// Stores element `i` of a view. Does nothing if `i` is out of bounds.
#[inline(always)]
pub(crate) fn set<T: Pod>(view: View<T>, i: usize, value: T) {
    if i < view.len() {
        view.store(i, value);
    }
}
