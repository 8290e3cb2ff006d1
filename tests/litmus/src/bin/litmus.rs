//! The litmus suite as a program, to be launched as a job: `rushmem run -n 4 litmus`.
//!
//! Each test runs with several assignments of roles to PEs, under the settings in the environment. PE 0 prints the
//! outcomes. The exit code is 1 if a forbidden outcome occurred. `litmus wrong` runs incorrect programs, which must
//! show forbidden outcomes.

use std::process::ExitCode;

use rushmem::{Error, Job, Pe};
use rushmem_litmus::program::Test;
use rushmem_litmus::{check, path, report, run, table};

fn main() -> ExitCode {
    let tests = match std::env::args().nth(1).as_deref() {
        None => table::all(),
        Some("wrong") => table::wrong().into_iter().map(|(test, _)| test).collect(),
        Some(other) => {
            eprintln!("error: unknown argument {other:?}; use `wrong`, or none to run all correct tests");
            return ExitCode::from(2);
        }
    };
    let job = Job::with_config(path::config()).kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    // All PEs return the same result.
    match job.run(|pe| play(pe, &tests)) {
        Ok(right) if right.iter().all(|right| *right) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

fn play(pe: &Pe, tests: &[Test]) -> Result<bool, Error> {
    let rounds = run::rounds();
    let rows = run::run_in(pe, tests, rounds)?;
    let mut wrong = Vec::new();
    // Every check needs a second PE.
    let checks = if pe.n_pes() > 1 { check::all() } else { Vec::new() };
    for check in &checks {
        wrong.extend(check.run(pe)?);
    }
    let failures = report::failures(&rows) + &wrong.join("\n");
    if pe.my_pe() == 0 {
        print!("{}{failures}", report::table(&rows));
        let verdict = if failures.is_empty() { "PASS" } else { "FAILED" };
        let (n_pes, machine) = (pe.n_pes(), pe.machine());
        println!(
            "{verdict} litmus: {} tests of {rounds} rounds and {} checks by {n_pes} PEs ({machine})",
            rows.len(),
            checks.len()
        );
    }
    if pe.n_pes() > 1 {
        check::leave_behind(pe)?;
    }
    Ok(failures.is_empty())
}
