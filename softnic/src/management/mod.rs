//! Management datagrams: the packets of QP 1, which connection managers exchange (InfiniBand Architecture
//! Specification, volume 1, chapter 13). The adapter carries them, and the driver creates and interprets them.

pub(crate) mod introduction;
pub mod mad;
pub mod subnet;

use crate::roce::{self, Bth, Deth, Ext, Op, Packet, Psn, Service};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

/// Length of a management datagram, in bytes.
pub const MAD: usize = 256;

/// QPN of the general services interface, which receives management datagrams.
pub(crate) const QPN: u32 = 1;
/// Q_Key of QP 1, which is the same in every adapter.
const QKEY: u32 = 0x8001_0000;
/// Maximum number of received management datagrams that wait for the driver.
const MAX_WAITING: usize = 4096;

/// A management datagram that the adapter has received for QP 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// IPv4 address of the adapter that sent the datagram.
    pub from: Ipv4Addr,
    /// The datagram, including its header.
    pub bytes: Box<[u8; MAD]>,
}

/// Management datagrams that wait for the driver.
#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Vec<Mad>,
    next: Psn,
}

impl Inbox {
    /// Adds the management datagram in `packet`. Returns `false` if it is invalid or the inbox is full.
    pub(crate) fn receive(&mut self, from: Ipv4Addr, packet: &Packet<'_>) -> bool {
        let Ext::Deth(deth) = packet.ext else { return false };
        let fits = deth.qkey == QKEY && roce::pkeys_match(packet.bth.pkey, roce::DEFAULT_PKEY);
        fits && packet.payload.try_into().is_ok_and(|bytes| self.add(from, bytes))
    }

    /// Adds a management datagram. Returns `false` if the inbox is full.
    pub(crate) fn add(&mut self, from: Ipv4Addr, bytes: &[u8; MAD]) -> bool {
        let has_room = self.waiting.len() < MAX_WAITING;
        if has_room {
            self.waiting.push(Mad { from, bytes: Box::new(*bytes) });
        }
        has_room
    }

    /// Returns a management datagram to the inbox, after [`Inbox::take`] has removed it.
    pub(crate) fn put_back(&mut self, mad: Mad) {
        self.waiting.push(mad);
    }

    pub(crate) fn take(&mut self) -> Vec<Mad> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns the headers of the next outgoing management datagram.
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

/// The driver's callback for received management datagrams, if it has set one.
#[derive(Default)]
pub(crate) struct Receiver(Mutex<Option<Arc<Call>>>);

impl Receiver {
    pub(crate) fn set(&self, call: Option<Arc<Call>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    /// Calls the driver's callback with each datagram, without holding the lock. Drops them if there is no callback.
    pub(crate) fn deliver(&self, mads: Vec<Mad>) {
        let call = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(call) = call {
            mads.into_iter().for_each(|mad| call(mad));
        }
    }
}
