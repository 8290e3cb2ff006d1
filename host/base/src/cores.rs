//! The cores of this machine, and how many PEs share each.

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

/// Returns how many PEs share each core, at least 1, if there are `pes` PEs.
pub fn pes_per_core(pes: u32) -> u32 {
    pes.div_ceil(cores()).max(1)
}

/// Scales `alone`, the deadline of some computation on an idle machine, to `pes` PEs that share the cores.
pub fn shared_deadline(alone: Duration, pes: u32) -> Duration {
    alone * pes_per_core(pes)
}

/// Up to this many PEs per core, the built-in deadlines suffice.
const UNCROWDED_PES_PER_CORE: u32 = 8;

/// Returns the deadline of work that waits for other PEs: `usual`, or more if a core is shared by more than eight PEs.
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
