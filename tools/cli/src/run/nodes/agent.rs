//! The agent of a launcher on another host: starts the PEs of the host, and passes their output and exits on.

use std::io::{self, PipeReader, Write};
use std::path::Path;
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

/// Start the PEs of one host for the launcher `rushmem run --hosts`, which runs this command by ssh
#[derive(clap::Args)]
pub(crate) struct Args {}

enum Event {
    /// The launcher sent this.
    Launcher(ToAgent),
    /// The launcher is gone, or its server is.
    LauncherLost,
    /// The process of PE `.0` of this node has exited.
    Exited(u32, io::Result<Exit>),
    /// A PE has closed an output stream.
    OutputClosed,
}

struct Agent {
    /// The PIDs of the PEs.
    pids: Vec<u32>,
    events: Receiver<Event>,
    observer: Observer,
}

pub(crate) fn execute(_: &Args) -> Result<ExitCode, Error> {
    let cannot = |error| Error::Environment(format!("cannot talk to the launcher: {error}"));
    writeln!(io::stdout(), "{GREETING}").map_err(cannot)?;
    let Some(ToAgent::Start(order)) = frames::read(&mut io::stdin()).map_err(cannot)? else {
        return Err(Error::Usage("this command is only for the launcher; use `rushmem run --hosts`".into()));
    };
    let (sender, events) = channel();
    let done =
        listen(sender.clone()).and_then(|()| Agent::start(&order, sender, events)).and_then(Agent::run);
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
    fn start(order: &Order, sender: Sender<Event>, events: Receiver<Event>) -> Result<Agent, Error> {
        let token = Token::from_hex(&order.token)?;
        let Order { n_pes, first, count, node, nodes, .. } = *order;
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
        let (server, observer) = reach(order, &share, &sender)?;
        let mut agent = Agent { pids: Vec::new(), events, observer };
        let open_files = limits::raise_open_files()?;
        for local in 0..count {
            let mut command = command(&program, &order.args, &share, local, &server);
            command.envs(&order.variables);
            let started = no_input().and_then(|input| spawn(&command, &input, open_files));
            let started = started
                .map_err(|error| Error::Environment(format!("cannot start {}: {error}", program.display())));
            let watched = started.and_then(|process| {
                agent.pids.push(process.pid);
                copy(local, Stream::Out, process.out, sender.clone())?;
                copy(local, Stream::Err, process.err, sender.clone())?;
                wait_for(local, process.pid, sender.clone())
            });
            if let Err(error) = watched {
                agent.end();
                return Err(error);
            }
        }
        tell(&FromAgent::Started);
        Ok(agent)
    }

    /// Serves the launcher until all PEs have exited, or until it is gone.
    fn run(self) -> Result<ExitCode, Error> {
        let mut open = 2 * self.pids.len();
        let mut exits = 0;
        while exits < self.pids.len() {
            match self.events.recv() {
                Ok(Event::Launcher(message)) => self.obey(&message),
                Ok(Event::Exited(local, exit)) => {
                    let unknown = |error| Error::Internal(format!("cannot wait for a process: {error}"));
                    tell(&FromAgent::Exited { local, exit: exit.map_err(unknown)? });
                    exits += 1;
                }
                Ok(Event::OutputClosed) => open -= 1,
                Ok(Event::LauncherLost) | Err(_) => {
                    self.end();
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
        // This also kills remaining processes, which would keep the output open.
        self.end();
        let within = crowd_deadline(END_TIME, self.pids.len() as u32);
        let deadline = Instant::now() + within;
        while open > 0
            && let Ok(event) = self.events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            open -= usize::from(matches!(event, Event::OutputClosed));
        }
        self.observer.finish(within)?;
        Ok(ExitCode::SUCCESS)
    }

    fn obey(&self, message: &ToAgent) {
        match *message {
            // Only the first message starts PEs.
            ToAgent::Start(_) => {}
            ToAgent::Signal { local, signal } => {
                if let Some(&pid) = self.pids.get(local as usize) {
                    sys::signal_group(pid, signal);
                }
            }
            ToAgent::AskForWaits => {
                let groups: Vec<Group> = self.pids.iter().copied().map(Group).collect();
                match &*listeners(&groups) {
                    [] => tell(&FromAgent::Note("no PE can print the waits of the job now".into())),
                    all => all.iter().for_each(|&pid| sys::signal_process(pid, libc::SIGUSR1)),
                }
            }
        }
    }

    /// Kills all processes of the PEs, and reaps the PEs.
    fn end(&self) {
        self.pids.iter().copied().for_each(sys::kill_and_reap);
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

fn copy(local: u32, stream: Stream, from: PipeReader, events: Sender<Event>) -> Result<(), Error> {
    thread("rushmem-output", move || {
        read_output(from, |bytes| tell(&FromAgent::Output { local, stream, bytes: bytes.to_vec() }));
        tell(&FromAgent::Closed { local, stream });
        // Sending fails only after the agent is gone.
        let _ = events.send(Event::OutputClosed);
    })
}

fn wait_for(local: u32, pid: u32, events: Sender<Event>) -> Result<(), Error> {
    thread("rushmem-wait", move || {
        // Sending fails only after the agent is gone.
        let _ = events.send(Event::Exited(local, sys::wait_for_exit(pid)));
    })
}
