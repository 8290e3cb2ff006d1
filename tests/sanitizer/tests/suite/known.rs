//! The programs on which the sanitizer is wrong today.

/// Reasons, each with the programs that it affects. An entry that is not needed any more fails the test.
const KNOWN: &[(&str, &[&str])] = &[];

/// Returns the reason why the sanitizer is wrong on a program, if it is known.
pub(crate) fn reason(program: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(_, programs)| programs.contains(&program)).map(|(reason, _)| *reason)
}
