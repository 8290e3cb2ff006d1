//! Tests of every way to start a job except the Rushmem launcher: manually with an ID, through files, by other
//! launchers, in MPI. Also tests job termination, and the logs of processes.

mod endless;

use std::io::BufRead;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rushmem::bootstrap::UniqueId;
use rushmem_tests::launch::{self, all, clean, launcher, sorted, text};
use rushmem_tests::skip;
use rushmem_tests::slurm::Slurm;

const PE: &str = env!("CARGO_BIN_EXE_suite_pe");
const MPI: &str = env!("CARGO_BIN_EXE_suite_mpi");

/// Time limit for a prompt reaction, which even a busy machine meets. It is shorter than any deadline that these tests
/// set.
const PROMPT_LIMIT: Duration = Duration::from_secs(40);

fn ring_lines(n: u32) -> Vec<String> {
    launch::ring_lines(n, |_| String::new())
}

/// Returns the command of a PE that is started manually, with the arguments `what`.
fn pe(what: &[&str]) -> Command {
    let mut command = clean(Path::new(PE));
    command.args(what);
    command
}

/// Runs `commands` concurrently and returns their outputs in order.
fn together(commands: impl IntoIterator<Item = Command>) -> Vec<Output> {
    let started: Vec<Child> = commands.into_iter().map(|mut command| command.spawn().unwrap()).collect();
    started.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn assert_ring(outputs: &[Output]) {
    let told: String = outputs.iter().map(all).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{told}");
    let lines: Vec<u8> = outputs.iter().flat_map(|output| output.stdout.clone()).collect();
    assert_eq!(sorted(&lines), ring_lines(outputs.len() as u32), "{told}");
}

#[test]
fn forked_child_that_returns_does_not_disturb_the_job() {
    let test = "forked_child_that_returns_does_not_disturb_the_job";
    let Some(launcher) = launcher(PE) else {
        return skip(test, "the launcher is not built: cargo build -p rushmem-cli");
    };
    let output = clean(&launcher).args(["run", "-n", "2", PE, "forks"]).output().unwrap();
    let told = all(&output);
    assert!(output.status.success(), "{told}");
    let wanted =
        ["[0] PE 0 of 2 has waited: true, status 0x100", "[1] PE 1 of 2 has waited: true, status 0x100"];
    assert_eq!(sorted(&output.stdout), wanted, "{told}");
    assert!(told.contains("a forked child reached the end of the application"), "{told}");
}

/// Creates a job ID for this machine with `rushmem id`.
fn id(test: &str) -> Option<String> {
    let Some(launcher) = launcher(PE) else {
        skip(test, "the launcher is not built: cargo build -p rushmem-cli");
        return None;
    };
    let output = clean(&launcher).arg("id").output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    Some(text(&output.stdout).trim().to_owned())
}

/// Returns the command of PE `i` of `n`, with the ID in its environment.
fn with_id(id: &str, i: u32, n: u32, what: &[&str]) -> Command {
    let mut command = pe(what);
    command.env("RUSHMEM_ID", id).env("RUSHMEM_PE", i.to_string()).env("RUSHMEM_N_PES", n.to_string());
    command
}

#[test]
fn processes_join_by_id_and_jobs_stay_separate() {
    let test = "processes_join_by_id_and_jobs_stay_separate";
    let (Some(one), Some(other)) = (id(test), id(test)) else { return };
    std::thread::scope(|scope| {
        // Start the joining PEs before PE 0, which listens.
        let job = |id: String, n: u32| together((0..n).rev().map(|i| with_id(&id, i, n, &["ring"])));
        let first = scope.spawn(move || job(one, 3));
        assert_ring(&job(other, 2));
        assert_ring(&first.join().unwrap());
    });
}

#[test]
fn startup_timeout_names_the_missing_process() {
    let Some(id) = id("startup_timeout_names_the_missing_process") else { return };
    let begin = Instant::now();
    let late = [0, 2].map(|i| {
        let mut command = with_id(&id, i, 3, &["ring"]);
        command.env("RUSHMEM_BOOTSTRAP_TIMEOUT", "1s");
        command
    });
    for output in together(late) {
        assert_eq!(output.status.code(), Some(1), "{}", all(&output));
        assert!(
            text(&output.stderr).contains("PE 1 of 3 did not arrive at joining the job"),
            "{}",
            all(&output)
        );
    }
    assert!(begin.elapsed() < PROMPT_LIMIT);
}

#[test]
fn rejects_a_process_with_another_secret() {
    let Some(text_of_id) = id("rejects_a_process_with_another_secret") else { return };
    let addr = UniqueId::from_hex(&text_of_id).unwrap().addr();
    let forged = UniqueId::at(addr).unwrap().to_hex();
    let mut server = with_id(&text_of_id, 0, 2, &["ring"]).spawn().unwrap();
    let mut stranger = with_id(&forged, 1, 2, &["ring"]);
    let output = stranger.env("RUSHMEM_BOOTSTRAP_TIMEOUT", "10s").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("its token is not this job's"), "{}", all(&output));
    // The job must still accept its own PE.
    let joined = with_id(&text_of_id, 1, 2, &["ring"]).output().unwrap();
    assert!(joined.status.success(), "{}", all(&joined));
    assert!(server.wait().unwrap().success());
}

#[test]
fn file_bootstrap_starts_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let numbers = ["0", "1", "2"];
    assert_ring(&together(numbers.map(|i| pe(&["files", path, i, "3"]))));
}

#[test]
fn uses_the_configured_interface_and_rejects_a_wrong_one() {
    let with = |interface: &str, family: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        together(["0", "1"].map(|i| {
            let mut command = pe(&["files", path, i, "2"]);
            command.env("RUSHMEM_BOOTSTRAP_INTERFACE", interface);
            command.env("RUSHMEM_BOOTSTRAP_FAMILY", family).env("RUSHMEM_LOG", "rushmem_bootstrap=info");
            command
        }))
    };
    let outputs = with("lo", "ipv4");
    assert_ring(&outputs);
    assert!(text(&outputs[0].stderr).contains("listens at 127.0.0.1:"), "{}", all(&outputs[0]));
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let outputs = with("::1", "ipv6");
        assert_ring(&outputs);
        assert!(text(&outputs[0].stderr).contains("listens at [::1]:"), "{}", all(&outputs[0]));
    } else {
        skip("uses_the_configured_interface_and_rejects_a_wrong_one", "IPv6 is not available");
    }
    let outputs = with("nowhere0", "auto");
    let told = text(&outputs[0].stderr);
    assert!(told.contains("there is no `nowhere0`; there are") && told.contains("lo (127.0.0.1)"), "{told}");
    assert!(text(&outputs[1].stderr).contains("PE 0 could not create an id"), "{}", all(&outputs[1]));
}

/// Returns a command that runs `program` by the MPI launcher `name` with `args`, or `None` if the launcher is not
/// installed.
fn mpi_launcher(test: &str, name: &str, package: &str, args: &[&str], program: &str) -> Option<Command> {
    if Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        skip(test, &format!("{name} is not installed (Debian: {package})"));
        return None;
    }
    let mut command = clean(Path::new(name));
    // Open MPI requires this for root.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(args).arg(program);
    Some(command)
}

fn hydra(test: &str, n: &str, program: &str) -> Option<Command> {
    mpi_launcher(test, "mpiexec.hydra", "mpich", &["-n", n], program)
}

fn open_mpi(test: &str, n: &str, program: &str) -> Option<Command> {
    mpi_launcher(test, "mpirun.openmpi", "openmpi-bin", &["--oversubscribe", "-n", n], program)
}

/// Runs the ring under a launcher. The processes must recognise the launcher, as the reason `why` in their log shows.
fn rings(command: Option<Command>, n: u32, why: &str) {
    let Some(mut command) = command else { return };
    let output = command.arg("ring").env("RUSHMEM_LOG", "rushmem_bootstrap=info").output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(sorted(&output.stdout), ring_lines(n), "{}", all(&output));
    assert!(text(&output.stderr).contains(why), "{}", all(&output));
}

#[test]
fn pmi_1_launcher_starts_a_job() {
    let test = "pmi_1_launcher_starts_a_job";
    rings(hydra(test, "3", PE), 3, "PMI_FD is set: a launcher speaks PMI-1");
}

#[test]
fn pmi_2_launcher_starts_a_job() {
    let command = hydra("pmi_2_launcher_starts_a_job", "3", PE).map(|mut command| {
        command.env("RUSHMEM_BOOTSTRAP", "pmi2");
        command
    });
    rings(command, 3, "RUSHMEM_BOOTSTRAP=pmi2");
}

#[test]
fn pmix_launcher_starts_a_job() {
    let test = "pmix_launcher_starts_a_job";
    rings(open_mpi(test, "3", PE), 3, "PMIX_RANK is set: a launcher speaks PMIx");
}

#[test]
fn slurm_starts_and_terminates_a_job() {
    let test = "slurm_starts_and_terminates_a_job";
    let slurm = match Slurm::start(port) {
        Ok(slurm) => slurm,
        Err(reason) => {
            return skip(test, &format!("Slurm (Debian: slurmctld, slurmd, slurm-client): {reason}"));
        }
    };
    let srun = |mpi: &str| {
        let mut command = slurm.command("srun");
        command.args(["--overcommit", "-n", "3", mpi, PE]);
        command
    };
    rings(Some(srun("--mpi=pmi2")), 3, "PMI_FD is set: a launcher speaks PMI-2");
    ends(Some(srun("--mpi=pmi2")), "global_exit");
    let output = srun("--mpi=none").arg("ring").output().unwrap();
    assert!(!output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(told.contains("srun offers its 3 processes no way to exchange addresses"), "{told}");
    let Some(rushmem) = launcher(PE) else {
        return skip(test, "the launcher is not built: cargo build -p rushmem-cli");
    };
    let mut doctor = slurm.command("srun");
    doctor.args(["--overcommit", "-n", "3", "--mpi=none"]).arg(rushmem).args(["doctor", "--no-probe"]);
    let output = doctor.output().unwrap();
    assert_eq!(text(&output.stdout).matches("doctor\n").count(), 1, "{}", all(&output));
}

#[test]
fn bootstrap_setting_makes_each_process_a_separate_job() {
    let test = "bootstrap_setting_makes_each_process_a_separate_job";
    let Some(mut command) = hydra(test, "2", PE) else { return };
    let output = command.arg("ring").env("RUSHMEM_BOOTSTRAP", "threads").output().unwrap();
    let lines = [ring_lines(1), ring_lines(1)].concat();
    let mut wanted = lines;
    wanted.sort();
    assert_eq!(sorted(&output.stdout), wanted, "{}", all(&output));
}

/// Returns the command of PE `i` of `n`, with the environment that torchrun sets.
fn torch(i: u32, n: u32, port: u16, what: &[&str]) -> Command {
    let mut command = pe(what);
    for name in ["RANK", "LOCAL_RANK"] {
        command.env(name, i.to_string());
    }
    for name in ["WORLD_SIZE", "LOCAL_WORLD_SIZE"] {
        command.env(name, n.to_string());
    }
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.env("TORCHELASTIC_RUN_ID", std::process::id().to_string());
    command
}

fn port() -> u16 {
    rushmem_base::free_port(std::net::Ipv4Addr::LOCALHOST.into()).unwrap().port()
}

#[test]
fn torchrun_variables_start_a_job() {
    let (port, other) = (port(), port());
    std::thread::scope(|scope| {
        let second = scope.spawn(move || together((0..2).map(|i| torch(i, 2, other, &["ring"]))));
        assert_ring(&together((0..3).map(|i| torch(i, 3, port, &["ring"]))));
        assert_ring(&second.join().unwrap());
    });
}

#[test]
fn torchrun_on_several_nodes_needs_a_secret() {
    let port = port();
    let nodes = |token: Option<&str>| {
        let started = (0..2u32).map(|i| {
            let mut command = torch(i, 2, port, &["ring"]);
            command.env("LOCAL_RANK", "0").env("LOCAL_WORLD_SIZE", "1");
            command.env("RUSHMEM_TOKEN", token.unwrap_or_default());
            if token.is_none() {
                command.env_remove("RUSHMEM_TOKEN");
            }
            command
        });
        together(started)
    };
    for output in nodes(None) {
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("export the same RUSHMEM_TOKEN"), "{}", all(&output));
    }
    assert_ring(&nodes(Some(&"5a".repeat(32))));
}

#[test]
fn rejects_incomplete_torchrun_variables() {
    let output = torch(0, 1, 1, &["ring"]).env_remove("MASTER_PORT").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("RANK is set, but MASTER_PORT is not"), "{}", all(&output));
}

#[test]
fn pe_numbers_follow_mpi_ranks() {
    let test = "pe_numbers_follow_mpi_ranks";
    let Some(mut command) = hydra(test, "4", MPI) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let wanted = [
        "rank 0 of 4 is PE 1 of 2; ranks [2, 0]",
        "rank 1 of 4 is PE 1 of 2; ranks [3, 1]",
        "rank 2 of 4 is PE 0 of 2; ranks [2, 0]",
        "rank 3 of 4 is PE 0 of 2; ranks [3, 1]",
    ];
    assert_eq!(sorted(&output.stdout), wanted, "{}", all(&output));
}

/// Calls `global_exit` with code 7 on PE 1 while all others wait, and checks that the whole job terminates.
fn ends(command: Option<Command>, what: &str) {
    let Some(mut command) = command else { return };
    let begin = Instant::now();
    let output = command.args([what, "1"]).env("RUSHMEM_TIMEOUT", "120s").output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{what}: {}", all(&output));
    assert!(begin.elapsed() < PROMPT_LIMIT, "{what}: {:?}", begin.elapsed());
    for line in text(&output.stdout).lines().filter(|line| line.contains("ready")) {
        let pid = line.rsplit(' ').next().unwrap_or_default();
        while lives(pid) {
            assert!(begin.elapsed() < PROMPT_LIMIT, "{what}: process {pid} is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Whether a process exists and is not a zombie.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim().starts_with('Z'))
}

#[test]
fn global_exit_terminates_the_job_with_its_code() {
    let test = "global_exit_terminates_the_job_with_its_code";
    for what in ["global_exit", "kernel_exit"] {
        let ours = launcher(PE).map(|launcher| {
            let mut command = clean(&launcher);
            command.args(["run", "-n", "3", PE]);
            command
        });
        if ours.is_none() {
            skip(test, "the launcher is not built: cargo build -p rushmem-cli");
        }
        ends(ours, what);
        ends(hydra(test, "3", PE), what);
        ends(open_mpi(test, "3", PE), what);
        let mut threads = pe(&[]);
        threads.env("RUSHMEM_PES", "3");
        ends(Some(threads), what);
    }
}

#[test]
fn launcher_names_the_pe_that_called_global_exit() {
    let Some(launcher) = launcher(PE) else {
        return skip("launcher_names_the_pe_that_called_global_exit", "the launcher is not built");
    };
    let output = clean(&launcher).args(["run", "-n", "3", PE, "global_exit", "2"]).output().unwrap();
    assert!(text(&output.stderr).contains("rushmem: PE 2 ended the job with code 7"), "{}", all(&output));
}

/// Parses the numbers of threads, open files and KiB of memory in a line that the action `again` prints.
fn held(line: &str) -> [u64; 3] {
    let numbers: Vec<u64> =
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let [.., threads, files, kib] = numbers[..] else { panic!("{line}") };
    [threads, files, kib]
}

/// Asserts that the processes of repeated jobs hold no more resources after the last job than after the tenth.
fn leaves_nothing(command: Option<Command>, jobs: &str) {
    let Some(mut command) = command else { return };
    // Prevents the allocator from caching memory, which would distort the measurement.
    command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_MMAP_THRESHOLD_", "65536");
    let output = command.args(["again", jobs]).output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let told = text(&output.stdout);
    let of = |when: &str| -> Vec<[u64; 3]> {
        told.lines().filter(|line| line.contains(&format!("after {when}:"))).map(held).collect()
    };
    let (early, late) = (of("10"), of(jobs));
    let sum = |held: &[[u64; 3]], i: usize| held.iter().map(|held| held[i]).sum::<u64>();
    assert!(!early.is_empty() && early.len() == late.len(), "{told}");
    assert!(sum(&late, 0) <= sum(&early, 0) && sum(&late, 1) <= sum(&early, 1), "{told}");
    // The heap of a single PE is already 2 MiB.
    assert!(sum(&late, 2) < sum(&early, 2) + 4096, "{told}");
}

/// Launchers such as mpiexec.hydra wait forever for a process that a signal has stopped.
#[test]
#[ignore = "slow: runs with --ignored"]
fn stopped_process_is_killed_after_the_job_fails() {
    let Some(id) = id("stopped_process_is_killed_after_the_job_fails") else { return };
    let start = |i| with_id(&id, i, 2, &["wait"]).env("RUSHMEM_TIMEOUT", "1s").spawn().unwrap();
    let [first, mut second] = [start(0), start(1)];
    let mut line = String::new();
    std::io::BufReader::new(second.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready 1 "), "{line}");
    assert!(Command::new("kill").args(["-STOP", &second.id().to_string()]).status().unwrap().success());
    let output = first.wait_with_output().unwrap();
    let told = text(&output.stderr);
    let begin = Instant::now();
    while second.try_wait().unwrap().is_none() && begin.elapsed() < PROMPT_LIMIT {
        std::thread::sleep(Duration::from_millis(10));
    }
    let is_left = second.try_wait().unwrap().is_none();
    second.kill().unwrap();
    assert!(!is_left, "{told}");
    assert_eq!(second.wait().unwrap().signal(), Some(9), "{told}");
    assert!(told.contains("PE 1, process ") && told.contains("is stopped by a signal"), "{told}");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn hundred_jobs_of_threads_leak_nothing() {
    let mut threads = pe(&[]);
    threads.env("RUSHMEM_PES", "2");
    leaves_nothing(Some(threads), "100");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn repeated_jobs_of_processes_leak_nothing() {
    let test = "repeated_jobs_of_processes_leak_nothing";
    let ours = launcher(PE).map(|launcher| {
        let mut command = clean(&launcher);
        command.args(["run", "-n", "2", "--no-label", PE]);
        command
    });
    leaves_nothing(ours, "30");
    leaves_nothing(hydra(test, "2", PE), "30");
}

#[test]
fn logs_are_filtered_by_target_and_written_to_files() {
    let folder = tempfile::tempdir().unwrap();
    let pattern = folder.path().join("%h-%p.log");
    let mut command = pe(&["ring"]);
    command.env("RUSHMEM_LOG", "rushmem_bootstrap=info").env("RUSHMEM_LOG_FILE", &pattern);
    let child = command.spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", all(&output));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let log = std::fs::read_to_string(folder.path().join(format!("{}-{pid}.log", host.trim()))).unwrap();
    assert!(log.contains("PEs are threads of this process"), "{log}");
    assert!(log.lines().all(|line| line.contains("rushmem_bootstrap")), "{log}");

    let output = pe(&["ring"]).env("RUSHMEM_LOG", "info").output().unwrap();
    let told = text(&output.stderr);
    assert!(told.contains("rushmem_bootstrap") && told.contains("rushmem::pe"), "{told}");
    for (name, value, why) in [
        ("RUSHMEM_LOG", "=,=", "not a log filter"),
        ("RUSHMEM_LOG_FILE", "/tmp/%x", "%x is not defined"),
        ("RUSHMEM_LOG_FILE", "/no/such/folder/log", "No such file"),
    ] {
        let output = pe(&["ring"]).env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        assert!(told.contains(name) && told.contains(why), "{told}");
    }
}

/// Returns how much memory, in KiB, a process holds after `pes` PEs as threads with small heaps did `what`.
fn kib_of_threads(pes: u64, what: &str) -> u64 {
    let mut command = pe(&[what]);
    command.env("RUSHMEM_PES", pes.to_string()).env("RUSHMEM_HEAP_BYTES", "1MiB");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let [_, _, kib] = held(text(&output.stdout).trim());
    kib
}

#[test]
fn starts_256_pes_as_threads_within_16_mib_each() {
    assert!(kib_of_threads(256, "up") < 256 * 16 * 1024);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn connection_takes_less_than_64_kib() {
    let (up, full) = (kib_of_threads(64, "up"), kib_of_threads(64, "full"));
    assert!(full - up < 64 * 64 * 64, "{up} KiB, with all connections {full} KiB");
}

/// Runs the PE program as `n` processes, which must print no errors. Returns their output lines in order.
fn processes(test: &str, n: &str, what: &str) -> Option<Vec<String>> {
    let Some(launcher) = launcher(PE) else {
        skip(test, "the launcher is not built: cargo build -p rushmem-cli");
        return None;
    };
    let output = clean(&launcher).args(["run", "-n", n, "--no-label", PE, what]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", all(&output));
    Some(sorted(&output.stdout))
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn starts_256_pes_as_processes() {
    processes("starts_256_pes_as_processes", "256", "up");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn all_to_all_between_64_processes() {
    if let Some(lines) = processes("all_to_all_between_64_processes", "64", "ring") {
        assert_eq!(lines, ring_lines(64));
    }
}

#[test]
fn kernel_probes_queues_in_gpu_memory() {
    let mut command = pe(&["ring"]);
    command.env("RUSHMEM_PES", "2").env("RUSHMEM_QUEUES", "prefer_device").env("RUSHMEM_PEER_PATH", "nic");
    let output = command.env("RUSHMEM_LOG", "info").output().unwrap();
    let told = text(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(told.matches("a kernel posts and sees completions").count(), 2, "{told}");
    assert!(told.contains("queues in GPU memory, doorbells by kernels"), "{told}");
}

#[test]
fn startup_connection_failures_are_reported_once() {
    let mut command = pe(&["up"]);
    command.env("RUSHMEM_PES", "16").env("RUSHMEM_CONNECT", "eager").env("RUSHMEM_QUEUE_MEMORY", "512KiB");
    // Without an explicit depth, the runtime would make the queues fit.
    command.env("RUSHMEM_SQ_DEPTH", "1024");
    let output = command.output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("raise RUSHMEM_QUEUE_MEMORY"), "{told}");
    assert!(told.lines().count() <= 2, "{told}");
}

#[test]
fn memory_check_covers_all_pes_of_a_process_once() {
    let output =
        pe(&["up"]).env("RUSHMEM_PES", "2").env("RUSHMEM_LOG", "rushmem::job=debug").output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(told.matches("heap, queues and teams").count(), 1, "{told}");
}

#[test]
fn failure_of_64_pes_is_reported_once() {
    let output = pe(&["nothing"]).env("RUSHMEM_PES", "64").output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("no such thing"), "{told}");
    assert!(told.lines().count() <= 2, "{told}");
}
