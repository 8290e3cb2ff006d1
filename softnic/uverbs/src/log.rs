//! Log messages of the preloaded library, on standard error.

use crate::settings::variable;
use std::sync::Once;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging on the first call. By default, errors are logged, with details that an error code cannot express. The
/// preloaded library does not share its subscriber with the program.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let wanted = std::env::var(variable::LOG).ok().filter(|text| !text.is_empty());
        let default = Targets::new().with_default(LevelFilter::ERROR);
        let filter = wanted.map_or(Ok(default.clone()), |text| text.parse());
        let wrong = filter.as_ref().err().map(ToString::to_string);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .without_time()
            .finish()
            .with(filter.unwrap_or(default));
        // A program that links this crate keeps its subscriber.
        if subscriber.try_init().is_ok()
            && let Some(wrong) = wrong
        {
            tracing::error!("{}: {wrong}", variable::LOG);
        }
    });
}
