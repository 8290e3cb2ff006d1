//! Parses the status of each litmus test from `list.txt`.

/// The contents of `list.txt`, which has one line per litmus test.
pub const TEXT: &str = include_str!("../list.txt");

/// How a litmus test is covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The suite runs the test.
    Run,
    /// The test is a program that must not compile. The string names a file in `tests/litmus/fail`.
    CompileFail(String),
    /// Another test covers the litmus test, given as `FILE::FUNCTION`.
    Elsewhere(String),
    /// The test does not run, for the given reason.
    Documented(String),
}

/// Returns the ID and the status of each litmus test, parsed from [`TEXT`].
///
/// # Panics
/// If a line is not `NUMBER: STATUS [DETAIL]`.
pub fn read() -> Vec<(&'static str, Status)> {
    let lines = TEXT.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (id, rest) = line.split_once(": ").expect("`NUMBER: STATUS`");
            let (status, detail) = rest.split_once(' ').unwrap_or((rest, ""));
            let status = match status {
                "run" => Status::Run,
                "compile-fail" => Status::CompileFail(detail.into()),
                "elsewhere" => Status::Elsewhere(detail.into()),
                "documented" => Status::Documented(detail.into()),
                other => panic!("{id}: unknown status {other}"),
            };
            (id, status)
        })
        .collect()
}
