//! Tracks the packets that a requester has in flight, and detects which of them are lost.
//!
//! Paths rarely reorder packets, so a packet counts as missing as soon as one that was sent after it has arrived.
//! Serial numbers order the transmissions. The response packets of a READ arrive in order too, so the request is given
//! a serial number for each of them.
//!
//! | event | consequence |
//! |---|---|
//! | acknowledgement | the peer has executed all requests up to a PSN |
//! | response data | the data of one PSN has arrived |
//! | report | the peer has buffered some requests after a gap |
//!
//! A retransmission that is only a probe, because nothing proved the packet lost, keeps its serial number. With a new
//! one, the late acknowledgement of the first transmission would mark all later packets as missing.

use crate::roce::Psn;
use std::collections::VecDeque;

/// Maximum number of packets that a responder buffers after a missing one.
pub(crate) const REORDER_WINDOW: usize = 256;
/// Length of a bitmap with one bit per packet of [`REORDER_WINDOW`], in bytes.
pub(crate) const BITS: usize = REORDER_WINDOW / 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The packet was sent, and nothing more is known about it.
    Sent,
    /// The packet is lost, and due for retransmission.
    Missing,
    /// The packet may be lost, and is due for retransmission as a probe.
    Doubtful,
    /// The peer has buffered the request until all earlier ones arrive.
    Kept,
    /// The peer has executed the request, or its data has arrived.
    Done,
}

/// The state of one PSN between its first transmission and its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Slot {
    serial: u32,
    fate: Fate,
    /// Whether the PSN belongs to a READ or an atomic, and so to response data.
    fetches: bool,
    /// Whether a request packet was sent with this PSN. A long READ has further PSNs, which only its responses use.
    begins: bool,
}

impl Slot {
    /// Whether the packet need not be sent again: the peer has buffered or executed it, or its data has arrived.
    fn is_received(self) -> bool {
        matches!(self.fate, Fate::Kept | Fate::Done)
    }

    /// Whether the peer still has to answer: data of a READ, or the acknowledgement of any other request.
    fn lacks_answer(self) -> bool {
        if self.fetches { self.fate != Fate::Done } else { !self.is_received() }
    }

    fn is_due(self) -> bool {
        matches!(self.fate, Fate::Missing | Fate::Doubtful)
    }
}

/// The packets that a requester has in flight.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// PSN of the oldest packet that is not done, which has the first slot.
    base: Psn,
    slots: VecDeque<Slot>,
    /// PSN of the oldest request that the peer is not known to have executed.
    confirmed: Psn,
    /// Serial number that the next transmission gets.
    serial: u32,
    /// Serial number before which every transmission has arrived or is lost.
    frontier: u32,
    /// Number of slots in flight for which [`Slot::is_received`] holds.
    received: u32,
    due: u32,
    /// Set once a retransmission has put serial numbers out of PSN order. Cleared when nothing is in flight.
    is_disordered: bool,
    /// Set once the peer has sent a report of buffered packets, which proves that it buffers packets after a gap.
    pub(crate) peer_keeps: bool,
}

impl Flight {
    pub(crate) fn starting_at(psn: Psn) -> Flight {
        Flight { base: psn, confirmed: psn, ..Flight::default() }
    }

    pub(crate) fn base(&self) -> Psn {
        self.base
    }

    /// Returns one past the highest PSN ever sent.
    pub(crate) fn highest(&self) -> Psn {
        self.base.plus(self.slots.len() as u32)
    }

    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    pub(crate) fn due(&self) -> u32 {
        self.due
    }

    /// Whether any packet is due for retransmission, or has arrived after one that has not.
    pub(crate) fn has_gap(&self) -> bool {
        self.received != 0 || self.due != 0
    }

    fn slot(&self, psn: Psn) -> Option<&Slot> {
        self.slots.get(usize::try_from(psn.since(self.base)).ok()?)
    }

    /// Whether the packet at `psn` need not be sent again.
    pub(crate) fn has(&self, psn: Psn) -> bool {
        psn.since(self.base) < 0 || self.slot(psn).is_some_and(|slot| slot.is_received())
    }

    /// Whether the request with this PSN was executed, or its data has arrived.
    pub(crate) fn is_done(&self, psn: Psn) -> bool {
        psn.since(self.base) < 0 || self.slot(psn).is_some_and(|slot| slot.fate == Fate::Done)
    }

    /// Returns the number of consecutive packets from `psn` on that are not known to have arrived, at most `limit`.
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

    /// Records the transmission of a request that covers `count` PSNs from `psn` on.
    pub(crate) fn note_sent(&mut self, psn: Psn, count: u32, fetches: bool) {
        let Ok(first) = usize::try_from(psn.since(self.base)) else { return };
        for i in 0..count {
            let at = first + i as usize;
            // See the module documentation: a probe must not count as a later transmission.
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
        // A READ may have been cut short here. The rest is then a separate request.
        if let Some(next) = self.slots.get_mut(first + count as usize) {
            next.begins = true;
        }
    }

    /// Records that a transmission of the packet at `psn` has arrived, so all that were sent before it have arrived or
    /// are lost. With `beyond`, that includes this transmission: it counts as lost if its response data is not here.
    fn witness(&mut self, psn: Psn, beyond: bool) {
        let Some(serial) = self.slot(psn).map(|slot| slot.serial.wrapping_add(beyond.into())) else { return };
        // Serial numbers wrap, so compare them by their difference.
        if serial.wrapping_sub(self.frontier) as i32 > 0 {
            self.frontier = serial;
        }
    }

    /// Records that the peer has executed all requests before `upto`.
    pub(crate) fn confirm(&mut self, upto: Psn) {
        // A misbehaving peer must not confirm packets that were never sent.
        let upto = if upto.since(self.highest()) > 0 { self.highest() } else { upto };
        if upto.since(self.confirmed) > 0 {
            let index = |psn: Psn, base| usize::try_from(psn.since(base)).unwrap_or(0);
            for at in index(self.confirmed, self.base)..index(upto, self.base) {
                match self.slots[at] {
                    Slot { fetches: false, .. } => self.set(at, Fate::Done),
                    // The responder sends data before any later acknowledgement, so this data was lost.
                    Slot { fate: Fate::Kept, .. } => self.set(at, Fate::Missing),
                    _ => {}
                }
            }
            self.confirmed = upto;
        }
        // Retires the done packets at the front, which moves the window.
        while self.slots.front().is_some_and(|slot| slot.fate == Fate::Done) {
            self.received -= 1;
            self.slots.pop_front();
            self.base = self.base.plus(1);
        }
        if self.slots.is_empty() {
            self.is_disordered = false;
        }
    }

    /// Processes an acknowledgement of everything up to `psn`. Response data that should have preceded it is missing.
    pub(crate) fn acknowledge(&mut self, psn: Psn) {
        let fetches = self.slot(psn).is_some_and(|slot| slot.fetches);
        self.witness(psn, fetches);
        self.confirm(psn.plus(1));
    }

    /// Records that the response data of packet `psn` has arrived.
    pub(crate) fn take_data(&mut self, psn: Psn) {
        self.witness(psn, false);
        if let Ok(at) = usize::try_from(psn.since(self.base)) {
            self.set(at, Fate::Done);
        }
        // The response also proves that all earlier requests were executed.
        self.confirm(psn.plus(1));
    }

    /// Records that the peer is waiting for the packet at `psn`, even if it reported earlier that it had buffered it.
    pub(crate) fn lack(&mut self, psn: Psn) {
        let Ok(first) = usize::try_from(psn.since(self.base)) else { return };
        for at in first..self.slots.len() {
            // A buffered READ covers several slots, which are all missing with it.
            let slot = self.slots[at];
            if at != first && (!slot.fetches || slot.begins) || slot.fate != Fate::Kept {
                return;
            }
            self.set(at, Fate::Missing);
        }
    }

    /// Processes a report of the peer: it has executed everything before `first`, and is waiting for `first`. Bit `i`
    /// of `bits` is set if it has buffered the packet at `first + 1 + i`.
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

    /// Records that the peer has buffered the request with this PSN. For a READ, that covers all its response packets.
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

    /// Marks packets before `position` as missing if a later transmission has arrived. Returns the PSN of the first of
    /// them.
    pub(crate) fn find_missing(&mut self, position: Psn) -> Option<Psn> {
        let end = usize::try_from(position.since(self.base)).unwrap_or(0).min(self.slots.len());
        let mut found = None;
        for at in 0..end {
            let Slot { serial, fate, fetches, .. } = self.slots[at];
            if serial.wrapping_sub(self.frontier) as i32 >= 0 {
                // While serial numbers ascend with PSNs, no later packet can be older.
                if !self.is_disordered {
                    break;
                }
                continue;
            }
            // A peer that does not buffer requests reports a lost one with a NAK, which makes the requester go back.
            if fate == Fate::Sent && (fetches || self.peer_keeps) {
                self.set(at, Fate::Missing);
                found = found.or(Some(self.base.plus(at as u32)));
            }
        }
        found
    }

    /// Marks the oldest packet and the last unanswered one as doubtful, so their retransmission reveals what the peer
    /// has. Missing response data is probed by repeating its request.
    pub(crate) fn doubt(&mut self) {
        let last = (0..self.slots.len().min(REORDER_WINDOW)).rev().find(|at| self.slots[*at].lacks_answer());
        for at in [Some(0), last].into_iter().flatten() {
            let begin = (0..=at).rev().find(|at| self.begins(*at)).unwrap_or(at);
            let end = (at + 1..self.slots.len()).find(|at| self.begins(*at)).unwrap_or(self.slots.len());
            for at in begin..end {
                // Once the peer has everything before a buffered request, it executes that request. If so, the answer
                // was lost.
                let is_owed = at == 0 || self.slots[at].lacks_answer();
                if is_owed && self.slots[at].fate != Fate::Missing {
                    self.set(at, Fate::Doubtful);
                }
            }
        }
    }

    /// Whether a request starts at this slot.
    fn begins(&self, at: usize) -> bool {
        self.slots.get(at).is_none_or(|slot| slot.begins || !slot.fetches)
    }

    /// Forgets which packets are missing or buffered by the peer, because the requester resends everything from the
    /// oldest packet.
    pub(crate) fn rewind(&mut self) {
        for at in 0..self.slots.len() {
            if self.slots[at].fate != Fate::Done {
                self.set(at, Fate::Sent);
            }
        }
    }

    /// Returns the PSN of the first packet from `from` on that is due for retransmission, and the number of consecutive
    /// packets that are due with it, at most `limit`.
    pub(crate) fn next_due(&self, from: Psn, limit: u32) -> Option<(Psn, u32)> {
        let start = usize::try_from(from.since(self.base)).unwrap_or(0);
        let first = (start..self.slots.len()).find(|at| self.slots[*at].is_due())?;
        let fate = self.slots[first].fate;
        let run = self.slots.iter().skip(first).take(limit as usize).take_while(|slot| slot.fate == fate);
        Some((self.base.plus(first as u32), run.count() as u32))
    }

    /// Cancels the retransmission of the packet at `psn`.
    pub(crate) fn drop_due(&mut self, psn: Psn) {
        if let Ok(at) = usize::try_from(psn.since(self.base)) {
            self.set(at, Fate::Sent);
        }
    }
}

#[cfg(test)]
mod tests;
