//! Targets, and their connections.

use super::{CONNECTIONS, FORGET};
use crate::core::Core;
use crate::dma::KeyFault;
use crate::limits::{LOG_MAX_MSG, LOG_MAX_READS};
use crate::qp::{Attrs, Qp, State};
use crate::roce::{self, Aeth, AethSyndrome, Bth, Connect, Ext, Op, Packet, Psn, Service};
use crate::route::Route;
use crate::srq::SharedSrq;
use crate::target::RemoteError;
use rushmem_mlx5::prm::dct::DctContext;
use rushmem_mlx5::prm::qp::QpContext;
use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::time::Instant;

/// A target.
pub(crate) struct Dct {
    pub(crate) owner: u32,
    pub(crate) context: DctContext,
    pub(crate) pkey: u16,
    pub(crate) srq: SharedSrq,
    /// Set if it accepts no connection any more.
    pub(crate) is_drained: bool,
    /// Number of connects with a wrong key.
    pub(crate) wrong_keys: u32,
    /// The QP of each connection, by the adapter and the number of its initiator.
    pub(crate) connections: HashMap<(SocketAddrV4, u32), u32>,
}

/// The part of a QP that is a connection of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfDct {
    pub(crate) dctn: u32,
    /// The initiator's adapter.
    source: SocketAddrV4,
    /// Sequence number of the connection.
    sequence: u32,
    /// Time of the last packet.
    pub(crate) used: Instant,
}

impl Dct {
    /// Returns the attributes of a connection.
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

    /// Returns the QP of a new connection.
    fn qp(&self, qpn: u32, of: OfDct, route: Route, request: &Connect, psn: Psn) -> Qp {
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

/// Answers a connect from an initiator. Its first request will have the packet number `psn`. Returns the number of the
/// connection, or the refusal; `None` means no answer.
pub(super) fn accept(
    core: &mut Core,
    dctn: u32,
    (source, route): (SocketAddrV4, Route),
    (pkey, psn): (u16, Psn),
    request: &Connect,
) -> Option<Result<u32, RemoteError>> {
    let initiator = (source, request.source_qpn);
    let dct = core.dcts.get_mut(dctn).filter(|dct| !dct.is_drained && roce::pkeys_match(dct.pkey, pkey))?;
    if dct.context.dc_access_key != request.key {
        tracing::debug!(dctn, %source, qpn = request.source_qpn, "wrong access key");
        dct.wrong_keys = dct.wrong_keys.saturating_add(1);
        return Some(Err(RemoteError::Access(KeyFault::DcKey)));
    }
    if !(1..=dct.context.mtu.0).contains(&request.mtu) {
        return Some(Err(RemoteError::Invalid));
    }
    let number = dct.connections.get(&initiator).copied();
    let present = number.and_then(|number| Some((number, *core.qps.get(number)?.of_dct.as_deref()?)));
    if let Some((number, of)) = present {
        match of.sequence.wrapping_sub(request.sequence) {
            0 => return Some(Ok(number)),
            // A connect that was under way when the initiator had connected again.
            1..=0xffff => return None,
            _ => core.remove_connection(number),
        }
    }
    core.make_room(dctn);
    let (qps, now) = (&mut core.qps, core.now);
    let dct = core.dcts.get_mut(dctn).filter(|dct| dct.connections.len() < CONNECTIONS)?;
    let of = OfDct { dctn, source, sequence: request.sequence, used: now };
    let number = qps.insert_with(|qpn| Box::new(dct.qp(qpn, of, route, request, psn)))?;
    dct.connections.insert(initiator, number);
    Some(Ok(number))
}

/// Handles a connect packet.
pub(crate) fn connect(core: &mut Core, from: SocketAddrV4, packet: &Packet<'_>) {
    let Ext::Connect(request) = packet.ext else { return };
    let Bth { pkey, psn, dest_qpn, .. } = packet.bth;
    let answer = accept(core, dest_qpn, (from, Route::Peer(from)), (pkey, psn.plus(1)), &request);
    let aeth = |syndrome| Aeth { syndrome, msn: 0 };
    let (qpn, op, ext) = match answer {
        Some(Ok(number)) => {
            let ext = Ext::Accept(aeth(AethSyndrome::Ack), request.sequence, number);
            (number, Op::Accept, ext)
        }
        Some(Err(refusal)) => (dest_qpn, Op::Ack, Ext::Aeth(aeth(AethSyndrome::Nak(refusal.nak())))),
        None => {
            core.report.stats.dropped += 1;
            return;
        }
    };
    let (service, dest_qpn) = (Service::Dc, request.source_qpn);
    let bth = Bth { service, op, solicited: false, pkey, ack_req: false, dest_qpn, psn, srqn: None };
    core.answers.push(((qpn, from), bth, ext));
}

impl OfDct {
    /// Returns whether a disconnect packet with this sequence number ends the connection.
    pub(crate) fn ends_with(&self, ext: &Ext) -> bool {
        *ext == Ext::Disconnect(self.sequence)
    }
}

impl Core {
    /// Removes the connection of a target that has been silent longest, if the target has no room for another one.
    fn make_room(&mut self, dctn: u32) {
        let Some(dct) = self.dcts.get(dctn).filter(|dct| dct.connections.len() >= CONNECTIONS) else {
            return;
        };
        let of =
            |number: &u32| self.qps.get(*number).filter(|qp| qp.route != Route::Loopback)?.of_dct.as_deref();
        let used = dct.connections.values().filter_map(|number| Some((of(number)?.used, *number)));
        let oldest = used.min_by_key(|(used, _)| *used);
        if let Some((_, number)) =
            oldest.filter(|(used, _)| self.now.saturating_duration_since(*used) >= FORGET)
        {
            self.remove_connection(number);
        }
    }

    /// Removes a connection of a target.
    pub(crate) fn remove_connection(&mut self, number: u32) {
        let of = self.qps.get(number).and_then(|qp| qp.of_dct.as_deref()).copied();
        let Some(OfDct { dctn, source, .. }) = of else { return };
        let Some(mut qp) = self.qps.remove(number) else { return };
        qp.drop_partial_message();
        if let Some(dct) = self.dcts.get_mut(dctn) {
            dct.connections.remove(&(source, qp.attrs.remote_qpn));
        }
    }

    /// Removes all connections of a target.
    pub(crate) fn remove_connections(&mut self, dctn: u32) {
        let connections = self.dcts.get(dctn).map(|dct| dct.connections.values().copied().collect());
        let numbers: Vec<u32> = connections.unwrap_or_default();
        numbers.into_iter().for_each(|number| self.remove_connection(number));
    }

    /// Destroys a target.
    pub(crate) fn remove_dct(&mut self, dctn: u32) {
        self.remove_connections(dctn);
        let Some(dct) = self.dcts.remove(dctn) else { return };
        let mut srq = dct.srq.get();
        srq.users = srq.users.saturating_sub(1);
        drop(srq);
        self.count_pd(dct.context.pd, -1);
        self.count_cq(dct.context.cqn, -1);
    }
}
