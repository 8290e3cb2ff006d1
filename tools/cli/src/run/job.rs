//! Supervises the PEs of a launcher: starts them, forwards signals, reports the first failure and returns the exit code.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rushmem::bootstrap::{self, Observer, PeerLost, Pes, Server, ServerOptions, resolve};
use rushmem_base::{THREAD_ADVICE, crowd_deadline, loopback};

use super::event::{Event, NodeEvent};
use super::limits;
use super::listeners::{Group, listeners};
use super::nodes::node::{Node, NodeLoss};
use super::output::Printer;
use super::pe::Pe;
use super::plan::Plan;
use super::share::NodeShare;
use super::sys::{self, Exit};
use super::timeline::Timeline;
use crate::error::Error;

/// Time for the other PEs to report a failed PE, before they receive SIGTERM.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// Time for the other PEs of a job with the sanitizer, before they receive SIGTERM. It is longer, since the sanitizer
/// writes its report when all PEs exit.
const SANITIZER_TIME: Duration = Duration::from_secs(10);

/// Time for a failed PE to print its error.
const PRINT_TIME: Duration = Duration::from_millis(200);

/// Time between SIGTERM and SIGKILL.
const TERM_TIME: Duration = Duration::from_secs(2);

/// How long the job's server waits, after a PE's connection was closed, for this launcher to report how the PE exited.
const EXIT_WAIT: Duration = Duration::from_millis(300);

/// Exit code of a job that exceeded `--timeout`. The same as that of the command `timeout`.
const TIMED_OUT: u8 = 124;

/// Exit code of a job that lost a node.
const NODE_LOST: u8 = 3;

/// Exit code of a failed job for which no other exit code is known.
const FAILED: u8 = 1;

/// Start of the reason of a loss if the PE has left the job by itself, with an error.
const ABORTED: &str = "aborted: ";

/// The first failure of a job. Later ones are ignored.
struct Failure {
    /// PE that failed, or `None` if the job failed as a whole.
    pe: Option<u32>,
    /// Exit code of the job. If `None`, it is the exit code of the PE.
    code: Option<u8>,
}

/// How far the PEs have been shut down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    /// The job is running, and no PE is to be shut down.
    Running,
    /// A PE failed. Until the given time, the other PEs may report that.
    Reporting(Instant),
    /// The PEs received SIGTERM, and will receive SIGKILL at the given time.
    Terminating(Instant),
    /// The PEs have received SIGKILL. A node whose PEs are still running at the given time counts as lost.
    Killed(Option<Instant>),
}

/// What processes of this node need to start.
struct Start {
    server: String,
    events: Sender<Event>,
    open_files: libc::rlimit,
}

struct Supervisor<'a> {
    plan: &'a Plan,
    share: &'a NodeShare,
    printer: Arc<Printer>,
    start: Start,
    events: Receiver<Event>,
    observer: Observer,
    /// The PEs of this node and those of `nodes`.
    pes: Vec<Pe>,
    /// The other nodes, if this launcher starts their PEs.
    nodes: Vec<Node>,
    failure: Option<Failure>,
    /// PEs whose loss the job has survived, in the order of their losses.
    lost: Vec<u32>,
    /// How many more lost processes may be restarted.
    respawns: u32,
    /// PEs that were restarted and have not been reported lost since.
    respawned: Vec<u32>,
    /// Vacant PEs (setting `vacant_pes`) for which no process has been started since.
    vacant: BTreeSet<u32>,
    /// Lost and vacant PEs that SIGUSR2 may start: the server knows of the exits of their processes.
    startable: BTreeSet<u32>,
    /// Number of processes that SIGUSR2 has requested and that could not be started yet.
    wanted: u32,
    /// Lost PEs whose processes receive SIGKILL at the given times.
    fences: Vec<(Instant, u32)>,
    shutdown: Shutdown,
    /// Signals received so far that terminate the job.
    signals: Vec<i32>,
    /// Time at which `--timeout` expires.
    limit: Option<Instant>,
}

/// Runs this launcher's part of the job and returns the exit code.
pub(super) fn supervise(plan: &Plan, share: &NodeShare) -> Result<u8, Error> {
    let serves = share.node == 0 || plan.others.is_some();
    limits::check(share.count, if serves { share.n_pes } else { 0 })?;
    // The launcher with the job's server joins the timeline.
    let writer = NodeShare { node: if serves { 0 } else { share.node }, ..share.clone() };
    let timeline = plan.trace.clone().map(|file| Timeline::begin(file, &writer)).transpose()?;
    let printer = Arc::new(Printer::new(plan.label));
    let (sender, events) = channel();
    sys::block_signals().map_err(|error| Error::Internal(format!("cannot block signals: {error}")))?;
    listen_for_signals(sender.clone())?;

    let server = if serves { Some(start_server(plan, share, &printer)?) } else { None };
    let addresses = match (&share.rendezvous, &plan.others, &server) {
        (Some(rendezvous), ..) => vec![rendezvous.clone()],
        (None, Some(others), Some(server)) => others.servers(server.addr().port()),
        (None, None, Some(server)) => vec![server.addr().to_string()],
        (None, _, None) => {
            return Err(Error::Internal("this node has no address of the job's server".into()));
        }
    };
    let server_events = sender.clone();
    let observer = Observer::connect(
        &addresses[0],
        &share.token,
        share.node,
        share.n_pes,
        plan.bootstrap_timeout,
        !serves,
        // Sending fails only after the supervisor is gone.
        move |event| drop(server_events.send(Event::Server(event))),
    )?;
    let mut supervisor = Supervisor {
        plan,
        share,
        printer: Arc::clone(&printer),
        start: Start {
            server: addresses[0].clone(),
            events: sender,
            open_files: limits::raise_open_files()?,
        },
        events,
        observer,
        pes: Vec::new(),
        nodes: Vec::new(),
        failure: None,
        lost: Vec::new(),
        respawns: plan.respawn,
        respawned: Vec::new(),
        vacant: (share.n_pes.saturating_sub(plan.vacant_pes)..share.n_pes).collect(),
        startable: BTreeSet::new(),
        wanted: 0,
        fences: Vec::new(),
        shutdown: Shutdown::Running,
        signals: Vec::new(),
        limit: plan.timeout.map(|timeout| Instant::now() + timeout),
    };
    if let Err(error) = supervisor.start_pes(&addresses) {
        supervisor.abandon();
        return Err(error);
    }
    let code = supervisor.run(server.as_ref());
    match timeline.as_ref().map_or(Ok(None), |timeline| timeline.end().map(Some)) {
        Ok(told) => told.iter().for_each(|told| printer.note(told)),
        Err(error) if matches!(code, Ok(0)) => return Err(error),
        Err(error) => printer.note(&error.to_string()),
    }
    code
}

fn listen_for_signals(events: Sender<Event>) -> Result<(), Error> {
    let listen = move || {
        while let Ok(signal) = sys::wait_for_signal() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("rushmem-signals".into()).spawn(listen);
    thread
        .map(drop)
        .map_err(|error| Error::Environment(format!("cannot start a thread: {error}; {THREAD_ADVICE}")))
}

fn start_server(plan: &Plan, share: &NodeShare, printer: &Printer) -> Result<Server, Error> {
    let listen = match (&share.rendezvous, &plan.others) {
        (None, Some(others)) => others.listen(),
        (None, None) => SocketAddr::new(loopback(), 0),
        (Some(rendezvous), _) => {
            let bad = |why: String| {
                let usage = "write it as HOST:PORT, with an address of node 0";
                Error::Usage(format!("--rendezvous {rendezvous}: {why}; {usage}"))
            };
            let waits =
                |error: &io::Error| printer.note(&format!("waiting for the name in {rendezvous}: {error}"));
            resolve(rendezvous, plan.bootstrap_timeout, waits).map_err(|error| bad(error.to_string()))?
        }
    };
    let options = ServerOptions {
        n_pes: share.n_pes,
        host: None,
        token: share.token.clone(),
        listen,
        exit_wait: crowd_deadline(EXIT_WAIT, share.count),
        heartbeat: plan.heartbeat,
    };
    Ok(Server::start(options)?)
}

impl Supervisor<'_> {
    /// Starts the agents of other nodes, followed by the PEs of this node, one at a time. Stops early if the job fails
    /// or receives a signal.
    fn start_pes(&mut self, servers: &[String]) -> Result<(), Error> {
        if let Some(others) = &self.plan.others {
            for index in 0..others.nodes.len() {
                let Start { events, open_files, .. } = &self.start;
                let (node, pes) =
                    Node::start(self.plan, others, index, servers, &self.printer, events, *open_files)?;
                self.nodes.push(node);
                self.pes.extend(pes);
            }
        }
        for local in 0..self.share.count {
            self.advance();
            self.wait(Some(Instant::now()))?;
            if self.shutdown != Shutdown::Running || !self.signals.is_empty() {
                self.stop_starting(self.share.count - local);
                return Ok(());
            }
            self.pes.push(self.start_pe(local)?);
        }
        self.pes.sort_by_key(|pe| pe.pe);
        Ok(())
    }

    /// Starts PE `local` of this node.
    fn start_pe(&self, local: u32) -> Result<Pe, Error> {
        let Start { server, events, open_files } = &self.start;
        Pe::start(self.plan, self.share, local, server, &self.printer, events, *open_files)
    }

    /// Terminates the PEs that are running, because the job cannot proceed without the `left` PEs that will not be
    /// started.
    fn stop_starting(&mut self, left: u32) {
        self.printer.note(&format!("{left} of {} PEs were not started", self.share.count));
        if let Some(signal) = self.signals.first() {
            let code = 128u8.wrapping_add(*signal as u8);
            self.failure.get_or_insert(Failure { pe: None, code: Some(code) });
            self.ask_to_end();
        }
    }

    fn run(mut self, server: Option<&Server>) -> Result<u8, Error> {
        while self.living().count() > 0 {
            self.advance();
            self.wait(self.next_deadline())?;
        }
        let drained_by = Instant::now() + Duration::from_secs(1);
        for pe in &self.pes {
            // This kills remaining processes of its group, which would keep its output open.
            pe.reap();
        }
        self.nodes.iter().for_each(Node::end);
        while self.nodes.iter().any(|node| !node.is_closed) && Instant::now() < drained_by {
            self.wait(Some(drained_by))?;
        }
        self.nodes.iter().for_each(Node::reap);
        let drained = self.pes.iter().filter(|pe| pe.drain(drained_by)).count();
        if drained < self.pes.len() {
            tracing::warn!("a process outside of its PE's process group keeps the PE's output open");
        }
        // The server may know of failures that have no exit code. Report them before the suppressed errors of the PEs.
        let finished = self.observer.finish(self.shared(TERM_TIME));
        let handled = self.wait(Some(Instant::now()));
        self.printer.note_folded(self.failure.as_ref().and_then(|failure| failure.pe));
        finished?;
        handled?;
        self.wait_for_other_nodes(server)?;
        Ok(self.code())
    }

    /// Waits for an event until `deadline`. Handles it, and all others that are pending.
    ///
    /// With a deadline in the past, only handles pending events.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let first = match deadline {
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        };
        match first {
            Ok(event) => self.take(event)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Internal("all senders of events are gone".into()));
            }
        }
        while let Ok(event) = self.events.try_recv() {
            self.take(event)?;
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Exited(pe, exit) => {
                let exit =
                    exit.map_err(|error| Error::Internal(format!("cannot wait for a process: {error}")))?;
                self.exited(pe, exit);
            }
            Event::Node(index, event) => self.hear(index, event),
            Event::Signal(signal) => self.signalled(signal),
            Event::Server(bootstrap::ServerEvent::Lost(lost)) => self.lost(&lost),
            Event::Server(bootstrap::ServerEvent::Noted(pe)) => self.noted(pe),
            Event::Server(bootstrap::ServerEvent::Refused(reason)) => {
                self.fail(
                    Failure { pe: None, code: Some(3) },
                    &format!("the job's server refused this node: {reason}"),
                );
            }
            Event::OutputClosed => {
                if self.failure.is_none() {
                    self.failure = Some(Failure { pe: None, code: Some(128 + libc::SIGPIPE as u8) });
                }
                self.ask_to_end();
            }
        }
        Ok(())
    }

    fn exited(&mut self, number: u32, exit: Exit) {
        let Some(pe) = self.pes.iter_mut().find(|pe| pe.pe == number) else { return };
        pe.exit = Some(exit);
        // Another PE may have failed first. The server knows the order, so wait for its confirmation before reporting
        // anything.
        self.observer.exited(pe.pe, &exit.to_string());
    }

    /// Handles news from another node.
    fn hear(&mut self, index: usize, event: NodeEvent) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        let host = &node.host;
        match event {
            NodeEvent::Started => node.start_by = None,
            NodeEvent::Note(text) => self.printer.note(&format!("host {host}: {text}")),
            NodeEvent::Failed(reason) => {
                let what = format!("host {host} did not start its PEs: {reason}");
                self.give_up(index, &what);
            }
            NodeEvent::Closed(reason) => {
                node.is_closed = true;
                let what = match node.start_by {
                    Some(_) => format!("host {host} did not start its PEs: {reason}"),
                    None => format!("host {host} was lost: {reason}"),
                };
                self.give_up(index, &what);
            }
        }
    }

    /// Closes the connection to a node, whose running PEs are lost. `what` is the reason.
    fn give_up(&mut self, index: usize, what: &str) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        node.start_by = None;
        node.kill();
        let lost = self.pes.iter_mut().filter(|pe| pe.exit.is_none() && node.has(pe.pe));
        let lost: Vec<u32> = lost
            .map(|pe| {
                pe.exit = Some(Exit::Signal(libc::SIGKILL));
                pe.pe
            })
            .collect();
        if lost.is_empty() {
            return;
        }
        // The server decides whether the job survives that.
        lost.iter().for_each(|&pe| self.observer.exited(pe, what));
        node.loss = Some(NodeLoss { what: what.into(), pes: lost, is_told: false });
    }

    /// Handles the server's confirmation of a PE's exit. All earlier events have been received before this one.
    fn noted(&mut self, number: u32) {
        let Some(pe) = self.pes.iter().find(|pe| pe.pe == number) else { return };
        let Some(exit) = pe.exit else { return };
        let is_lost = self.lost.contains(&number);
        if is_lost && self.vacant.contains(&number) {
            self.startable.insert(number);
            return self.start_wanted();
        }
        if exit == Exit::Code(0) {
            return;
        }
        if is_lost {
            return self.respawn(number);
        }
        if let Some(what) = self.node_loss_of(number).map(|loss| loss.what.clone()) {
            return self.fail(Failure { pe: Some(number), code: Some(NODE_LOST) }, &what);
        }
        if !self.signals.is_empty() || self.failure.is_some() {
            tracing::debug!(pe = number, "{exit}");
            return;
        }
        let what = format!("PE {number} {exit}{}", last_line(pe));
        self.fail(Failure { pe: Some(number), code: Some(exit.code()) }, &what);
    }

    /// Handles the loss of a PE or of the job's server.
    fn lost(&mut self, lost: &PeerLost) {
        if let Some(pe) = lost.pe.filter(|_| lost.survivable) {
            return self.survive(pe, lost);
        }
        if let Some(pe) = self.pes.iter().find(|pe| is_exit_of(pe, lost)) {
            // This launcher also knows the PE's last line.
            self.noted(pe.pe);
        } else if let Some(pe) = lost.pe.filter(|pe| self.node_loss_of(*pe).is_some()) {
            self.noted(pe);
        }
        if self.signals.is_empty() && self.failure.is_none() {
            // A PE that called `global_exit` was not lost, so do not say so.
            let what = match (lost.pe, lost.exit) {
                (Some(pe), Some(_)) => format!("PE {pe} {}", lost.reason),
                (Some(pe), None) if self.has_printed(pe, &lost.reason) => format!("PE {pe} failed"),
                _ => lost.to_string(),
            };
            self.fail(Failure { pe: lost.pe, code: lost.exit }, &what);
        }
    }

    /// Reports the loss of a PE that the job survives. After a failure or a signal, its exit counts instead.
    fn survive(&mut self, number: u32, lost: &PeerLost) {
        self.respawned.retain(|pe| *pe != number);
        // One that has left the job by itself still prints why.
        let patience = if lost.reason.starts_with(ABORTED) { self.shared(TERM_TIME) } else { Duration::ZERO };
        self.fences.push((Instant::now() + patience, number));
        if !self.signals.is_empty() || self.failure.is_some() {
            return tracing::debug!("{lost}");
        }
        if !self.lost.contains(&number) {
            self.lost.push(number);
        }
        if self.vacant.contains(&number) {
            return tracing::debug!("{lost}");
        }
        let mut losses = self.nodes.iter_mut().filter_map(|node| node.loss.as_mut());
        let (what, whose) = match losses.find(|loss| loss.pes.contains(&number)) {
            Some(loss) if loss.is_told => return,
            Some(loss) => {
                loss.is_told = true;
                (loss.what.clone(), "its PEs")
            }
            None => (self.describe_survived(number, lost), "it"),
        };
        // Others may have been replaced.
        let runs = |pe| pe != number && self.living().any(|living| living.pe == pe);
        let is_gone = |pe| self.lost.contains(&pe) && !runs(pe) || self.node_loss_of(pe).is_some();
        if (0..self.share.n_pes).all(is_gone) {
            self.printer.note(&format!("{what}; no PE is left"));
        } else {
            self.printer.note(&format!("{what}; the job goes on without {whose}"));
        }
    }

    /// Restarts a lost PE whose process has exited, if the settings allow it.
    fn respawn(&mut self, number: u32) {
        let Some(at) = self.pes.iter().position(|pe| pe.pe == number) else { return };
        // One that fails before the job takes it in would fail again.
        let fails = self.respawned.contains(&number) && matches!(self.pes[at].exit, Some(Exit::Code(_)));
        // Launchers of other nodes may have PEs that are alive.
        let is_last = self.pes.len() == self.share.n_pes as usize && self.living().next().is_none();
        if self.respawns == 0 || self.is_ending() || fails || is_last || !self.has_node(number) {
            self.startable.insert(number);
            return self.start_wanted();
        }
        self.respawns -= 1;
        self.restart(number, &format!("PE {number} starts again; {} more may", self.respawns));
    }

    fn is_ending(&self) -> bool {
        !self.signals.is_empty() || self.failure.is_some() || self.shutdown != Shutdown::Running
    }

    /// Starts the processes that SIGUSR2 has requested, for the first of the lost and vacant PEs without one. Waits for vacant PEs
    /// whose first processes are still running.
    fn start_wanted(&mut self) {
        while self.wanted > 0 {
            if self.is_ending() || self.living().next().is_none() {
                return;
            }
            let mut candidates = self.startable.union(&self.vacant).copied();
            match candidates.find(|&pe| self.starts(pe) && self.has_node(pe)) {
                Some(pe) if !self.startable.contains(&pe) => return,
                Some(pe) => self.restart(pe, &format!("SIGUSR2: PE {pe} starts")),
                None => self.printer.note("SIGUSR2: all PEs have processes"),
            }
            self.wanted -= 1;
        }
    }

    /// Restarts the process of a lost PE, and prints `note`.
    fn restart(&mut self, number: u32, note: &str) {
        let Some(at) = self.pes.iter().position(|pe| pe.pe == number) else { return };
        // Remaining processes of its group may still use its memory.
        self.pes[at].signal(libc::SIGKILL);
        self.respawned.push(number);
        self.vacant.remove(&number);
        self.startable.remove(&number);
        self.fences.retain(|(_, pe)| *pe != number);
        let started = match self.nodes.iter().find(|node| node.has(number)) {
            Some(node) => Ok(node.restart(number, &self.printer, &self.start.events)),
            None => self.start_pe(number - self.share.first),
        };
        match started {
            Ok(started) => {
                self.printer.note(note);
                std::mem::replace(&mut self.pes[at], started).reap();
            }
            Err(error) => {
                self.startable.insert(number);
                self.printer.note(&format!("PE {number} does not start: {error}"));
            }
        }
    }

    /// Describes a loss that the job survives, as the start of a sentence.
    fn describe_survived(&self, number: u32, lost: &PeerLost) -> String {
        if self.has_printed(number, &lost.reason) {
            return format!("PE {number} failed");
        }
        let own = self.pes.iter().find(|pe| is_exit_of(pe, lost));
        let (how, last) = match own.and_then(|pe| pe.exit.map(|exit| (pe, exit))) {
            // For code 0, the reason is more informative than the exit.
            Some((pe, exit)) if exit != Exit::Code(0) => (exit.to_string(), last_line(pe)),
            _ => (lost.reason.clone(), String::new()),
        };
        format!("PE {number} was lost: {}{last}", how.strip_prefix("was ").unwrap_or(&how))
    }

    /// Returns whether a PE of this node has printed why it failed. It does so just before it exits, so wait a moment
    /// for that.
    fn has_printed(&self, number: u32, reason: &str) -> bool {
        let Some(pe) = self.pes.iter().find(|pe| pe.pe == number) else { return false };
        let Some(cause) = reason.strip_prefix(ABORTED) else { return false };
        pe.prints(cause, Instant::now() + self.shared(PRINT_TIME))
    }

    /// Reports the first failure and starts to shut down the job. Ignores later failures.
    fn fail(&mut self, failure: Failure, what: &str) {
        if self.failure.is_some() {
            return;
        }
        let others = self.living().filter(|pe| failure.pe != Some(pe.pe)).count();
        self.failure = Some(failure);
        let ending = match others {
            0 => String::new(),
            1 => "; ending the other PE".into(),
            others => format!("; ending the other {others} PEs"),
        };
        self.printer.note(&format!("{what}{ending}"));
        if self.shutdown == Shutdown::Running {
            let time = if self.plan.is_sanitized { SANITIZER_TIME } else { REPORT_TIME };
            self.shutdown = Shutdown::Reporting(Instant::now() + self.shared(time));
        }
    }

    fn signalled(&mut self, signal: i32) {
        match signal {
            libc::SIGUSR1 => return self.ask_for_waits(),
            libc::SIGUSR2 => {
                self.wanted += 1;
                return self.start_wanted();
            }
            _ => {}
        }
        self.signals.push(signal);
        let name = sys::signal_name(signal);
        if self.signals.len() == 1 {
            self.printer.note(&format!("{name} passed on to all PEs; a second signal kills them"));
            self.signal_all(signal);
        } else {
            self.printer.note(&format!("{name} again: killing all PEs"));
            self.kill_all();
        }
    }

    fn kill_all(&mut self) {
        self.signal_all(libc::SIGKILL);
        self.shutdown = Shutdown::Killed(Some(Instant::now() + self.shared(TERM_TIME)));
    }

    /// Forwards SIGUSR1 to those processes of PEs that handle it. It would kill the others.
    fn ask_for_waits(&self) {
        self.nodes.iter().for_each(Node::ask_for_waits);
        let groups: Vec<Group> = self.living().filter_map(Pe::group).collect();
        match &*listeners(&groups) {
            [] if groups.is_empty() && !self.nodes.is_empty() => {}
            [] => self.printer.note("no PE of this node can print the waits of the job now"),
            all => all.iter().for_each(|&pid| sys::signal_process(pid, libc::SIGUSR1)),
        }
    }

    /// Performs the steps of the shutdown that are due by now, such as SIGTERM and SIGKILL. Starts it once `--timeout`
    /// has expired.
    fn advance(&mut self) {
        let now = Instant::now();
        if self.limit.is_some_and(|limit| now >= limit) {
            self.limit = None;
            self.time_out();
        }
        self.fence(now);
        match self.shutdown {
            Shutdown::Reporting(end) if now >= end => self.ask_to_end(),
            Shutdown::Terminating(end) if now >= end => {
                let living = self.living_pes();
                if !living.0.is_empty() {
                    self.printer.note(&format!("{living} did not exit after SIGTERM; killed"));
                }
                self.kill_all();
            }
            Shutdown::Killed(Some(end)) if now >= end => {
                self.shutdown = Shutdown::Killed(None);
                self.give_up_nodes("its PEs did not exit after SIGKILL", |_| true);
            }
            _ => {}
        }
        let late = format!("it did not start its PEs within {:?}", self.plan.bootstrap_timeout);
        self.give_up_nodes(&late, |node| node.start_by.is_some_and(|end| now >= end));
    }

    /// Kills the processes of lost PEs that are still running, so none of them writes to the memory of others any more. A
    /// process that is stopped could do so once it continues, and its kernels even before.
    fn fence(&mut self, now: Instant) {
        let due: Vec<u32> = self.fences.extract_if(.., |(at, _)| now >= *at).map(|(_, pe)| pe).collect();
        for pe in self.living().filter(|pe| due.contains(&pe.pe)) {
            pe.signal(libc::SIGKILL);
        }
    }

    fn give_up_nodes(&mut self, reason: &str, are_lost: impl Fn(&Node) -> bool) {
        for index in 0..self.nodes.len() {
            if are_lost(&self.nodes[index]) {
                let what = format!("host {} was lost: {reason}", self.nodes[index].host);
                self.give_up(index, &what);
            }
        }
    }

    fn time_out(&mut self) {
        if self.failure.is_none() {
            self.failure = Some(Failure { pe: None, code: Some(TIMED_OUT) });
            let timeout = self.plan.timeout.unwrap_or_default();
            let living = self.living_pes();
            let action = if living.0.is_empty() {
                "waiting for other nodes".into()
            } else {
                format!("ending {living}")
            };
            self.printer.note(&format!("the job exceeded its --timeout of {timeout:?}; {action}"));
        }
        self.ask_to_end();
    }

    fn ask_to_end(&mut self) {
        if matches!(self.shutdown, Shutdown::Running | Shutdown::Reporting(_)) {
            self.signal_all(libc::SIGTERM);
            self.shutdown = Shutdown::Terminating(Instant::now() + self.shared(TERM_TIME));
        }
    }

    /// Scales the duration of a step if many PEs of this node share each core.
    fn shared(&self, usual: Duration) -> Duration {
        crowd_deadline(usual, self.share.count)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let step = match self.shutdown {
            Shutdown::Reporting(end) | Shutdown::Terminating(end) => Some(end),
            Shutdown::Killed(end) => end,
            Shutdown::Running => None,
        };
        let starts = self.nodes.iter().filter_map(|node| node.start_by);
        let fences = self.fences.iter().map(|(at, _)| *at);
        step.into_iter().chain(self.limit).chain(starts).chain(fences).min()
    }

    /// Keeps the server, which runs on node 0, alive until the launchers of other nodes are done.
    fn wait_for_other_nodes(&mut self, server: Option<&Server>) -> Result<(), Error> {
        let Some(server) = server.filter(|_| self.nodes.is_empty()) else { return Ok(()) };
        let slice = Duration::from_millis(100);
        let mut left = server.wait_for_observers(self.share.nodes, Some(slice));
        if !left.is_empty() && self.failure.is_none() {
            tracing::info!("all PEs of this node are done; waiting for nodes {left:?}");
        }
        let patience = Instant::now() + self.shared(REPORT_TIME + 2 * TERM_TIME);
        while !left.is_empty() {
            let hopeless = self.failure.is_some() || !self.signals.is_empty();
            if hopeless && Instant::now() >= patience {
                self.printer.note(&format!("nodes {left:?} did not end in time"));
                break;
            }
            left = server.wait_for_observers(self.share.nodes, Some(slice));
            self.wait(Some(Instant::now()))?;
            self.advance();
        }
        Ok(())
    }

    fn code(&self) -> u8 {
        let own = |number: u32| {
            let exit = self.pes.iter().find(|pe| pe.pe == number).and_then(|pe| pe.exit);
            exit.map(Exit::code).filter(|code| *code != 0)
        };
        match &self.failure {
            Some(failure) => failure.code.or_else(|| failure.pe.and_then(own)).unwrap_or(FAILED),
            None if self.all_lost() => self.lost.iter().find_map(|&pe| own(pe)).unwrap_or(FAILED),
            // After a signal, the PEs determine the exit code. A PE that the signal killed takes precedence, because
            // others may have failed only for losing it.
            None => {
                let counts = |pe: &&Pe| !self.lost.contains(&pe.pe);
                let exits = || self.pes.iter().filter(counts).filter_map(|pe| pe.exit);
                let is_passed_on =
                    |exit: &Exit| matches!(exit, Exit::Signal(signal) if self.signals.contains(signal));
                let exit = exits().find(is_passed_on).or_else(|| exits().find(|exit| exit.code() != 0));
                exit.map_or(0, Exit::code)
            }
        }
    }

    /// Returns whether all PEs were lost, and no process has replaced one and succeeded.
    fn all_lost(&self) -> bool {
        let succeeded = |pe: &Pe| pe.exit == Some(Exit::Code(0)) && !self.vacant.contains(&pe.pe);
        self.lost.len() == self.share.n_pes as usize && !self.pes.iter().any(succeeded)
    }

    /// Returns whether this launcher starts the processes of a PE.
    fn starts(&self, pe: u32) -> bool {
        let own = self.share.first..self.share.first + self.share.count;
        own.contains(&pe) || self.nodes.iter().any(|node| node.has(pe))
    }

    /// Returns whether the node of a PE can start processes.
    fn has_node(&self, pe: u32) -> bool {
        let is_open = self.nodes.iter().find(|node| node.has(pe)).is_none_or(|node| !node.is_closed);
        is_open && self.node_loss_of(pe).is_none()
    }

    /// Returns the loss of the node with which a PE was lost.
    fn node_loss_of(&self, pe: u32) -> Option<&NodeLoss> {
        self.nodes.iter().filter_map(|node| node.loss.as_ref()).find(|loss| loss.pes.contains(&pe))
    }

    fn living(&self) -> impl Iterator<Item = &Pe> {
        self.pes.iter().filter(|pe| pe.exit.is_none())
    }

    fn living_pes(&self) -> Pes {
        Pes(self.living().map(|pe| pe.pe).collect())
    }

    fn signal_all(&self, signal: i32) {
        for pe in self.living() {
            pe.signal(signal);
        }
    }

    /// Kills all PEs, because one could not be started.
    fn abandon(&mut self) {
        self.pes.iter().for_each(Pe::reap);
        self.nodes.iter().for_each(Node::reap);
    }
}

/// Returns whether a loss is the exit of this PE, which this launcher has reported to the server.
fn is_exit_of(pe: &Pe, lost: &PeerLost) -> bool {
    lost.pe == Some(pe.pe) && pe.exit.is_some_and(|exit| lost.reason.starts_with(&exit.to_string()))
}

/// Returns the last line of a PE that has exited, as the end of a sentence.
fn last_line(pe: &Pe) -> String {
    // By now, the last line is most likely in the pipe.
    pe.drain(Instant::now() + Duration::from_millis(100));
    match pe.last_line() {
        last if last.is_empty() => last,
        last => format!("; last line on standard error: {last}"),
    }
}
