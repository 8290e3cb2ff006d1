//! Random choices of execution faults, shared by the loopback path and the packet path.

use super::Report;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Maximum number of pieces of one message.
const PIECES: u64 = 8;
/// Longest message that is split, in bytes.
const LONGEST: u64 = 1 << 20;

impl Report {
    /// Returns, with this probability, a time of at most `longest` from now.
    fn draw_delay(
        &mut self,
        (qpn, kind): (u32, &'static str),
        probability: f64,
        longest: Duration,
    ) -> Option<Instant> {
        self.rng.chance(probability).then(|| {
            self.note_fault(Some(qpn), kind);
            self.now + Duration::from_nanos(self.rng.below(longest.as_nanos() as u64 + 1))
        })
    }

    /// Returns whether to skip the QP in this pass.
    pub(crate) fn draw_skip(&mut self, qpn: u32) -> bool {
        let skips = self.rng.chance(self.faults.skip_qp);
        if skips {
            self.note_fault(Some(qpn), "skip_qp");
        }
        skips
    }

    /// Returns the end of a stall, if the QP is to stall.
    pub(crate) fn draw_stall(&mut self, qpn: u32) -> Option<Instant> {
        self.draw_delay((qpn, "stall"), self.faults.stall, self.faults.stall_time)
    }

    /// Returns the time of a late answer to a READ or an atomic, if it is to be late.
    pub(crate) fn draw_late_answer(&mut self, qpn: u32) -> Option<Instant> {
        self.draw_delay((qpn, "late"), self.faults.late, self.faults.late_time)
    }

    /// Returns the time at which a WRITE of an unordered QP lands, if later ones are to pass it.
    pub(crate) fn draw_unordered(&mut self, qpn: u32) -> Option<Instant> {
        self.draw_delay((qpn, "unordered"), self.faults.unordered, self.faults.late_time)
    }

    /// Returns whether QUERY_QP is to hide that a QP is unordered.
    pub(crate) fn draw_hidden_order(&mut self) -> bool {
        self.rng.chance(self.faults.hidden_order)
    }

    /// Returns whether a key is relaxed although a strict one was asked for.
    pub(crate) fn draw_force_relaxed(&mut self) -> bool {
        self.rng.chance(self.faults.force_relaxed)
    }

    /// Returns the time at which a WRITE lands, if that is to follow its acknowledgement.
    pub(crate) fn draw_posted(&mut self, qpn: u32) -> Option<Instant> {
        self.draw_delay((qpn, "posted"), self.faults.posted, self.faults.late_time)
    }

    /// Returns the pieces of a message of `len` bytes at the responder's `addr`, in random order. Cuts lie between
    /// aligned words. Returns nothing if the message is not split.
    pub(crate) fn draw_split(&mut self, qpn: u32, addr: u64, len: u64) -> Vec<Range<u64>> {
        let first = addr.next_multiple_of(8) - addr;
        if len > LONGEST || len <= first || !self.rng.chance(self.faults.split) {
            return Vec::new();
        }
        let words = (len - first).div_ceil(8);
        let mut cuts: Vec<u64> = (1..PIECES).map(|_| first + 8 * self.rng.below(words)).collect();
        cuts.extend([0, len]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut pieces: Vec<Range<u64>> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        if pieces.len() < 2 {
            return Vec::new();
        }
        self.note_fault(Some(qpn), "split");
        for left in (2..=pieces.len()).rev() {
            pieces.swap(left - 1, self.rng.below(left as u64) as usize);
        }
        pieces
    }
}
