//! Starts the process of one PE, copies its output, signals it and reaps it.

use std::ffi::OsString;
use std::io::{self, IsTerminal, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rushmem_base::{THREAD_ADVICE, lock};

use super::event::Event;
use super::listeners::Group;
use super::output::{Printer, Source, Stream};
use super::plan::Plan;
use super::share::{NodeShare, launch_variables};
use super::spawn::{no_input, spawn};
use super::sys::{self, Exit};
use crate::error::Error;

/// Stack size of the threads that watch a PE, in bytes.
const STACK_BYTES: usize = 128 << 10;

/// How much of a failed PE's last line the launcher repeats, in bytes.
const MAX_LAST_LINE_BYTES: usize = 400;

/// How the launcher reaches the process of a PE.
pub(super) enum Process {
    /// A child with this PID.
    Local(u32),
    /// A process on another node, to which this function sends signals.
    Remote(Box<dyn Fn(i32)>),
}

/// The process of a PE, with its exit status and last line.
pub(super) struct Pe {
    pub(super) pe: u32,
    process: Process,
    /// Exit status of the PE, once its process has exited.
    pub(super) exit: Option<Exit>,
    last_line: Arc<Mutex<String>>,
    /// For each output stream, whether it is still open.
    open: [Arc<AtomicBool>; 2],
}

/// An output stream of a PE, on its way to the printer.
pub(super) struct Output {
    source: Source,
    /// Where to keep the last line, if this is standard error.
    last_line: Option<Arc<Mutex<String>>>,
    open: Arc<AtomicBool>,
    printer: Arc<Printer>,
    events: Sender<Event>,
}

impl Output {
    /// Prints the next bytes of the stream.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let printed = self.printer.take(&mut self.source, bytes, |line| keep(self.last_line.as_ref(), line));
        if printed.is_err() {
            // Sending fails only after the supervisor is gone.
            let _ = self.events.send(Event::OutputClosed);
        }
    }

    /// Prints the rest of the stream, which the PE has closed.
    pub(super) fn end(self) {
        let printed = self.printer.end(self.source, |line| keep(self.last_line.as_ref(), line));
        if printed.is_err() {
            // Sending fails only after the supervisor is gone.
            let _ = self.events.send(Event::OutputClosed);
        }
        self.open.store(false, Ordering::SeqCst);
    }

    /// Copies the stream from a pipe until the PE closes it.
    fn copy(mut self, from: PipeReader) -> Result<(), Error> {
        thread("rushmem-output", move || {
            read_output(from, |bytes| self.take(bytes));
            self.end();
        })
    }
}

/// Passes the output of a PE to `take` until the PE closes it.
pub(super) fn read_output(mut from: PipeReader, mut take: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => take(&buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return tracing::warn!(%error, "cannot read the output of a PE"),
        }
    }
}

/// Keeps the line of a PE that the launcher repeats if the PE fails.
fn keep(last: Option<&Arc<Mutex<String>>>, line: &[u8]) {
    let text = String::from_utf8_lossy(&line[..line.len().min(MAX_LAST_LINE_BYTES)]);
    if let Some(last) = last
        && !text.trim().is_empty()
    {
        *lock(last) = text.trim().into();
    }
}

/// Returns the command of PE `local` of a node, without the settings of the job. `gpus` is the number of GPUs that the node's PEs
/// use, if not all.
pub(super) fn command(
    program: &Path,
    args: &[OsString],
    share: &NodeShare,
    local: u32,
    gpus: Option<u32>,
    server: &str,
) -> Command {
    let mut command = Command::new(program);
    // CUDA reads these variables only once, so set them before the PE starts.
    let missing = |(name, _): &(&str, String)| std::env::var_os(name).is_none();
    command.envs(rushmem::cuda::environment(share.count, gpus).into_iter().filter(missing));
    // Remove the variables of an outer launcher, which do not describe this job.
    for name in launch_variables() {
        command.env_remove(name);
    }
    command.args(args).envs(share.variables_of(local, server));
    command
}

impl Pe {
    /// Creates the PE of a process, and its standard output and error.
    pub(super) fn new(
        pe: u32,
        process: Process,
        printer: &Arc<Printer>,
        events: &Sender<Event>,
    ) -> (Pe, [Output; 2]) {
        let last_line: Arc<Mutex<String>> = Arc::default();
        let open = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
        let output = |stream, open: &Arc<AtomicBool>| Output {
            source: printer.source(pe, stream),
            last_line: (stream == Stream::Err).then(|| last_line.clone()),
            open: open.clone(),
            printer: printer.clone(),
            events: events.clone(),
        };
        let outputs = [output(Stream::Out, &open[0]), output(Stream::Err, &open[1])];
        (Pe { pe, process, exit: None, last_line, open }, outputs)
    }

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
        let pe = share.first + local;
        let mut command = command(&plan.program, &plan.args, share, local, plan.gpus, server);
        command.envs(&plan.variables).envs(plan.progress(pe, printer));
        let cannot = |error| Error::Environment(format!("cannot start {}: {error}", plan.program.display()));
        let process = if pe == 0 && !io::stdin().is_terminal() {
            spawn(&command, &io::stdin(), open_files)
        } else {
            no_input().and_then(|input| spawn(&command, &input, open_files))
        };
        let process = process.map_err(cannot)?;

        let (started, [out, err]) = Pe::new(pe, Process::Local(process.pid), printer, events);
        out.copy(process.out)?;
        err.copy(process.err)?;
        let (pid, events) = (process.pid, events.clone());
        thread("rushmem-wait", move || {
            // Sending fails only after the supervisor is gone.
            let _ = events.send(Event::Exited(pe, sys::wait_for_exit(pid)));
        })?;
        Ok(started)
    }

    /// Returns the process group of the PE, if it is on this node.
    pub(super) fn group(&self) -> Option<Group> {
        match self.process {
            Process::Local(pid) => Some(Group(pid)),
            Process::Remote(_) => None,
        }
    }

    /// Sends a signal to the process group of the PE, unless the PE has exited.
    pub(super) fn signal(&self, signal: i32) {
        match &self.process {
            Process::Local(pid) => sys::signal_group(*pid, signal),
            Process::Remote(send) => send(signal),
        }
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
        lock(&self.last_line).clone()
    }

    /// Kills remaining processes of the group, and reaps the PE, which must have exited or been killed. Those of another
    /// node are left to its agent.
    pub(super) fn reap(&self) {
        if let Process::Local(pid) = self.process {
            sys::kill_and_reap(pid);
        }
    }
}

pub(super) fn thread(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
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
