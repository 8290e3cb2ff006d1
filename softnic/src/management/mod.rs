//! Management datagrams: the packets of queue pair 1, by which connection managers talk (InfiniBand Architecture
//! Specification, volume 1, chapter 13). The adapter carries them, and the driver makes and understands them.

pub(crate) mod introduction;

use crate::roce::{self, Bth, Deth, Ext, Op, Packet, Psn, Service};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a management datagram.
pub const MAD: usize = 256;

/// Number of the queue pair of general services.
pub(crate) const QPN: u32 = 1;
/// Its queue key, in every adapter.
const QKEY: u32 = 0x8001_0000;
/// Maximum number of datagrams that wait for the driver.
const LIMIT: usize = 4096;

/// A management datagram that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Address of the adapter that sent it.
    pub from: Ipv4Addr,
    /// Its bytes, header included.
    pub bytes: Box<[u8; MAD]>,
}

/// The datagrams that wait for the driver.
#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Vec<Mad>,
    next: Psn,
}

impl Inbox {
    /// Adds the datagram in a packet. Returns whether it is a valid one, and there was room.
    pub(crate) fn receive(&mut self, from: Ipv4Addr, packet: &Packet<'_>) -> bool {
        let Ext::Deth(deth) = packet.ext else { return false };
        let fits = deth.qkey == QKEY && roce::pkeys_match(packet.bth.pkey, roce::DEFAULT_PKEY);
        fits && packet.payload.try_into().is_ok_and(|bytes| self.add(from, bytes))
    }

    /// Adds a datagram. Returns whether there was room.
    pub(crate) fn add(&mut self, from: Ipv4Addr, bytes: &[u8; MAD]) -> bool {
        let has_room = self.waiting.len() < LIMIT;
        if has_room {
            self.waiting.push(Mad { from, bytes: Box::new(*bytes) });
        }
        has_room
    }

    /// Puts a datagram back that was taken.
    pub(crate) fn put_back(&mut self, mad: Mad) {
        self.waiting.push(mad);
    }

    pub(crate) fn take(&mut self) -> Vec<Mad> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns the headers of the next outgoing datagram.
    pub(crate) fn headers(&mut self) -> (Bth, Ext) {
        let psn = self.next;
        self.next = psn.plus(1);
        let bth = Bth {
            service: Service::Ud,
            op: Op::SendOnly,
            solicited: false,
            pkey: roce::DEFAULT_PKEY,
            ack_req: false,
            dest_qpn: QPN,
            psn,
            srqn: None,
        };
        (bth, Ext::Deth(Deth { qkey: QKEY, source_qpn: QPN }))
    }
}

type Call = dyn Fn(Mad) + Send + Sync;

/// The driver's receiver of management datagrams.
#[derive(Default)]
pub(crate) struct Receiver(Mutex<Option<Arc<Call>>>);

impl Receiver {
    pub(crate) fn set(&self, call: Option<Arc<Call>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    /// Delivers datagrams without holding a lock. Without a receiver they are lost.
    pub(crate) fn deliver(&self, mads: Vec<Mad>) {
        let call = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(call) = call {
            mads.into_iter().for_each(|mad| call(mad));
        }
    }
}
