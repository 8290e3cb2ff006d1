//! A PE that is a process, connected to its job's server: the launcher's, or that in the process of a PE.

use std::io::{BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::auth::Token;
use crate::dial::Dial;
use crate::error::{Error, Failure, PeerLost};
use crate::messages::{Inbox, OnMessage};
use crate::server::Server;
use crate::watch::Watch;
use crate::wire::{MESSAGE_LIMIT, Message, client_limit, frame, part_limit, read_frame};
use crate::{Bootstrap, OnPeerLost};
use rushmem_base::{lock, wait_timeout};

/// How much longer than a PE's own deadline the launcher may take to say who is missing.
const GRACE: Duration = Duration::from_secs(5);

/// How long the process with the job's server waits for the others after a failure, before it leaves them without.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

/// Who this process is in its job, and where the job is.
#[derive(Clone, Debug)]
pub struct Member {
    /// The launcher's `host:port`.
    pub server: String,
    /// The job's secret.
    pub token: Token,
    /// The number of this PE.
    pub pe: u32,
    /// The PEs of the job.
    pub n_pes: u32,
    /// What this process was built from; it must be the same in all PEs.
    pub build_id: String,
    /// The deadline of calls that do not give their own.
    pub timeout: Duration,
    /// Whether to wait for a launcher that does not listen yet, as one on another node may.
    pub retry: bool,
}

/// One PE of a job whose PEs are processes.
///
/// Dropped without [`Bootstrap::finish`], its PE counts as lost.
pub struct Tcp {
    pe: u32,
    n_pes: u32,
    timeout: Duration,
    server: String,
    token: Token,
    stream: Mutex<TcpStream>,
    shared: Arc<Shared>,
    /// One call at a time.
    calls: Mutex<()>,
    /// The job's server, if it lives in this process, and which of its jobs this is: it must outlive the other PEs.
    hosted: Option<(Arc<Server>, u64)>,
}

struct Shared {
    inbox: Mutex<Replies>,
    arrived: Condvar,
    watch: Watch,
    mailbox: Inbox,
}

/// What the launcher has said and nobody has taken yet.
#[derive(Default)]
struct Replies {
    gathered: Option<Vec<Vec<u8>>>,
    left: bool,
    refused: Option<String>,
    failure: Option<Failure>,
    /// The connection to the server has ended.
    server_lost: bool,
    /// This PE has left the job by its own will.
    leaving: bool,
}

impl Tcp {
    /// Joins the job. Collective: returns when all PEs have joined.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a wrong token, number or count of PEs; [`Failure::Builds`] if another PE was built from
    /// other sources; [`Failure::Missing`] names the PEs that did not come within `member.timeout`.
    pub fn join(member: Member) -> Result<Tcp, Error> {
        let Member { server, token, pe, n_pes, build_id, timeout, retry } = member;
        let begin = Instant::now();
        let stream = Dial { server: &server, token: &token, within: timeout, retry }.open()?;
        let reader = stream.try_clone();
        let reader = reader.map_err(|source| Error::Connect {
            server: server.clone(),
            waited: begin.elapsed(),
            source,
        })?;

        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            watch: Watch::new(),
            mailbox: Inbox::new(),
        });
        let listener = shared.clone();
        let name = "rushmem-bootstrap";
        let thread =
            std::thread::Builder::new().name(name.into()).spawn(move || listener.listen(reader, n_pes));
        thread.map_err(|source| Error::Thread { name, source })?;

        let (stream, calls) = (Mutex::new(stream), Mutex::new(()));
        let tcp = Tcp { pe, n_pes, timeout, server, token, stream, shared, calls, hosted: None };
        tcp.tell(&Message::Join { pe, n_pes, build: build_id, whence: whence() });
        tcp.await_gathered("joining the job", timeout.saturating_sub(begin.elapsed()))?;
        Ok(tcp)
    }

    /// Where the job's server listens.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Has this PE, whose process has the job's server, wait for the others at its end.
    pub(crate) fn hosting(mut self, server: Arc<Server>) -> Tcp {
        let job = server.job();
        self.hosted = Some((server, job));
        self
    }

    /// Waits until the other PEs need the server of this process no more.
    fn linger(&self, within: Duration) {
        let Some((server, job)) = &self.hosted else { return };
        let present = server.wait_for_pes(*job, within);
        if !present.0.is_empty() {
            tracing::warn!("{present} did not leave the job within {within:?}, and lose its server now");
        }
    }

    /// Gives up; the launcher hears why, and the code with which all are to end.
    fn give_up(&self, reason: &str, exit: Option<u8>) {
        let message = Message::Abort { reason: reason.into(), exit };
        // A launcher that does not hear it sees the connection close instead.
        if let Err(error) = self.leave(&message, "abort", Duration::from_secs(1)) {
            tracing::debug!(%error, "abort was not confirmed");
        }
        self.linger(LINGER);
    }

    fn gather(&self, call: String, mine: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, Error> {
        let limit = part_limit(self.n_pes);
        if mine.len() > limit {
            return Err(Error::TooLarge { call, bytes: mine.len(), limit });
        }
        let _one_at_a_time = lock(&self.calls);
        {
            let inbox = lock(&self.shared.inbox);
            if inbox.leaving {
                return Err(Error::Left { call });
            }
            if let Some(failure) = &inbox.failure {
                return Err(failure.clone().into());
            }
        }
        self.tell(&Message::Gather { call: call.clone(), bytes: mine.to_vec() });
        self.await_gathered(&call, within)
    }

    /// Waits for the end of the collective call that was just entered.
    fn await_gathered(&self, call: &str, within: Duration) -> Result<Vec<Vec<u8>>, Error> {
        let answer = |inbox: &mut Replies| {
            if let Some(parts) = inbox.gathered.take() {
                return Some(Ok(parts));
            }
            if let Some(reason) = inbox.refused.take() {
                return Some(Err(Error::Refused { server: self.server.clone(), reason }));
            }
            inbox.failure.clone().map(|failure| Err(failure.into()))
        };
        if let Some(answer) = self.shared.wait(within, answer) {
            return answer;
        }
        // The launcher knows who is missing.
        self.tell(&Message::GiveUp { waited_ms: within.as_millis() as u64 });
        let silent =
            || Err(Error::Silent { server: self.server.clone(), call: call.into(), waited: within + GRACE });
        self.shared.wait(GRACE, answer).unwrap_or_else(silent)
    }

    /// A connection that broke is noticed by the listener, which knows more than the error of a write.
    fn tell(&self, message: &Message) {
        let mut stream = lock(&self.stream);
        if stream.write_all(&frame(message)).is_err() {
            // Ends the listener, if it has not ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Says a last word, and waits until the launcher has heard it.
    fn leave(&self, message: &Message, call: &str, within: Duration) -> Result<(), Error> {
        {
            let mut inbox = lock(&self.shared.inbox);
            if std::mem::replace(&mut inbox.leaving, true) {
                return Ok(());
            }
        }
        self.shared.watch.close();
        self.shared.mailbox.close();
        self.tell(message);
        let heard = self.shared.wait(within, |inbox| {
            if inbox.left {
                return Some(Ok(()));
            }
            match &inbox.failure {
                // Without a launcher there is nobody left to tell.
                Some(failure) if inbox.server_lost => Some(Err(failure.clone().into())),
                _ => None,
            }
        });
        let silent = || Err(Error::Silent { server: self.server.clone(), call: call.into(), waited: within });
        heard.unwrap_or_else(silent)
    }
}

impl Shared {
    /// Waits until `look` finds something, at most `within`.
    fn wait<T>(&self, within: Duration, mut look: impl FnMut(&mut Replies) -> Option<T>) -> Option<T> {
        let begin = Instant::now();
        let mut inbox = lock(&self.inbox);
        loop {
            if let Some(found) = look(&mut inbox) {
                return Some(found);
            }
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return None;
            }
            inbox = wait_timeout(&self.arrived, inbox, left);
        }
    }

    /// Takes in what the launcher says, until the connection ends.
    fn listen(&self, stream: TcpStream, n_pes: u32) {
        let mut from = BufReader::new(stream);
        // The PE with the job's server, if a PE has it. All learn it when they join.
        let mut host = None;
        let reason = loop {
            let message = match read_frame(&mut from, client_limit(n_pes)) {
                Ok(Some(message)) => message,
                Ok(None) => break "it closed the connection".into(),
                Err(error) => break error.to_string(),
            };
            match message {
                Message::Gathered { parts } => {
                    host.get_or_insert_with(|| parts.iter().position(|part| !part.is_empty()));
                    self.put(|inbox| inbox.gathered = Some(parts));
                }
                Message::Left => self.put(|inbox| inbox.left = true),
                Message::Refused { reason } => self.put(|inbox| inbox.refused = Some(reason)),
                Message::Failed(failure) => self.put(|inbox| {
                    inbox.failure.get_or_insert(failure);
                }),
                Message::Lost(lost) => self.lost(lost, false),
                Message::FromPeer(mail) => self.mailbox.deliver(mail),
                _ => break "it does not follow the protocol".into(),
            }
        };
        let lost = match host.flatten() {
            Some(pe) => {
                let reason = format!("it had the job's server, and {reason}");
                PeerLost { pe: Some(pe as u32), reason, exit: None }
            }
            None => PeerLost { pe: None, reason, exit: None },
        };
        self.lost(lost, true);
    }

    fn put(&self, change: impl FnOnce(&mut Replies)) {
        change(&mut lock(&self.inbox));
        self.arrived.notify_all();
    }

    /// Notes a lost PE or launcher. `is_server` tells that the job's server went with it.
    fn lost(&self, lost: PeerLost, is_server: bool) {
        let failure = Failure::Lost(lost.clone());
        let mut leaving = false;
        self.put(|inbox| {
            leaving = inbox.leaving;
            inbox.server_lost |= is_server;
            match &inbox.failure {
                // While leaving, only the loss of the server is news.
                Some(_) if !(leaving && is_server) => {}
                _ => inbox.failure = Some(failure),
            }
        });
        if !leaving {
            self.watch.tell(lost);
        }
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

    fn token(&self) -> Option<&Token> {
        Some(&self.token)
    }

    fn allgather_within(&self, tag: &str, mine: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, Error> {
        self.gather(format!("allgather `{tag}`"), mine, within)
            .inspect_err(|error| self.shared.watch.hold(error))
    }

    fn barrier_within(&self, tag: &str, within: Duration) -> Result<(), Error> {
        let gathered = self.gather(format!("barrier `{tag}`"), &[], within);
        gathered.map(drop).inspect_err(|error| self.shared.watch.hold(error))
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
        let call = || format!("letter to PE {to}");
        if bytes.len() > MESSAGE_LIMIT {
            return Err(Error::TooLarge { call: call(), bytes: bytes.len(), limit: MESSAGE_LIMIT });
        }
        if to >= self.n_pes {
            return Err(Error::NoPe { pe: to, n_pes: self.n_pes });
        }
        if lock(&self.shared.inbox).leaving {
            return Err(Error::Left { call: call() });
        }
        self.tell(&Message::Send { to, bytes: bytes.to_vec() });
        Ok(())
    }

    fn on_message(&self, callback: OnMessage) -> Result<(), Error> {
        self.shared.mailbox.on_message(callback)
    }

    fn finish(&self) -> Result<(), Error> {
        self.leave(&Message::Finish, "finish", self.timeout)?;
        self.linger(self.timeout);
        Ok(())
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("its thread panicked");
        }
        // The launcher sees the connection closed; to ourselves that is no news.
        lock(&self.shared.inbox).leaving = true;
        self.shared.watch.close();
        self.shared.mailbox.close();
        let _ = lock(&self.stream).shutdown(Shutdown::Both);
    }
}

/// How a PE is lost that ends the whole job.
pub(crate) fn exit_reason(code: u8) -> String {
    format!("ended the job with code {code}")
}

/// This process and its host, for messages.
fn whence() -> String {
    format!("process {} on {}", std::process::id(), rushmem_base::host_name())
}
