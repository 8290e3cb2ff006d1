//! Introductions: management datagrams by which software adapters of different machines recognize each other.
//!
//! The address of a peer on another machine does not say what kind of adapter it is. An adapter that connects to it
//! asks, and a software adapter answers. Any other adapter drops the question, because it does not know its class. The
//! class is vendor-specific (InfiniBand Architecture Specification, volume 1, section 16.5):
//!
//! | bytes | field |
//! |---|---|
//! | 0..3 | base version 1, class 0x3c, class version 1 |
//! | 3 | method: 1 asks, 0x81 answers |
//! | 8..16 | transaction: a random number, which the answer repeats |
//! | 16..18 | attribute 1 |
//! | 37..40 | OUI 02:52:4d, as in the MAC addresses of software adapters |
//!
//! All other bytes are 0.

use super::MAD;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const ASKS: u8 = 1;
const ANSWERS: u8 = 0x81;
/// First bytes of an introduction: base version, management class and class version.
const HEAD: [u8; 3] = [1, 0x3c, 1];
const TRANSACTION: std::ops::Range<usize> = 8..16;
/// Maximum number of questions per address, since datagrams may be lost.
const MAX_QUESTIONS: u32 = 3;

/// The peers that this adapter has asked whether they are software adapters.
#[derive(Default)]
pub(crate) struct Introductions {
    asked: BTreeMap<Ipv4Addr, Asked>,
}

/// State of the questions to one address.
#[derive(Default)]
struct Asked {
    transaction: u64,
    times: u32,
    is_answered: bool,
}

/// How a received management datagram relates to introductions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A peer asks whether this adapter is a software adapter. Contains the answer to send.
    Question(Box<[u8; MAD]>),
    /// A peer answers that it is a software adapter, as this adapter has asked.
    Answer,
    /// An answer that matches no question of this adapter.
    Stray,
    /// Not an introduction, so it is for the driver.
    Other,
}

impl Introductions {
    /// Returns the next question to the adapter at `to`. Returns `None` if it has answered or was asked too often, or
    /// if the system provides no random number.
    pub(crate) fn ask(&mut self, to: Ipv4Addr) -> Option<[u8; MAD]> {
        let asked = self.asked.entry(to).or_default();
        if asked.is_answered || asked.times == MAX_QUESTIONS {
            return None;
        }
        let transaction = getrandom::u64().ok()?;
        (asked.transaction, asked.times) = (transaction, asked.times + 1);
        Some(introduction(ASKS, transaction.to_be_bytes()))
    }

    /// Classifies a management datagram, and records the sender's answer if it is one.
    pub(crate) fn receive(&mut self, from: Ipv4Addr, mad: &[u8; MAD]) -> Meaning {
        let mut transaction = [0; 8];
        transaction.copy_from_slice(&mad[TRANSACTION]);
        if *mad == introduction(ASKS, transaction) {
            return Meaning::Question(Box::new(introduction(ANSWERS, transaction)));
        }
        if *mad != introduction(ANSWERS, transaction) {
            return Meaning::Other;
        }
        match self.asked.get_mut(&from) {
            Some(asked) if asked.transaction.to_be_bytes() == transaction => {
                asked.is_answered = true;
                Meaning::Answer
            }
            _ => Meaning::Stray,
        }
    }
}

/// Whether a datagram is of the class of introductions.
pub(crate) fn is_one(payload: &[u8]) -> bool {
    payload.starts_with(&HEAD)
}

fn introduction(method: u8, transaction: [u8; 8]) -> [u8; MAD] {
    let mut mad = [0; MAD];
    mad[..3].copy_from_slice(&HEAD);
    mad[3] = method;
    mad[TRANSACTION].copy_from_slice(&transaction);
    mad[17] = 1;
    mad[37..40].copy_from_slice(&[0x02, 0x52, 0x4d]);
    mad
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    #[test]
    fn an_answer_must_match_the_last_question() {
        let (mut mine, mut theirs) = (Introductions::default(), Introductions::default());
        let mut answer = |question: [u8; MAD]| match theirs.receive(ME, &question) {
            Meaning::Question(answer) => *answer,
            other => panic!("{other:?}"),
        };
        let lost = answer(mine.ask(PEER).unwrap());
        let second = answer(mine.ask(PEER).unwrap());
        assert_eq!(mine.receive(PEER, &lost), Meaning::Stray);
        assert_eq!(mine.receive(ME, &second), Meaning::Stray, "another address");
        assert_eq!(mine.receive(PEER, &second), Meaning::Answer);
        assert_eq!(mine.ask(PEER), None);
        assert_eq!(theirs.receive(ME, &second), Meaning::Stray, "it has asked nothing");
        assert!(theirs.asked.is_empty(), "strangers cost no memory");
    }

    #[test]
    fn an_address_without_answers_is_left_alone() {
        let mut introductions = Introductions::default();
        assert_eq!((0..10).filter(|_| introductions.ask(PEER).is_some()).count(), MAX_QUESTIONS as usize);
    }

    #[test]
    fn other_datagrams_are_no_introductions() {
        let mut introductions = Introductions::default();
        let question = introductions.ask(PEER).unwrap();
        for i in (0..MAD).filter(|i| !TRANSACTION.contains(i)) {
            let mut other = question;
            other[i] ^= 0x10;
            assert_eq!(introductions.receive(PEER, &other), Meaning::Other, "byte {i}");
        }
        assert_eq!(introductions.receive(PEER, &[0; MAD]), Meaning::Other);
    }
}
