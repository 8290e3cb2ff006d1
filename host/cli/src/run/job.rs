//! A job from its first process to its last.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rushmem::bootstrap::{self, Observer, PeerLost, Pes, Server, ServerOptions};

use super::output::Printer;
use super::pe::Pe;
use super::plan::{Plan, Shape, Share};
use super::sys::{self, Exit};
use crate::error::Error;

/// How long the others may take to report for themselves that one has died.
const MOMENT: Duration = Duration::from_secs(1);

/// How long they may take to end when asked to, before they are killed.
const GRACE: Duration = Duration::from_secs(2);

/// How long the server waits for a launcher's report when a connection closes.
const EXIT_WAIT: Duration = Duration::from_millis(300);

/// The exit code of a job that took too long, as `timeout` has it.
const TIMED_OUT: u8 = 124;

/// The exit code of a job that failed without a code of its own.
const FAILED: u8 = 1;

/// What can happen to a job.
pub(super) enum Event {
    /// The process of a PE of this node has ended.
    Exited(u32, io::Result<Exit>),
    /// This launcher was sent a signal.
    Signal(i32),
    /// The job's server has news.
    News(bootstrap::Event),
    /// Nobody reads our output any more.
    OutputClosed,
}

/// Why a job fails; only the first reason counts.
struct Verdict {
    /// The PE that failed first, if it was one.
    pe: Option<u32>,
    /// The job's exit code, if it is known; else it is that of the PE, once it has one.
    code: Option<u8>,
}

/// How far the end of the PEs has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// They may report for themselves.
    Moment(Instant),
    /// They were asked to end.
    Asked(Instant),
    Killed,
}

struct Supervisor<'a> {
    plan: &'a Plan,
    share: &'a Share,
    printer: Arc<Printer>,
    events: Receiver<Event>,
    observer: Observer,
    pes: Vec<Pe>,
    verdict: Option<Verdict>,
    stage: Stage,
    /// Signals passed on so far.
    signals: u32,
    /// When the job has taken too long.
    limit: Option<Instant>,
}

/// Runs the job and returns its exit code.
pub(super) fn supervise(plan: &Plan) -> Result<u8, Error> {
    let Shape::Processes(share) = &plan.shape else {
        return Err(Error::Internal("a job of threads has nothing to supervise".into()));
    };
    let printer = Arc::new(Printer::new(plan.label));
    let (tell, events) = channel();
    sys::hold_signals().map_err(|error| Error::Internal(format!("cannot hold signals: {error}")))?;
    listen_for_signals(tell.clone())?;

    let server = if share.node == 0 { Some(start_server(share)?) } else { None };
    let address = match (&share.rendezvous, &server) {
        (Some(rendezvous), _) => rendezvous.clone(),
        (None, Some(server)) => server.addr().to_string(),
        (None, None) => return Err(Error::Internal("a node without a place to meet".into())),
    };
    let news = tell.clone();
    let observer = Observer::connect(
        &address,
        &share.token,
        share.node,
        share.n_pes,
        plan.bootstrap_timeout,
        share.node != 0,
        // Nobody listens once the job is over.
        move |event| drop(news.send(Event::News(event))),
    )?;
    let mut supervisor = Supervisor {
        plan,
        share,
        printer,
        events,
        observer,
        pes: Vec::new(),
        verdict: None,
        stage: Stage::Running,
        signals: 0,
        limit: plan.timeout.map(|timeout| Instant::now() + timeout),
    };
    for local in 0..share.count {
        match Pe::start(plan, share, local, &address, &supervisor.printer, &tell) {
            Ok(pe) => supervisor.pes.push(pe),
            Err(error) => {
                supervisor.abandon();
                return Err(error);
            }
        }
    }
    supervisor.run(server.as_ref())
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
    thread.map(drop).map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))
}

fn start_server(share: &Share) -> Result<Server, Error> {
    let listen = match &share.rendezvous {
        None => SocketAddr::from(([127, 0, 0, 1], 0)),
        Some(rendezvous) => {
            let bad = |why: String| {
                let usage = "write it as HOST:PORT, with an address of node 0";
                Error::Usage(format!("--rendezvous {rendezvous}: {why}; {usage}"))
            };
            let mut addresses = rendezvous.to_socket_addrs().map_err(|error| bad(error.to_string()))?;
            addresses.next().ok_or_else(|| bad("no such address".into()))?
        }
    };
    let options =
        ServerOptions { n_pes: share.n_pes, token: share.token.clone(), listen, exit_wait: EXIT_WAIT };
    Ok(Server::start(options)?)
}

impl Supervisor<'_> {
    fn run(mut self, server: Option<&Server>) -> Result<u8, Error> {
        while self.living().count() > 0 {
            self.advance();
            self.wait(self.next_deadline())?;
        }
        let drained_by = Instant::now() + Duration::from_secs(1);
        for pe in &mut self.pes {
            // What it left behind would keep its output open.
            pe.bury();
        }
        let drained = self.pes.iter().filter(|pe| pe.drained(drained_by)).count();
        if drained < self.pes.len() {
            tracing::warn!("a process that left its PE's process group keeps its output open");
        }
        // The server may know of failures that no exit code tells.
        self.observer.finish(GRACE)?;
        self.wait(Some(Instant::now()))?;
        self.wait_for_other_nodes(server)?;
        Ok(self.code())
    }

    /// Takes in events until `deadline`, or only one if there is none; with a deadline that has passed, all that have
    /// happened already.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let first = match deadline {
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        };
        match first {
            Ok(event) => self.take(event)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Internal("nothing can happen to the job any more".into()));
            }
        }
        while let Ok(event) = self.events.try_recv() {
            self.take(event)?;
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Exited(local, exit) => {
                let exit =
                    exit.map_err(|error| Error::Internal(format!("cannot wait for a process: {error}")))?;
                self.exited(local as usize, exit);
            }
            Event::Signal(signal) => self.signalled(signal),
            Event::News(bootstrap::Event::Lost(lost)) => self.lost(&lost),
            Event::News(bootstrap::Event::Noted(pe)) => self.noted(pe),
            Event::News(bootstrap::Event::Refused(reason)) => {
                self.fail(
                    Verdict { pe: None, code: Some(3) },
                    &format!("the job's server refused this node: {reason}"),
                );
            }
            Event::OutputClosed => {
                if self.verdict.is_none() {
                    self.verdict = Some(Verdict { pe: None, code: Some(128 + libc::SIGPIPE as u8) });
                }
                self.ask_to_end();
            }
        }
        Ok(())
    }

    fn exited(&mut self, local: usize, exit: Exit) {
        let Some(pe) = self.pes.get_mut(local) else { return };
        pe.exit = Some(exit);
        // Whether another PE failed first, the server knows: what follows waits for its answer.
        self.observer.exited(pe.pe, &exit.to_string());
    }

    /// The server has heard how a PE of this node ended, and has told all that happened before.
    fn noted(&mut self, number: u32) {
        let Some(pe) = self.pes.iter().find(|pe| pe.pe == number) else { return };
        let Some(exit) = pe.exit.filter(|exit| *exit != Exit::Code(0)) else { return };
        if self.signals > 0 || self.verdict.is_some() {
            tracing::debug!(pe = number, "{exit}");
            return;
        }
        // Its last words are most likely in the pipe already.
        pe.drained(Instant::now() + Duration::from_millis(100));
        let last = pe.last_line();
        let words = if last.is_empty() { String::new() } else { format!("; its last words: {last}") };
        self.fail(
            Verdict { pe: Some(number), code: Some(exit.code()) },
            &format!("PE {number} {exit}{words}"),
        );
    }

    /// The server says that a PE, or the server itself, was lost.
    fn lost(&mut self, lost: &PeerLost) {
        let exit = self.pes.iter().find(|pe| Some(pe.pe) == lost.pe).and_then(|pe| pe.exit);
        if let (Some(pe), Some(exit)) = (lost.pe, exit)
            && lost.reason.starts_with(&exit.to_string())
        {
            // The server has it from us, and we know its last words, too.
            self.noted(pe);
        }
        if self.signals == 0 {
            // One that ends the whole job is no loss to be told of.
            let what = match (lost.pe, lost.exit) {
                (Some(pe), Some(_)) => format!("PE {pe} {}", lost.reason),
                _ => lost.to_string(),
            };
            self.fail(Verdict { pe: lost.pe, code: lost.exit }, &what);
        }
    }

    /// The first failure is reported, and ends the job.
    fn fail(&mut self, verdict: Verdict, what: &str) {
        if self.verdict.is_some() {
            return;
        }
        let others = self.living().filter(|pe| verdict.pe != Some(pe.pe)).count();
        self.verdict = Some(verdict);
        let ending = match others {
            0 => String::new(),
            1 => "; ending the other PE".into(),
            others => format!("; ending the other {others} PEs"),
        };
        self.printer.note(&format!("{what}{ending}"));
        if self.stage == Stage::Running {
            self.stage = Stage::Moment(Instant::now() + MOMENT);
        }
    }

    fn signalled(&mut self, signal: i32) {
        self.signals += 1;
        let name = sys::signal_name(signal);
        if self.signals == 1 {
            self.printer.note(&format!("{name}: passed on to all PEs; once more kills them"));
            self.signal_all(signal);
        } else {
            self.printer.note(&format!("{name} again: killing all PEs"));
            self.stage = Stage::Killed;
            self.signal_all(libc::SIGKILL);
        }
    }

    /// Does what is due by now.
    fn advance(&mut self) {
        let now = Instant::now();
        if self.limit.is_some_and(|limit| now >= limit) {
            self.limit = None;
            self.time_out();
        }
        match self.stage {
            Stage::Moment(end) if now >= end => self.ask_to_end(),
            Stage::Asked(end) if now >= end => {
                let living = self.living_pes();
                if !living.0.is_empty() {
                    self.printer.note(&format!("{living} did not end when asked to (SIGTERM): killed"));
                }
                self.signal_all(libc::SIGKILL);
                self.stage = Stage::Killed;
            }
            _ => {}
        }
    }

    fn time_out(&mut self) {
        if self.verdict.is_none() {
            self.verdict = Some(Verdict { pe: None, code: Some(TIMED_OUT) });
            let timeout = self.plan.timeout.unwrap_or_default();
            let living = self.living_pes();
            let who = if living.0.is_empty() {
                "waiting for other nodes".into()
            } else {
                format!("ending {living}")
            };
            self.printer.note(&format!("the job took longer than its --timeout of {timeout:?}; {who}"));
        }
        self.ask_to_end();
    }

    fn ask_to_end(&mut self) {
        if matches!(self.stage, Stage::Running | Stage::Moment(_)) {
            self.signal_all(libc::SIGTERM);
            self.stage = Stage::Asked(Instant::now() + GRACE);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let stage = match self.stage {
            Stage::Moment(end) | Stage::Asked(end) => Some(end),
            Stage::Running | Stage::Killed => None,
        };
        stage.into_iter().chain(self.limit).min()
    }

    /// Node 0 serves the others until they are done.
    fn wait_for_other_nodes(&mut self, server: Option<&Server>) -> Result<(), Error> {
        let Some(server) = server else { return Ok(()) };
        let slice = Duration::from_millis(100);
        let mut left = server.wait_for_observers(self.share.nodes, Some(slice));
        if !left.is_empty() && self.verdict.is_none() {
            tracing::info!("all PEs of this node are done; waiting for nodes {left:?}");
        }
        let patience = Instant::now() + MOMENT + 2 * GRACE;
        while !left.is_empty() {
            let hopeless = self.verdict.is_some() || self.signals > 0;
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
        match &self.verdict {
            Some(verdict) => verdict.code.or_else(|| verdict.pe.and_then(own)).unwrap_or(FAILED),
            // After a signal, whatever the PEs made of it.
            None => {
                self.pes.iter().filter_map(|pe| pe.exit).map(Exit::code).find(|code| *code != 0).unwrap_or(0)
            }
        }
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

    /// Not all PEs could be started: none may stay.
    fn abandon(&mut self) {
        for pe in &mut self.pes {
            pe.signal(libc::SIGKILL);
            pe.bury();
        }
    }
}
