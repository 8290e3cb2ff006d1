//! The cores of this machine, and the share of a PE in them.

use std::sync::OnceLock;
use std::thread::available_parallelism;
use std::time::Duration;

/// Returns the number of cores that this process may use.
///
/// The first call asks the system, which reads several files for the answer.
pub fn cores() -> u32 {
    static CORES: OnceLock<u32> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, |cores| cores.get() as u32))
}

/// Returns the number of PEs on each core, at least 1, if `pes` PEs share the cores.
pub fn pes_per_core(pes: u32) -> u32 {
    pes.div_ceil(cores()).max(1)
}

/// Returns the deadline of work for which `alone` suffices on an idle machine, while `pes` PEs share its cores.
pub fn shared_deadline(alone: Duration, pes: u32) -> Duration {
    alone * pes_per_core(pes)
}

/// Number of PEs on a core up to which the built-in deadlines suffice.
const CROWD: u32 = 8;

/// Returns the deadline of work that waits for other PEs, for which `usual` suffices unless a core has more than eight
/// PEs.
pub fn crowd_deadline(usual: Duration, pes: u32) -> Duration {
    shared_deadline(usual, pes / CROWD)
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
        assert_eq!(crowd_deadline(second, 8 * cores + 7), second);
        assert_eq!(crowd_deadline(second, 64 * cores), 8 * second);
    }
}
