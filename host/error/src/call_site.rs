//! Tracks which line of the application the current call of this crate comes from, for error messages.
//!
//! Public calls record their caller's line for the thread, and errors that are created below take it from there. No
//! function in between needs to pass it on.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

thread_local! {
    /// Site of the outermost call that the thread is executing. `None` outside of calls.
    static CURRENT: Cell<Option<CallSite>> = const { Cell::new(None) };
}

/// The line of the application that made a call. Empty for calls made by the runtime itself, or from other languages.
///
/// Displays as a suffix of an error message: `, at src/main.rs:12`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSite(Option<&'static Location<'static>>);

impl CallSite {
    /// Returns the line of the application, or `None` if the runtime itself made the call.
    pub fn location(self) -> Option<&'static Location<'static>> {
        self.0
    }

    /// Returns the line of the application's call that this thread is executing.
    #[doc(hidden)]
    pub fn current() -> Self {
        CURRENT.get().unwrap_or_default()
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |site| write!(f, ", at {}:{}", site.file(), site.line()))
    }
}

/// Guard of an application's call. While it exists, errors of this thread contain the line of the call.
#[must_use]
pub struct Entered(Option<CallSite>);

/// Records the caller's line until the guard is dropped. A nested call keeps the line of the outermost one.
#[track_caller]
pub fn enter() -> Entered {
    enter_at(CallSite(Some(Location::caller())))
}

/// Records a call from another language, whose lines are unknown, until the guard is dropped. Errors then contain no
/// line, rather than one of the binding.
pub fn enter_foreign() -> Entered {
    enter_at(CallSite(None))
}

fn enter_at(site: CallSite) -> Entered {
    let before = CURRENT.get();
    CURRENT.set(before.or(Some(site)));
    Entered(before)
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outermost_call_counts_until_it_returns() {
        assert_eq!(CallSite::current().to_string(), "");
        let line = line!() + 1;
        let outer = enter();
        let inner = enter();
        assert_eq!(CallSite::current().to_string(), format!(", at {}:{line}", file!()));
        drop(inner);
        assert!(CallSite::current().location().is_some());
        drop(outer);
        assert_eq!(CallSite::current(), CallSite::default());
    }

    #[test]
    fn calls_from_other_languages_have_no_line() {
        let foreign = enter_foreign();
        let inner = enter();
        assert_eq!(CallSite::current().to_string(), "");
        drop((inner, foreign));
        let line = line!() + 1;
        let _call = enter();
        assert_eq!(CallSite::current().to_string(), format!(", at {}:{line}", file!()));
    }
}
