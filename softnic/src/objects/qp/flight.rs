//! The packets in flight of a requester, and the fate of each.
//!
//! A path keeps packets in order, most of the time. So a packet is missing as soon as a packet has arrived that was sent
//! after it. Serial numbers count the transmissions. A request for data has the numbers of its response packets, because
//! they come in the same order.
//!
//! | event | consequence |
//! |---|---|
//! | an acknowledgement | the peer has executed all requests up to a packet |
//! | response data | the data of one packet is here |
//! | a report | the peer keeps some requests behind a gap |
//!
//! A repetition that nobody's loss has proved (a probe) keeps its serial number. Otherwise, the late acknowledgement of the
//! first transmission would make all later packets look missing.

use crate::roce::Psn;
use std::collections::VecDeque;

/// Packets after a gap that the responder keeps.
pub(crate) const KEPT: usize = 256;
/// Bytes of the bits for these packets.
pub(crate) const BITS: usize = KEPT / 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// No news.
    Sent,
    /// Lost; it must be sent again.
    Missing,
    /// Perhaps lost; it must be sent again.
    Doubtful,
    /// The peer keeps the request until it has all earlier ones.
    Kept,
    /// The peer has executed the request, or the data has come.
    Done,
}

/// A packet number in flight.
#[derive(Clone, Copy, Debug)]
struct Slot {
    serial: u32,
    fate: Fate,
    /// Whether it stands for response data.
    fetches: bool,
    /// Whether a request packet has this number, and not only a response packet.
    begins: bool,
}

impl Slot {
    /// Returns whether there is no reason to send it again.
    fn is_received(self) -> bool {
        matches!(self.fate, Fate::Kept | Fate::Done)
    }

    /// Returns whether the peer owes an answer for it.
    fn lacks_answer(self) -> bool {
        if self.fetches { self.fate != Fate::Done } else { !self.is_received() }
    }

    fn is_due(self) -> bool {
        matches!(self.fate, Fate::Missing | Fate::Doubtful)
    }
}

/// The packets in flight of a requester.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// Number of the first slot: the first packet that is not done.
    base: Psn,
    slots: VecDeque<Slot>,
    /// First request that the peer is not known to have executed.
    confirmed: Psn,
    /// Serial number of the next transmission.
    serial: u32,
    /// Everything sent before this serial number has arrived or is lost.
    frontier: u32,
    /// Slots that are received, and slots that are due.
    received: u32,
    due: u32,
    /// Whether serial numbers do not ascend with packet numbers.
    is_disordered: bool,
    /// Set once the peer has shown that it keeps packets.
    pub(crate) peer_keeps: bool,
}

impl Flight {
    /// Returns an empty flight that begins at this number.
    pub(crate) fn starting_at(psn: Psn) -> Flight {
        Flight { base: psn, confirmed: psn, ..Flight::default() }
    }

    /// Returns the number of the oldest packet that is not done.
    pub(crate) fn base(&self) -> Psn {
        self.base
    }

    /// Returns one past the highest number ever sent.
    pub(crate) fn highest(&self) -> Psn {
        self.base.plus(self.slots.len() as u32)
    }

    /// Returns the number of slots that need not be sent again.
    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// Returns the number of slots that must be sent again.
    pub(crate) fn due(&self) -> u32 {
        self.due
    }

    /// Returns whether a packet is missing, or one behind a missing one has arrived.
    pub(crate) fn has_gap(&self) -> bool {
        self.received != 0 || self.due != 0
    }

    fn slot(&self, psn: Psn) -> Option<&Slot> {
        self.slots.get(usize::try_from(psn.since(self.base)).ok()?)
    }

    /// Returns whether this packet need not be sent again.
    pub(crate) fn has(&self, psn: Psn) -> bool {
        psn.since(self.base) < 0 || self.slot(psn).is_some_and(|slot| slot.is_received())
    }

    /// Returns whether the data of this packet has come.
    pub(crate) fn is_done(&self, psn: Psn) -> bool {
        psn.since(self.base) < 0 || self.slot(psn).is_some_and(|slot| slot.fate == Fate::Done)
    }

    /// Returns the number of packets from `psn` on, at most `limit`, up to the next one that need not be sent again.
    pub(crate) fn gap(&self, psn: Psn, limit: u32) -> u32 {
        (0..limit).find(|i| self.has(psn.plus(*i))).unwrap_or(limit)
    }

    fn set(&mut self, at: usize, fate: Fate) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        let before = *slot;
        slot.fate = fate;
        let after = *slot;
        self.received += u32::from(after.is_received());
        self.received -= u32::from(before.is_received());
        self.due += u32::from(after.is_due());
        self.due -= u32::from(before.is_due());
    }

    /// Notes the transmission of a request that stands for `count` packets from `psn` on.
    pub(crate) fn note_sent(&mut self, psn: Psn, count: u32, fetches: bool) {
        let Ok(first) = usize::try_from(psn.since(self.base)) else { return };
        for i in 0..count {
            let at = first + i as usize;
            let is_probe = self.slots.get(at).is_some_and(|slot| slot.fate == Fate::Doubtful);
            let fresh = Slot { serial: self.serial, fate: Fate::Sent, fetches, begins: i == 0 };
            if at >= self.slots.len() {
                self.slots.push_back(fresh);
            } else {
                self.set(at, Fate::Sent);
                let serial = if is_probe { self.slots[at].serial } else { fresh.serial };
                self.slots[at] = Slot { serial, ..fresh };
                self.is_disordered = true;
            }
            self.serial = self.serial.wrapping_add(1);
        }
        if let Some(next) = self.slots.get_mut(first + count as usize) {
            next.begins = true;
        }
    }

    /// Notes that a transmission has arrived. `beyond` makes it count as missing itself.
    fn witness(&mut self, psn: Psn, beyond: bool) {
        let Some(serial) = self.slot(psn).map(|slot| slot.serial.wrapping_add(beyond.into())) else { return };
        if serial.wrapping_sub(self.frontier) as i32 > 0 {
            self.frontier = serial;
        }
    }

    /// Notes that the peer has executed all requests before `upto`.
    pub(crate) fn confirm(&mut self, upto: Psn) {
        let upto = if upto.since(self.highest()) > 0 { self.highest() } else { upto };
        if upto.since(self.confirmed) > 0 {
            let index = |psn: Psn, base| usize::try_from(psn.since(base)).unwrap_or(0);
            for at in index(self.confirmed, self.base)..index(upto, self.base) {
                match self.slots[at] {
                    Slot { fetches: false, .. } => self.set(at, Fate::Done),
                    // Its data should have come before the news.
                    Slot { fate: Fate::Kept, .. } => self.set(at, Fate::Missing),
                    _ => {}
                }
            }
            self.confirmed = upto;
        }
        while self.slots.front().is_some_and(|slot| slot.fate == Fate::Done) {
            self.received -= 1;
            self.slots.pop_front();
            self.base = self.base.plus(1);
        }
        if self.slots.is_empty() {
            self.is_disordered = false;
        }
    }

    /// Handles an acknowledgement of everything up to `psn`. Data that it should have followed is missing.
    pub(crate) fn acknowledge(&mut self, psn: Psn) {
        let fetches = self.slot(psn).is_some_and(|slot| slot.fetches);
        self.witness(psn, fetches);
        self.confirm(psn.plus(1));
    }

    /// Notes that the data of packet `psn` has come.
    pub(crate) fn take_data(&mut self, psn: Psn) {
        self.witness(psn, false);
        if let Ok(at) = usize::try_from(psn.since(self.base)) {
            self.set(at, Fate::Done);
        }
        self.confirm(psn.plus(1));
    }

    /// Notes that the peer expects `psn` and lacks it, though it may have kept it before.
    pub(crate) fn lack(&mut self, psn: Psn) {
        let Ok(first) = usize::try_from(psn.since(self.base)) else { return };
        for at in first..self.slots.len() {
            let slot = self.slots[at];
            if at != first && (!slot.fetches || slot.begins) || slot.fate != Fate::Kept {
                return;
            }
            self.set(at, Fate::Missing);
        }
    }

    /// Handles a report: the peer has executed all before `first` and lacks it. `bits` tell which of the packets behind it
    /// have arrived.
    pub(crate) fn take_report(&mut self, first: Psn, bits: &[u8]) {
        self.peer_keeps = true;
        self.confirm(first);
        self.lack(first);
        for i in 0..8 * bits.len().min(BITS) {
            if bits[i / 8] >> (i % 8) & 1 != 0 {
                self.keep(first.plus(1 + i as u32));
            }
        }
    }

    /// Notes that the peer keeps the request with this number, and with it all data that the request asks for.
    fn keep(&mut self, psn: Psn) {
        let Ok(first) = usize::try_from(psn.since(self.base)) else { return };
        self.witness(psn, false);
        for at in first.. {
            match self.slots.get(at) {
                Some(slot) if at == first || slot.fetches && !slot.begins => {
                    let fetches = slot.fetches;
                    if !slot.is_received() {
                        self.set(at, Fate::Kept);
                    }
                    if !fetches {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// Marks the packets before `position` as missing that something sent later has overtaken. Returns the first such one.
    pub(crate) fn find_missing(&mut self, position: Psn) -> Option<Psn> {
        let end = usize::try_from(position.since(self.base)).unwrap_or(0).min(self.slots.len());
        let mut found = None;
        for at in 0..end {
            let Slot { serial, fate, fetches, .. } = self.slots[at];
            if serial.wrapping_sub(self.frontier) as i32 >= 0 {
                if !self.is_disordered {
                    break;
                }
                continue;
            }
            // A peer that keeps nothing has asked for its requests in another way.
            if fate == Fate::Sent && (fetches || self.peer_keeps) {
                self.set(at, Fate::Missing);
                found = found.or(Some(self.base.plus(at as u32)));
            }
        }
        found
    }

    /// Doubts the oldest packet, and the last one without an answer. Data is asked for by the request.
    pub(crate) fn doubt(&mut self) {
        let last = (0..self.slots.len().min(KEPT)).rev().find(|at| self.slots[*at].lacks_answer());
        for at in [Some(0), last].into_iter().flatten() {
            let begin = (0..=at).rev().find(|at| self.begins(*at)).unwrap_or(at);
            let end = (at + 1..self.slots.len()).find(|at| self.begins(*at)).unwrap_or(self.slots.len());
            for at in begin..end {
                // The peer has executed a request that it kept, once it has all before. The answer was lost.
                let is_owed = at == 0 || self.slots[at].lacks_answer();
                if is_owed && self.slots[at].fate != Fate::Missing {
                    self.set(at, Fate::Doubtful);
                }
            }
        }
    }

    /// Returns whether a request begins at this slot.
    fn begins(&self, at: usize) -> bool {
        self.slots.get(at).is_none_or(|slot| slot.begins || !slot.fetches)
    }

    /// Forgets what is missing, and what the peer keeps: the requester sends everything again from the base.
    pub(crate) fn rewind(&mut self) {
        for at in 0..self.slots.len() {
            if self.slots[at].fate != Fate::Done {
                self.set(at, Fate::Sent);
            }
        }
    }

    /// Returns the next packet from number `from` on that must be sent again. The count of packets without a gap includes it.
    pub(crate) fn next_due(&self, from: Psn, limit: u32) -> Option<(Psn, u32)> {
        let start = usize::try_from(from.since(self.base)).unwrap_or(0);
        let first = (start..self.slots.len()).find(|at| self.slots[*at].is_due())?;
        let fate = self.slots[first].fate;
        let run = self.slots.iter().skip(first).take(limit as usize).take_while(|slot| slot.fate == fate);
        Some((self.base.plus(first as u32), run.count() as u32))
    }

    /// Gives up sending the packet again.
    pub(crate) fn drop_due(&mut self, psn: Psn) {
        if let Ok(at) = usize::try_from(psn.since(self.base)) {
            self.set(at, Fate::Sent);
        }
    }
}

#[cfg(test)]
mod tests;
