//! Another host of the job, as its launcher sees it: the ssh that runs its agent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rushmem::config::PREFIX;
use rushmem_base::lock;

use super::frames::{self, FromAgent, GREETING, Order, ToAgent};
use crate::error::Error;
use crate::run::event::{Event, NodeEvent};
use crate::run::others::Others;
use crate::run::output::Printer;
use crate::run::pe::{Output, Pe, Process, thread};
use crate::run::plan::Plan;
use crate::run::share::{NodeShare, launch_variables};
use crate::run::spawn::{Spawned, spawn};
use crate::run::sys;

/// Bytes that the shells of a host may write before the agent's greeting.
const NOISE_BYTES: u64 = 1 << 20;

/// Time for ssh to exit once it has closed its output.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Longest time in which ssh connects.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(20);

/// Longest time for which an agent tries one address of the job's server.
const MAX_TRY_TIME: Duration = Duration::from_secs(5);

/// A process that the agent was asked to start.
struct Remote {
    pe: u32,
    /// Standard output and error, until they are closed.
    outputs: [Option<Output>; 2],
}

/// The processes of a node, by their numbers in messages.
type Processes = Arc<Mutex<Vec<Remote>>>;

/// The way to an agent: the standard input of its ssh.
#[derive(Clone)]
struct Input(Arc<Mutex<PipeWriter>>);

impl Input {
    /// Sends a message to the agent. If that fails, ssh has exited, which its closed output shows.
    fn send(&self, message: &ToAgent) {
        let _ = frames::write(&mut *lock(&self.0), message);
    }
}

pub(in crate::run) struct Node {
    pub(in crate::run) host: String,
    /// When the PEs must be running. `None` once they are.
    pub(in crate::run) start_by: Option<Instant>,
    /// Whether ssh has closed its output.
    pub(in crate::run) is_closed: bool,
    /// The loss of the node, if any of its PEs was running.
    pub(in crate::run) loss: Option<NodeLoss>,
    first: u32,
    count: u32,
    processes: Processes,
    input: Input,
    ssh: u32,
}

/// The loss of a node.
pub(in crate::run) struct NodeLoss {
    /// What happened, as the start of a sentence.
    pub(in crate::run) what: String,
    /// The PEs that were running.
    pub(in crate::run) pes: Vec<u32>,
    /// Whether the launcher has reported the loss.
    pub(in crate::run) is_told: bool,
}

impl Node {
    /// Starts the agent of node `index` of `others`, with all its PEs. Call this on the main thread only.
    pub(in crate::run) fn start(
        plan: &Plan,
        others: &Others,
        index: usize,
        servers: &[String],
        printer: &Arc<Printer>,
        events: &Sender<Event>,
        open_files: libc::rlimit,
    ) -> Result<(Node, Vec<Pe>), Error> {
        let (host, share) = &others.nodes[index];
        let order = order(plan, others, share, servers, printer)?;
        let command = command(&others.ssh, host, plan.bootstrap_timeout)?;
        let name = &others.ssh[0];
        let cannot = |error| Error::Environment(format!("cannot start {name} for host {host}: {error}"));
        let (input, to_agent) = io::pipe().map_err(cannot)?;
        let Spawned { pid, out, err } = spawn(&command, &input, open_files).map_err(cannot)?;
        let node = Node {
            host: host.clone(),
            start_by: Some(Instant::now() + plan.bootstrap_timeout),
            is_closed: false,
            loss: None,
            first: share.first,
            count: share.count,
            processes: Processes::default(),
            input: Input(Arc::new(Mutex::new(to_agent))),
            ssh: pid,
        };
        let pes =
            (0..share.count).map(|local| node.process(share.first + local, printer, events).1).collect();
        let reader = Reader {
            index,
            processes: Arc::clone(&node.processes),
            ssh: (name.clone(), pid),
            errors: last_line(err)?,
            events: events.clone(),
        };
        let to_agent = node.input.clone();
        thread("rushmem-node", move || {
            to_agent.send(&ToAgent::Start(Box::new(order)));
            reader.run(out);
        })?;
        Ok((node, pes))
    }

    /// Starts another process for a PE of this node. If that fails, it counts as having exited.
    pub(in crate::run) fn restart(&self, pe: u32, printer: &Arc<Printer>, events: &Sender<Event>) -> Pe {
        let (before, started) = self.process(pe, printer, events);
        if let Some(process) = before {
            self.input.send(&ToAgent::Restart { process });
        }
        started
    }

    /// Adds a process of a PE of this node, which the next message asks the agent to start. Returns the number of the
    /// PE's previous process, if any, and the PE with this process.
    fn process(&self, pe: u32, printer: &Arc<Printer>, events: &Sender<Event>) -> (Option<u32>, Pe) {
        let mut processes = lock(&self.processes);
        let process = processes.len() as u32;
        let to_agent = self.input.clone();
        let signal = move |signal| to_agent.send(&ToAgent::Signal { process, signal });
        let (started, outputs) = Pe::new(pe, Process::Remote(Box::new(signal)), printer, events);
        let before = processes.iter().rposition(|remote| remote.pe == pe);
        processes.push(Remote { pe, outputs: outputs.map(Some) });
        (before.map(|before| before as u32), started)
    }

    /// Lets the agent exit.
    pub(in crate::run) fn end(&self) {
        self.input.send(&ToAgent::End);
    }

    /// Returns whether `pe` is a PE of this node.
    pub(in crate::run) fn has(&self, pe: u32) -> bool {
        (self.first..self.first + self.count).contains(&pe)
    }

    pub(in crate::run) fn ask_for_waits(&self) {
        self.input.send(&ToAgent::AskForWaits);
    }

    /// Kills ssh. On losing the connection, the agent terminates its PEs.
    pub(in crate::run) fn kill(&self) {
        sys::signal_group(self.ssh, libc::SIGKILL);
    }

    /// Kills ssh if it is running, and reaps it.
    pub(in crate::run) fn reap(&self) {
        sys::kill_and_reap(self.ssh);
    }
}

fn order(
    plan: &Plan,
    others: &Others,
    share: &NodeShare,
    servers: &[String],
    printer: &Printer,
) -> Result<Order, Error> {
    let directory = std::env::current_dir()
        .map_err(|error| Error::Environment(format!("cannot find the working directory: {error}")))?;
    let mut variables = settings();
    variables.extend(plan.variables.iter().map(|(&name, value)| (name.to_owned(), value.into())));
    variables.extend(plan.progress(share.first, printer).map(|(name, value)| (name.into(), value.into())));
    Ok(Order {
        n_pes: share.n_pes,
        first: share.first,
        count: share.count,
        node: share.node,
        nodes: share.nodes,
        token: share.token.to_hex(),
        servers: servers.to_vec(),
        patience: MAX_TRY_TIME.min(plan.bootstrap_timeout / (servers.len() as u32 + 1)),
        directory: directory.into(),
        program: others.program.clone(),
        args: plan.args.clone(),
        variables,
        gpus: plan.gpus,
        trace: plan.trace.as_ref().map(|file| file.clone().into()),
    })
}

/// Returns the variables of this environment that are settings of the job.
fn settings() -> BTreeMap<String, OsString> {
    let all = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    all.filter(|(name, _)| name.starts_with(PREFIX) && !launch_variables().any(|own| own == name)).collect()
}

/// Returns the command that runs the agent on a host: this program at the same path there, or else on its PATH.
fn command(ssh: &[String], host: &str, within: Duration) -> Result<Command, Error> {
    let own = std::env::current_exe()
        .map_err(|error| Error::Environment(format!("cannot find this program: {error}")))?;
    let path = own.to_str().filter(|path| !path.contains(['\'', '"', '\\', '$', '`', '!', '\n']));
    let path = path.ok_or_else(|| {
        Error::Environment(format!(
            "{}: move it to a path without quotes and other special characters",
            own.display()
        ))
    })?;
    let mut command = Command::new(&ssh[0]);
    command.args(&ssh[1..]);
    if Path::new(&ssh[0]).file_name().is_some_and(|name| name == "ssh") {
        // The user's own options and files come first, and ssh takes the first value of an option.
        let seconds = (within / 2).min(MAX_CONNECT_TIME).as_secs().max(1);
        command.args(["-x", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5"]);
        command.args(["-o", "ServerAliveCountMax=3", "-o", &format!("ConnectTimeout={seconds}")]);
    }
    // The syntax of the host's login shell is unknown, so run the script with sh.
    let script = format!("sh -c 'test -x \"{path}\" && exec \"{path}\" run-agent; exec rushmem run-agent'");
    command.arg(host).arg(script);
    Ok(command)
}

/// Reads all lines. The receiver gets the last non-empty one.
fn last_line(from: PipeReader) -> Result<Receiver<String>, Error> {
    let (sender, last) = channel();
    thread("rushmem-ssh-errors", move || {
        let mut last = String::new();
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if !line.trim().is_empty() {
                tracing::debug!(line = line.trim(), "ssh");
                last = line.trim().into();
            }
        }
        // Sending fails only if nobody waits for the line any more.
        let _ = sender.send(last);
    })?;
    Ok(last)
}

/// Reads what an agent sends, and passes it on.
struct Reader {
    index: usize,
    processes: Processes,
    /// Name and PID of ssh.
    ssh: (String, u32),
    /// Receives the last line on the standard error of ssh.
    errors: Receiver<String>,
    events: Sender<Event>,
}

impl Reader {
    fn run(self, out: PipeReader) {
        let mut from = BufReader::new(out);
        let told = greet(&mut from).and_then(|()| self.follow(&mut from));
        for remote in lock(&self.processes).iter_mut() {
            remote.outputs.iter_mut().filter_map(Option::take).for_each(Output::end);
        }
        let cause = told.err().unwrap_or_else(|| self.cause());
        self.tell(NodeEvent::Closed(cause));
    }

    fn follow(&self, from: &mut impl Read) -> Result<(), String> {
        loop {
            match frames::read(from) {
                Ok(Some(message)) => self.take(message),
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(format!("its agent does not follow the protocol: {error}")),
            }
        }
    }

    fn take(&self, message: FromAgent) {
        match message {
            FromAgent::Started => self.tell(NodeEvent::Started),
            FromAgent::Note(text) => self.tell(NodeEvent::Note(text)),
            FromAgent::Failed(text) => self.tell(NodeEvent::Failed(text)),
            FromAgent::Output { process, stream, bytes } => self.with(process, |remote| {
                if let Some(output) = &mut remote.outputs[stream as usize] {
                    output.take(&bytes);
                }
            }),
            FromAgent::Closed { process, stream } => self.with(process, |remote| {
                if let Some(output) = remote.outputs[stream as usize].take() {
                    output.end();
                }
            }),
            // Sending fails only after the supervisor is gone.
            FromAgent::Exited { process, exit } => self.with(process, |remote| {
                let _ = self.events.send(Event::Exited(remote.pe, Ok(exit)));
            }),
        }
    }

    /// Calls `f` with a process. Ignores numbers that no process has.
    fn with(&self, process: u32, f: impl FnOnce(&mut Remote)) {
        if let Some(remote) = lock(&self.processes).get_mut(process as usize) {
            f(remote);
        }
    }

    fn tell(&self, event: NodeEvent) {
        // Sending fails only after the supervisor is gone.
        let _ = self.events.send(Event::Node(self.index, event));
    }

    /// Returns why ssh has closed its output: its last line, or else how it exited.
    fn cause(&self) -> String {
        let (name, pid) = &self.ssh;
        let last = self.errors.recv_timeout(CLOSE_TIME).unwrap_or_default();
        sys::signal_group(*pid, libc::SIGKILL);
        match sys::wait_for_exit(*pid) {
            _ if !last.is_empty() => last.trim_end_matches('.').into(),
            Ok(exit) => format!("{name} {exit}"),
            Err(error) => format!("cannot wait for {name}: {error}"),
        }
    }
}

/// Reads the agent's greeting, and whatever shells have written before it.
fn greet(from: &mut impl BufRead) -> Result<(), String> {
    let mut line = Vec::new();
    let mut from = from.take(NOISE_BYTES);
    while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let text = String::from_utf8_lossy(&line);
        match text.trim() {
            GREETING => return Ok(()),
            other if other.starts_with("rushmem agent ") => {
                return Err(format!("it has another build: `{other}` instead of `{GREETING}`"));
            }
            _ => line.clear(),
        }
    }
    // If the stream is closed, the next read reports it.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_greeting_after_output_of_shells() {
        let text = format!("Welcome to node1!\n\n{GREETING}\nrest");
        let mut from = text.as_bytes();
        greet(&mut from).unwrap();
        assert_eq!(from, b"rest");
        let error = greet(&mut &b"rushmem agent 0.0 protocol 0\n"[..]).unwrap_err();
        assert!(error.contains("another build: `rushmem agent 0.0 protocol 0`"), "{error}");
    }

    #[test]
    fn options_of_the_user_come_first() {
        let words = |ssh: &[&str]| {
            let ssh: Vec<String> = ssh.iter().map(|word| (*word).to_owned()).collect();
            let command = command(&ssh, "me@node1", Duration::from_secs(8)).unwrap();
            let args = command.get_args().map(|arg| arg.to_str().unwrap().to_owned());
            args.collect::<Vec<_>>().join(" ")
        };
        let ssh = words(&["/usr/bin/ssh", "-o", "BatchMode=no"]);
        assert!(ssh.starts_with("-o BatchMode=no -x -T -o BatchMode=yes"), "{ssh}");
        assert!(ssh.contains(" ConnectTimeout=4 me@node1 sh -c 'test -x "), "{ssh}");
        assert!(words(&["agent", "-v"]).starts_with("-v me@node1 sh -c "));
    }
}
