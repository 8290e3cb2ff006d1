//! Elements of views, where an index outside of the view is no error.
//!
//! The check before [`View::load`] makes its own check vanish, and the registers that its report needs.

use rushmem_device::prelude::*;

/// Returns an element, or zero if there is none.
#[inline(always)]
pub(crate) fn get<T: Pod>(view: View<T>, i: usize) -> T {
    if i < view.len() { view.load(i) } else { T::zeroed() }
}

/// Writes an element, if there is one.
#[inline(always)]
pub(crate) fn set<T: Pod>(view: View<T>, i: usize, value: T) {
    if i < view.len() {
        view.store(i, value);
    }
}
