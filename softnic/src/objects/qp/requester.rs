//! The requester of a packet connection: messages in flight, acknowledged packets, congestion window and timers.

use super::flight::{Flight, REORDER_WINDOW};
use super::message::Message;
use super::pace::Pace;
use crate::roce::Psn;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Initial congestion window, in packets.
const INITIAL_WINDOW: u32 = 32;
/// Minimum congestion window after losses, in packets.
const MIN_WINDOW: u32 = 2;

#[derive(Debug)]
pub(crate) struct Requester {
    /// WQEs that were started and have not completed, oldest first.
    pub(crate) messages: VecDeque<Message>,
    /// Index into `messages` of the next message to send a packet of.
    pub(crate) next: usize,
    pub(crate) next_packet: u32,
    /// Index of the next block of the send queue to start. The queue's consumer counter may be lower.
    pub(crate) started: u16,
    pub(crate) flight: Flight,
    /// Last PSN of each outstanding READ and atomic request.
    pub(crate) reads: VecDeque<Psn>,
    /// Set when a WQE has failed locally, after which no further WQE is started.
    pub(crate) broken: bool,
    /// Congestion window: the maximum number of packets in flight.
    pub(crate) window: u32,
    credit: u32,
    /// When the last acknowledgement arrived, or the first unacknowledged packet was sent.
    pub(crate) progress: Option<Instant>,
    /// When to retransmit if no response arrives, or `None` if nothing is unacknowledged.
    pub(crate) resend: Option<Instant>,
    pub(crate) backoff: Duration,
    /// When to resume sending after an RNR NAK.
    pub(crate) pause: Option<Instant>,
    /// PSN of the last reported loss for which the requester has gone back.
    lost: Option<Psn>,
    /// PSN at which the current loss episode is over. Losses before it do not shrink the window again.
    episode: Option<Psn>,
    pace: Pace,
    /// Set when a packet exceeded the MTU of the link. Cleared by the next acknowledgement.
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
    /// Starts or continues at `psn`. Everything before it counts as acknowledged.
    pub(crate) fn start(&mut self, psn: Psn) {
        self.flight = Flight::starting_at(psn);
        self.episode = None;
    }

    /// Returns the oldest PSN that is not acknowledged, or whose data is missing.
    pub(crate) fn acked(&self) -> Psn {
        self.flight.base()
    }

    /// Returns the PSN of the next packet to send. `fresh` is the PSN that the next WQE will get.
    pub(crate) fn position(&self, fresh: Psn) -> Psn {
        self.messages.get(self.next).map_or(fresh, |message| message.first.plus(self.next_packet))
    }

    /// Moves the send position to the packet at `psn`.
    pub(crate) fn seek(&mut self, psn: Psn) {
        let holds = |message: &Message| message.end().since(psn) > 0;
        self.next = self.messages.iter().position(holds).unwrap_or(self.messages.len());
        self.next_packet = match self.messages.get(self.next) {
            Some(message) => psn.since(message.first).max(0) as u32,
            None => 0,
        };
        // READs from here on will be sent again, so they are no longer outstanding.
        while self.reads.back().is_some_and(|last| last.since(psn) >= 0) {
            self.reads.pop_back();
        }
    }

    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.progress
    }

    /// Returns the number of packets from `psn` on that the congestion window allows to send.
    pub(crate) fn room(&self, psn: Psn) -> u32 {
        // Packets that the peer has buffered are not on the way, so they do not count against the window.
        let (ahead, received) = (psn.since(self.acked()).max(0) as u32, self.flight.received());
        let room = self.window.saturating_sub(ahead.saturating_sub(received));
        // The peer buffers only this many packets after a gap.
        if received == 0 { room } else { room.min((REORDER_WINDOW as u32).saturating_sub(ahead)) }
    }

    /// Records the transmission of a request that covers `count` PSNs from `psn` on.
    pub(crate) fn sent(
        &mut self,
        (psn, count): (Psn, u32),
        fetches: bool,
        now: Instant,
        configured: Duration,
    ) {
        // Only first transmissions are measured: the answer to a retransmission may belong to the first one (Karn's
        // algorithm).
        if psn == self.flight.highest() {
            self.pace.note_sent(psn.plus(count - 1), now);
        }
        self.flight.note_sent(psn, count, fetches);
        if self.resend.is_none() {
            self.progress = Some(now);
            self.rearm(now, configured);
        }
    }

    /// Resends everything from the oldest unacknowledged packet on, with half the congestion window.
    pub(crate) fn go_back(&mut self) {
        self.window = (self.window / 2).max(MIN_WINDOW);
        self.credit = 0;
        self.resume();
    }

    /// Moves the send position back to the oldest unacknowledged packet.
    pub(crate) fn resume(&mut self) {
        self.flight.rewind();
        self.pace.forget();
        let psn = self.acked();
        self.seek(psn);
    }

    /// Resends two packets, to which the peer responds with what it has received. Returns `false` if that cannot work
    /// and the requester has to go back. `fresh` is the PSN of the next new packet.
    pub(crate) fn probe(&mut self, fresh: Psn) -> bool {
        // A peer without reports cannot answer a probe. While the position lags, everything is being resent anyway.
        let suffices = self.flight.peer_keeps && self.position(fresh).since(self.flight.highest()) >= 0;
        if suffices {
            self.pace.forget();
            self.flight.doubt();
        }
        suffices
    }

    /// Returns how long to wait for a response before the first retransmission.
    fn first_wait(&self, configured: Duration) -> Duration {
        if self.flight.peer_keeps { configured.min(self.pace.patience()) } else { configured }
    }

    /// Returns the deadline for sending without a response: when the RNR pause is over, or the retransmission is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.pause {
            Some(pause) => Some(pause),
            None => self.resend,
        }
    }

    /// Updates window, timers and losses after a response. `before` is the flight's base and number of received packets
    /// before the response, and `fresh` is the PSN of the next new packet.
    pub(crate) fn settle(&mut self, before: (Psn, u32), fresh: Psn, now: Instant, limit: u32) {
        let step = self.acked().since(before.0);
        if step > 0 {
            (self.lost, self.too_long) = (None, false);
            // Grows by a quarter after each full window of acknowledged packets.
            self.credit += step as u32;
            if self.credit >= self.window {
                self.credit = 0;
                self.window = (self.window + self.window / 4 + 1).min(limit);
            }
            self.progress = Some(now);
        }
        // Any news restarts the timer: the caller rearms it.
        if before != (self.acked(), self.flight.received()) {
            self.resend = None;
            let flight = &self.flight;
            self.reads.retain(|last| !flight.is_done(*last));
            self.pace.note_news(now, |psn| flight.has(psn));
        }
        if let Some(first) = self.flight.find_missing(self.position(fresh)) {
            self.pace.forget();
            // Shrinks once per episode. Losses among packets already in flight say nothing new.
            if self.episode.is_none_or(|end| first.since(end) >= 0) {
                self.episode = Some(self.flight.highest());
                self.window = (self.window - self.window / 8).max(MIN_WINDOW);
            }
        }
    }

    pub(crate) fn retire_front(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        // The message at the send position itself is removed, so the position moves to the next one.
        if self.next == 0 {
            self.next_packet = 0;
        }
        self.next = self.next.saturating_sub(1);
        Some(message)
    }

    /// Starts the retransmission timer if it is not running and packets are unacknowledged.
    pub(crate) fn rearm(&mut self, now: Instant, configured: Duration) {
        if self.resend.is_none() && self.flight.highest().since(self.acked()) > 0 {
            let first_wait = self.first_wait(configured);
            self.backoff = first_wait;
            self.resend = Some(now + first_wait);
        }
    }

    /// Goes back when the peer first reports a particular loss. If the retransmission is lost too, the timer recovers.
    pub(crate) fn note_loss(&mut self) {
        if self.lost != Some(self.acked()) {
            self.lost = Some(self.acked());
            self.go_back();
        }
    }
}
