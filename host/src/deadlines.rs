//! Deadlines of PEs that share few cores.

use rushmem_base::{crowd_deadline, local_processes};

use crate::config::Config;

/// Extends the deadlines that nobody has set, if a core has more than eight PEs of this node.
///
/// A PE waits there until each of its peers gets a core. With `native` kernels, that also holds for calls of kernels.
pub(crate) fn extend(config: &mut Config, native: bool) {
    let pes = config.pes_on_node().max(local_processes());
    if config.is_default("bootstrap_timeout") {
        config.bootstrap_timeout = crowd_deadline(config.bootstrap_timeout, pes);
    }
    if config.is_default("connect_timeout") {
        config.connect_timeout = crowd_deadline(config.connect_timeout, pes);
    }
    if native && config.is_default("timeout") {
        config.timeout = crowd_deadline(config.timeout, pes);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use rushmem_base::cores;

    use super::*;

    fn deadlines(pes: u32, native: bool, settings: &[(&str, &str)]) -> (Duration, Duration) {
        let mut config = Config::default();
        config.pes = NonZeroU32::new(pes).unwrap();
        settings.iter().for_each(|(key, text)| config.set(key, text).unwrap());
        extend(&mut config, native);
        (config.timeout, config.bootstrap_timeout)
    }

    #[test]
    fn deadlines_that_nobody_set_grow_with_the_pes_of_a_core() {
        let seconds = Duration::from_secs;
        let usual = (seconds(10), seconds(60));
        assert_eq!(deadlines(8 * cores(), true, &[]), usual);
        assert_eq!(deadlines(32 * cores(), true, &[]), (seconds(40), seconds(240)));
        assert_eq!(deadlines(32 * cores(), false, &[]), (seconds(10), seconds(240)));
        let set = [("timeout", "10s"), ("bootstrap_timeout", "60s")];
        assert_eq!(deadlines(32 * cores(), true, &set), usual);
    }
}
