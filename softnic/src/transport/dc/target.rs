//! The targets of dynamic connections (DCTs): accepts and drops connections.

use super::{CONNECTIONS, Dynamic, EVICT_AFTER};
use crate::dma::KeyFault;
use crate::objects::Objects;
use crate::objects::qp::OfDct;
use crate::request::RemoteError;
use crate::roce::{self, Aeth, AethSyndrome, Bth, Connect, Ext, Op, Packet, Psn, Service};
use crate::route::Route;
use crate::transport::datapath::Datapath;
use std::net::SocketAddrV4;
use std::time::Instant;

/// Answers a connect request, after which the initiator's first request will have PSN `psn`. Returns the QPN of the
/// connection, or the error to NAK with, or `None` for no answer.
pub(super) fn accept(
    path: &mut Datapath,
    dctn: u32,
    (source, route): (SocketAddrV4, Route),
    (pkey, psn): (u16, Psn),
    request: &Connect,
) -> Option<Result<u32, RemoteError>> {
    let initiator = (source, request.source_qpn);
    let dct =
        path.objects.dcts.get_mut(dctn).filter(|dct| !dct.is_drained && roce::pkeys_match(dct.pkey, pkey))?;
    if dct.context.dc_access_key != request.key {
        tracing::debug!(dctn, %source, qpn = request.source_qpn, "wrong access key");
        dct.wrong_keys = dct.wrong_keys.saturating_add(1);
        return Some(Err(RemoteError::Access(KeyFault::DcKey)));
    }
    if !(1..=dct.context.mtu.0).contains(&request.mtu) {
        return Some(Err(RemoteError::Invalid));
    }
    let number = dct.connections.get(&initiator).copied();
    let present = number.and_then(|number| Some((number, *path.objects.qps.get(number)?.of_dct.as_deref()?)));
    // A restarted adapter continues from a random number, so only a slightly lower one counts as late.
    if let Some((number, of)) = present {
        match of.sequence.wrapping_sub(request.sequence) {
            // A repeated connect: the accept was lost.
            0 => return Some(Ok(number)),
            // A late connect, sent before the initiator connected again.
            1..=0xffff => return None,
            _ => path.objects.remove_connection(number),
        }
    }
    let now = path.report.now;
    make_room(&mut path.objects, dctn, now);
    let Objects { qps, dcts, .. } = &mut path.objects;
    let dct = dcts.get_mut(dctn).filter(|dct| dct.connections.len() < CONNECTIONS)?;
    let of = OfDct { dctn, source, sequence: request.sequence, used: now };
    let number = qps.insert_with(|qpn| Box::new(dct.qp(qpn, of, route, request, psn)))?;
    dct.connections.insert(initiator, number);
    Some(Ok(number))
}

impl Dynamic {
    pub(crate) fn connect(&mut self, path: &mut Datapath, from: SocketAddrV4, packet: &Packet<'_>) {
        let Ext::Connect(request) = packet.ext else { return };
        let Bth { pkey, psn, dest_qpn, .. } = packet.bth;
        let answer = accept(path, dest_qpn, (from, Route::Peer(from)), (pkey, psn.plus(1)), &request);
        let aeth = |syndrome| Aeth { syndrome, msn: 0 };
        let (qpn, op, ext) = match answer {
            Some(Ok(number)) => {
                let ext = Ext::Accept(aeth(AethSyndrome::Ack), request.sequence, number);
                (number, Op::Accept, ext)
            }
            Some(Err(refusal)) => (dest_qpn, Op::Ack, Ext::Aeth(aeth(AethSyndrome::Nak(refusal.nak())))),
            None => {
                path.report.stats.dropped += 1;
                return;
            }
        };
        let (service, dest_qpn) = (Service::Dc, request.source_qpn);
        let bth = Bth { service, op, solicited: false, pkey, ack_req: false, dest_qpn, psn, srqn: None };
        self.answers.push(((qpn, from), bth, ext));
    }
}

/// Drops the connection that has been silent longest, if the target has no room for another one.
fn make_room(objects: &mut Objects, dctn: u32, now: Instant) {
    let Some(dct) = objects.dcts.get(dctn).filter(|dct| dct.connections.len() >= CONNECTIONS) else {
        return;
    };
    // A local initiator closes its connection itself. Its connection cannot be stale.
    let of =
        |number: &u32| objects.qps.get(*number).filter(|qp| qp.route != Route::Loopback)?.of_dct.as_deref();
    let used = dct.connections.values().filter_map(|number| Some((of(number)?.used, *number)));
    let oldest = used.min_by_key(|(used, _)| *used);
    if let Some((_, number)) = oldest.filter(|(used, _)| now.saturating_duration_since(*used) >= EVICT_AFTER)
    {
        objects.remove_connection(number);
    }
}
