//! Finds and runs the launcher `rushmem`, for tests that run PEs as processes.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the path of the launcher `rushmem` next to `program`, or `None` if it has not been built.
///
/// Under cargo, builds the launcher and the library that it preloads first.
///
/// # Panics
/// If the build fails.
pub fn launcher(program: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<()> = OnceLock::new();
    let path = Path::new(program).with_file_name("rushmem");
    BUILT.get_or_init(|| {
        if let Some(cargo) = std::env::var_os("CARGO") {
            let profile = match Path::new(program).parent().and_then(Path::file_name) {
                Some(folder) if folder == "release" => "release",
                _ => "dev",
            };
            let mut build = Command::new(cargo);
            // Build all packages and one test. Dependencies then get the same features as in `cargo test --workspace`,
            // and nothing is built twice.
            build.args(["build", "-q", "--workspace", "--test", "info"]);
            build.args(["--bin", "rushmem", "--bin", "rushmem-preload", "--bin", "survive"]);
            let built = build.args(["--profile", profile]).current_dir(env!("CARGO_MANIFEST_DIR")).status();
            assert!(built.is_ok_and(|status| status.success()), "the launcher cannot be built");
        }
    });
    path.exists().then_some(path)
}

/// Returns a command that runs `program` with native kernels and ignores the user's settings.
pub fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RUSHMEM_") {
            command.env_remove(name);
        }
    }
    command.env("RUSHMEM_DEVICE", "native").env("RUSHMEM_HEAP_BYTES", "2MiB");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Converts a program's output to text, replacing invalid UTF-8.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the text of a program's standard output and standard error.
pub fn all(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// Returns the lines of a program's output, sorted.
pub fn sorted(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Returns the sorted output of `suite_pe ring` with `n` PEs. `label` returns the prefix of each PE's lines.
pub fn ring_lines(n: u32, label: impl Fn(u32) -> String) -> Vec<String> {
    let mut lines: Vec<String> = (0..n)
        .flat_map(|pe| {
            let (label, before) = (label(pe), (pe + n - 1) % n);
            [
                format!("{label}PE {pe} of {n} has all that PE {before} sent"),
                format!("{label}PE {pe} has all that all sent"),
            ]
        })
        .collect();
    lines.sort();
    lines
}

/// A job whose PEs have all said that they are ready.
pub struct Waiting {
    /// The process of the launcher `rushmem`.
    pub launcher: Child,
    /// Process IDs of the PEs.
    pub pids: Vec<String>,
    /// Lines that the job has printed before all its PEs were ready.
    pub told: Vec<String>,
    /// Standard output of the launcher that has not been read yet.
    pub out: BufReader<ChildStdout>,
}

impl Waiting {
    /// Starts the job by the launcher's `command` and waits until its `n` PEs are ready.
    ///
    /// # Panics
    /// If the job exits before that.
    pub fn start(command: Command, n: usize) -> Waiting {
        Self::start_with_vacant(command, n, 0)
    }

    /// Starts a job with `vacant` more PEs, for which it does not wait.
    ///
    /// # Panics
    /// If the job exits before that.
    pub fn start_with_vacant(mut command: Command, n: usize, vacant: usize) -> Waiting {
        let mut launcher = command.spawn().unwrap();
        let out = BufReader::new(launcher.stdout.take().unwrap());
        let mut pids = vec![String::new(); n];
        pids.resize(n + vacant, "vacant".into());
        let mut job = Waiting { launcher, pids, told: Vec::new(), out };
        assert!(job.wait_for_ready(), "the job ended before all PEs were ready");
        job
    }

    /// Waits until other processes of these PEs, whose processes have been killed, are ready. Returns `false` if the job exits
    /// before that.
    pub fn wait_for_restart(&mut self, pes: &[usize]) -> bool {
        for &pe in pes {
            self.pids[pe].clear();
        }
        self.wait_for_ready()
    }

    fn wait_for_ready(&mut self) -> bool {
        let mut line = String::new();
        while self.pids.iter().any(String::is_empty) {
            line.clear();
            if self.out.read_line(&mut line).unwrap() == 0 {
                return false;
            }
            if let [_, "ready", pe, pid] = line.split_whitespace().collect::<Vec<_>>()[..] {
                self.pids[pe.parse::<usize>().unwrap()] = pid.into();
            } else {
                self.told.push(line.trim_end().to_owned());
            }
        }
        true
    }

    /// Waits for the launcher to exit. Returns its output and the elapsed time.
    ///
    /// # Panics
    /// If the output cannot be read.
    pub fn end(mut self) -> (Output, Duration) {
        let begin = Instant::now();
        let mut rest = Vec::new();
        self.out.read_to_end(&mut rest).unwrap();
        let mut output = self.launcher.wait_with_output().unwrap();
        output.stdout = rest;
        (output, begin.elapsed())
    }
}
