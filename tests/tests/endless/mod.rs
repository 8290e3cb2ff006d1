//! Tests of kernels that do not return by themselves, which the runtime reports and aborts, and of a stack overflow in
//! a native lane.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rushmem_test_kernels::EndlessLoop;
use rushmem_tests::launch::{clean, launcher, text};
use rushmem_tests::skip;

use super::{PE, PROMPT_LIMIT, pe};

/// Returns the command of a PE that runs an endless kernel, with short time limits.
fn endless(body: EndlessLoop) -> Command {
    with_limits(pe(&["endless", &(body as u32).to_string()]))
}

fn with_limits(mut command: Command) -> Command {
    command.env("RUSHMEM_TIMEOUT", "300ms").env("RUSHMEM_KERNEL_WARNING", "400ms");
    command.env("RUSHMEM_KERNEL_LIMIT", "1s").env("RUSHMEM_ABORT_LIMIT", "500ms");
    command
}

/// Runs a command that must fail promptly, and returns its standard error.
fn fails(mut command: Command) -> String {
    let begin = Instant::now();
    let mut child = command.spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PROMPT_LIMIT {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    told
}

/// Returns the only line of `told` that contains `part`.
fn only_line<'a>(told: &'a str, part: &str) -> &'a str {
    let lines: Vec<&str> = told.lines().filter(|line| line.contains(part)).collect();
    assert_eq!(lines.len(), 1, "{part}: {told}");
    lines[0]
}

#[test]
fn endless_kernel_is_reported_and_aborted_at_its_time_limit() {
    let told = fails(endless(EndlessLoop::Barriers));
    let warning = only_line(&told, "WARN");
    assert!(warning.contains("PE 0: kernel endless, launched at tests/src/app.rs:"), "{told}");
    assert!(warning.contains(", has run for 4"), "{told}");
    assert!(warning.ends_with("; a kernel that runs for 1s ends the job (setting kernel_limit)"), "{told}");
    // The emulator unwinds the lanes and reports where they are.
    assert!(
        told.contains("error: PE 0: kernel endless: the kernel did not end within 1s; check its loops"),
        "{told}"
    );
    assert!(told.contains("\n  block 0: lane 0 "), "{told}");
}

#[test]
fn unstoppable_kernel_terminates_its_process() {
    let told = fails(endless(EndlessLoop::Loads));
    only_line(&told, "WARN");
    let end = only_line(&told, "Error: ");
    assert!(end.contains("PE 0: kernel endless, launched at tests/src/app.rs:"), "{told}");
    assert!(
        end.contains("did not end within 500ms after the failure of the job, so this process ends: "),
        "{told}"
    );
    assert!(end.contains(" did not end within 1s; check its loops, or raise RUSHMEM_KERNEL_LIMIT"), "{told}");
}

#[test]
fn endless_loop_of_loads_is_reported_with_its_source_line() {
    let mut command = pe(&["endless", &(EndlessLoop::Loads as u32).to_string()]);
    command.env("RUSHMEM_LANE_LIMIT", "300ms");
    let told = fails(command);
    let end = only_line(&told, "Error: ");
    assert!(end.contains("PE 0: kernel endless, launched at tests/src/app.rs:"), "{told}");
    assert!(
        end.contains(" did not let other threads run for 300ms of processor time: thread 0 of block 0 at "),
        "{told}"
    );
    assert!(end.contains("kernels/src/endless.rs:2"), "{told}");
    assert!(end.ends_with("or raise RUSHMEM_LANE_LIMIT (none for long computations)"), "{told}");
}

#[test]
fn kernel_that_ignores_job_abort_terminates_its_process() {
    for body in [EndlessLoop::IgnoredErrors, EndlessLoop::Loads] {
        let mut command = endless(body);
        command.env("RUSHMEM_PES", "2").env("RUSHMEM_KERNEL_LIMIT", "none");
        let told = fails(command);
        let end = only_line(&told, "Error: ");
        assert!(end.contains("PE 0: kernel endless, launched at "), "{told}");
        assert!(end.contains("so this process ends: PE 1 was lost: aborted: suite_pe: on purpose"), "{told}");
    }
}

/// Checks that PE 0 aborts its running kernel when its host code panics or fails, as `what` selects, and that the
/// reported cause is PE 0's own error. `cause` is the last part of the message about a kernel that never returns.
fn ends_its_kernels(what: &str, cause: &str) {
    let run = |n: &str, args: &[&str], timeout: &str| {
        let mut command = with_limits(pe(args));
        command.env("RUSHMEM_PES", n).env("RUSHMEM_KERNEL_LIMIT", "none").env("RUSHMEM_TIMEOUT", timeout);
        fails(command)
    };
    // The abort word makes the waits of both PEs return long before their deadline.
    let told = run("2", &[what], "120s");
    assert!(only_line(&told, "error: ").contains("on purpose"), "{told}");
    // A loop of the application does not check the abort word, so only the exit of the process stops it.
    for body in [EndlessLoop::IgnoredErrors, EndlessLoop::Loads] {
        let told = run("1", &[what, &(body as u32).to_string()], "300ms");
        let end = only_line(&told, "Error: ");
        assert!(end.contains("PE 0: kernel endless, launched at "), "{told}");
        assert!(end.ends_with(&format!("so this process ends: {cause}")), "{told}");
    }
}

#[test]
fn panic_aborts_kernels_of_the_same_pe() {
    ends_its_kernels("panics", "PE 0 panicked");
}

#[test]
fn early_error_aborts_kernels_of_the_same_pe() {
    ends_its_kernels("fails", "PE 0 failed: suite_pe: on purpose");
}

#[test]
fn early_error_is_reported_before_failed_waits_of_other_pes() {
    let Some(launcher) = launcher(PE) else {
        let test = "early_error_is_reported_before_failed_waits_of_other_pes";
        return skip(test, "the launcher is not built: cargo build -p rushmem-cli");
    };
    let mut command = clean(&launcher);
    command.args(["run", "-n", "3", "--set", "timeout=120s", PE, "fails"]);
    let told = fails(command);
    only_line(&told, "on purpose");
    assert!(told.contains("rushmem: PE 0 failed; ending the other 2 PEs\n"), "{told}");
    assert!(told.contains("rushmem: PEs 1-2 reported that PE 0 was lost\n"), "{told}");
}

#[test]
fn endless_kernel_leaves_no_process_running() {
    let test = "endless_kernel_leaves_no_process_running";
    let Some(launcher) = launcher(PE) else {
        return skip(test, "the launcher is not built: cargo build -p rushmem-cli");
    };
    let mut command = with_limits(clean(&launcher));
    command.env("RUSHMEM_KERNEL_LIMIT", "none");
    command.args(["run", "-n", "2", PE, "endless", &(EndlessLoop::IgnoredErrors as u32).to_string()]);
    let told = fails(command);
    let pids =
        told.lines().filter_map(|line| line.split_once("this is process ")?.1.trim().parse::<u32>().ok());
    let pids: Vec<u32> = pids.collect();
    assert_eq!(pids.len(), 2, "{told}");
    for pid in pids {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left: {told}");
    }
}

#[test]
fn stack_overflow_error_names_the_lane_and_the_setting() {
    let run = |depth: &str| pe(&["recurse", depth]).env("RUSHMEM_NATIVE_STACK", "256KiB").output().unwrap();
    let output = run("3");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = run("1000");
    let told = text(&output.stderr);
    // The default action of SIGSEGV.
    assert_eq!(output.status.signal(), Some(11), "{told}");
    let hint = only_line(&told, "overflowed");
    assert_eq!(
        hint,
        "Error: PE 0: kernel recurse: lane 0 of block 0 overflowed its stack of 262144 bytes; raise \
         RUSHMEM_NATIVE_STACK, or keep less on the stack"
    );
}
