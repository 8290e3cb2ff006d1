//! What the library says on standard error.

use crate::settings::variable;
use std::sync::Once;
use tracing_subscriber::EnvFilter;

/// What is logged unless the variable says otherwise: what a program's error number does not tell.
const DEFAULT: &str = "error";

/// Starts to log, once. The library has its own copy of everything, so that a program's own log does not hear of it.
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
        // Where the program links this crate itself, its own subscriber stays.
        if subscriber.try_init().is_ok()
            && let Some(wrong) = wrong
        {
            tracing::error!("{}: {wrong}", variable::LOG);
        }
    });
}
