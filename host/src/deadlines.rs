//! Extends the deadlines of a job whose PEs share few cores or run under the sanitizer.

use rushmem_base::{crowd_deadline, local_processes};

use crate::config::{Config, Switch};

/// Factor for deadlines under the sanitizer, which slows debug builds down by up to 8.
const SANITIZER_FACTOR: u32 = 10;

/// Extends the deadlines that the user has not set, if a core has more than eight PEs of this node or the sanitizer is
/// on.
///
/// In such jobs, a PE has to wait until each of its peers gets a core. `native` kernels do so as well, so their calls
/// get longer deadlines, too.
pub(crate) fn extend(config: &mut Config, native: bool) {
    let pes = config.pes_on_node().max(local_processes());
    let factor = if config.sanitize == Switch::On { SANITIZER_FACTOR } else { 1 };
    let extended = |deadline| crowd_deadline(deadline, pes).saturating_mul(factor);
    if config.is_default("bootstrap_timeout") {
        config.bootstrap_timeout = extended(config.bootstrap_timeout);
    }
    if config.is_default("connect_timeout") {
        config.connect_timeout = extended(config.connect_timeout);
    }
    if native && config.is_default("timeout") {
        config.timeout = extended(config.timeout);
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
    fn default_deadlines_grow_with_pes_per_core() {
        let seconds = Duration::from_secs;
        let usual = (seconds(10), seconds(60));
        assert_eq!(deadlines(8 * cores(), true, &[]), usual);
        assert_eq!(deadlines(32 * cores(), true, &[]), (seconds(40), seconds(240)));
        assert_eq!(deadlines(32 * cores(), false, &[]), (seconds(10), seconds(240)));
        let set = [("timeout", "10s"), ("bootstrap_timeout", "60s")];
        assert_eq!(deadlines(32 * cores(), true, &set), usual);
    }

    #[test]
    fn default_deadlines_grow_under_the_sanitizer() {
        let seconds = Duration::from_secs;
        let sanitized = ("sanitize", "on");
        assert_eq!(deadlines(1, true, &[sanitized]), (seconds(100), seconds(600)));
        assert_eq!(deadlines(1, true, &[sanitized, ("timeout", "3s")]), (seconds(3), seconds(600)));
    }
}
