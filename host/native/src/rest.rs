//! Determines how a worker thread waits between rounds in which no lane made progress.
//!
//! A worker first yields its core and then sleeps. If many launchers share the cores, frequent wake-ups of all workers
//! would take the cores away from lanes that have work. So sleeps grow with the number of launchers per core, and with
//! the time that the worker has waited. A wake of the PE's channel interrupts them.

use std::thread;
use std::time::Duration;

use crate::WaitChannel;

/// Time for which a worker yields its core before it sleeps, if no other launcher shares the core.
const YIELD_TIME: Duration = Duration::from_millis(1);

/// Shortest sleep. Linux adds about 50 us of timer slack, which gives the intended length.
const MIN_SLEEP: Duration = Duration::from_micros(1);

/// Longest sleep, for each launcher that shares the core.
const MAX_SLEEP_PER_LAUNCHER: Duration = Duration::from_micros(200);

/// Ratio of the longest to the shortest sleep.
const SLEEP_RANGE: u32 = 64;

/// Ratio of the time a worker has waited to the length of its next sleep, within the limits on sleeps.
const WAIT_PER_SLEEP: u32 = 8;

/// Limits on how long the workers of a launch yield and sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest<'a> {
    yields: Duration,
    shortest: Duration,
    longest: Duration,
    channel: Option<&'a WaitChannel>,
    /// Whether launchers share cores. Only then are sleeps long enough for a wake by the channel to pay off.
    is_shared: bool,
}

impl<'a> Rest<'a> {
    /// Returns the limits for `launchers` launchers per core.
    pub(crate) fn new(launchers: u32, channel: Option<&'a WaitChannel>) -> Self {
        if launchers <= 1 {
            let (shortest, longest) = (MIN_SLEEP, MIN_SLEEP);
            return Self { yields: YIELD_TIME, shortest, longest, channel, is_shared: false };
        }
        let longest = MAX_SLEEP_PER_LAUNCHER * launchers;
        Self {
            yields: YIELD_TIME / launchers,
            shortest: longest / SLEEP_RANGE,
            longest,
            channel,
            is_shared: true,
        }
    }

    /// Reports to the wait channel that all lanes of a worker are waiting or have returned.
    pub(crate) fn begin(self) {
        if let Some(channel) = self.channel {
            channel.begin_wait();
        }
    }

    /// Returns the number of times the wait channel has been woken, to be passed to [`Rest::after`].
    pub(crate) fn wakes(self) -> u64 {
        self.channel.map_or(0, WaitChannel::wakes)
    }

    /// Yields or sleeps, after the worker has waited for `waited`. Returns early if the channel has been woken since
    /// [`Rest::wakes`] returned `seen`.
    pub(crate) fn after(self, waited: Duration, seen: u64) {
        match (self.sleep(waited), self.channel.filter(|_| self.is_shared)) {
            (None, _) => thread::yield_now(),
            (Some(sleep), Some(channel)) => channel.sleep(seen, sleep),
            (Some(sleep), None) => thread::sleep(sleep),
        }
    }

    fn sleep(self, waited: Duration) -> Option<Duration> {
        (waited >= self.yields).then(|| (waited / WAIT_PER_SLEEP).clamp(self.shortest, self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_with_launchers_and_waiting_time() {
        let (alone, shared) = (Rest::new(1, None), Rest::new(128, None));
        let ms = Duration::from_millis;
        assert_eq!((alone.sleep(ms(0)), alone.sleep(ms(1))), (None, Some(MIN_SLEEP)));
        assert_eq!(alone.sleep(ms(1000)), Some(MIN_SLEEP));
        assert_eq!(shared.sleep(ms(1)), Some(MAX_SLEEP_PER_LAUNCHER * 2));
        assert_eq!(shared.sleep(ms(10)), Some(ms(10) / 8));
        assert_eq!(shared.sleep(ms(1000)), Some(MAX_SLEEP_PER_LAUNCHER * 128));
    }
}
