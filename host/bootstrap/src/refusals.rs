//! Logs refused connections, but at most one line per interval.

use std::time::{Duration, Instant};

/// Minimum time between two log lines about refused connections.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts the refused connections that have not been logged yet.
#[derive(Default)]
pub(crate) struct Refusals {
    unlogged: u64,
    last: Option<Instant>,
}

impl Refusals {
    /// Counts a refused connection. Logs it, unless the last log line is too recent.
    pub(crate) fn add(&mut self, reason: &str) {
        if let Some(more) = self.due(Instant::now()) {
            let others =
                if more == 0 { String::new() } else { format!(", and {more} others since the last line") };
            tracing::warn!("refused a connection: {reason}{others}");
        }
    }

    /// Logs the number of refused connections that [`Refusals::add`] has not logged.
    pub(crate) fn log_rest(&mut self) {
        if self.unlogged > 0 {
            tracing::warn!("refused {} more connections", std::mem::take(&mut self.unlogged));
        }
    }

    /// Counts a connection refused at `now`. Returns `None` if it must not be logged yet, or else how many earlier ones
    /// were not logged.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < MIN_LOG_INTERVAL) {
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
        assert_eq!(refusals.due(start + MIN_LOG_INTERVAL), Some(5000));
        assert_eq!((refusals.due(start + MIN_LOG_INTERVAL), refusals.unlogged), (None, 1));
    }
}
