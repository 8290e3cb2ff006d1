//! Counts the CPU cores available to this process and scales deadlines when several PEs share a core.

use std::sync::OnceLock;
use std::thread::available_parallelism;
use std::time::Duration;

/// Returns the number of cores that this process may use.
///
/// The result is cached: the first call reads several files of the system.
pub fn cores() -> u32 {
    static CORES: OnceLock<u32> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, |cores| cores.get() as u32))
}

/// Returns how many of `pes` PEs share each CPU core, rounded up and at least 1.
pub fn pes_per_core(pes: u32) -> u32 {
    pes.div_ceil(cores()).max(1)
}

/// Returns the deadline `alone` of a computation, multiplied by the number of PEs that share a CPU core.
pub fn shared_deadline(alone: Duration, pes: u32) -> Duration {
    alone * pes_per_core(pes)
}

/// Number of PEs per CPU core up to which the default deadlines suffice.
const UNCROWDED_PES_PER_CORE: u32 = 8;

/// Returns the deadline for work that waits for other PEs: `usual`, scaled up on machines with more than about eight
/// PEs per core.
pub fn crowd_deadline(usual: Duration, pes: u32) -> Duration {
    shared_deadline(usual, pes / UNCROWDED_PES_PER_CORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_grows_with_the_pes_per_core() {
        let second = Duration::from_secs(1);
        let cores = available_parallelism().map_or(1, |cores| cores.get() as u32);
        assert_eq!(shared_deadline(second, 0), second);
        assert_eq!(shared_deadline(second, cores), second);
        assert_eq!(shared_deadline(second, 3 * cores), 3 * second);
        assert_eq!(shared_deadline(second, 3 * cores + 1), 4 * second);
        assert_eq!(crowd_deadline(second, 8 * cores + 7), second);
        assert_eq!(crowd_deadline(second, 64 * cores), 8 * second);
    }
}
