//! Extended reliable connections (XRC).
//!
//! An extended connection has an initiator, which only sends, and a target, which only receives. A target belongs to an
//! XRC domain and has no queues. Each request, like the receive it consumes, belongs to a shared receive queue of that
//! domain. The queue determines the protection domain of the request's keys, and the CQ and user index of its
//! completions.

use super::Qp;
use crate::objects::srq::{OfXrcd, SharedSrq};
use crate::request::RemoteError;
use crate::roce::{Bth, Service};
use crate::table::Table;

/// Selects the SRQ `srqn` for a request to the XRC target that names it.
pub(crate) fn aim(target: &mut Qp, srqs: &Table<SharedSrq>, srqn: u32) -> Result<(), RemoteError> {
    let (named, of, pd) = queue(target, srqs, srqn)?;
    let holds = target.srq.as_ref().map(|srq| srq.get().srqn);
    if target.has_partial_message() && holds != Some(srqn) {
        // All packets of a message must name the same queue.
        return Err(RemoteError::Invalid);
    }
    (target.pd, target.cq_recv, target.user_index) = (pd, Some(of.cqn), of.user_index);
    target.srq = Some(named.clone());
    Ok(())
}

/// Selects the SRQ that a packet to an XRC target names. Does nothing for other QPs.
pub(crate) fn aim_at_packet(qp: &mut Qp, srqs: &Table<SharedSrq>, bth: &Bth) -> Result<(), RemoteError> {
    match bth.srqn {
        Some(srqn) if qp.service == Service::Xrc => aim(qp, srqs, srqn),
        _ => Ok(()),
    }
}

/// Returns the protection domain that the keys in a packet must belong to.
pub(crate) fn pd_of(qp: &Qp, srqs: &Table<SharedSrq>, bth: &Bth) -> Result<u32, RemoteError> {
    match bth.srqn {
        Some(srqn) if qp.service == Service::Xrc => queue(qp, srqs, srqn).map(|(_, _, pd)| pd),
        _ => Ok(qp.pd),
    }
}

/// Looks up an SRQ of the XRC target's domain. Returns it with its XRC attributes and its protection domain.
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
    pub(crate) fn is_xrc_target(&self) -> bool {
        self.service == Service::Xrc && self.sq.is_none()
    }

    /// Detaches an XRC target from the SRQ that the last request named. Does nothing for other QPs.
    pub(crate) fn leave_xrc_queue(&mut self) {
        if self.is_xrc_target() {
            (self.srq, self.cq_recv) = (None, None);
            (self.pd, self.user_index) = (self.context.pd, self.context.user_index);
        }
    }
}
