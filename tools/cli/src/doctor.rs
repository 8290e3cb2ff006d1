//! The command `rushmem doctor`, which checks whether this machine can run jobs at full speed.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use rushmem::bootstrap::is_first_on_node;
use rushmem::config::Config;
use rushmem_doctor::{Finding, Host, ProbedPairs, Verdict, blocked, examine, job, probe};
use serde_json::json;

use crate::error::Error;
use crate::{print, report};

/// Check whether this machine can run jobs at full speed, and print remedies
///
/// Checks GPUs, NICs, the PCIe paths between them and the system. Then runs two jobs of two PEs, one through the NIC
/// and one over P2P, and compares every byte. Changes nothing and needs no privileges. Exit code 3 if a check fails.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Check the machine only; run no jobs
    #[arg(long)]
    no_probe: bool,

    /// Probe each PE with each NIC, and not only with those that a job would use
    #[arg(long, conflicts_with_all = ["no_probe", "job"])]
    all_pairs: bool,

    /// Check all nodes of a job, and put from each PE to each other PE: rushmem run -n 8 rushmem doctor --job
    #[arg(long, conflicts_with = "no_probe")]
    job: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Write a report to send back: versions, settings, all that was read and probed with the commands to NICs and their
    /// answers, the kernel log of mlx5, litmus tests, and benchmarks through the NIC
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Leave the litmus tests and benchmarks, which take minutes, out of the report
    #[arg(long, requires = "report")]
    brief: bool,

    /// Repeat the checks of a report, of another machine or job
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_probe", "all_pairs", "job", "report"])]
    replay: Option<PathBuf>,
}

pub(crate) fn execute(args: &Args, config: &Config) -> Result<ExitCode, Error> {
    if let Some(file) = &args.replay {
        return finish(args, &report::replay(file)?);
    }
    if !args.job && !is_first_on_node(config) {
        // The first PE of the node reports for all.
        return Ok(ExitCode::SUCCESS);
    }
    let host = Host::here();
    let pairs = if args.all_pairs { ProbedPairs::All } else { ProbedPairs::Used };
    let findings = match (args.job, args.no_probe) {
        (true, _) => job(&host, config),
        (false, true) => examine(&host, config),
        (false, false) => [examine(&host, config), probe(&host, config, pairs)].concat(),
    };
    if findings.is_empty() {
        // PE 0 reports for the whole job.
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &args.report {
        // A job has no launcher for the jobs of other programs.
        let runs_programs = !(args.brief || args.no_probe || args.job);
        report::write(file, &host, config, &as_json(&findings), runs_programs)?;
    }
    finish(args, &findings)
}

/// Prints the findings. The exit code is 3 if something does not work.
fn finish(args: &Args, findings: &[Finding]) -> Result<ExitCode, Error> {
    print(&if args.json { as_json(findings) } else { as_text(findings) })?;
    Ok(if blocked(findings).is_none() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn as_json(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        json!({
            "id": finding.check.id,
            "about": finding.check.about,
            "why": finding.check.why,
            "of": finding.of,
            "verdict": finding.verdict,
            "found": finding.found,
            "remedy": finding.remedy,
        })
    };
    let all = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "blocked": blocked(findings).is_some(),
        "checks": findings.iter().map(row).collect::<Vec<_>>(),
    });
    format!("{all:#}\n")
}

/// Formats one line per check, with reason and remedy below each problem, followed by a summary.
fn as_text(findings: &[Finding]) -> String {
    let mut text = format!("rushmem {} doctor\n", env!("CARGO_PKG_VERSION"));
    let mut section = "";
    for (i, finding) in findings.iter().enumerate() {
        let title = title(finding.check.id);
        if title != section {
            text += &format!("\n{title}\n");
            section = title;
        }
        let of = if finding.of.is_empty() { String::new() } else { format!("{}: ", finding.of) };
        let about = format!("{of}{}", finding.check.about);
        let found = match cause(findings, i) {
            Some(cause) => format!("see {}", cause.check.id),
            None => finding.found.clone(),
        };
        let _ = writeln!(text, "  {:<6} {:<3} {about}: {found}", mark(finding.verdict), finding.check.id);
        if finding.verdict >= Verdict::Slow {
            let _ = writeln!(text, "             {}", finding.check.why);
        }
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "             -> {remedy}");
        }
    }
    text + &summary(findings)
}

/// Returns the earlier finding that failed for the same reason as finding `i`, if there is one.
fn cause(findings: &[Finding], i: usize) -> Option<&Finding> {
    let is_same = |cause: &&Finding| cause.verdict == Verdict::Blocks && cause.found == findings[i].found;
    findings[..i].iter().find(is_same).filter(|_| findings[i].verdict == Verdict::Blocks)
}

fn summary(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let counts: Vec<_> = [Verdict::Blocks, Verdict::Risk, Verdict::Lesser, Verdict::Slow, Verdict::Unknown]
        .into_iter()
        .filter(|&verdict| count(verdict) > 0)
        .map(|verdict| format!("{} {}", count(verdict), mark(verdict)))
        .collect();
    let first =
        blocked(findings).map_or(String::new(), |finding| format!("; start with {}", finding.check.id));
    match counts.is_empty() {
        true => "\nNo problems found.\n".into(),
        false => format!("\n{}{first}\n", counts.join(", ")),
    }
}

fn title(id: &str) -> &'static str {
    match id.as_bytes().first() {
        Some(b'G') => "GPUs",
        Some(b'N') => "NICs",
        Some(b'T') => "Between GPUs and NICs",
        Some(b'H') => "System",
        Some(b'J') => "Job",
        _ => "Probes",
    }
}

fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "ok",
        Verdict::Note => "note",
        Verdict::Unknown => "?",
        Verdict::Slow => "slow",
        Verdict::Lesser => "lesser",
        Verdict::Risk => "risk",
        Verdict::Blocks => "FAIL",
    }
}

#[cfg(test)]
mod tests {
    use rushmem_doctor::Check;

    use super::*;

    static PORT: Check = Check { id: "N4", about: "port", why: "Only an active port carries anything." };
    static JOB: Check = Check { id: "P3", about: "a job through the NIC", why: "It proves." };

    fn finding(check: &'static Check, verdict: Verdict, found: &str) -> Finding {
        let remedy = (verdict == Verdict::Slow).then(|| "be patient".into());
        Finding { check, of: "mlx5_0".into(), verdict, found: found.into(), remedy }
    }

    #[test]
    fn repeated_failures_refer_to_the_first() {
        let findings = [
            finding(&PORT, Verdict::Blocks, "down"),
            finding(&PORT, Verdict::Slow, "down"),
            finding(&JOB, Verdict::Blocks, "down"),
            finding(&JOB, Verdict::Blocks, "late"),
        ];
        let wanted = "
NICs
  FAIL   N4  mlx5_0: port: down
             Only an active port carries anything.
  slow   N4  mlx5_0: port: down
             Only an active port carries anything.
             -> be patient

Probes
  FAIL   P3  mlx5_0: a job through the NIC: see N4
             It proves.
  FAIL   P3  mlx5_0: a job through the NIC: late
             It proves.

3 FAIL, 1 slow; start with N4
";
        let text = as_text(&findings);
        assert_eq!(text.split_once('\n').unwrap().1, wanted);
        assert!(as_text(&[finding(&PORT, Verdict::Good, "up")]).ends_with("No problems found.\n"));
    }
}
