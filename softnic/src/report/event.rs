//! Events of the adapter for its driver, like an event queue.

use rushmem_mlx5::Syndrome;
use std::sync::{Arc, Mutex, PoisonError};

/// An event for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A CQ has a CQE of the kind for which it was armed. It is no longer armed.
    Completion {
        /// The CQ.
        cqn: u32,
    },
    /// A CQ overran; it takes no CQEs any more.
    CqError {
        /// The CQ.
        cqn: u32,
    },
    /// A QP entered the error state for a reason that no completion of its send queue reports.
    QpError {
        /// The QP.
        qpn: u32,
        /// The reason:
        ///
        /// - [`Syndrome::REMOTE_INVAL_REQ_ERR`]: the QP does not serve the peer's request.
        /// - [`Syndrome::REMOTE_ACCESS_ERR`]: a key did not allow it.
        /// - [`Syndrome::REMOTE_OP_ERR`]: a receive or memory of the QP failed.
        /// - [`Syndrome::LOCAL_QP_OP_ERR`]: its CQ overran or the engine failed.
        syndrome: Syndrome,
    },
    /// Fewer entries of a shared receive queue are posted than its limit, which is no longer armed.
    SrqLimit {
        /// The shared receive queue.
        srqn: u32,
    },
    /// A QP in error takes no more entries of its shared receive queue.
    LastReceive {
        /// The QP.
        qpn: u32,
    },
    /// A target of dynamic connections has no connection any more, and accepts none.
    DctDrained {
        /// The target.
        dctn: u32,
    },
    /// The port went down, or came up again.
    Port {
        /// The new state.
        is_up: bool,
    },
    /// The port lost its address.
    AddressLost,
    /// The adapter failed and carries no packets any more.
    DeviceFailed,
}

type Call = dyn Fn(Event) + Send + Sync;

/// The receiver of events.
#[derive(Default)]
pub(crate) struct Sink(Mutex<Option<Arc<Call>>>);

impl Sink {
    pub(crate) fn set(&self, call: Option<Arc<Call>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    /// Delivers events without holding a lock.
    pub(crate) fn deliver(&self, events: &[Event]) {
        let call = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for event in events {
            tracing::trace!(?event, heard = call.is_some(), "event");
            if let Some(call) = &call {
                call(*event);
            }
        }
    }
}
