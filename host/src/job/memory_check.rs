//! Checks that the machine has enough memory for the PEs of a job.

use rushmem_fabric::queues::Shape;
use rushmem_machine::available_memory;

use crate::config::Config;
use crate::{Error, Result};

/// Denominator of the share of their heaps and queues that all PEs must be able to use at the same time.
///
/// The system allocates pages on first use, and few PEs use all of theirs.
const SHARE_IN_USE: u64 = 4;

/// Checks that this machine can hold the heap, queues and teams of one PE, and a [share](SHARE_IN_USE) of those of
/// `pes` PEs.
///
/// # Errors
/// - [`Error::HeapTooLarge`] if it cannot.
pub(super) fn check_memory(config: &Config, pes: u32) -> Result<()> {
    let Some(available) = available_memory() else { return Ok(()) };
    let wanted = config.heap_bytes.0.saturating_add(queue_memory(config));
    tracing::debug!(wanted, pes, available, "bytes of heap, queues and teams for each PE of this node");
    if wanted > available || wanted.saturating_mul(pes.into()) / SHARE_IN_USE > available {
        return Err(Error::HeapTooLarge { wanted, pes, memory: "this machine's memory".into(), available });
    }
    Ok(())
}

/// Returns the size of the queues and team memory of a PE, in bytes. They are in host or GPU memory.
pub(crate) fn queue_memory(config: &Config) -> u64 {
    Shape::new(config, config.n_pes.unwrap_or(config.pes).get()).memory()
}
