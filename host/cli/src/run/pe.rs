//! One PE's process.

use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::job::Event;
use super::output::{Printer, Stream};
use super::plan::{Plan, Share, launch_variables};
use super::sys::{self, Exit};
use crate::error::Error;

/// Stack of the threads that watch a PE, which do little.
const STACK: usize = 128 << 10;

/// Bytes of a PE's last line that are repeated when it dies.
const LAST_LINE: usize = 400;

/// A PE's process, and what is known of it.
pub(super) struct Pe {
    pub(super) pe: u32,
    child: Child,
    /// How it ended, once it has.
    pub(super) exit: Option<Exit>,
    last_line: Arc<Mutex<String>>,
    /// Streams that are still open.
    open: Vec<Arc<AtomicBool>>,
}

impl Pe {
    /// Starts the PE with number `local` on this node. Must be called from the main thread.
    pub(super) fn start(
        plan: &Plan,
        share: &Share,
        local: u32,
        server: &str,
        printer: &Arc<Printer>,
        events: &Sender<Event>,
    ) -> Result<Pe, Error> {
        let mut command = Command::new(&plan.program);
        // What CUDA needs in the environment is best there before the first thread.
        let missing = |(name, _): &(&str, String)| std::env::var_os(name).is_none();
        command.envs(rushmem::cuda::environment(share.count).into_iter().filter(missing));
        // What an outer launcher has said is not for these.
        for name in launch_variables() {
            command.env_remove(name);
        }
        command.args(&plan.args).envs(&plan.variables).envs(share.variables_of(local, server));
        let pe = share.first + local;
        if pe == 0 && printer.shows_progress() && !plan.progress_is_set {
            command.env("RUSHMEM_PROGRESS", "always");
        }
        let reads = pe == 0 && !io::stdin().is_terminal();
        command.stdin(if reads { Stdio::inherit() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        sys::as_pe(&mut command);
        let cannot = |error| Error::Environment(format!("cannot start {}: {error}", plan.program.display()));
        let child = command.spawn().map_err(cannot)?;

        let mut pe = Pe { pe, child, exit: None, last_line: Arc::default(), open: Vec::new() };
        if let Some(out) = pe.child.stdout.take() {
            pe.copy(Stream::Out, out, printer, events)?;
        }
        if let Some(err) = pe.child.stderr.take() {
            pe.copy(Stream::Err, err, printer, events)?;
        }
        let (id, events) = (pe.child.id(), events.clone());
        thread("rushmem-wait", move || {
            // The job outlives this thread unless it has given up already.
            let _ = events.send(Event::Exited(local, sys::wait_for_exit(id)));
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
                let text = String::from_utf8_lossy(&line[..line.len().min(LAST_LINE)]);
                if stream == Stream::Err && !text.trim().is_empty() {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = text.trim().into();
                }
            };
            // As in `start`.
            let closed = || drop(events.send(Event::OutputClosed));
            if let Err(error) = printer.copy(pe, stream, from, keep, closed) {
                tracing::warn!(%error, pe, "cannot read what a PE writes");
            }
            open.store(false, Ordering::SeqCst);
        })
    }

    /// Sends a signal to the PE and all processes that it started; one that has ended does not hear it.
    pub(super) fn signal(&self, signal: i32) {
        sys::signal_group(self.child.id(), signal);
    }

    /// Waits until its output has been read to the end, at most until `deadline`; whether it has.
    pub(super) fn drained(&self, deadline: Instant) -> bool {
        while self.open.iter().any(|open| open.load(Ordering::SeqCst)) {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Its last line on standard error; empty if there was none.
    pub(super) fn last_line(&self) -> String {
        self.last_line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills what it left behind, and reaps it. Only for one that has ended.
    pub(super) fn bury(&mut self) {
        self.signal(libc::SIGKILL);
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, pe = self.pe, "cannot reap a process");
        }
    }
}

fn thread(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK).spawn(body);
    thread.map(drop).map_err(|error| Error::Environment(format!("cannot start the thread `{name}`: {error}")))
}

/// Replaces this process by the program, whose threads will be the PEs. Returns only if that fails.
pub(super) fn become_program(plan: &Plan) -> Error {
    let mut command = Command::new(&plan.program);
    command.args(&plan.args).envs(&plan.variables);
    for name in launch_variables() {
        command.env_remove(name);
    }
    Error::Environment(format!("cannot start {}: {}", plan.program.display(), command.exec()))
}
