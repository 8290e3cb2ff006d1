//! Extended reliable connections (XRC).
//!
//! A connection has an initiator, which only sends, and a target, which only receives. A target belongs to a domain and has no
//! queues. Each request names a shared receive queue of the target's domain, and so does the entry that it comes from. The
//! queue tells the rest: the protection domain of the request's keys, and the CQ and the user index of its completions.

use super::Qp;
use crate::objects::srq::{OfXrcd, SharedSrq};
use crate::request::RemoteError;
use crate::roce::{Bth, Service};
use crate::table::Table;

/// Makes a target serve a request that names the queue `srqn`.
pub(crate) fn aim(target: &mut Qp, srqs: &Table<SharedSrq>, srqn: u32) -> Result<(), RemoteError> {
    let (named, of, pd) = queue(target, srqs, srqn)?;
    let holds = target.srq.as_ref().map(|srq| srq.get().srqn);
    if target.has_partial_message() && holds != Some(srqn) {
        // All packets of a message name one queue.
        return Err(RemoteError::Invalid);
    }
    (target.pd, target.cq_recv, target.user_index) = (pd, Some(of.cqn), of.user_index);
    target.srq = Some(named.clone());
    Ok(())
}

/// Makes the QP serve the packet. Only a target has something to do.
pub(crate) fn aim_at_packet(qp: &mut Qp, srqs: &Table<SharedSrq>, bth: &Bth) -> Result<(), RemoteError> {
    match bth.srqn {
        Some(srqn) if qp.service == Service::Xrc => aim(qp, srqs, srqn),
        _ => Ok(()),
    }
}

/// Returns the protection domain of a packet's keys.
pub(crate) fn pd_of(qp: &Qp, srqs: &Table<SharedSrq>, bth: &Bth) -> Result<u32, RemoteError> {
    match bth.srqn {
        Some(srqn) if qp.service == Service::Xrc => queue(qp, srqs, srqn).map(|(_, _, pd)| pd),
        _ => Ok(qp.pd),
    }
}

/// Returns a queue of the target's domain, with its XRC part and its protection domain.
fn queue<'s>(
    target: &Qp,
    srqs: &'s Table<SharedSrq>,
    srqn: u32,
) -> Result<(&'s SharedSrq, OfXrcd, u32), RemoteError> {
    let named = srqs.get(srqn).ok_or(RemoteError::Invalid)?;
    let srq = named.get();
    let of = srq.of_xrcd.filter(|of| of.xrcd == target.context.xrcd).ok_or(RemoteError::Invalid)?;
    Ok((named, of, srq.pd))
}

impl Qp {
    /// Returns whether it is the target of an extended connection.
    pub(crate) fn is_xrc_target(&self) -> bool {
        self.service == Service::Xrc && self.sq.is_none()
    }

    /// Ends the service of a target for the queue that the last request named.
    pub(crate) fn leave_xrc_queue(&mut self) {
        if self.is_xrc_target() {
            (self.srq, self.cq_recv) = (None, None);
            (self.pd, self.user_index) = (self.context.pd, self.context.user_index);
        }
    }
}
