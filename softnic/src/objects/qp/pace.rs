//! Estimates the peer's response time, from which follows how long a requester waits before it sends a probe.

use crate::roce::Psn;
use std::time::{Duration, Instant};

/// How long to wait for a response before the first response time has been measured.
const INITIAL_WAIT: Duration = Duration::from_millis(1);
/// Minimum time to wait for a response. If it were shorter, waking the engine in vain would cost more than an early
/// probe saves.
const MIN_WAIT: Duration = Duration::from_micros(100);

/// An estimator of the peer's response time, as in RFC 6298. It measures one packet at a time.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    sample: Option<(Psn, Instant)>,
    /// Smoothed response time and its mean deviation, once one has been measured.
    known: Option<(Duration, Duration)>,
}

impl Pace {
    /// Starts to measure the response time of a packet that is sent for the first time, unless another is being
    /// measured.
    pub(crate) fn note_sent(&mut self, psn: Psn, now: Instant) {
        self.sample.get_or_insert((psn, now));
    }

    /// Cancels the current measurement, since its packet may have been lost.
    pub(crate) fn forget(&mut self) {
        self.sample = None;
    }

    /// Completes the current measurement if `is_received` confirms that its packet has arrived.
    pub(crate) fn note_news(&mut self, now: Instant, is_received: impl FnOnce(Psn) -> bool) {
        let Some((_, sent)) = self.sample.take_if(|(psn, _)| is_received(*psn)) else { return };
        let time = now.saturating_duration_since(sent);
        self.known = Some(match self.known {
            None => (time, time / 2),
            // The weights of RFC 6298.
            Some((mean, deviation)) => ((mean * 7 + time) / 8, (deviation * 3 + mean.abs_diff(time)) / 4),
        });
    }

    /// Returns how long to wait for a response before a probe is sent.
    pub(crate) fn patience(&self) -> Duration {
        self.known.map_or(INITIAL_WAIT, |(mean, deviation)| (mean + 4 * deviation).max(MIN_WAIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_time_of_answers() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut now = start;
        let mut answer_after = |pace: &mut Pace, micros, count| {
            for i in 0..count {
                pace.note_sent(Psn::new(i), now);
                pace.note_sent(Psn::new(i + 1), now + Duration::from_secs(1));
                now += Duration::from_micros(micros);
                pace.note_news(now, |_| false);
                pace.note_news(now, |psn| psn == Psn::new(i));
            }
        };
        assert_eq!(pace.patience(), INITIAL_WAIT);
        answer_after(&mut pace, 1000, 1);
        assert_eq!(pace.patience(), Duration::from_millis(3));
        answer_after(&mut pace, 1000, 30);
        assert!(pace.patience() < Duration::from_micros(1010), "{:?}", pace.patience());
        answer_after(&mut pace, 5000, 3);
        assert!(pace.patience() > Duration::from_millis(5), "{:?}", pace.patience());
        answer_after(&mut pace, 1, 100);
        assert_eq!(pace.patience(), MIN_WAIT);
    }

    #[test]
    fn a_lost_packet_is_no_measurement() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.note_sent(Psn::new(1), now);
        pace.forget();
        pace.note_news(now + Duration::from_secs(9), |_| true);
        assert_eq!(pace.patience(), INITIAL_WAIT);
    }
}
