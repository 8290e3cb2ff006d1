//! Finds calls in PTX that always panic.
//!
//! All panics of Rust end in the module `core::panicking`. Code rarely calls it directly: `unwrap` calls
//! `core::option::unwrap_failed`, and a range calls a function of `core::slice::index`. Such functions of `core` never
//! return. They count as panic machinery, too: a report should name the function that contains the `unwrap`.

use std::collections::BTreeSet;

use super::symbol::rust_path;

/// A call from one function to another, both given by their symbols.
pub(super) struct Call<'a> {
    /// Symbol of the calling function. Kernels are not mangled, so they have no Rust path.
    pub(super) caller: &'a str,
    pub(super) callee: &'a str,
}

/// Returns the symbols of all functions that always panic.
///
/// `returns` says whether a function has a return instruction.
pub(super) fn machinery<'a>(calls: &[Call<'a>], returns: impl Fn(&str) -> bool) -> BTreeSet<&'a str> {
    let names = calls.iter().flat_map(|call| [call.caller, call.callee]);
    let mut found: BTreeSet<&str> = names.filter(|name| is_panicking(name)).collect();
    loop {
        let more: Vec<&str> = calls
            .iter()
            .filter(|call| found.contains(call.callee) && !found.contains(call.caller))
            .map(|call| call.caller)
            .filter(|caller| is_in_core(caller) && !returns(caller))
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Returns whether `symbol` belongs to `core::panicking`, or is the panic handler.
fn is_panicking(symbol: &str) -> bool {
    let is_in = |path: String| path.starts_with("core::panicking::") || path == "__rustc::rust_begin_unwind";
    symbol == "rust_begin_unwind" || rust_path(symbol).is_some_and(is_in)
}

fn is_in_core(symbol: &str) -> bool {
    rust_path(symbol).is_some_and(|path| path.starts_with("core::"))
}

/// Explains which construct in the source causes a panic, with the remedy. `callee` is the Rust path of the called
/// function.
pub(super) fn cause(callee: &str) -> &'static str {
    const CAUSES: [(&str, &str); 11] = [
        ("bounds_check", "an index that may be out of bounds: use `get`"),
        ("core::slice::index::", "a range that may be out of bounds: use `get`"),
        ("rem_by_zero", "`%` by a variable: use `checked_rem`, or `if n == 0 { return .. }` before it"),
        ("div_by_zero", "`/` by a variable: use `checked_div`, or `if n == 0 { return .. }` before it"),
        ("overflow", "arithmetic that checks for overflow: use `wrapping_` or `checked_` operations"),
        ("copy_from_slice", "slices whose lengths may differ: compare their lengths before the copy"),
        ("core::option::", "`unwrap` or `expect` of an `Option`: use `let Some(..) = .. else { return .. }`"),
        ("core::result::", "`unwrap` or `expect` of a `Result`: use `?`"),
        ("core::cell::", "a `RefCell` that may be borrowed already: use a `Cell` or a plain variable"),
        ("core::str::", "a range of a string that may be out of bounds: use `get`"),
        ("assert_failed", "`assert_eq!` or `assert_ne!`: return an error instead"),
    ];
    let found = CAUSES.iter().find(|(part, _)| callee.contains(part));
    found.map_or("`panic!`, `assert!`, `unreachable!` or the like: return an error instead", |(_, cause)| {
        cause
    })
}
