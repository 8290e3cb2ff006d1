//! What a PE knows from the messages of its job's server. It has no I/O.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Gathered;
use crate::epoch::Epoch;
use crate::error::{Error, Failure, PeerLost};
use crate::wire::Message;

/// A message that is neither a reply nor the report of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unexpected;

/// Replies of the job's server that no caller has consumed yet, and the failure of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Replies {
    gathered: Option<Vec<Vec<u8>>>,
    /// The calls of the start of the job that this PE has yet to repeat, if it replaces a lost one.
    past: VecDeque<(String, Gathered)>,
    replaces: bool,
    epoch: Option<Epoch>,
    left: bool,
    refused: Option<String>,
    failure: Option<Failure>,
    /// The PE that runs the job's server, unless the launcher does. Known once all PEs have joined.
    host: Option<Option<u32>>,
    /// Whether the connection to the server is closed.
    server_lost: bool,
    /// Whether this PE has called `finish`, `abort` or `exit`.
    leaving: bool,
}

impl Replies {
    /// Records a message of the server. Returns the loss that this PE must report.
    pub(crate) fn apply(&mut self, message: Message) -> Result<Option<PeerLost>, Unexpected> {
        match message {
            Message::Gathered { parts } => {
                // The reply to `Join` marks the PE that runs the server by a non-empty contribution.
                self.host.get_or_insert_with(|| {
                    (0..).zip(&parts).find(|(_, part)| !part.is_empty()).map(|(pe, _)| pe)
                });
                self.gathered = Some(parts);
            }
            Message::Past { call, parts } => {
                self.replaces = true;
                self.past.push_back((call, Arc::new(parts)));
            }
            Message::Epoch(epoch) => {
                self.failure.take_if(|failure| failure.is_survivable());
                self.epoch = Some(epoch);
            }
            Message::Left => self.left = true,
            Message::Refused { reason } => self.refused = Some(reason),
            Message::Failed(failure) => drop(failure.record(&mut self.failure)),
            Message::Lost(lost) => {
                Failure::Lost(lost.clone()).record(&mut self.failure);
                return Ok(self.report(lost));
            }
            _ => return Err(Unexpected),
        }
        Ok(None)
    }

    /// Records that the connection to the server is closed, which is final. Returns the loss that this PE must report.
    pub(crate) fn lose_server(&mut self, reason: String) -> Option<PeerLost> {
        let host = self.host.flatten();
        let reason = if host.is_some() { format!("it ran the job's server, and {reason}") } else { reason };
        let lost = PeerLost { pe: host, reason, exit: None, survivable: false };
        self.server_lost = true;
        if self.leaving {
            // This PE waits for the server, so its loss replaces any earlier failure.
            self.failure = None;
        }
        Failure::Lost(lost.clone()).record(&mut self.failure);
        self.report(lost)
    }

    fn report(&self, lost: PeerLost) -> Option<PeerLost> {
        (!self.leaving).then_some(lost)
    }

    /// Returns whether this PE has called `finish`, `abort` or `exit`.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Records that this PE leaves the job. Returns whether it was leaving before.
    pub(crate) fn leave(&mut self) -> bool {
        std::mem::replace(&mut self.leaving, true)
    }

    /// Returns the failure with which collective calls of this PE would fail now.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Returns the failure if it is final: the next epoch does not clear it.
    pub(crate) fn final_failure(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|failure| !failure.is_survivable())
    }

    /// Returns whether this PE replaces a lost one.
    pub(crate) fn replaces(&self) -> bool {
        self.replaces
    }

    /// Returns the contributions to the call of the start that this PE has yet to repeat.
    pub(crate) fn recall(&self, call: &str) -> Option<Gathered> {
        self.past.iter().find(|(past, _)| past == call).map(|(_, parts)| Arc::clone(parts))
    }

    /// Repeats the call `call` of the start of the job. Returns `None` if there is nothing to repeat.
    pub(crate) fn repeat(&mut self, call: &str, server: &str) -> Option<Result<Gathered, Error>> {
        let (past, parts) = self.past.pop_front()?;
        Some(if past == call {
            Ok(parts)
        } else {
            let reason = format!("the other PEs started with {past}, where this one makes {call}");
            Err(Error::Refused { server: server.into(), reason })
        })
    }

    /// Returns the outcome of the collective call that this PE is in, once there is one. A result that has arrived
    /// counts, even if a failure has arrived since.
    pub(crate) fn take_gathered(&mut self, server: &str) -> Option<Result<Vec<Vec<u8>>, Error>> {
        if let Some(parts) = self.gathered.take() {
            return Some(Ok(parts));
        }
        if let Some(reason) = self.refused.take() {
            return Some(Err(Error::Refused { server: server.into(), reason }));
        }
        self.failure.clone().map(|failure| Err(failure.into()))
    }

    /// Returns the epoch that this PE waits for, once it is formed or the job has failed for good. An epoch that has
    /// arrived counts, even if a failure has arrived since.
    pub(crate) fn take_epoch(&mut self) -> Option<Result<Epoch, Error>> {
        match self.epoch.take() {
            Some(epoch) => Some(Ok(epoch)),
            None => self.final_failure().map(|failure| Err(failure.clone().into())),
        }
    }

    /// Returns whether the server has confirmed that this PE has left, or why it will not.
    pub(crate) fn left(&self) -> Option<Result<(), Error>> {
        match &self.failure {
            _ if self.left => Some(Ok(())),
            // Without a server, no confirmation will come.
            Some(failure) if self.server_lost => Some(Err(failure.clone().into())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_base::Pes;

    fn lost(pe: u32) -> PeerLost {
        PeerLost { pe: Some(pe), reason: "killed".into(), exit: None, survivable: true }
    }

    fn epoch() -> Epoch {
        Epoch { number: 2, pes: vec![0, 2], joined: vec![] }
    }

    #[test]
    fn epoch_ends_only_survivable_failures() {
        let mut replies = Replies::default();
        assert_eq!(replies.apply(Message::Lost(lost(1))), Ok(Some(lost(1))));
        replies.apply(Message::Lost(lost(3))).unwrap();
        assert_eq!(replies.failure(), Some(&Failure::Lost(lost(1))));
        assert!(replies.take_epoch().is_none());
        replies.apply(Message::Epoch(epoch())).unwrap();
        assert_eq!(replies.failure(), None);

        let last = Failure::Left { call: "a".into(), pes: Pes(vec![2]) };
        replies.apply(Message::Failed(last.clone())).unwrap();
        assert_eq!(replies.take_epoch().unwrap().unwrap(), epoch());
        replies.apply(Message::Epoch(epoch())).unwrap();
        assert_eq!(replies.final_failure(), Some(&last));
    }

    #[test]
    fn replacement_repeats_the_calls_of_the_start_in_their_order() {
        let mut replies = Replies::default();
        assert!(!replies.replaces() && replies.repeat("a", "").is_none());
        for (call, byte) in [("a", 1), ("b", 2), ("c", 3)] {
            replies.apply(Message::Past { call: call.into(), parts: vec![vec![byte]] }).unwrap();
        }
        assert!(replies.replaces());
        assert_eq!(*replies.recall("b").unwrap(), [[2]]);
        assert_eq!(*replies.repeat("a", "").unwrap().unwrap(), [[1]]);
        assert!(replies.recall("a").is_none());
        let error = replies.repeat("c", "there").unwrap().unwrap_err().to_string();
        assert!(error.contains("started with b, where this one makes c"), "{error}");
    }

    #[test]
    fn loss_of_the_server_names_its_host_and_is_final() {
        let mut replies = Replies::default();
        replies.apply(Message::Gathered { parts: vec![vec![], vec![1]] }).unwrap();
        assert!(replies.take_gathered("").unwrap().is_ok());
        replies.apply(Message::Lost(lost(0))).unwrap();
        let server = replies.lose_server("it closed the connection".into()).unwrap();
        assert_eq!((server.pe, server.survivable), (Some(1), false));
        assert_eq!(replies.final_failure(), Some(&Failure::Lost(server)));
    }

    #[test]
    fn leaving_pe_reports_no_losses_and_waits_for_its_server() {
        let mut replies = Replies::default();
        assert!(!replies.leave() && replies.leave());
        assert_eq!(replies.apply(Message::Lost(lost(1))), Ok(None));
        assert!(replies.left().is_none());
        assert_eq!(replies.lose_server("it closed the connection".into()), None);
        assert!(replies.left().unwrap().is_err());
        replies.apply(Message::Left).unwrap();
        assert!(replies.left().unwrap().is_ok());
        assert_eq!(replies.apply(Message::Finish), Err(Unexpected));
    }
}
