//! Send and receive queues for Ethernet, which are QPs with one queue.

use super::Qp;
use rushmem_mlx5::prm::sq::{RqContext, SqContext};

/// Settings of an Ethernet queue, as last written by the driver.
pub(crate) enum RawQueue {
    Send(SqContext),
    Receive(RqContext),
}

impl Qp {
    /// Whether the entries of a failed Ethernet queue are completed with an error.
    pub(crate) fn flushes(&self) -> bool {
        match self.raw.as_deref() {
            Some(RawQueue::Send(context)) => context.flush_in_error_en,
            Some(RawQueue::Receive(context)) => context.flush_in_error_en,
            None => true,
        }
    }
}
