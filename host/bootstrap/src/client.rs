//! The bootstrap connection of a PE that is a separate process: a TCP connection to the job's server.
//!
//! The server is part of the launcher, or runs in the process of a PE. One thread receives all messages; callers wait
//! for their reply under a lock.

use std::io::{BufReader, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::auth::Token;
use crate::dial::Dial;
use crate::epoch::Epoch;
use crate::error::{Error, Failure};
use crate::job::FORM_EPOCH;
use crate::messages::{Inbox, OnMessage};
use crate::replies::{Replies, Unexpected};
use crate::server::Server;
use crate::stopped::kill_if_stopped;
use crate::traffic::{Meter, Traffic};
use crate::watch::Watch;
use crate::wire::{MESSAGE_LIMIT, Message, client_limit, frame, part_limit, read_frame};
use crate::{Bootstrap, Gathered, OnPeerLost};
use rushmem_base::{crowd_deadline, lock, wait_timeout};

/// Extra time, after a PE's deadline, for the launcher to report which PEs are missing.
const REPLY_GRACE: Duration = Duration::from_secs(5);

/// How long the process that hosts the job's server keeps serving the other PEs after the job has failed.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

/// Identity of this process in its job, and how to reach the job's server.
#[derive(Clone, Debug)]
pub struct Member {
    /// Address of the job's server, as `host:port`.
    pub server: String,
    /// The job's secret.
    pub token: Token,
    /// PE number of this process.
    pub pe: u32,
    /// Number of PEs in the job.
    pub n_pes: u32,
    /// Build ID of this process. All PEs must have the same.
    pub build_id: String,
    /// Time limit for joining the job, and the default time limit of each collective call.
    pub timeout: Duration,
    /// Whether to retry while the server is not listening yet. A server on another node may start later.
    pub retry: bool,
}

/// One PE of a job with one process per PE.
///
/// Dropping the connection without [`Bootstrap::finish`] counts as the loss of the PE.
pub struct Tcp {
    /// PID of the process that joined the job. A forked child inherits the connection but must not use it, and compares
    /// PIDs to find that out.
    process: u32,
    pe: u32,
    n_pes: u32,
    timeout: Duration,
    server: String,
    token: Token,
    shared: Arc<Shared>,
    /// Locked during each collective call, so concurrent callers take turns and the PE is in one call at a time.
    calls: Mutex<()>,
    meter: Meter,
    /// The job's server, if it runs in this process, and the index of this job. The server must outlive all other PEs'
    /// connections.
    hosted: Option<(Arc<Server>, u64)>,
}

struct Shared {
    /// For writing. Locked only while a message is written, as the listener answers heartbeats on it.
    stream: Mutex<TcpStream>,
    replies: Mutex<Replies>,
    arrived: Condvar,
    watch: Watch,
    inbox: Inbox,
}

impl Tcp {
    /// Joins the job. Collective: returns once all PEs have joined.
    ///
    /// # Errors
    ///
    /// - [`Error::Refused`]: wrong token, PE number or number of PEs.
    /// - [`Error::Connect`], [`Error::NoAnswer`]: the server cannot be reached, or does not answer.
    /// - [`Error::NotLauncher`], [`Error::Closed`]: the server does not follow the protocol, or closes the connection.
    /// - [`Error::Random`], [`Error::Thread`]: the system lacks random bytes or threads.
    /// - [`Failure::Builds`]: another PE runs a different build.
    /// - [`Failure::Missing`]: the named PEs did not join within `member.timeout`.
    /// - [`Failure::Lost`]: a PE or the launcher was lost before all had joined.
    pub fn join(member: Member) -> Result<Tcp, Error> {
        let Member { server, token, pe, n_pes, build_id, timeout, retry } = member;
        let begin = Instant::now();
        let stream = Dial { server: &server, token: &token, n_pes, within: timeout, retry }.open()?;
        let reader = stream.try_clone();
        let reader = reader.map_err(|source| Error::Connect {
            server: server.clone(),
            waited: begin.elapsed(),
            source,
        })?;

        let shared = Arc::new(Shared {
            stream: Mutex::new(stream),
            replies: Mutex::default(),
            arrived: Condvar::new(),
            watch: Watch::new(n_pes),
            inbox: Inbox::new(),
        });
        let listener = shared.clone();
        let name = "rushmem-bootstrap";
        let thread =
            std::thread::Builder::new().name(name.into()).spawn(move || listener.listen(reader, n_pes));
        thread.map_err(|source| Error::Thread { name, source })?;

        let (calls, meter) = (Mutex::new(()), Meter::default());
        let process = std::process::id();
        let tcp = Tcp { process, pe, n_pes, timeout, server, token, shared, calls, meter, hosted: None };
        tcp.send_message(&Message::Join { pe, n_pes, build: build_id, origin: origin() });
        tcp.await_gathered("joining the job", timeout.saturating_sub(begin.elapsed()))?;
        Ok(tcp)
    }

    /// Returns the address of the job's server, as `host:port`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Attaches the server that runs in this process, so this PE waits for the other PEs before it leaves.
    pub(crate) fn hosting(mut self, server: Arc<Server>) -> Tcp {
        let job = server.job();
        self.hosted = Some((server, job));
        self
    }

    /// If the job's server runs in this process, waits until all PEs have left the job.
    fn linger(&self, within: Duration) {
        let Some((server, job)) = &self.hosted else { return };
        let present = server.wait_for_pes(*job, within);
        if !present.0.is_empty() {
            tracing::warn!("{present} did not leave the job within {within:?}; its server stops now");
        }
    }

    /// Kills those processes of a failed job that are stopped by a signal and run on this machine, if the job's server
    /// runs in this process. Launchers such as mpiexec.hydra wait for all processes but do not continue or kill stopped
    /// ones.
    fn kill_stopped_pes(&self) {
        let Some((server, job)) = &self.hosted else { return };
        let here = origin_host();
        for (pe, origin) in server.origins(*job) {
            let pid = origin.strip_prefix(ORIGIN).and_then(|rest| rest.strip_suffix(&here)?.parse().ok());
            if pid.is_some_and(kill_if_stopped) {
                tracing::warn!("PE {pe}, {origin}, is stopped by a signal; the end of the job has killed it");
            }
        }
    }

    /// Leaves the job as a lost PE: `reason` is what the other PEs report. With an exit code, they exit with that code.
    fn give_up(&self, reason: &str, exit: Option<u8>) {
        if self.is_copy() {
            return;
        }
        let message = Message::Abort { reason: reason.into(), exit };
        // If the message gets lost, the launcher still notices that the connection is closed.
        if let Err(error) = self.leave(&message, "abort", Duration::from_secs(1)) {
            tracing::debug!(%error, "abort was not confirmed");
        }
        self.linger(crowd_deadline(LINGER, self.n_pes));
        self.kill_stopped_pes();
    }

    fn gather(&self, call: String, mine: &[u8], within: Duration) -> Result<Gathered, Error> {
        let limit = part_limit(self.n_pes);
        if mine.len() > limit {
            return Err(Error::TooLarge { call, bytes: mine.len(), limit });
        }
        let _one_at_a_time = lock(&self.calls);
        self.check(&call, Replies::failure)?;
        if let Some(outcome) = lock(&self.shared.replies).repeat(&call, &self.server) {
            return outcome;
        }
        self.send_message(&Message::Gather { call: call.clone(), bytes: mine.to_vec() });
        self.await_gathered(&call, within).map(Arc::new)
    }

    /// Checks that this PE may make a call, which a `failure` forbids.
    fn check(&self, call: &str, failure: impl Fn(&Replies) -> Option<&Failure>) -> Result<(), Error> {
        let replies = lock(&self.shared.replies);
        if replies.is_leaving() || self.is_copy() {
            return Err(Error::Left { call: call.into() });
        }
        failure(&replies).map_or(Ok(()), |failure| Err(failure.clone().into()))
    }

    /// Waits for the outcome of the collective call that this PE has just entered.
    fn await_gathered(&self, call: &str, within: Duration) -> Result<Vec<Vec<u8>>, Error> {
        self.outcome(call, within, |replies| replies.take_gathered(&self.server))
    }

    /// Calls `take` until it returns the outcome of the call that this PE has just entered.
    fn outcome<T>(
        &self,
        call: &str,
        within: Duration,
        take: impl Fn(&mut Replies) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        if let Some(outcome) = self.shared.wait(within, &take) {
            return outcome;
        }
        // The launcher knows which PEs are missing, and replies with their numbers.
        self.send_message(&Message::GiveUp { waited_ms: within.as_millis() as u64 });
        let grace = crowd_deadline(REPLY_GRACE, self.n_pes);
        self.shared.wait(grace, take).unwrap_or_else(|| {
            // A late reply must not pass for that of a later call.
            self.shared.lose_server("it did not answer in time".into());
            Err(Error::NoAnswer { server: self.server.clone(), call: call.into(), waited: within + grace })
        })
    }

    fn send_message(&self, message: &Message) {
        if !self.is_copy() {
            self.shared.send(message);
        }
    }

    /// Returns whether this process is a forked child of the one that joined the job.
    fn is_copy(&self) -> bool {
        std::process::id() != self.process
    }

    /// Sends this PE's last message, `Abort` or `Finish`, and waits until the server confirms it. Repeated calls do
    /// nothing.
    fn leave(&self, message: &Message, call: &str, within: Duration) -> Result<(), Error> {
        if self.is_copy() {
            return Err(Error::Left { call: call.into() });
        }
        if lock(&self.shared.replies).leave() {
            return Ok(());
        }
        self.shared.watch.close();
        self.shared.inbox.close();
        self.send_message(message);
        let confirmed = self.shared.wait(within, |replies| replies.left());
        let no_answer =
            || Err(Error::NoAnswer { server: self.server.clone(), call: call.into(), waited: within });
        confirmed.unwrap_or_else(no_answer)
    }
}

impl Shared {
    /// Sends a message. A broken connection is not an error here: the listener reports it, with a better reason.
    fn send(&self, message: &Message) {
        let mut stream = lock(&self.stream);
        if stream.write_all(&frame(message)).is_err() {
            // This makes the listener return, if it is still running.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Calls `look` immediately and after each message of the server until it returns a value, for at most `within`.
    fn wait<T>(&self, within: Duration, mut look: impl FnMut(&mut Replies) -> Option<T>) -> Option<T> {
        let begin = Instant::now();
        let mut replies = lock(&self.replies);
        loop {
            if let Some(found) = look(&mut replies) {
                return Some(found);
            }
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return None;
            }
            replies = wait_timeout(&self.arrived, replies, left);
        }
    }

    /// Handles the launcher's messages until the connection is closed, or until the launcher is silent for too long.
    fn listen(&self, stream: TcpStream, n_pes: u32) {
        let mut from = BufReader::new(stream);
        let mut silence = None;
        let reason = loop {
            match read_frame(&mut from, client_limit(n_pes)) {
                Ok(Some(Message::Ping { silence_ms })) => {
                    // Without the locks of calls and replies: this PE lives, whatever it waits for.
                    self.send(&Message::Pong);
                    let limit = Some(Duration::from_millis(silence_ms.max(1)));
                    if silence != limit
                        && let Err(error) = from.get_ref().set_read_timeout(limit)
                    {
                        break error.to_string();
                    }
                    silence = limit;
                }
                Ok(Some(Message::FromPeer(message))) => self.inbox.deliver(message),
                Ok(Some(message)) => {
                    let lost = lock(&self.replies).apply(message);
                    self.arrived.notify_all();
                    match lost {
                        Ok(lost) => lost.into_iter().for_each(|lost| self.watch.report(lost)),
                        Err(Unexpected) => break "it does not follow the protocol".into(),
                    }
                }
                Ok(None) => break "it closed the connection".into(),
                Err(error) => match silence.filter(|_| error.kind() == ErrorKind::WouldBlock) {
                    Some(silence) => break format!("it gave no sign of life for {silence:?}"),
                    None => break error.to_string(),
                },
            }
        };
        self.lose_server(reason);
    }

    /// Makes all calls fail from now on, because of the server.
    fn lose_server(&self, reason: String) {
        let lost = lock(&self.replies).lose_server(reason);
        self.arrived.notify_all();
        lost.into_iter().for_each(|lost| self.watch.report(lost));
    }
}

impl Bootstrap for Tcp {
    fn pe(&self) -> u32 {
        self.pe
    }

    fn n_pes(&self) -> u32 {
        self.n_pes
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn traffic(&self) -> Traffic {
        self.meter.read()
    }

    fn replaces(&self) -> bool {
        lock(&self.shared.replies).replaces()
    }

    fn recall(&self, tag: &str) -> Option<Gathered> {
        lock(&self.shared.replies).recall(&allgather_call(tag))
    }

    fn token(&self) -> Option<&Token> {
        Some(&self.token)
    }

    fn allgather_within(&self, tag: &str, mine: &[u8], within: Duration) -> Result<Gathered, Error> {
        self.gather(allgather_call(tag), mine, within)
            .inspect(|parts| self.meter.call(parts))
            .inspect_err(|error| self.shared.watch.wait_for_exit_callback(error))
    }

    fn barrier_within(&self, tag: &str, within: Duration) -> Result<(), Error> {
        let gathered = self.gather(barrier_call(tag), &[], within);
        gathered
            .map(|parts| self.meter.call(&parts))
            .inspect_err(|error| self.shared.watch.wait_for_exit_callback(error))
    }

    fn form_epoch(&self, admits: bool, within: Duration) -> Result<Epoch, Error> {
        let _one_at_a_time = lock(&self.calls);
        let formed = self.check(FORM_EPOCH, Replies::final_failure).and_then(|()| {
            self.send_message(&Message::FormEpoch { admits });
            self.outcome(FORM_EPOCH, within, Replies::take_epoch)
        });
        formed
            .inspect(|_| {
                self.meter.call(&[]);
                self.shared.watch.wait_for_callback();
            })
            .inspect_err(|error| self.shared.watch.wait_for_exit_callback(error))
    }

    fn abort(&self, reason: &str) {
        self.give_up(reason, None);
    }

    fn exit(&self, code: u8) {
        self.give_up(&exit_reason(code), Some(code));
    }

    fn on_peer_lost(&self, callback: OnPeerLost) -> Result<(), Error> {
        self.shared.watch.on_peer_lost(callback)
    }

    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Error> {
        let call = || format!("message to PE {to}");
        if bytes.len() > MESSAGE_LIMIT {
            return Err(Error::TooLarge { call: call(), bytes: bytes.len(), limit: MESSAGE_LIMIT });
        }
        if to >= self.n_pes {
            return Err(Error::NoPe { pe: to, n_pes: self.n_pes });
        }
        if lock(&self.shared.replies).is_leaving() {
            return Err(Error::Left { call: call() });
        }
        self.meter.message(bytes);
        self.send_message(&Message::Send { to, bytes: bytes.to_vec() });
        Ok(())
    }

    fn on_message(&self, callback: OnMessage) -> Result<(), Error> {
        self.shared.inbox.on_message(callback)
    }

    fn finish(&self) -> Result<(), Error> {
        self.leave(&Message::Finish, "finish", self.timeout)?;
        self.linger(self.timeout);
        Ok(())
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        if self.is_copy() {
            return; // a shutdown would end the connection of the parent
        }
        if std::thread::panicking() {
            self.abort("its thread panicked");
        }
        // This closes the connection. The launcher notices that; this PE itself has nothing to report.
        lock(&self.shared.replies).leave();
        self.shared.watch.close();
        self.shared.inbox.close();
        let _ = lock(&self.shared.stream).shutdown(Shutdown::Both);
    }
}

/// Returns the name of an allgather, which all its PEs must give it.
pub(crate) fn allgather_call(tag: &str) -> String {
    format!("allgather `{tag}`")
}

/// Returns the name of a barrier, which all its PEs must give it.
pub(crate) fn barrier_call(tag: &str) -> String {
    format!("barrier `{tag}`")
}

/// Returns the reason that other PEs see for the loss of a PE that exits the whole job with `code`.
pub(crate) fn exit_reason(code: u8) -> String {
    format!("ended the job with code {code}")
}

/// Returns the PID and host name of this process, for messages.
fn origin() -> String {
    format!("{ORIGIN}{}{}", std::process::id(), origin_host())
}

/// Text that [`origin`] puts before the PID.
const ORIGIN: &str = "process ";

/// Returns the text that [`origin`] puts after the PID.
fn origin_host() -> String {
    format!(" on {}", rushmem_base::host_name())
}
