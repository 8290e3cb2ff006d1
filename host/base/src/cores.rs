//! Deadlines of work that many PEs of a machine do at the same time.

use std::thread::available_parallelism;
use std::time::Duration;

/// Returns the deadline of work for which `alone` suffices on an idle machine, while `pes` PEs share its processors.
pub fn shared_deadline(alone: Duration, pes: u32) -> Duration {
    let cores = available_parallelism().map_or(1, |cores| cores.get() as u32);
    alone * pes.div_ceil(cores).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_grows_with_the_pes_of_each_core() {
        let second = Duration::from_secs(1);
        let cores = available_parallelism().map_or(1, |cores| cores.get() as u32);
        assert_eq!(shared_deadline(second, 0), second);
        assert_eq!(shared_deadline(second, cores), second);
        assert_eq!(shared_deadline(second, 3 * cores), 3 * second);
        assert_eq!(shared_deadline(second, 3 * cores + 1), 4 * second);
    }
}
