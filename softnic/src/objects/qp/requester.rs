//! The requester's half of a connection over packets: messages in flight, acknowledged packets and timers.

use super::flight::{Flight, KEPT};
use super::message::Message;
use super::pace::Pace;
use crate::roce::Psn;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Initial maximum of packets in flight.
const INITIAL_WINDOW: u32 = 32;
/// Smallest maximum of packets in flight, after losses.
const MIN_WINDOW: u32 = 2;

/// The requester's half of a connection.
#[derive(Debug)]
pub(crate) struct Requester {
    /// WQEs started and not completed, oldest first.
    pub(crate) messages: VecDeque<Message>,
    /// Position of sending: a message, and a packet in it.
    pub(crate) next: usize,
    pub(crate) next_packet: u32,
    /// Blocks started. The consumer counter of the send queue follows it.
    pub(crate) started: u16,
    /// Packets sent and not done.
    pub(crate) flight: Flight,
    /// Last packet numbers of READ and atomic requests that are not answered.
    pub(crate) reads: VecDeque<Psn>,
    /// Set when a WQE failed locally; no later WQE starts.
    pub(crate) broken: bool,
    /// Maximum of packets in flight, and the credit towards a larger one.
    pub(crate) window: u32,
    credit: u32,
    /// Time of the last acknowledgement, or of sending the first unacknowledged packet.
    pub(crate) progress: Option<Instant>,
    /// Time of the next retransmission, and its timeout.
    pub(crate) resend: Option<Instant>,
    pub(crate) backoff: Duration,
    /// End of a pause after the peer was not ready to receive.
    pub(crate) pause: Option<Instant>,
    /// Packet number of a loss that is already handled.
    lost: Option<Psn>,
    /// The window has already shrunk for losses before this packet.
    episode: Option<Psn>,
    pace: Pace,
    /// Set if a packet was too long for the link, until the next acknowledgement.
    pub(crate) too_long: bool,
}

impl Default for Requester {
    fn default() -> Requester {
        Requester {
            messages: VecDeque::new(),
            next: 0,
            next_packet: 0,
            started: 0,
            flight: Flight::default(),
            reads: VecDeque::new(),
            broken: false,
            window: INITIAL_WINDOW,
            credit: 0,
            progress: None,
            resend: None,
            backoff: Duration::ZERO,
            pause: None,
            lost: None,
            episode: None,
            pace: Pace::default(),
            too_long: false,
        }
    }
}

impl Requester {
    /// Begins or continues at this packet number. Nothing before it is awaited.
    pub(crate) fn start(&mut self, psn: Psn) {
        self.flight = Flight::starting_at(psn);
        self.episode = None;
    }

    /// Returns the first packet number that is not acknowledged, or lacks its data.
    pub(crate) fn acked(&self) -> Psn {
        self.flight.base()
    }

    /// Returns the PSN of the next packet to send.
    pub(crate) fn position(&self, fresh: Psn) -> Psn {
        self.messages.get(self.next).map_or(fresh, |message| message.first.plus(self.next_packet))
    }

    /// Moves the send position to the packet with this number.
    pub(crate) fn seek(&mut self, psn: Psn) {
        let holds = |message: &Message| message.end().since(psn) > 0;
        self.next = self.messages.iter().position(holds).unwrap_or(self.messages.len());
        self.next_packet = match self.messages.get(self.next) {
            Some(message) => psn.since(message.first).max(0) as u32,
            None => 0,
        };
        while self.reads.back().is_some_and(|last| last.since(psn) >= 0) {
            self.reads.pop_back();
        }
    }

    /// Returns the time of the last acknowledgement, if any.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.progress
    }

    /// Returns the number of packets from `psn` on that may be sent now.
    pub(crate) fn room(&self, psn: Psn) -> u32 {
        let (ahead, received) = (psn.since(self.acked()).max(0) as u32, self.flight.received());
        let room = self.window.saturating_sub(ahead.saturating_sub(received));
        // A peer with a gap keeps no more than this.
        if received == 0 { room } else { room.min((KEPT as u32).saturating_sub(ahead)) }
    }

    /// Records the transmission of a request that stands for `count` packets from `psn` on.
    pub(crate) fn sent(
        &mut self,
        (psn, count): (Psn, u32),
        fetches: bool,
        now: Instant,
        configured: Duration,
    ) {
        if psn == self.flight.highest() {
            self.pace.note_sent(psn.plus(count - 1), now);
        }
        self.flight.note_sent(psn, count, fetches);
        if self.resend.is_none() {
            self.progress = Some(now);
            self.rearm(now, configured);
        }
    }

    /// Handles a loss: resends from the oldest unacknowledged packet, with a smaller window.
    pub(crate) fn go_back(&mut self) {
        self.window = (self.window / 2).max(MIN_WINDOW);
        self.credit = 0;
        self.resume();
    }

    /// Moves the send position to the oldest unacknowledged packet.
    pub(crate) fn resume(&mut self) {
        self.flight.rewind();
        self.pace.forget();
        let psn = self.acked();
        self.seek(psn);
    }

    /// Asks the peer what it has, by sending two packets again. Returns whether that is enough; if not, the requester goes back.
    /// `fresh` is the PSN of the next new packet.
    pub(crate) fn probe(&mut self, fresh: Psn) -> bool {
        let suffices = self.flight.peer_keeps && self.position(fresh).since(self.flight.highest()) >= 0;
        if suffices {
            self.pace.forget();
            self.flight.doubt();
        }
        suffices
    }

    /// Returns the first time of silence that starts a resend.
    fn first_wait(&self, configured: Duration) -> Duration {
        if self.flight.peer_keeps { configured.min(self.pace.patience()) } else { configured }
    }

    /// Returns the time of the next timer.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.pause {
            Some(pause) => Some(pause),
            None => self.resend,
        }
    }

    /// Draws the conclusions from a response after which `before` is the old state of the flight. `fresh` is the number of
    /// the next new packet.
    pub(crate) fn settle(&mut self, before: (Psn, u32), fresh: Psn, now: Instant, limit: u32) {
        let step = self.acked().since(before.0);
        if step > 0 {
            (self.lost, self.too_long) = (None, false);
            self.credit += step as u32;
            if self.credit >= self.window {
                self.credit = 0;
                self.window = (self.window + self.window / 4 + 1).min(limit);
            }
            self.progress = Some(now);
        }
        if before != (self.acked(), self.flight.received()) {
            self.resend = None;
            let flight = &self.flight;
            self.reads.retain(|last| !flight.is_done(*last));
            self.pace.note_news(now, |psn| flight.has(psn));
        }
        if let Some(first) = self.flight.find_missing(self.position(fresh)) {
            self.pace.forget();
            if self.episode.is_none_or(|end| first.since(end) >= 0) {
                self.episode = Some(self.flight.highest());
                self.window = (self.window - self.window / 8).max(MIN_WINDOW);
            }
        }
    }

    /// Removes the oldest message.
    pub(crate) fn retire_front(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        if self.next == 0 {
            self.next_packet = 0;
        }
        self.next = self.next.saturating_sub(1);
        Some(message)
    }

    /// Restarts the timer if packets are unacknowledged.
    pub(crate) fn rearm(&mut self, now: Instant, configured: Duration) {
        if self.resend.is_none() && self.flight.highest().since(self.acked()) > 0 {
            let first_wait = self.first_wait(configured);
            self.backoff = first_wait;
            self.resend = Some(now + first_wait);
        }
    }

    /// Handles the first notice of a loss. The timer covers later ones.
    pub(crate) fn note_loss(&mut self) {
        if self.lost != Some(self.acked()) {
            self.lost = Some(self.acked());
            self.go_back();
        }
    }
}
