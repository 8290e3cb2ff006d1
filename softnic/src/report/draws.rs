//! Decides at random which faults to inject into the execution of requests, over loopback and by packets.

use super::Report;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Maximum number of pieces into which a message is split.
const PIECES: u64 = 8;
/// Maximum length of a message that is split, in bytes.
const MAX_SPLIT_LEN: u64 = 1 << 20;

impl Report {
    /// Decides with this `probability` whether to inject a fault. Returns a random time at most `longest` after the
    /// start of the pass if so.
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

    /// Decides whether to skip the QP in this pass.
    pub(crate) fn draw_skip(&mut self, qpn: u32) -> bool {
        let skips = self.rng.chance(self.faults.skip_qp);
        if skips {
            self.note_fault(Some(qpn), "skip_qp");
        }
        skips
    }

    /// Decides whether to stall the QP. Returns when the stall is over.
    pub(crate) fn draw_stall(&mut self, qpn: u32) -> Option<Instant> {
        self.draw_delay((qpn, "stall"), self.faults.stall, self.faults.stall_time)
    }

    /// Decides whether to answer a READ or an atomic late. Returns when the answer is due.
    pub(crate) fn draw_late_answer(&mut self, qpn: u32) -> Option<Instant> {
        self.draw_delay((qpn, "late"), self.faults.late, self.faults.late_time)
    }

    /// Decides whether a WRITE of an unordered QP is written late, so later WRITEs may overtake it. Returns when it is
    /// written.
    pub(crate) fn draw_unordered(&mut self, qpn: u32) -> Option<Instant> {
        self.draw_delay((qpn, "unordered"), self.faults.unordered, self.faults.late_time)
    }

    /// Decides whether QUERY_QP hides that a QP is unordered.
    pub(crate) fn draw_hidden_order(&mut self) -> bool {
        self.rng.chance(self.faults.hidden_order)
    }

    /// Decides whether a memory key that is created as strict is relaxed.
    pub(crate) fn draw_force_relaxed(&mut self) -> bool {
        self.rng.chance(self.faults.force_relaxed)
    }

    /// Decides whether a WRITE reaches memory after its acknowledgement. Returns when it does.
    pub(crate) fn draw_posted(&mut self, qpn: u32) -> Option<Instant> {
        self.draw_delay((qpn, "posted"), self.faults.posted, self.faults.late_time)
    }

    /// Decides whether to split a message of `len` bytes at the responder's `addr`. Returns its pieces in random order,
    /// cut between aligned 8-byte words, or nothing if it is not split.
    pub(crate) fn draw_split(&mut self, qpn: u32, addr: u64, len: u64) -> Vec<Range<u64>> {
        let first = addr.next_multiple_of(8) - addr;
        if len > MAX_SPLIT_LEN || len <= first || !self.rng.chance(self.faults.split) {
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
