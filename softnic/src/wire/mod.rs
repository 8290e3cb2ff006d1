//! Connections over packets: QPs with a peer at another adapter.
//!
//! | file | does |
//! |---|---|
//! | `ahead` | reads the payloads of the next packets by one access |
//! | `message` | keeps a send WQE in flight |
//! | `sender` | cuts WQEs into packets, within the window |
//! | `requester` | handles acknowledgements and responses, resends, completes |
//! | `responder` | executes requests of the peer and queues responses |
//! | `responses` | sends the queued responses |
//! | `selective` | keeps packets behind a gap, and repairs gaps |
//! | `flight` | knows which packets have arrived, and which are missing |
//! | `pace` | measures the time of answers |
//! | `fault_injection` | injects faults: requests that wait, WRITEs in pieces |
//!
//! A dynamic connection sends the same packets once it is up: see [`crate::dc`]. So does an extended connection, with the number
//! of a shared receive queue in each request: see [`crate::qp::xrc`].
//!
//! An unreliable connection acknowledges nothing: a sent message is complete, and a message with a missing packet is
//! dropped.

mod ahead;
mod fault_injection;
mod flight;
pub(crate) mod message;
mod pace;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod responses;
mod selective;
pub(crate) mod sender;
#[cfg(test)]
mod tests;

use fault_injection::Turn;
pub use requester::PACKET_TOO_LONG;
pub(crate) use requester::Requester;
pub(crate) use responder::Responder;

use crate::core::Core;
use crate::datagram;
use crate::dc;
use crate::flush;
use crate::management;
use crate::qp::State;
use crate::report::observe::Observation;
use crate::roce::{self, Op, Service};
use crate::route::Route;
use std::net::SocketAddrV4;

/// Works on one QP. Returns whether it has more to do at once.
pub(crate) fn run(core: &mut Core, qpn: u32) -> bool {
    let turn = if core.report.injects_faults { fault_injection::run(core, qpn) } else { Turn::Clear };
    selective::remind(core, qpn);
    let mut more = match turn {
        Turn::Clear => responses::run(core, qpn),
        Turn::Waits => false,
        Turn::More => true,
    };
    if core.qps.get(qpn).is_some_and(|qp| qp.state == State::Rts) {
        more |= requester::timers(core, qpn);
        more |= sender::run(core, qpn);
        requester::complete_front(core, qpn);
    }
    if let Some(qp) = core.qps.get_mut(qpn)
        && qp.state == State::Error
    {
        more |= flush::run(qp, &mut core.cqs, &mut core.report);
    }
    more
}

/// Handles one packet from the fabric.
pub(crate) fn packet(core: &mut Core, from: SocketAddrV4, bytes: &[u8]) {
    let packet = match roce::parse(bytes) {
        Ok(packet) => packet,
        Err(error) => {
            tracing::trace!(%from, ?error, "broken packet");
            core.report.stats.dropped += 1;
            return;
        }
    };
    let qpn = packet.bth.dest_qpn;
    let service = packet.bth.service;
    if packet.bth.op == Op::Connect {
        return dc::connect(core, from, &packet);
    }
    if qpn == management::QPN {
        let taken = service == Service::Ud && core.mads.receive(*from.ip(), &packet);
        core.report.stats.dropped += u64::from(!taken);
        return;
    }
    let known = core.qps.get(qpn).is_some_and(|qp| {
        // An initiator serves no requests, and a target sends none.
        let is_response = packet.bth.op.is_response();
        let is_at_its_end = match service {
            Service::Dc => is_response == qp.dci.is_some(),
            Service::Xrc => is_response != qp.is_xrc_target(),
            Service::Rc | Service::Uc | Service::Ud => true,
        };
        qp.service == service
            && is_at_its_end
            && (service == Service::Ud || qp.route == Route::Peer(from))
            && roce::pkeys_match(qp.attrs.pkey, packet.bth.pkey)
    });
    if !known {
        tracing::trace!(%from, qpn, "packet from a stranger");
        core.report.stats.dropped += 1;
        return;
    }
    core.report.lookout.note(|| {
        let (psn, opcode) = (packet.bth.psn.get(), packet.bth.op.name());
        Observation::PacketReceived { qpn, psn, opcode, bytes: packet.payload.len() as u64 }
    });
    let now = core.now;
    if let Some(of) = core.qps.get_mut(qpn).and_then(|qp| qp.of_dct.as_mut()) {
        of.used = now;
        if packet.bth.op == Op::Disconnect {
            if of.ends_with(&packet.ext) {
                core.remove_connection(qpn);
            }
            return;
        }
    }
    match service {
        Service::Ud => datagram::receive(core, qpn, from, &packet),
        Service::Uc => responder::unreliable(core, qpn, &packet),
        Service::Rc | Service::Dc | Service::Xrc => {
            if packet.bth.op.is_response() {
                requester::response(core, qpn, &packet);
            } else if core.report.injects_faults {
                fault_injection::request(core, qpn, &packet, bytes);
            } else {
                selective::request(core, qpn, &packet, bytes);
            }
        }
    }
    core.enqueue(qpn);
}
