//! The application's line of the current call of this crate, for errors.
//!
//! Public calls enter their caller's line, and errors that are made below take it from here. So the functions between need
//! not pass it on.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

thread_local! {
    static CURRENT: Cell<CallSite> = const { Cell::new(CallSite(None)) };
}

/// The line of the application that made a call; none for calls of the runtime itself.
///
/// Displays as a suffix for an error message: `, at src/main.rs:12`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSite(Option<&'static Location<'static>>);

impl CallSite {
    /// Returns the line, if it is known.
    pub fn location(self) -> Option<&'static Location<'static>> {
        self.0
    }

    /// Returns the line of the call that this thread is in.
    #[doc(hidden)]
    pub fn current() -> Self {
        CURRENT.get()
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |site| write!(f, ", at {}:{}", site.file(), site.line()))
    }
}

/// A call of the application, until this is dropped.
#[must_use]
pub struct Entered(CallSite);

/// Enters a call with the caller's line. A call that is made by another one keeps the line of the outer one.
#[track_caller]
pub fn enter() -> Entered {
    let before = CURRENT.get();
    CURRENT.set(CallSite(before.0.or(Some(Location::caller()))));
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
    fn the_outermost_call_counts_until_it_returns() {
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
}
