//! Captures dispatch and combine in a graph.

use rushmem::{Graph, Stream};

use crate::Result;

/// Captures the operations that `queue` queues in a graph, like [`Stream::capture`], but for functions with errors of
/// this crate.
///
/// # Errors
/// - The error of `queue`.
/// - [`Error::Runtime`](crate::Error::Runtime) with the errors of [`Stream::capture`].
pub fn capture<'a>(stream: &Stream<'a>, queue: impl FnOnce(&Stream<'a>) -> Result<()>) -> Result<Graph<'a>> {
    let mut outcome = Ok(());
    let graph = stream.capture(|stream| {
        outcome = queue(stream);
        Ok(())
    })?;
    outcome.map(|()| graph)
}
