//! What becomes of each litmus test.

/// `list.txt`: a line for each number.
pub const TEXT: &str = include_str!("../list.txt");

/// What becomes of a litmus test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs in this suite.
    Run,
    /// A program that does it does not compile; the file in `tests/fail`.
    CompileFail(String),
    /// Another test shows it: where.
    Elsewhere(String),
    /// It does not run: why.
    Documented(String),
}

/// The lines of `list.txt`.
///
/// # Panics
/// If a line is not `NUMBER: FATE [DETAIL]`.
pub fn read() -> Vec<(&'static str, Fate)> {
    let lines = TEXT.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (id, rest) = line.split_once(": ").expect("a number and a fate");
            let (fate, detail) = rest.split_once(' ').unwrap_or((rest, ""));
            let fate = match fate {
                "run" => Fate::Run,
                "compile-fail" => Fate::CompileFail(detail.into()),
                "elsewhere" => Fate::Elsewhere(detail.into()),
                "documented" => Fate::Documented(detail.into()),
                other => panic!("{id}: {other} is no fate"),
            };
            (id, fate)
        })
        .collect()
}
