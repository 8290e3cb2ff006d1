//! Asynchronous events for the driver, like those of a ConnectX event queue.

use rushmem_mlx5::Syndrome;
use std::sync::{Arc, Mutex, PoisonError};

/// An asynchronous event, as delivered to [`Nic::on_event`](crate::Nic::on_event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A CQ has received a CQE of the kind for which it was armed. It is no longer armed.
    Completion {
        /// CQN of the CQ that has received the CQE.
        cqn: u32,
    },
    /// A CQ has overrun, and accepts no more CQEs.
    CqError {
        /// CQN of the CQ that has overrun.
        cqn: u32,
    },
    /// A QP has entered the Error state for a reason that no completion of its send queue reports.
    QpError {
        /// QPN of the QP that has entered the Error state.
        qpn: u32,
        /// The reason:
        ///
        /// - [`Syndrome::REMOTE_INVAL_REQ_ERR`]: the QP does not support the peer's request.
        /// - [`Syndrome::REMOTE_ACCESS_ERR`]: a memory key did not allow the peer's access.
        /// - [`Syndrome::REMOTE_OP_ERR`]: a receive of the QP, or its memory, failed.
        /// - [`Syndrome::LOCAL_QP_OP_ERR`]: the QP's CQ has overrun, or the engine has failed.
        syndrome: Syndrome,
    },
    /// Fewer receives than the limit of a shared receive queue are posted. The limit is no longer armed.
    SrqLimit {
        /// SRQN of the shared receive queue.
        srqn: u32,
    },
    /// A QP in the Error state has stopped taking receives from its shared receive queue.
    LastReceive {
        /// QPN of the QP in the Error state.
        qpn: u32,
    },
    /// A DCT that accepts no more connections has closed the last one.
    DctDrained {
        /// DCTN of the DCT.
        dctn: u32,
    },
    /// The port went down or came back up.
    Port {
        /// Whether the port is up now.
        is_up: bool,
    },
    /// The port has lost its address.
    AddressLost,
    /// The adapter has failed, and carries no more packets.
    DeviceFailed,
}

type Call = dyn Fn(Event) + Send + Sync;

/// The driver's callback for events, if it has set one.
#[derive(Default)]
pub(crate) struct Sink(Mutex<Option<Arc<Call>>>);

impl Sink {
    pub(crate) fn set(&self, call: Option<Arc<Call>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    /// Calls the driver's callback with each event, without holding the lock.
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
