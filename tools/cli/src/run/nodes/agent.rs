//! The agent of a launcher on another host: starts the PEs of the host, and passes their output and exits on.

use std::io::{self, PipeReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rushmem::bootstrap::{Observer, PeerLost, ServerEvent, Token};
use rushmem_base::crowd_deadline;

use super::frames::{self, FromAgent, GREETING, Order, ToAgent};
use crate::error::Error;
use crate::run::listeners::{Group, listeners};
use crate::run::output::Stream;
use crate::run::pe::{command, read_output, thread};
use crate::run::share::NodeShare;
use crate::run::spawn::{no_input, spawn};
use crate::run::sys::{self, Exit};
use crate::run::{find, limits, timeline};

/// Time limit for the last output of the PEs, and for the job's server to acknowledge that the agent leaves.
const END_TIME: Duration = Duration::from_secs(1);

/// Exit code of a process that could not be started again, as shells have it for programs that they do not find.
const NOT_STARTED: i32 = 127;

/// Start the PEs of one host for the launcher `rushmem run --hosts`, which runs this command by ssh
#[derive(clap::Args)]
pub(crate) struct Args {}

enum Event {
    /// The launcher sent this.
    Launcher(ToAgent),
    /// The launcher is gone, or its server is.
    LauncherLost,
    /// Process `.0` has exited.
    Exited(u32, io::Result<Exit>),
    /// A process has closed an output stream.
    OutputClosed,
}

struct Agent {
    order: Order,
    program: PathBuf,
    share: NodeShare,
    /// Address of the job's server.
    server: String,
    open_files: libc::rlimit,
    processes: Vec<Process>,
    /// How many output streams of processes are open.
    open: usize,
    sender: Sender<Event>,
    events: Receiver<Event>,
    observer: Observer,
}

/// A process of a PE. Its index is its number in messages.
struct Process {
    /// Number of the PE on this node.
    local: u32,
    /// PID, until the process has been reaped. `None` if it could not be started.
    pid: Option<u32>,
}

pub(crate) fn execute(_: &Args) -> Result<ExitCode, Error> {
    let cannot = |error| Error::Environment(format!("cannot talk to the launcher: {error}"));
    writeln!(io::stdout(), "{GREETING}").map_err(cannot)?;
    let Some(ToAgent::Start(order)) = frames::read(&mut io::stdin()).map_err(cannot)? else {
        return Err(Error::Usage("this command is only for the launcher; use `rushmem run --hosts`".into()));
    };
    let (sender, events) = channel();
    let done =
        listen(sender.clone()).and_then(|()| Agent::start(*order, sender, events)).and_then(Agent::run);
    match done {
        Ok(code) => Ok(code),
        Err(error) => {
            tell(&FromAgent::Failed(error.to_string()));
            Ok(ExitCode::from(error.code()))
        }
    }
}

/// Sends a message to the launcher. If that fails, the launcher is gone, which its closed input shows.
fn tell(message: &FromAgent) {
    let _ = frames::write(&mut io::stdout().lock(), message);
}

/// Forwards the launcher's messages, and reports when it disconnects. Sending an event fails only after the agent is
/// gone.
fn listen(events: Sender<Event>) -> Result<(), Error> {
    thread("rushmem-launcher", move || {
        while let Ok(Some(message)) = frames::read(&mut io::stdin()) {
            let _ = events.send(Event::Launcher(message));
        }
        let _ = events.send(Event::LauncherLost);
    })
}

impl Agent {
    fn start(order: Order, sender: Sender<Event>, events: Receiver<Event>) -> Result<Agent, Error> {
        let token = Token::from_hex(&order.token)?;
        let Order { n_pes, first, count, node, nodes, .. } = order;
        let share = NodeShare { n_pes, first, count, node, nodes, rendezvous: None, token };
        std::env::set_current_dir(&order.directory).map_err(|error| {
            Error::Environment(format!("cannot enter {}: {error}", order.directory.display()))
        })?;
        let beside = std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_path_buf));
        let program = find::find(&order.program, std::env::var_os("PATH"), beside.as_deref())?.program;
        limits::check(count, 0)?;
        if let Some(file) = &order.trace {
            timeline::remove_parts(file.as_ref(), Some(first..first + count))?;
        }
        let (server, observer) = reach(&order, &share, &sender)?;
        let mut agent = Agent {
            order,
            program,
            share,
            server,
            open_files: limits::raise_open_files()?,
            processes: Vec::new(),
            open: 0,
            sender,
            events,
            observer,
        };
        for local in 0..count {
            if let Err(error) = agent.start_pe(local) {
                agent.end();
                return Err(error);
            }
        }
        tell(&FromAgent::Started);
        Ok(agent)
    }

    /// Starts a process of a PE of this node.
    fn start_pe(&mut self, local: u32) -> Result<(), Error> {
        let number = self.processes.len() as u32;
        self.processes.push(Process { local, pid: None });
        let mut command =
            command(&self.program, &self.order.args, &self.share, local, self.order.gpus, &self.server);
        command.envs(&self.order.variables);
        let spawned = no_input().and_then(|input| spawn(&command, &input, self.open_files));
        let spawned = spawned.map_err(|error| {
            Error::Environment(format!("cannot start {}: {error}", self.program.display()))
        })?;
        self.processes[number as usize].pid = Some(spawned.pid);
        for (stream, from) in [(Stream::Out, spawned.out), (Stream::Err, spawned.err)] {
            copy(number, stream, from, self.sender.clone())?;
            self.open += 1;
        }
        wait_for(number, spawned.pid, self.sender.clone())
    }

    /// Serves the launcher until it ends the agent, or is gone.
    fn run(mut self) -> Result<ExitCode, Error> {
        loop {
            match self.events.recv() {
                Ok(Event::Launcher(ToAgent::End)) => break,
                Ok(Event::Launcher(message)) => self.obey(&message),
                Ok(Event::Exited(process, exit)) => {
                    let unknown = |error| Error::Internal(format!("cannot wait for a process: {error}"));
                    tell(&FromAgent::Exited { process, exit: exit.map_err(unknown)? });
                }
                Ok(Event::OutputClosed) => self.open -= 1,
                Ok(Event::LauncherLost) | Err(_) => {
                    self.end();
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
        // This also kills remaining processes, which would keep the output open.
        self.end();
        let within = crowd_deadline(END_TIME, self.share.count);
        let deadline = Instant::now() + within;
        while self.open > 0
            && let Ok(event) = self.events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.open -= usize::from(matches!(event, Event::OutputClosed));
        }
        self.observer.finish(within)?;
        Ok(ExitCode::SUCCESS)
    }

    fn obey(&mut self, message: &ToAgent) {
        match *message {
            // Only the first message starts PEs, and only the last one ends the agent.
            ToAgent::Start(_) | ToAgent::End => {}
            ToAgent::Signal { process, signal } => {
                if let Some(pid) = self.processes.get(process as usize).and_then(|process| process.pid) {
                    sys::signal_group(pid, signal);
                }
            }
            ToAgent::Restart { process } => self.restart(process),
            ToAgent::AskForWaits => {
                let groups: Vec<Group> = self.pids().map(Group).collect();
                match &*listeners(&groups) {
                    [] => tell(&FromAgent::Note("no PE can print the waits of the job now".into())),
                    all => all.iter().for_each(|&pid| sys::signal_process(pid, libc::SIGUSR1)),
                }
            }
        }
    }

    /// Starts the PE of a process again.
    fn restart(&mut self, process: u32) {
        // Remaining processes of its group may still use its memory.
        self.end_process(process as usize);
        let Some(&Process { local, .. }) = self.processes.get(process as usize) else { return };
        let process = self.processes.len();
        if let Err(error) = self.start_pe(local) {
            self.end_process(process);
            let pe = self.share.first + local;
            tell(&FromAgent::Note(format!("PE {pe} does not start: {error}")));
            tell(&FromAgent::Exited { process: process as u32, exit: Exit::Code(NOT_STARTED) });
        }
    }

    /// Kills all processes of a process group, and reaps the PE.
    fn end_process(&mut self, process: usize) {
        if let Some(pid) = self.processes.get_mut(process).and_then(|process| process.pid.take()) {
            sys::kill_and_reap(pid);
        }
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().filter_map(|process| process.pid)
    }

    /// Kills all processes of the PEs, and reaps the PEs.
    fn end(&self) {
        self.pids().for_each(sys::kill_and_reap);
    }
}

/// Connects to the job's server at the first of its addresses that answers. Returns that address.
fn reach(order: &Order, share: &NodeShare, events: &Sender<Event>) -> Result<(String, Observer), Error> {
    let mut failures = Vec::new();
    for server in &order.servers {
        let events = events.clone();
        let on_event = move |event| {
            if let ServerEvent::Refused(_) | ServerEvent::Lost(PeerLost { pe: None, .. }) = event {
                // Sending fails only after the agent is gone.
                let _ = events.send(Event::LauncherLost);
            }
        };
        let NodeShare { token, node, n_pes, .. } = share;
        match Observer::connect(server, token, *node, *n_pes, order.patience, false, on_event) {
            Ok(observer) => return Ok((server.clone(), observer)),
            Err(error) => failures.push(error.to_string()),
        }
    }
    Err(Error::Environment(format!(
        "cannot reach the job's server ({}); name an interface that all hosts reach in RUSHMEM_BOOTSTRAP_INTERFACE",
        failures.join("; ")
    )))
}

fn copy(process: u32, stream: Stream, from: PipeReader, events: Sender<Event>) -> Result<(), Error> {
    thread("rushmem-output", move || {
        read_output(from, |bytes| tell(&FromAgent::Output { process, stream, bytes: bytes.to_vec() }));
        tell(&FromAgent::Closed { process, stream });
        // Sending fails only after the agent is gone.
        let _ = events.send(Event::OutputClosed);
    })
}

fn wait_for(process: u32, pid: u32, events: Sender<Event>) -> Result<(), Error> {
    thread("rushmem-wait", move || {
        // Sending fails only after the agent is gone.
        let _ = events.send(Event::Exited(process, sys::wait_for_exit(pid)));
    })
}
