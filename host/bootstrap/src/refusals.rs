//! Log lines about refused connections: the first one, and then counts.

use std::time::{Duration, Instant};

/// Shortest time between two log lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Refused connections that are not in the log yet.
#[derive(Default)]
pub(crate) struct Refusals {
    unlogged: u64,
    last: Option<Instant>,
}

impl Refusals {
    /// Counts a refused connection, and logs it unless another one was logged just now.
    pub(crate) fn add(&mut self, reason: &str) {
        if let Some(more) = self.due(Instant::now()) {
            tracing::warn!(reason, more, "a connection was refused; `more` others since the last line");
        }
    }

    /// Logs the count of the refusals that are not in the log.
    pub(crate) fn log_rest(&mut self) {
        if self.unlogged > 0 {
            tracing::warn!("{} more connections were refused", std::mem::take(&mut self.unlogged));
        }
    }

    /// Counts a refusal at `now`. Returns the number of earlier ones without a line if this one gets a line.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < INTERVAL) {
            self.unlogged += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_one_line_with_a_count_per_interval() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.due(start), Some(0));
        for i in 0..5000 {
            assert_eq!(refusals.due(start + Duration::from_millis(i)), None);
        }
        assert_eq!(refusals.due(start + INTERVAL), Some(5000));
        assert_eq!((refusals.due(start + INTERVAL), refusals.unlogged), (None, 1));
    }
}
