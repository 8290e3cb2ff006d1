//! Rest of a worker between rounds in which no lane made progress.
//!
//! A worker first yields its core and then sleeps. If many launchers share the cores, short sleeps of all workers would
//! keep the cores from the lanes that have work. So the sleeps grow with the launchers of each core, and with the time
//! that the worker has waited. A wake of the PE's channel ends them.

use std::thread;
use std::time::Duration;

use crate::WaitChannel;

/// Time for which a worker yields before it sleeps, if it has a core of its own.
const YIELD: Duration = Duration::from_millis(1);

/// The shortest sleep. Linux adds about 50 us of timer slack, which gives the intended length.
const SHORTEST: Duration = Duration::from_micros(1);

/// The longest sleep for each launcher of a core that several share.
const PER_LAUNCHER: Duration = Duration::from_micros(200);

/// The shortest sleep is this part of the longest one.
const SPAN: u32 = 64;

/// A worker sleeps for this part of the time that it has waited, within the limits.
const PART: u32 = 8;

/// The limits of the rest of a launch's workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest<'a> {
    yields: Duration,
    shortest: Duration,
    longest: Duration,
    channel: Option<&'a WaitChannel>,
    /// Whether sleeps are long enough for a wake by the channel.
    is_shared: bool,
}

impl<'a> Rest<'a> {
    /// Returns the limits for this number of launchers on each core.
    pub(crate) fn new(launchers: u32, channel: Option<&'a WaitChannel>) -> Self {
        if launchers <= 1 {
            let (shortest, longest) = (SHORTEST, SHORTEST);
            return Self { yields: YIELD, shortest, longest, channel, is_shared: false };
        }
        let longest = PER_LAUNCHER * launchers;
        Self { yields: YIELD / launchers, shortest: longest / SPAN, longest, channel, is_shared: true }
    }

    /// Tells the channel that the lanes of a worker wait or have ended.
    pub(crate) fn begin(self) {
        if let Some(channel) = self.channel {
            channel.begin_wait();
        }
    }

    /// Returns the number of wakes so far, for [`Rest::after`].
    pub(crate) fn wakes(self) -> u64 {
        self.channel.map_or(0, WaitChannel::wakes)
    }

    /// Rests after a worker has waited for this time. A wake after the first `seen` ones ends the rest.
    pub(crate) fn after(self, waited: Duration, seen: u64) {
        match (self.sleep(waited), self.channel.filter(|_| self.is_shared)) {
            (None, _) => thread::yield_now(),
            (Some(sleep), Some(channel)) => channel.sleep(seen, sleep),
            (Some(sleep), None) => thread::sleep(sleep),
        }
    }

    fn sleep(self, waited: Duration) -> Option<Duration> {
        (waited >= self.yields).then(|| (waited / PART).clamp(self.shortest, self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_with_the_launchers_and_the_time() {
        let (alone, shared) = (Rest::new(1, None), Rest::new(128, None));
        let ms = Duration::from_millis;
        assert_eq!((alone.sleep(ms(0)), alone.sleep(ms(1))), (None, Some(SHORTEST)));
        assert_eq!(alone.sleep(ms(1000)), Some(SHORTEST));
        assert_eq!(shared.sleep(ms(1)), Some(PER_LAUNCHER * 2));
        assert_eq!(shared.sleep(ms(10)), Some(ms(10) / 8));
        assert_eq!(shared.sleep(ms(1000)), Some(PER_LAUNCHER * 128));
    }
}
