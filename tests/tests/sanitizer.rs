//! Tests of the communication sanitizer: it reports one finding for each program with insufficient ordering, and none
//! for correct programs.

use std::process::Output;
use std::time::{Duration, Instant};

use rushmem::sanitizer::{Finding, MissingOrder, Race};
use rushmem::{Error, Operations, Pe};
use rushmem_device::Signal;
use rushmem_test_kernels::sanitizer as kernels;
use rushmem_tests::launch::{all, clean, launcher, text};
use rushmem_tests::{Setup, grid};

use kernels::Made;

fn setup(pes: u32) -> Setup {
    Setup::new(pes).with("sanitize", "on").with("device", "native")
}

/// Runs a job and returns the races that the sanitizer found.
fn races(pes: u32, app: impl Fn(&Pe) -> Result<(), Error> + Send + Sync) -> Vec<Race> {
    match setup(pes).try_run(app) {
        Ok(_) => Vec::new(),
        Err(Error::Sanitizer(findings)) => findings.into_iter().map(race).collect(),
        Err(other) => panic!("{other}"),
    }
}

fn race(finding: Finding) -> Race {
    match finding {
        Finding::Race(race) => *race,
        other => panic!("{other}"),
    }
}

/// Returns the line number of this mark in the source of the test kernels.
fn line(mark: &str) -> u32 {
    let source = include_str!("../kernels/src/sanitizer.rs");
    let at = source.lines().position(|line| line.ends_with(&format!("// {mark}")));
    at.unwrap_or_else(|| panic!("no line is marked {mark}")) as u32 + 1
}

/// Asserts that the only race is between these two lines, in either order.
fn assert_lines(races: &[Race], first: &str, second: &str) {
    let [race] = races else { panic!("{races:#?}") };
    let mut found = [race.first.call.site.line, race.second.call.site.line];
    let mut wanted = [line(first), line(second)];
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted, "{race}");
}

fn put_and_flag(made: Made) -> Vec<Race> {
    races(2, |pe| {
        let (dst, src, seen) = (pe.alloc::<u64>(64)?, pe.alloc::<u64>(64)?, pe.alloc::<u64>(64)?);
        let flag = pe.alloc_one::<Signal>()?;
        pe.write(src, &[3; 64])?;
        pe.run(grid(1, 32), kernels::put_and_flag(dst, src, flag, seen, made as u32))?;
        pe.barrier_all()?;
        if pe.my_pe() == 1 {
            assert_eq!(pe.read(seen)?, [3; 64]);
        }
        Ok(())
    })
}

#[test]
fn flag_after_a_put_needs_a_fence() {
    let found = put_and_flag(Made::Nothing);
    assert_lines(&found, "flagged put", "flagged load");
    assert_eq!(found[0].missing, MissingOrder::Fence { pe: 1 });
    for made in [Made::Fence, Made::Quiet, Made::Signal, Made::AfterAll] {
        assert_eq!(put_and_flag(made), [], "{made:?}");
    }
}

fn put_and_meet(made: Made) -> Vec<Race> {
    races(3, |pe| {
        let (dst, src, seen) = (pe.alloc::<u64>(64)?, pe.alloc::<u64>(64)?, pe.alloc::<u64>(64)?);
        pe.run(grid(1, 32), kernels::put_and_meet(dst, src, seen, made as u32))
    })
}

#[test]
fn put_needs_completion_before_a_barrier() {
    assert_lines(&put_and_meet(Made::Nothing), "met put", "met load");
    let found = put_and_meet(Made::Sync);
    assert_lines(&found, "met put", "met load");
    assert!(matches!(found[0].missing, MissingOrder::Completion { .. }), "{}", found[0]);
    assert_eq!(put_and_meet(Made::Barrier), []);
}

#[test]
fn source_is_in_use_until_quiet() {
    let reuse = |made: Made| {
        races(2, |pe| {
            let (dst, src) = (pe.alloc::<u64>(8)?, pe.alloc::<u64>(8)?);
            pe.run(grid(1, 32), kernels::reuse_source(dst, src, made as u32))
        })
    };
    let found = reuse(Made::Nothing);
    assert_lines(&found, "reused put", "reused store");
    assert_eq!(found[0].missing, MissingOrder::SourceInUse);
    assert_eq!(reuse(Made::Quiet), []);
}

#[test]
fn threads_and_blocks_need_barriers() {
    let exchange = |blocks: u32, made: Made| {
        races(1, |pe| {
            let count = 32 * blocks as usize;
            let (words, seen) = (pe.alloc::<u64>(count)?, pe.alloc::<u64>(count)?);
            pe.run(grid(blocks, 32), kernels::exchange(words, seen, made as u32))
        })
    };
    let found = exchange(1, Made::Nothing);
    assert_lines(&found, "exchanged store", "exchanged load");
    assert_eq!(found[0].missing, MissingOrder::BlockSync);
    assert_eq!(exchange(1, Made::Sync), []);
    let found = exchange(2, Made::Sync);
    assert_lines(&found, "exchanged store", "exchanged load");
    assert_eq!(found[0].missing, MissingOrder::GridSync);
    assert_eq!(exchange(2, Made::Barrier), []);
}

#[test]
fn memory_fences_order_relaxed_words() {
    let hand_over = |fences: u32| {
        races(1, |pe| {
            let (dst, src, back) = (pe.alloc::<u64>(4)?, pe.alloc::<u64>(4)?, pe.alloc::<u64>(4)?);
            let (asked, written, stale) = (pe.alloc_one()?, pe.alloc_one()?, pe.alloc_one()?);
            let call =
                rushmem_test_kernels::hand_over(dst, src, back, asked, written, stale, fences, 5, 10_000_000);
            pe.run(grid(2, 32), call)
        })
    };
    assert_eq!(hand_over(1), []);
    assert!(!hand_over(0).is_empty());
}

#[test]
fn atomic_publishes_completed_operations() {
    let count = |made: Made| {
        races(4, |pe| {
            let (parts, counter, total) =
                (pe.alloc::<u64>(4)?, pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
            pe.run(grid(1, 1), kernels::count_in(parts, counter, total, made as u32))
        })
    };
    assert_lines(&count(Made::Nothing), "counted put", "counted get");
    assert_eq!(count(Made::Quiet), []);
}

#[test]
fn host_access_needs_completed_launches() {
    let found = races(1, |pe| {
        let (words, seen) = (pe.alloc::<u64>(32)?, pe.alloc::<u64>(32)?);
        let launch = pe.launch(grid(1, 32), kernels::exchange(words, seen, Made::Sync as u32))?;
        pe.read(words)?;
        launch.wait()
    });
    let [race] = &*found else { panic!("{found:#?}") };
    assert_eq!(race.missing, MissingOrder::LaunchEnd);
    assert!([race.first.call.name, race.second.call.name].contains(&"read"), "{race}");

    let found = races(2, |pe| {
        let (dst, src) = (pe.alloc::<u64>(8)?, pe.alloc::<u64>(8)?);
        pe.put(dst, src, 1 - pe.my_pe())?;
        pe.quiet()?;
        pe.host_sync()?;
        pe.read(dst)?;
        pe.write(src, &[1; 8])?;
        pe.free(src)
    });
    assert_eq!(found, []);
}

#[test]
fn collective_calls_order_their_buffers() {
    let found = races(3, |pe| {
        let (dst, src, seen) = (pe.alloc::<u64>(8)?, pe.alloc::<u64>(8)?, pe.alloc::<u64>(8)?);
        for _ in 0..3 {
            pe.run(grid(1, 32), kernels::sum_and_read(dst, src, seen))?;
            assert_eq!(pe.read(seen)?[0], 3);
        }
        Ok(())
    });
    assert_eq!(found, []);
}

#[test]
fn findings_name_the_lines_of_host_operations() {
    let put = line!() + 4;
    let found = races(2, |pe| {
        let (dst, src) = (pe.alloc::<u64>(8)?, pe.alloc::<u64>(8)?);
        if pe.my_pe() == 0 {
            pe.put(dst, src, 1)?;
        } else {
            pe.read(dst)?;
        }
        let stream = pe.stream()?;
        stream.put_nbi(src, dst, pe.my_pe())?;
        stream.wait()?;
        pe.quiet()
    });
    let puts = found.iter().flat_map(|race| [race.first.call, race.second.call]);
    assert!(puts.clone().any(|call| call.name == "put" && call.site.line == put), "{found:#?}");
    assert!(puts.clone().all(|call| call.site.file == file!()), "{found:#?}");
}

/// Runs `suite_pe` under `rushmem run --sanitize` with these arguments, or returns `None` if the launcher is not built.
fn launched(args: &[&str]) -> Option<Output> {
    const PE: &str = env!("CARGO_BIN_EXE_suite_pe");
    let mut command = clean(&launcher(PE)?);
    command.args(["run", "-n", "2", "--sanitize"]);
    for arg in args {
        command.arg(if *arg == "PE" { PE } else { arg });
    }
    Some(command.output().unwrap())
}

/// Asserts that the launcher exited with code 5, with the only finding as JSON, and printed it exactly once.
fn assert_found(output: &Output) {
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert_eq!(told.matches("rushmem: race on").count(), 1, "{told}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(1), "{json}");
}

#[test]
fn launcher_exits_with_code_5() {
    let Some(output) = launched(&["--json", "PE", "racy"]) else { return };
    assert_found(&output);
    let output = launched(&["PE", "window"]).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn processes_share_one_sanitizer() {
    let Some(output) = launched(&["--processes", "--json", "PE", "racy"]) else { return };
    assert_found(&output);
}

#[test]
fn lost_process_fails_the_job_under_the_sanitizer() {
    // PE 0 hosts the engine, so the report is lost with it.
    let Some(output) = launched(&["--processes", "PE", "exit", "0"]) else { return };
    assert_eq!(output.status.code(), Some(3), "{}", all(&output));
    assert!(text(&output.stderr).contains("has no report"), "{}", all(&output));
    // In the kernel that still completes on PE 0, both blocks store to the same word.
    let output = launched(&["--processes", "PE", "exit", "1"]).unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", all(&output));
    assert!(text(&output.stderr).contains("PE 1 exited with code 3"), "{}", all(&output));
}

#[test]
fn unmappable_windows_are_rejected_for_processes() {
    let Some(output) = launched(&["--processes", "PE", "window"]) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    assert!(text(&output.stderr).contains("run the PEs as threads"), "{}", all(&output));
}

/// Runs a job whose waits can never be satisfied, and returns the lines of the waits.
fn deadlock(app: impl Fn(&Pe) -> Result<(), Error> + Send + Sync) -> Vec<u32> {
    deadlock_in(setup(2), app)
}

/// Like [`deadlock`], in a job with the settings `setup`.
fn deadlock_in(setup: Setup, app: impl Fn(&Pe) -> Result<(), Error> + Send + Sync) -> Vec<u32> {
    match setup.try_run(app) {
        Err(Error::Sanitizer(findings)) => match &*findings {
            [Finding::Deadlock(deadlock)] => {
                deadlock.stuck.iter().map(|stuck| stuck.call.site.line).collect()
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn deadlock_is_reported_before_the_deadline() {
    let begin = Instant::now();
    let lines = deadlock(|pe| {
        let flag = pe.alloc_one::<Signal>()?;
        pe.run(grid(1, 32), kernels::wait_first(flag, Made::Nothing as u32))
    });
    assert!(lines.contains(&line("endless wait")), "{lines:?}");
    let lines = deadlock(|pe| {
        let flag = pe.alloc_one::<Signal>()?;
        pe.run(grid(1, 32), kernels::wait_first(flag, Made::Barrier as u32))
    });
    assert!(lines.contains(&line("endless wait")), "{lines:?}");
    assert!(lines.contains(&line("missed barrier")), "{lines:?}");
    // The deadline of waits is 60 s, so the sanitizer has reported the deadlock earlier.
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn short_deadline_does_not_hide_a_deadlock() {
    let wait = |pe: &Pe| {
        let flag = pe.alloc_one::<Signal>()?;
        pe.run(grid(1, 32), kernels::wait_first(flag, Made::Nothing as u32))
    };
    for deadline in ["100ms", "1500ms"] {
        let lines = deadlock_in(setup(2).with("timeout", deadline), wait);
        assert!(lines.contains(&line("endless wait")), "{deadline}: {lines:?}");
        // A program that expects the deadline has no deadlock.
        let expected = setup(2).with("timeout", deadline).try_run(|pe| {
            wait(pe).expect_err("nobody signals");
            Ok::<_, Error>(())
        });
        assert!(expected.is_ok(), "{deadline}: {expected:?}");
    }
}

#[test]
fn late_signal_is_not_a_deadlock() {
    let found = races(2, |pe| {
        let flag = pe.alloc_one::<Signal>()?;
        if pe.my_pe() == 0 {
            std::thread::sleep(Duration::from_secs(3));
            pe.signal_op(flag.set(1), 1)?;
            pe.quiet()?;
        }
        pe.run(grid(1, 32), kernels::wait_first(flag, Made::Nothing as u32))
    });
    assert_eq!(found, []);
}

#[test]
fn rejects_settings_that_hide_operations() {
    let mut config = setup(2).config().clone();
    config.set("peer_path", "nic").unwrap();
    let error = config.check().unwrap_err().to_string();
    assert!(error.contains("peer_path = p2p"), "{error}");
}

#[test]
fn report_is_written_as_json() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let setup = setup(2).with("sanitize_report", file.path().display());
    let result = setup.try_run(|pe| {
        let (dst, src) = (pe.alloc::<u64>(8)?, pe.alloc::<u64>(8)?);
        pe.run(grid(1, 32), kernels::reuse_source(dst, src, Made::Nothing as u32))
    });
    assert!(matches!(result, Err(Error::Sanitizer(_))), "{result:?}");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
    let lines = json.as_array().unwrap().iter().map(|f| f["race"]["first"]["call"]["site"]["line"].as_u64());
    assert!(lines.flatten().any(|found| found == u64::from(line("reused put"))), "{json}");
}
