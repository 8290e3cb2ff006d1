//! Runs a program under the communication sanitizer.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use rushmem::config::Setting;
use serde_json::Value;

use super::job;
use super::pe::thread_command;
use super::plan::{LaunchMode, Plan};
use crate::error::Error;
use crate::print;

/// Exit code of `rushmem run --sanitize` if the sanitizer has findings.
const FOUND: u8 = 5;

/// Runs the program of `plan` under the sanitizer. Returns [`FOUND`] if there are findings, otherwise the exit code of
/// the program.
pub(super) fn run(mut plan: Plan, json: bool) -> Result<ExitCode, Error> {
    let report = Report::new(&plan)?;
    plan.variables.insert(report.variable, report.file.display().to_string());
    let code = match &plan.mode {
        LaunchMode::Threads => {
            let mut command = thread_command(&plan);
            code_of(command.status().map_err(|error| cannot(&command, &error))?)
        }
        LaunchMode::Processes(share) => job::supervise(&plan, share)?,
    };
    let Some(findings) = report.read()? else {
        eprintln!("rushmem: incomplete: the program has not finished a job, so the sanitizer has no report");
        return Ok(ExitCode::from(code));
    };
    if json {
        let text =
            serde_json::to_string_pretty(&findings).map_err(|error| Error::Internal(error.to_string()))?;
        print(&format!("{text}\n"))?;
    }
    // The runtime has printed the findings.
    let (text, code) = verdict(findings.len(), code);
    eprintln!("rushmem: {text}");
    Ok(ExitCode::from(code))
}

/// Returns the final line of output and the exit code, given the number of findings and the exit code of the program.
fn verdict(findings: usize, code: u8) -> (String, u8) {
    let why = match code {
        _ if findings > 0 => {
            return (format!("the sanitizer has found {findings} races or deadlocks"), FOUND);
        }
        0 => return ("the sanitizer has found nothing".into(), code),
        129.. => format!("the program was killed by signal {}", code - 128),
        _ => format!("the program failed with exit code {code}"),
    };
    let text = format!("incomplete: {why}; the sanitizer has found nothing in the part that has run");
    (text, code)
}

/// Returns the exit code of a program. If a signal killed it, that is 128 plus the signal number.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn cannot(command: &Command, error: &std::io::Error) -> Error {
    Error::Environment(format!("cannot start {}: {error}", command.get_program().display()))
}

/// The file to which the runtime writes the findings of the sanitizer.
struct Report {
    variable: &'static str,
    file: PathBuf,
    /// Whether the user asked for the file, so it must be kept.
    is_kept: bool,
}

impl Report {
    /// Returns the file that the user asked for, or a temporary one.
    fn new(plan: &Plan) -> Result<Self, Error> {
        let setting = Setting::find("sanitize_report");
        let setting =
            setting.ok_or_else(|| Error::Internal("there is no setting `sanitize_report`".into()))?;
        let wanted = plan.variables.get(setting.env).map(PathBuf::from);
        let wanted = wanted.or_else(|| std::env::var_os(setting.env).map(PathBuf::from));
        let is_kept = wanted.is_some();
        let name = format!("rushmem-sanitizer-{}.json", std::process::id());
        let file = wanted.unwrap_or_else(|| std::env::temp_dir().join(name));
        remove(&file)?;
        Ok(Self { variable: setting.env, file, is_kept })
    }

    /// Returns the findings, or `None` if no job has finished.
    fn read(&self) -> Result<Option<Vec<Value>>, Error> {
        let Ok(text) = std::fs::read(&self.file) else { return Ok(None) };
        if !self.is_kept {
            remove(&self.file)?;
        }
        let found = serde_json::from_slice(&text);
        found.map(Some).map_err(|error| Error::Internal(format!("the report of the sanitizer: {error}")))
    }
}

/// Removes a file, if it exists.
fn remove(file: &Path) -> Result<(), Error> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Environment(format!("cannot remove {}: {error}", file.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_program_is_not_clean() {
        assert_eq!(verdict(0, 0), ("the sanitizer has found nothing".into(), 0));
        assert_eq!(verdict(2, 1), ("the sanitizer has found 2 races or deadlocks".into(), FOUND));
        for (code, why) in [(101, "failed with exit code 101"), (137, "was killed by signal 9")] {
            let (text, kept) = verdict(0, code);
            assert!(text.starts_with(&format!("incomplete: the program {why}")), "{text}");
            assert_eq!(kept, code);
        }
    }
}
