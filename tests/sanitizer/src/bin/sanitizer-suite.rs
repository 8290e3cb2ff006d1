//! Runs one program of the suite under the sanitizer.

use std::process::ExitCode;

use rushmem::Error;
use rushmem_sanitizer_suite::all;

/// The exit code for findings, as of `rushmem run --sanitize`.
const FOUND: u8 = 5;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let topics = all();
    let Some(program) = topics.iter().flat_map(|topic| topic.programs).find(|program| program.name == name)
    else {
        eprintln!("sanitizer-suite: no program is named `{name}`: tests/sanitizer/table.md lists them");
        return ExitCode::from(2);
    };
    match program.run_job(&[("sanitize", "on")]) {
        Ok(()) => {
            println!("{name}: the sanitizer has found nothing");
            ExitCode::SUCCESS
        }
        // The runtime has printed the findings.
        Err(Error::Sanitizer(_)) => ExitCode::from(FOUND),
        Err(error) => {
            eprintln!("sanitizer-suite: {error}");
            ExitCode::FAILURE
        }
    }
}
