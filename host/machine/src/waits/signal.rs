//! The SIGUSR1 handler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rushmem_base::has_signal;
use signal_hook::consts::SIGUSR1;

/// Set by the handler and cleared by [`take`]. Empty until the handler is installed.
static SIGNALLED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Installs the handler, unless the program handles or ignores the signal itself.
pub fn listen() {
    SIGNALLED.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if is_default(&status)
            && let Err(error) = signal_hook::flag::register(SIGUSR1, Arc::clone(&flag))
        {
            tracing::warn!("SIGUSR1 does not show the waits of the job: {error}");
        }
        flag
    });
}

/// Returns whether the signal has arrived since the last call.
pub(super) fn take() -> bool {
    SIGNALLED.get().is_some_and(|flag| flag.swap(false, Ordering::Relaxed))
}

/// Returns whether SIGUSR1 has its default action, according to the text of `/proc/self/status`.
fn is_default(status: &str) -> bool {
    let has = |set: &str| has_signal(status, set, SIGUSR1).unwrap_or(true);
    !has("SigIgn") && !has("SigCgt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_programs_own_handler() {
        let status = |ignored: u64, caught: u64| format!("SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n");
        assert!(is_default(&status(0x1000, 0x1_8000_0440)));
        assert!(!is_default(&status(0x200, 0)));
        assert!(!is_default(&status(0, 0x200)));
        assert!(!is_default(""));
    }

    #[test]
    fn the_signal_sets_a_flag() {
        listen();
        assert!(!take());
        signal_hook::low_level::raise(SIGUSR1).unwrap();
        assert!(take() && !take());
    }
}
