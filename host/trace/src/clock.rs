//! The clock of all spans.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

/// Returns the time in nanoseconds since 1970.
///
/// It never goes back: the clock of the machine is read once, and a monotonic clock gives the time since then.
pub fn now_ns() -> u64 {
    static ORIGIN: OnceLock<(Instant, u64)> = OnceLock::new();
    let (instant, unix_ns) = ORIGIN.get_or_init(|| {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (Instant::now(), unix.as_nanos() as u64)
    });
    unix_ns + instant.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let before = now_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now_ns() - before >= 2_000_000);
    }
}
