//! Log lines about refused connections. The number of lines is limited; further refusals are counted.

use std::time::{Duration, Instant};

/// The shortest time between two log lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// The refused connections that are not in the log yet.
#[derive(Default)]
pub(crate) struct Refusals {
    unlogged: u64,
    last: Option<Instant>,
}

impl Refusals {
    /// Counts a refused connection. Logs it unless the last log line is too recent.
    pub(crate) fn add(&mut self, reason: &str) {
        if let Some(more) = self.due(Instant::now()) {
            let others =
                if more == 0 { String::new() } else { format!(", and {more} others since the last line") };
            tracing::warn!("refused a connection: {reason}{others}");
        }
    }

    /// Logs the number of refusals that are not in the log yet.
    pub(crate) fn log_rest(&mut self) {
        if self.unlogged > 0 {
            tracing::warn!("refused {} more connections", std::mem::take(&mut self.unlogged));
        }
    }

    /// Counts a refusal at `now`. If it is due for a log line, returns the number of earlier refusals without one.
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
