//! Rest of a worker between rounds in which no lane made progress.
//!
//! A worker first yields its core and then sleeps. If many launchers share the cores, short sleeps of all workers would
//! keep the cores from the lanes that have work. So the sleeps grow with the launchers of each core, and with the time
//! that the worker has waited.

use std::thread;
use std::time::Duration;

/// Time for which a worker yields before it sleeps, if it has a core of its own.
const YIELD: Duration = Duration::from_millis(1);

/// The shortest sleep. Linux adds about 50 us of timer slack, which gives the intended length.
const SHORTEST: Duration = Duration::from_micros(1);

/// The longest sleep for each launcher of a core.
const PER_LAUNCHER: Duration = Duration::from_micros(20);

/// A worker sleeps for this part of the time that it has waited, within the limits.
const PART: u32 = 8;

/// The limits of the rest of a launch's workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    yields: Duration,
    longest: Duration,
}

impl Rest {
    /// Returns the limits for this number of launchers on each core.
    pub(crate) fn new(launchers: u32) -> Self {
        match launchers {
            0 | 1 => Self { yields: YIELD, longest: SHORTEST },
            _ => Self { yields: YIELD / launchers, longest: PER_LAUNCHER * launchers },
        }
    }

    /// Rests after a worker has waited for this time.
    pub(crate) fn after(self, waited: Duration) {
        match self.sleep(waited) {
            None => thread::yield_now(),
            Some(sleep) => thread::sleep(sleep),
        }
    }

    fn sleep(self, waited: Duration) -> Option<Duration> {
        (waited >= self.yields).then(|| (waited / PART).clamp(SHORTEST, self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_with_the_launchers_and_the_time() {
        let (alone, shared) = (Rest::new(1), Rest::new(128));
        let ms = Duration::from_millis;
        assert_eq!((alone.sleep(ms(0)), alone.sleep(ms(1))), (None, Some(SHORTEST)));
        assert_eq!(alone.sleep(ms(1000)), Some(SHORTEST));
        assert_eq!(shared.sleep(ms(1)), Some(ms(1) / 8));
        assert_eq!(shared.sleep(ms(1000)), Some(PER_LAUNCHER * 128));
    }
}
