//! Detects polling loops: repeated reads of one word by a GPU thread that waits for it to change.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rushmem_sanitizer::{Call, Span};

/// Minimum number of reads of a word before a loop can count as a wait.
pub(super) const MIN_READS: u32 = 64;

/// Minimum duration of a loop that counts as a wait.
const MIN_TIME: Duration = Duration::from_millis(100);

/// Minimum number of plain loads, each of which takes only nanoseconds, before a loop counts as a wait.
const MIN_LOADS: u32 = 1 << 12;

/// Counts a GPU thread's consecutive reads of one word, to detect polling loops.
///
/// Any step that other threads can observe resets the count. An atomic that updates the word is such a step, since it
/// may satisfy the wait of another thread.
#[derive(Debug, Default)]
pub(super) struct Polls {
    last: Cell<Option<Poll>>,
    /// Address of the last plain load, and how often it has been loaded in a row.
    loads: Cell<(u64, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Poll {
    word: Span,
    call: Call,
    reads: u32,
    since: Instant,
}

impl Polls {
    /// Counts a read of `word` by `call`.
    pub(super) fn read(&self, word: Span, call: Call) {
        let poll = match self.last.get().filter(|last| last.word == word) {
            Some(last) => Poll { reads: last.reads.saturating_add(1), call, ..last },
            None => Poll { word, call, reads: 1, since: Instant::now() },
        };
        self.last.set(Some(poll));
    }

    /// Counts a plain load. Returns whether the same address has been loaded often enough for the caller to report a
    /// read.
    pub(super) fn load(&self, address: u64) -> bool {
        let (last, count) = self.loads.get();
        let count = if last == address { count + 1 } else { 0 };
        self.loads.set((address, if count == MIN_LOADS { 0 } else { count }));
        count == MIN_LOADS
    }

    /// Resets the count after a step that does not read the word. Returns whether the thread counted as waiting.
    pub(super) fn stop(&self) -> bool {
        let was_waiting = self.waits_for().is_some();
        self.last.set(None);
        was_waiting
    }

    /// Returns the word that the thread is polling and the call that reads it, or `None` if its reads do not count as a
    /// wait yet.
    pub(super) fn waits_for(&self) -> Option<(Span, Call)> {
        let poll = self.last.get()?;
        (poll.reads >= MIN_READS && poll.since.elapsed() >= MIN_TIME).then_some((poll.word, poll.call))
    }
}

#[cfg(test)]
mod tests {
    use rushmem_sanitizer::Site;

    use super::*;

    #[test]
    fn a_loop_waits_after_some_time() {
        let (polls, call) =
            (Polls::default(), Call { name: "test", site: Site { file: "test.rs", line: 1 } });
        let (word, other) = (Span::heap(0, 64, 8), Span::heap(0, 72, 8));
        (0..2 * MIN_READS).for_each(|_| polls.read(word, call));
        assert_eq!(polls.waits_for(), None);
        std::thread::sleep(MIN_TIME);
        polls.read(word, call);
        assert_eq!(polls.waits_for(), Some((word, call)));
        polls.read(other, call);
        assert_eq!((polls.waits_for(), polls.stop()), (None, false));
    }

    #[test]
    fn many_loads_of_one_address_count() {
        let polls = Polls::default();
        let count = |address| (0..4 * MIN_LOADS).filter(|_| polls.load(address)).count();
        assert_eq!([count(64), count(72)], [3, 3]);
        let is_alternate = |i: u32| polls.load(u64::from(i % 2));
        assert!(!(0..4 * MIN_LOADS).any(is_alternate));
    }
}
