//! What the PEs that make or end a team say to each other. The others hear nothing of it.
//!
//! Every PE sends its part to the first of them, which returns all parts to all.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bootstrap::{Bootstrap, Mail, PeerLost};
use crate::{Error, Result};

/// What every letter about teams begins with; those about queues begin with another byte.
const MARK: u8 = b'T';
/// How often a waiting call looks whether a PE was lost.
const LOOK: Duration = Duration::from_millis(50);

/// What a PE brings to a call.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Part {
    /// The call with its arguments.
    pub(super) call: String,
    /// A bit for each slot of the table that is free.
    pub(super) free: Vec<u64>,
    /// The last generation that it knows.
    pub(super) generation: u32,
}

#[derive(serde::Serialize, serde::Deserialize)]
enum Letter {
    /// To the first PE.
    Mine(Part),
    /// From the first PE.
    All(Vec<Part>),
    /// From the first PE: who did not come.
    Missing(Vec<u32>),
}

/// The letters that nobody has taken yet, by sender and call.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Arc<Shared>);

#[derive(Default)]
struct Shared {
    letters: Mutex<HashMap<(u32, String), Letter>>,
    came: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, HashMap<(u32, String), Letter>> {
        self.0.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a letter about teams; gives any other one back.
    pub(crate) fn keep(&self, mail: Mail) -> Option<Mail> {
        let Some((&MARK, text)) = mail.bytes.split_first() else { return Some(mail) };
        match serde_json::from_slice::<(String, Letter)>(text) {
            Ok((key, letter)) => {
                self.lock().insert((mail.from, key), letter);
                self.0.came.notify_all();
            }
            Err(error) => tracing::error!("a letter of PE {} makes no sense: {error}", mail.from),
        }
        None
    }

    /// Waits for the letters of all of `from`; those that came, in that order, and who is missing at the deadline.
    fn take(
        &self,
        from: &[u32],
        key: &str,
        until: Instant,
        lost: &dyn Fn() -> Option<PeerLost>,
    ) -> Result<(Vec<Letter>, Vec<u32>)> {
        let mut letters = self.lock();
        loop {
            let missing = |pe: &&u32| !letters.contains_key(&(**pe, key.to_owned()));
            let missing: Vec<u32> = from.iter().filter(missing).copied().collect();
            let left = until.saturating_duration_since(Instant::now());
            if missing.is_empty() || left.is_zero() {
                let taken = from.iter().filter_map(|&pe| letters.remove(&(pe, key.to_owned()))).collect();
                return Ok((taken, missing));
            }
            if let Some(lost) = lost() {
                return Err(Error::PeerLost(lost));
            }
            letters =
                self.0.came.wait_timeout(letters, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The PEs that make a call together, and how they reach each other.
pub(super) struct Circle<'a> {
    pub(super) bootstrap: &'a dyn Bootstrap,
    pub(super) inbox: &'a Inbox,
    pub(super) lost: &'a dyn Fn() -> Option<PeerLost>,
    pub(super) within: Duration,
    pub(super) pes: &'a [u32],
}

impl Circle<'_> {
    /// Gives `mine` to all, and returns all parts in the order of the PEs. `key` is the same for all, and of this
    /// call alone.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with a PE whose call differs, [`Error::Absent`], [`Error::PeerLost`].
    pub(super) fn share(&self, key: &str, mine: Part) -> Result<Vec<Part>> {
        let me = self.bootstrap.pe();
        let first = self.pes.first().copied().unwrap_or(me);
        let parts = if me == first { self.gather(key, &mine)? } else { self.tell(first, key, &mine)? };
        let differs = |(part, _): &(&Part, &u32)| part.call != mine.call;
        match parts.iter().zip(self.pes).find(differs) {
            None => Ok(parts),
            Some((theirs, &pe)) => Err(Error::Mismatch {
                pe,
                call: mine.call.split('(').next().unwrap_or_default().into(),
                theirs: theirs.call.clone(),
                mine: mine.call,
            }),
        }
    }

    fn gather(&self, key: &str, mine: &Part) -> Result<Vec<Part>> {
        let others = self.pes.get(1..).unwrap_or_default();
        let (came, missing) = self.inbox.take(others, key, Instant::now() + self.within, self.lost)?;
        let theirs = came.into_iter().filter_map(|letter| match letter {
            Letter::Mine(part) => Some(part),
            Letter::All(_) | Letter::Missing(_) => None,
        });
        let parts: Vec<Part> = std::iter::once(mine.clone()).chain(theirs).collect();
        let whole = missing.is_empty() && parts.len() == self.pes.len();
        let answer = if whole { Letter::All(parts) } else { Letter::Missing(missing) };
        for &pe in others {
            self.send(pe, key, &answer)?;
        }
        self.read(answer, mine)
    }

    fn tell(&self, first: u32, key: &str, mine: &Part) -> Result<Vec<Part>> {
        self.send(first, key, &Letter::Mine(mine.clone()))?;
        // Longer than the first PE waits, which knows who is missing.
        let until = Instant::now() + self.within + self.within / 4;
        let (came, _) = self.inbox.take(&[first], key, until, self.lost)?;
        let answer = came.into_iter().next().unwrap_or_else(|| Letter::Missing(vec![first]));
        self.read(answer, mine)
    }

    fn read(&self, answer: Letter, mine: &Part) -> Result<Vec<Part>> {
        match answer {
            Letter::All(parts) if parts.len() == self.pes.len() => Ok(parts),
            Letter::Missing(pes) => Err(Error::Absent { call: mine.call.clone(), pes, waited: self.within }),
            Letter::All(_) | Letter::Mine(_) => {
                Err(Error::Absent { call: mine.call.clone(), pes: Vec::new(), waited: self.within })
            }
        }
    }

    fn send(&self, to: u32, key: &str, letter: &Letter) -> Result<()> {
        let mut bytes = vec![MARK];
        serde_json::to_writer(&mut bytes, &(key, letter))
            .map_err(|error| Error::Misuse { call: "team", what: error.to_string() })?;
        Ok(self.bootstrap.send(to, &bytes)?)
    }
}
