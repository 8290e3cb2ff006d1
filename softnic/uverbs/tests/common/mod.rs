//! Support code of the test suites: runs programs through the launcher, and skips tests whose programs are missing.
#![allow(dead_code, reason = "each suite uses some of it")]

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Timeout that suffices on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Reports a test as skipped for a missing dependency, or fails where none may be missing.
pub(crate) fn skip(test: &str, missing: &str) {
    assert!(
        std::env::var_os("CI_REQUIRE_ALL").is_none(),
        "{test} cannot run, and CI_REQUIRE_ALL is set: {missing} missing"
    );
    eprintln!("SKIPPED {test}: {missing} missing");
}

/// Whether a program is on the search path.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether all programs that a test needs are installed. If not, reports the test as skipped.
pub(crate) fn all_there(test: &str, programs: &[&str], package: &str) -> bool {
    let missing: Vec<_> = programs.iter().filter(|program| !has(program)).collect();
    if !missing.is_empty() {
        skip(test, &format!("{missing:?} of the package {package}"));
    }
    missing.is_empty()
}

/// Returns the directory where cargo has put the launcher and the library.
pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        // The test is in its subdirectory `deps`.
        let folder = own.parent().and_then(Path::parent).unwrap().to_owned();
        if let Some(cargo) = std::env::var_os("CARGO") {
            let release = folder.file_name().is_some_and(|name| name == "release");
            let profile = if release { "release" } else { "dev" };
            let mut build = Command::new(cargo);
            // Selects all packages and a test, for the same features of dependencies as in `cargo test --workspace`.
            // This avoids a rebuild afterwards.
            build.args(["build", "-q", "--workspace", "--test", "info", "--profile", profile]);
            build.args(["--bin", "rushmem", "--bin", "rushmem-preload"]);
            let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
            assert!(status.success(), "the launcher and the library cannot be built");
        }
        for file in ["rushmem", "rushmem-preload"] {
            assert!(folder.join(file).is_file(), "{file} is not built");
        }
        folder
    })
}

/// Returns the command `rushmem softnic OPTIONS -- PROGRAM`, without the user's settings.
pub(crate) fn softnic(options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(built().join("rushmem"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RUSHMEM_") {
            command.env_remove(name);
        }
    }
    command.arg("softnic").args(options).arg("--").args(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns a program's output on both streams.
pub(crate) fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A running program, killed on drop.
pub(crate) struct Running {
    child: Child,
    name: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let name = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        Running { child, name }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the program and waits for it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until `ready`, within [`TIMEOUT`] and before the program exits.
    pub(crate) fn wait_until(mut self, ready: impl Fn() -> bool) -> Running {
        let begin = Instant::now();
        while !ready() {
            assert!(begin.elapsed() < TIMEOUT, "{} is not ready", self.name);
            if self.child.try_wait().unwrap().is_some() {
                let name = self.name.clone();
                let output = self.end();
                panic!("{name} ended early: {}\n{}", output.status, output_text(&output));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self
    }

    /// Waits for the program to exit, within [`TIMEOUT`].
    pub(crate) fn end(mut self) -> Output {
        let drain = |pipe: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut pipe) = pipe {
                    pipe.read_to_end(&mut bytes).unwrap();
                }
                bytes
            })
        };
        let stdout = drain(self.child.stdout.take().map(|pipe| Box::new(pipe) as _));
        let stderr = drain(self.child.stderr.take().map(|pipe| Box::new(pipe) as _));
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > TIMEOUT {
                self.child.kill().unwrap();
                let stdout = String::from_utf8_lossy(&stdout.join().unwrap()).into_owned();
                panic!("{} did not end:\n{stdout}", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Whether a process listens on a local TCP port. Reads the system's table, because connecting would disturb the
/// listener.
pub(crate) fn is_listening(port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            // 0A: LISTEN.
            words.next().is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some("0A")
        })
    })
}

/// Runs a tool that takes `-p PORT [SERVER]` as server and as client. Returns the output of both.
pub(crate) fn pair(options: &[&str], tool: &[&str]) -> [Output; 2] {
    let port = free_port();
    let number = port.to_string();
    let server = [tool, &["-p", &number]].concat();
    let client = [&server[..], &["127.0.0.1"]].concat();
    let server = Running::start(softnic(options, &server)).wait_until(|| is_listening(port));
    let client = Running::start(softnic(options, &client)).end();
    [server.end(), client]
}

/// Like [`pair`], but asserts that both processes succeed.
pub(crate) fn good_pair(options: &[&str], tool: &[&str]) -> [Output; 2] {
    let outputs = pair(options, tool);
    for (output, side) in outputs.iter().zip(["server", "client"]) {
        assert!(output.status.success(), "{side} of {tool:?}: {}\n{}", output.status, output_text(output));
    }
    outputs
}
