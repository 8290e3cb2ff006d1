//! Connections over packets: QPs with a peer at another adapter.
//!
//! | file | does |
//! |---|---|
//! | `start` | starts send WQEs |
//! | `ahead` | reads the payloads of the next packets by one access |
//! | `packet` | builds the packets of a WQE |
//! | `sender` | cuts WQEs into packets, within the window |
//! | `requester` | handles acknowledgements and responses, resends, completes |
//! | `responder` | executes requests of the peer and queues responses |
//! | `responses` | sends the queued responses |
//! | `selective` | keeps packets after a gap, and repairs gaps |
//! | `late`, `fault_injection` | inject faults: WRITEs that land late or in pieces, requests that wait |
//!
//! The state of a connection is a part of its QP: see [`crate::objects::qp`].
//!
//! A dynamic connection sends the same packets once it is up: see [`super::dc`]. So does an extended connection, with the number
//! of a shared receive queue in each request: see [`crate::objects::qp::xrc`].
//!
//! An unreliable connection acknowledges nothing: a sent message is complete, and a message with a missing packet is
//! dropped.

mod ahead;
mod fault_injection;
mod late;
mod packet;
mod requester;
mod responder;
mod responses;
mod selective;
mod sender;
mod start;
#[cfg(test)]
mod tests;

use super::datapath::Datapath;
use crate::objects::qp::State;
use crate::queues::flush;
use crate::roce::Packet;
use fault_injection::Turn;
pub use requester::PACKET_TOO_LONG;

/// Works on one QP. Returns whether it has more to do immediately.
pub(super) fn run(path: &mut Datapath, qpn: u32) -> bool {
    let turn = if path.report.injects_faults { fault_injection::run(path, qpn) } else { Turn::Clear };
    selective::remind(path, qpn);
    let mut more = match turn {
        Turn::Clear => responses::run(path, qpn),
        Turn::Waits => false,
        Turn::More => true,
    };
    if path.objects.qps.get(qpn).is_some_and(|qp| qp.state == State::Rts) {
        more |= requester::timers(path, qpn);
        more |= sender::run(path, qpn);
        requester::complete_front(path, qpn);
    }
    if let Some(qp) = path.objects.qps.get_mut(qpn)
        && qp.state == State::Error
    {
        more |= flush::run(qp, &mut path.objects.cqs, &mut path.report);
    }
    more
}

/// Handles one packet of the QP's peer, with bytes `bytes`.
pub(super) fn receive(path: &mut Datapath, qpn: u32, packet: &Packet<'_>, bytes: &[u8]) {
    if !packet.bth.service.is_reliable() {
        responder::unreliable(path, qpn, packet);
    } else if packet.bth.op.is_response() {
        requester::response(path, qpn, packet);
    } else if path.report.injects_faults {
        fault_injection::request(path, qpn, packet, bytes);
    } else {
        selective::request(path, qpn, packet, bytes);
    }
}
