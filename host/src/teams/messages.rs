//! Exchanges messages between the PEs that create or destroy a team. Other PEs are not involved.
//!
//! Every PE sends its part to the first PE, which returns all parts to every PE.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rushmem_base::{lock, wait_timeout};
use rushmem_error::call_site::CallSite;

use crate::bootstrap::{Bootstrap, PeerLost, PeerMessage};
use crate::{Error, Result};

/// First byte of every team message. It distinguishes them from connect messages.
const TEAM_MESSAGE: u8 = b'T';
/// Interval at which a waiting call checks for lost PEs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A PE's part in the agreement on a team call.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct CallPart {
    /// Name and arguments of the call, which must be equal on all PEs.
    pub(super) call: String,
    /// Bit set of the slots that are free in the PE's team table.
    pub(super) free: Vec<u64>,
    /// Latest team generation known to the PE.
    pub(super) generation: u32,
}

/// A message between two PEs that make a team call together.
#[derive(serde::Serialize, serde::Deserialize)]
enum TeamMessage {
    /// The sender's part, sent to the first PE.
    Mine(CallPart),
    /// The parts of all PEs, sent by the first PE.
    All(Vec<CallPart>),
    /// The ranks of the PEs that did not make the call in time, sent by the first PE.
    Missing(Vec<u32>),
}

/// Received team messages that no call has taken yet, by sender and key of the call.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Arc<Arrived>);

#[derive(Default)]
struct Arrived {
    messages: Mutex<HashMap<(u32, String), TeamMessage>>,
    arrived: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, HashMap<(u32, String), TeamMessage>> {
        lock(&self.0.messages)
    }

    /// Keeps a team message for a later call, and returns any other message.
    pub(crate) fn keep(&self, mail: PeerMessage) -> Option<PeerMessage> {
        let Some((&TEAM_MESSAGE, text)) = mail.bytes.split_first() else { return Some(mail) };
        match serde_json::from_slice::<(String, TeamMessage)>(text) {
            Ok((key, message)) => {
                self.lock().insert((mail.from, key), message);
                self.0.arrived.notify_all();
            }
            Err(error) => tracing::error!("PE {} sent a malformed team message: {error}", mail.from),
        }
        None
    }

    /// Drops the messages whose key does not start with `prefix`.
    pub(super) fn retain(&self, prefix: &str) {
        self.lock().retain(|(_, key), _| key.starts_with(prefix));
    }

    /// Waits for messages from all PEs in `from`. Returns the messages in the order of `from`, and the PEs whose
    /// message has not arrived by `until`.
    fn take(
        &self,
        from: &[u32],
        key: &str,
        until: Instant,
        lost: &dyn Fn() -> Option<PeerLost>,
    ) -> Result<(Vec<TeamMessage>, Vec<u32>)> {
        let mut messages = self.lock();
        loop {
            let missing = |pe: &&u32| !messages.contains_key(&(**pe, key.to_owned()));
            let missing: Vec<u32> = from.iter().filter(missing).copied().collect();
            let left = until.saturating_duration_since(Instant::now());
            if missing.is_empty() || left.is_zero() {
                let taken = from.iter().filter_map(|&pe| messages.remove(&(pe, key.to_owned()))).collect();
                return Ok((taken, missing));
            }
            if let Some(lost) = lost() {
                return Err(Error::PeerLost(lost));
            }
            messages = wait_timeout(&self.0.arrived, messages, left.min(POLL_INTERVAL));
        }
    }
}

/// The message exchange between the PEs that make a team call together.
pub(crate) struct TeamExchange<'a> {
    pub(crate) bootstrap: &'a dyn Bootstrap,
    pub(crate) inbox: &'a Inbox,
    pub(crate) lost: &'a dyn Fn() -> Option<PeerLost>,
    pub(crate) within: Duration,
    pub(crate) pes: &'a [u32],
}

impl TeamExchange<'_> {
    /// Sends `mine` to all PEs of the exchange, and returns the parts of all, in the order of the PEs. `key` identifies
    /// the call on every PE.
    ///
    /// # Errors
    /// - [`Error::Mismatch`] if a PE makes another call. It names that PE.
    /// - [`Error::Absent`] if a PE never makes the call.
    /// - [`Error::PeerLost`] if a PE is lost.
    pub(super) fn share(&self, key: &str, mine: CallPart) -> Result<Vec<CallPart>> {
        let me = self.bootstrap.pe();
        let first = self.pes.first().copied().unwrap_or(me);
        let parts = if me == first { self.gather(key, &mine)? } else { self.send_part(first, key, &mine)? };
        let differs = |(part, _): &(&CallPart, &u32)| part.call != mine.call;
        match parts.iter().zip(self.pes).find(differs) {
            None => Ok(parts),
            Some((theirs, &pe)) => Err(Error::Mismatch {
                pe,
                call: mine.call.split('(').next().unwrap_or_default().into(),
                theirs: theirs.call.clone(),
                mine: mine.call,
                site: CallSite::current(),
            }),
        }
    }

    /// Collects the parts of the other PEs, and sends all parts to them. To be called on the first PE of the exchange.
    fn gather(&self, key: &str, mine: &CallPart) -> Result<Vec<CallPart>> {
        let others = self.pes.get(1..).unwrap_or_default();
        let (came, missing) = self.inbox.take(others, key, Instant::now() + self.within, self.lost)?;
        let theirs = came.into_iter().filter_map(|message| match message {
            TeamMessage::Mine(part) => Some(part),
            TeamMessage::All(_) | TeamMessage::Missing(_) => None,
        });
        let parts: Vec<CallPart> = std::iter::once(mine.clone()).chain(theirs).collect();
        // Even if some PEs are missing, all others get an answer, so all of them report the same PEs.
        let whole = missing.is_empty() && parts.len() == self.pes.len();
        let answer = if whole { TeamMessage::All(parts) } else { TeamMessage::Missing(missing) };
        for &pe in others {
            self.send(pe, key, &answer)?;
        }
        self.read(answer, mine)
    }

    /// Sends this PE's part to the first PE of the exchange, and waits for the parts of all. To be called on all other
    /// PEs.
    fn send_part(&self, first: u32, key: &str, mine: &CallPart) -> Result<Vec<CallPart>> {
        self.send(first, key, &TeamMessage::Mine(mine.clone()))?;
        // Longer than the first PE waits, since it knows which PEs are missing.
        let until = Instant::now() + self.within + self.within / 4;
        let (came, _) = self.inbox.take(&[first], key, until, self.lost)?;
        let answer = came.into_iter().next().unwrap_or_else(|| TeamMessage::Missing(vec![first]));
        self.read(answer, mine)
    }

    fn read(&self, answer: TeamMessage, mine: &CallPart) -> Result<Vec<CallPart>> {
        match answer {
            TeamMessage::All(parts) if parts.len() == self.pes.len() => Ok(parts),
            TeamMessage::Missing(pes) => Err(Error::Absent {
                call: mine.call.clone(),
                pes,
                waited: self.within,
                site: CallSite::current(),
            }),
            TeamMessage::All(_) | TeamMessage::Mine(_) => Err(Error::Absent {
                call: mine.call.clone(),
                pes: Vec::new(),
                waited: self.within,
                site: CallSite::current(),
            }),
        }
    }

    fn send(&self, to: u32, key: &str, message: &TeamMessage) -> Result<()> {
        let mut bytes = vec![TEAM_MESSAGE];
        serde_json::to_writer(&mut bytes, &(key, message))
            .map_err(|error| Error::misuse("team", error.to_string()))?;
        Ok(self.bootstrap.send(to, &bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_corpus() {
        let part = CallPart { call: "split(3)".into(), free: vec![u64::MAX, 7], generation: 2 };
        let messages = [
            TeamMessage::Mine(part.clone()),
            TeamMessage::All(vec![part.clone(), part]),
            TeamMessage::Missing(vec![1, 2]),
        ];
        let messages = messages.map(|message| {
            let mut bytes = vec![TEAM_MESSAGE];
            serde_json::to_writer(&mut bytes, &("team 1", message)).unwrap();
            bytes
        });
        rushmem_corpus::target!("teams").messages(messages).run(20_000, |bytes| {
            let inbox = Inbox::default();
            let kept = inbox.keep(PeerMessage { from: 1, bytes: bytes.to_vec() }).is_none();
            assert_eq!(kept, bytes.first() == Some(&TEAM_MESSAGE));
        });
    }
}
