//! What the adapter tells its driver without being asked, as an event queue does.

use rushmem_mlx5::Syndrome;
use std::sync::{Arc, Mutex, PoisonError};

/// Something that a driver may have to pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A CQ has an entry of the kind that it was armed for. It is not armed any more.
    Completion {
        /// The CQ.
        cqn: u32,
    },
    /// A CQ was full; it takes no entries any more.
    CqError {
        /// The CQ.
        cqn: u32,
    },
    /// A QP went into error for a reason that no completion of its send queue tells.
    QpError {
        /// The QP.
        qpn: u32,
        /// [`Syndrome::REMOTE_INVAL_REQ_ERR`] where the peer asked for what the QP does not serve,
        /// [`Syndrome::REMOTE_ACCESS_ERR`] where a key did not allow it, [`Syndrome::REMOTE_OP_ERR`] where the QP's own
        /// receives or memory failed, [`Syndrome::LOCAL_QP_OP_ERR`] where its CQ was full or the adapter gave up.
        syndrome: Syndrome,
    },
}

type Call = dyn Fn(Event) + Send + Sync;

/// Who is told.
#[derive(Default)]
pub(crate) struct Sink(Mutex<Option<Arc<Call>>>);

impl Sink {
    pub(crate) fn set(&self, call: Option<Arc<Call>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    /// Passes events on, without a lock held.
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
