//! DCTs, the targets of dynamic connections.

use super::qp::{Attrs, OfDct, Qp, State};
use super::srq::SharedSrq;
use crate::limits::{LOG_MAX_MSG, LOG_MAX_READS};
use crate::roce::{Connect, Psn, Service};
use crate::route::Route;
use rushmem_mlx5::prm::dct::DctContext;
use rushmem_mlx5::prm::qp::QpContext;
use std::collections::HashMap;
use std::net::SocketAddrV4;

pub(crate) struct Dct {
    pub(crate) owner: u32,
    pub(crate) context: DctContext,
    pub(crate) pkey: u16,
    pub(crate) srq: SharedSrq,
    /// Set once the DCT accepts no more connections.
    pub(crate) is_drained: bool,
    pub(crate) wrong_keys: u32,
    /// QPN of the QP that serves each connection, by the address of the initiator's adapter and the initiator's QPN.
    pub(crate) connections: HashMap<(SocketAddrV4, u32), u32>,
}

impl Dct {
    fn attrs(&self, request: &Connect) -> Attrs {
        let dctc = &self.context;
        Attrs {
            remote_qpn: request.source_qpn,
            mtu: request.mtu,
            log_msg_max: LOG_MAX_MSG,
            remote_read: dctc.rre,
            remote_write: dctc.rwe,
            remote_atomic: dctc.rae,
            atomic_mode: dctc.atomic_mode.0,
            min_rnr_nak: dctc.min_rnr_nak,
            log_rra_max: LOG_MAX_READS,
            pkey: self.pkey,
            ..Attrs::default()
        }
    }

    /// Creates the QP that serves a new connection to this DCT.
    pub(crate) fn qp(&self, qpn: u32, of: OfDct, route: Route, request: &Connect, psn: Psn) -> Qp {
        let dctc = &self.context;
        let context = QpContext {
            pd: dctc.pd,
            user_index: dctc.user_index,
            counter_set_id: dctc.counter_set_id,
            ..QpContext::default()
        };
        let mut qp = Qp::new(self.owner, qpn, Service::Dc, context);
        qp.of_dct = Some(Box::new(of));
        qp.attrs = self.attrs(request);
        (qp.cq_recv, qp.srq) = (Some(dctc.cqn), Some(self.srq.clone()));
        (qp.route, qp.recv_psn, qp.state) = (route, psn, State::Rtr);
        qp
    }
}
