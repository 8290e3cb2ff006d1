//! Runs the named programs of the suite under the sanitizer, in order. Without a name, lists all programs as Markdown.
//!
//! PEs are threads of this process, or processes if a launcher has started this one.

use std::process::ExitCode;

use rushmem::Error;
use rushmem_sanitizer_suite::{Program, all, table};

/// The exit code for findings, the same as that of `rushmem run --sanitize`.
const FOUND: u8 = 5;

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let topics = all();
    if names.is_empty() {
        print!("{}", table::markdown(&topics));
    }
    let programs = || topics.iter().flat_map(|topic| topic.programs);
    let mut chosen: Vec<&Program> = Vec::new();
    for name in &names {
        let Some(program) = programs().find(|program| program.name == name) else {
            eprintln!(
                "sanitizer-suite: no program is named `{name}`; without a name, this command lists them"
            );
            return ExitCode::from(2);
        };
        chosen.push(program);
    }
    let mut has_found = false;
    for program in chosen {
        match program.run_job(&[("sanitize", "on")]) {
            Ok(()) => println!("{}: the sanitizer has found nothing", program.name),
            // The runtime has already printed the findings.
            Err(Error::Sanitizer(_)) => has_found = true,
            Err(error) => {
                eprintln!("sanitizer-suite: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if has_found { ExitCode::from(FOUND) } else { ExitCode::SUCCESS }
}
