//! Starts the process of one PE, copies its output, signals it and reaps it.

use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rushmem_base::THREAD_ADVICE;

use super::event::Event;
use super::listeners::Group;
use super::output::{Printer, Stream};
use super::plan::{NodeShare, Plan, launch_variables};
use super::spawn::spawn;
use super::sys::{self, Exit};
use crate::error::Error;

/// Stack size of the threads that watch a PE, in bytes.
const STACK_BYTES: usize = 128 << 10;

/// How much of a failed PE's last line the launcher repeats, in bytes.
const MAX_LAST_LINE_BYTES: usize = 400;

/// The process of a PE, with its exit status and last line.
pub(super) struct Pe {
    pub(super) pe: u32,
    pid: u32,
    /// Exit status of the PE, once its process has exited.
    pub(super) exit: Option<Exit>,
    last_line: Arc<Mutex<String>>,
    /// For each output stream, whether it is still open.
    open: Vec<Arc<AtomicBool>>,
}

impl Pe {
    /// Starts PE `local` of this node, with `open_files` as its limits of open files. Call this on the main thread
    /// only.
    pub(super) fn start(
        plan: &Plan,
        share: &NodeShare,
        local: u32,
        server: &str,
        printer: &Arc<Printer>,
        events: &Sender<Event>,
        open_files: libc::rlimit,
    ) -> Result<Pe, Error> {
        let mut command = Command::new(&plan.program);
        // CUDA reads these variables only once, so set them before the PE starts.
        let missing = |(name, _): &(&str, String)| std::env::var_os(name).is_none();
        command.envs(rushmem::cuda::environment(share.count).into_iter().filter(missing));
        // Remove the variables of an outer launcher, which do not describe this job.
        for name in launch_variables() {
            command.env_remove(name);
        }
        command.args(&plan.args).envs(&plan.variables).envs(share.variables_of(local, server));
        let pe = share.first + local;
        if pe == 0 && printer.shows_progress() && !plan.progress_is_set {
            command.env("RUSHMEM_PROGRESS", "always");
        }
        let reads = pe == 0 && !io::stdin().is_terminal();
        let cannot = |error| Error::Environment(format!("cannot start {}: {error}", plan.program.display()));
        let process = spawn(&command, reads, open_files).map_err(cannot)?;

        let mut pe = Pe { pe, pid: process.pid, exit: None, last_line: Arc::default(), open: Vec::new() };
        pe.copy(Stream::Out, process.out, printer, events)?;
        pe.copy(Stream::Err, process.err, printer, events)?;
        let (pid, events) = (pe.pid, events.clone());
        thread("rushmem-wait", move || {
            // Sending fails only after the supervisor is gone.
            let _ = events.send(Event::Exited(local, sys::wait_for_exit(pid)));
        })?;
        Ok(pe)
    }

    fn copy(
        &mut self,
        stream: Stream,
        from: impl io::Read + Send + 'static,
        printer: &Arc<Printer>,
        events: &Sender<Event>,
    ) -> Result<(), Error> {
        let open = Arc::new(AtomicBool::new(true));
        self.open.push(open.clone());
        let (pe, printer, events, last) = (self.pe, printer.clone(), events.clone(), self.last_line.clone());
        thread("rushmem-output", move || {
            let keep = |line: &[u8]| {
                let text = String::from_utf8_lossy(&line[..line.len().min(MAX_LAST_LINE_BYTES)]);
                if stream == Stream::Err && !text.trim().is_empty() {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = text.trim().into();
                }
            };
            // Sending fails only after the supervisor is gone.
            let closed = || drop(events.send(Event::OutputClosed));
            if let Err(error) = printer.copy(pe, stream, from, keep, closed) {
                tracing::warn!(%error, pe, "cannot read the output of a PE");
            }
            open.store(false, Ordering::SeqCst);
        })
    }

    /// Returns the process group of the PE.
    pub(super) fn group(&self) -> Group {
        Group(self.pid)
    }

    /// Sends a signal to the process group of the PE, unless the PE has exited.
    pub(super) fn signal(&self, signal: i32) {
        sys::signal_group(self.pid, signal);
    }

    /// Waits until all output of the PE has been read, or until `deadline`. Returns whether it has been read.
    pub(super) fn drain(&self, deadline: Instant) -> bool {
        while self.open.iter().any(|open| open.load(Ordering::SeqCst)) {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Waits until the PE's last line on standard error contains the last line of `text`, or until `deadline`. Returns
    /// whether it does.
    pub(super) fn prints(&self, text: &str, deadline: Instant) -> bool {
        let wanted: String =
            text.lines().last().unwrap_or_default().chars().take(MAX_LAST_LINE_BYTES / 4).collect();
        while !self.last_line().contains(&wanted) {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Returns the last line that the PE has written to standard error, or an empty string.
    pub(super) fn last_line(&self) -> String {
        self.last_line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills remaining processes of the group, and reaps the PE, which must have exited or been killed.
    pub(super) fn reap(&mut self) {
        self.signal(libc::SIGKILL);
        if let Err(error) = sys::reap(self.pid) {
            tracing::warn!(%error, pe = self.pe, "cannot reap a process");
        }
    }
}

fn thread(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(body);
    thread.map(drop).map_err(|error| {
        Error::Environment(format!("cannot start the thread `{name}`: {error}; {THREAD_ADVICE}"))
    })
}

/// Returns the command of a program that runs the PEs as threads.
pub(super) fn thread_command(plan: &Plan) -> Command {
    let mut command = Command::new(&plan.program);
    command.args(&plan.args).envs(&plan.variables);
    for name in launch_variables() {
        command.env_remove(name);
    }
    command
}

/// Replaces this process by the program, which runs the PEs as threads. Returns only if that fails.
pub(super) fn exec_program(plan: &Plan) -> Error {
    let mut command = thread_command(plan);
    Error::Environment(format!("cannot start {}: {}", plan.program.display(), command.exec()))
}
