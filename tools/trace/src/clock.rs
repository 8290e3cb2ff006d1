//! The clock by which all spans of a process are recorded.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// Returns the time in nanoseconds since 1970.
///
/// It never goes backwards: the wall clock is read once, and a monotonic clock measures the time since then.
pub fn now_ns() -> u64 {
    ns_at(Instant::now())
}

/// Converts an [`Instant`] to nanoseconds since 1970, by the clock of [`now_ns`].
pub fn ns_at(time: Instant) -> u64 {
    static ORIGIN: OnceLock<(Instant, u64)> = OnceLock::new();
    let (instant, unix_ns) = ORIGIN.get_or_init(|| {
        // The thread may be preempted between reading the two clocks. Of several readings, use the one that took the
        // shortest.
        let (_, instant, unix) =
            (0..8).map(|_| read_both()).min_by_key(|(error, ..)| *error).unwrap_or_else(read_both);
        (instant, unix.as_nanos() as u64)
    });
    let before = instant.saturating_duration_since(time).as_nanos() as u64;
    unix_ns + time.saturating_duration_since(*instant).as_nanos() as u64 - before
}

/// Reads the monotonic clock and the wall clock. The first value is how long that took, which bounds the error.
fn read_both() -> (Duration, Instant, Duration) {
    let before = Instant::now();
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let after = Instant::now();
    (after - before, before + (after - before) / 2, unix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_advances() {
        let before = now_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now_ns() - before >= 2_000_000);
    }

    #[test]
    fn times_before_the_first_call_are_valid() {
        let (time, second) = (Instant::now(), std::time::Duration::from_secs(1));
        assert_eq!(ns_at(time + second) - ns_at(time), 1_000_000_000);
        assert_eq!(ns_at(time) - ns_at(time - second), 1_000_000_000);
    }
}
