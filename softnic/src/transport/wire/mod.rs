//! The packet transport: reliable, unreliable and dynamic connections to QPs of other adapters.
//!
//! | file | does |
//! |---|---|
//! | `start` | fetches and checks send WQEs, and assigns their PSNs |
//! | `ahead` | prefetches the payloads of a burst of packets with one DMA access |
//! | `packet` | builds the packets of a WQE |
//! | `sender` | splits WQEs into packets, within the window |
//! | `requester` | processes acknowledgements and responses, retransmits, completes |
//! | `responder` | executes the peer's requests and queues responses |
//! | `responses` | sends the queued responses |
//! | `selective` | buffers out-of-order requests, and repairs gaps |
//! | `late`, `fault_injection` | inject faults: WRITEs that land late or in pieces, requests that are held back |
//!
//! The state of a connection is part of its QP: see [`crate::objects::qp`].
//!
//! A dynamic connection sends the same packets once it is established: see [`super::dc`]. So does an extended
//! connection, which also names a shared receive queue in each request: see [`crate::objects::qp::xrc`].
//!
//! An unreliable connection sends no acknowledgements: a message is complete once it is sent, and the receiver drops a
//! message with a missing packet.

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
pub(crate) use fault_injection::finish_executed;
pub use requester::PACKET_TOO_LONG;

/// Runs timers, sends packets and responses of one QP. Returns whether it has more work right away.
pub(super) fn run(path: &mut Datapath, qpn: u32) -> bool {
    let turn = if path.report.injects_faults { fault_injection::run(path, qpn) } else { Turn::Clear };
    selective::remind(path, qpn);
    let mut more = match turn {
        Turn::Clear => responses::run(path, qpn),
        // Responses wait for the requests that precede them, and those may be held back by an injected fault.
        Turn::Waits => false,
        Turn::More => true,
    };
    if path.objects.qps.get(qpn).is_some_and(|qp| qp.state == State::Rts) {
        more |= requester::timers(path, qpn);
        more |= sender::run(path, qpn);
        requester::complete_front(path, qpn);
    }
    // Flushes last: the steps above may have put the QP into the error state.
    if let Some(qp) = path.objects.qps.get_mut(qpn)
        && qp.state == State::Error
    {
        more |= flush::run(qp, &mut path.objects.cqs, &mut path.report);
    }
    more
}

/// Processes one packet from the QP's peer. `bytes` is the packet as received, for when it has to be buffered.
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
