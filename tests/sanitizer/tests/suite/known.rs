//! The programs on which the sanitizer is wrong today.

/// Reasons, each with the programs that it affects. An entry that is not needed any more fails the test.
const KNOWN: &[(&str, &[&str])] = &[(
    "a member of a collective call may read its source and write its result before all members have come",
    &["put_to_source_and_quiet_before_call", "late_put_to_result_and_quiet_before_call"],
)];

/// Returns the reason why the sanitizer is wrong on a program, if it is known.
pub(crate) fn reason(program: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(_, programs)| programs.contains(&program)).map(|(reason, _)| *reason)
}
