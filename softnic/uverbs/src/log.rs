//! The library's log on standard error.

use crate::settings::variable;
use std::sync::Once;
use tracing_subscriber::EnvFilter;

/// Default filter: details that a program's error number does not show.
const DEFAULT: &str = "error";

/// Starts logging, once. The preloaded library has its own subscriber, separate from a program's own log.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let wanted = std::env::var(variable::LOG).ok().filter(|text| !text.is_empty());
        let filter = EnvFilter::try_new(wanted.as_deref().unwrap_or(DEFAULT));
        let wrong = filter.as_ref().err().map(ToString::to_string);
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new(DEFAULT)))
            .with_writer(std::io::stderr)
            .without_time();
        // A program that links this crate keeps its own subscriber.
        if subscriber.try_init().is_ok()
            && let Some(wrong) = wrong
        {
            tracing::error!("{}: {wrong}", variable::LOG);
        }
    });
}
