//! Enforces a deadline for host loops that test memory until a condition holds.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rushmem_base::lock;
use rushmem_error::call_site::CallSite;

use crate::{Error, Result};

/// Longest pause between two tests of a loop. After a longer one, the host is assumed to have done something else.
const PAUSE: Duration = Duration::from_millis(1);

/// The consecutive failed tests by the host. A loop of failed tests is a wait, so it has a deadline as waits in kernels
/// do.
#[derive(Default)]
pub(crate) struct TestLoop(Mutex<Option<Failures>>);

struct Failures {
    /// Time for which the tests have waited, less the time spent on something else.
    waited: Duration,
    end: Instant,
}

impl TestLoop {
    /// Records a test by `call` that ran from `begin` to `end`, and whether it `passed`. Fails once failed tests have
    /// waited longer than `deadline`.
    pub(crate) fn record(
        &self,
        call: &'static str,
        passed: bool,
        (begin, end): (Instant, Instant),
        deadline: Duration,
    ) -> Result<()> {
        let mut failures = lock(&self.0);
        let earlier = failures.take();
        if passed {
            return Ok(());
        }
        let waited = earlier.map_or(Duration::ZERO, |earlier| match begin - earlier.end {
            pause if pause > PAUSE => earlier.waited.saturating_sub(pause),
            _ => earlier.waited + (end - earlier.end),
        });
        if waited > deadline {
            return Err(Error::TestLoop { call, deadline, site: CallSite::current() });
        }
        *failures = Some(Failures { waited, end });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs tests of 100 ms, `pause` apart, of which only the `passing`-th passes. Returns the index of the first
    /// error.
    fn first_error(pause: Duration, passing: usize) -> Option<usize> {
        let (test_loop, mut now) = (TestLoop::default(), Instant::now());
        (0..1000).find(|&i| {
            let (begin, end) = (now + pause, now + pause + Duration::from_millis(100));
            now = end;
            test_loop.record("test", i == passing, (begin, end), Duration::from_secs(10)).is_err()
        })
    }

    #[test]
    fn loop_of_failed_tests_hits_the_deadline() {
        assert_eq!(first_error(Duration::ZERO, 1000), Some(101));
    }

    #[test]
    fn passing_test_restarts_the_clock() {
        assert_eq!(first_error(Duration::ZERO, 50), Some(152));
    }

    #[test]
    fn tests_between_other_work_are_not_a_wait() {
        assert_eq!(first_error(Duration::from_millis(5), 1000), None);
    }
}
