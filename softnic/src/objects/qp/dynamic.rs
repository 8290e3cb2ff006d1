//! The parts of a QP that dynamic connections need: of an initiator, and of a connection of a target.

use super::Qp;
use crate::request::RemoteError;
use crate::roce::{Connect, Ext, Packet};
use crate::route::Address;
use crate::wqe::LocalError;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::wqe::View;
use std::net::SocketAddrV4;
use std::time::Instant;

/// The state of an initiator.
#[derive(Debug, Default)]
pub(crate) struct Dci {
    /// The target of the last WQE that had one.
    pub(crate) target: Option<DcTarget>,
    pub(crate) link: Link,
    /// Sequence number of the connection.
    pub(crate) sequence: u32,
    /// Set when the next WQE has another target, or a connection that must be made.
    pub(crate) turn: bool,
}

/// The target that a WQE names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DcTarget {
    pub(crate) address: Address,
    pub(crate) dctn: u32,
    pub(crate) key: u64,
}

impl DcTarget {
    pub(crate) fn of(av: &AvSeg) -> DcTarget {
        let address = Address { gid: av.rgid, mac: av.rmac, lid: av.rlid.get() };
        DcTarget { address, dctn: av.qpn(), key: av.dc_key() }
    }
}

/// The connection of an initiator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Link {
    #[default]
    None,
    /// A connect packet is under way.
    Asked,
    Up,
    Refused(Refusal),
}

/// The reason why a WQE cannot be sent to its target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// The address has no route.
    Local(LocalError),
    /// The target refuses the initiator.
    Remote(RemoteError),
}

impl Dci {
    /// Returns whether a WQE may be executed on the present connection. Otherwise the initiator takes a turn first.
    pub(crate) fn serves(&mut self, view: &View<'_>) -> bool {
        let Some(av) = view.av() else { return true };
        let serves = self.target == Some(DcTarget::of(&av)) && !self.is_connecting();
        self.turn |= !serves;
        serves
    }

    /// Returns whether a connect packet is under way.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.link, Link::Asked)
    }

    /// Returns the reason why the target cannot be reached.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self.link {
            Link::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub(crate) fn dctn(&self) -> Option<u32> {
        self.target.map(|target| target.dctn)
    }

    /// Returns the target's number and the request of a connect packet.
    pub(crate) fn request(&self, qpn: u32, mtu: u8) -> Option<(u32, Connect)> {
        let DcTarget { dctn, key, .. } = self.target?;
        Some((dctn, Connect { key, mtu, source_qpn: qpn, sequence: self.sequence }))
    }
}

/// The part of a QP that is a connection of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfDct {
    pub(crate) dctn: u32,
    /// The initiator's adapter.
    pub(crate) source: SocketAddrV4,
    /// Sequence number of the connection.
    pub(crate) sequence: u32,
    /// Time of the last packet.
    pub(crate) used: Instant,
}

impl OfDct {
    /// Returns whether a disconnect packet with this sequence number closes the connection.
    pub(crate) fn ends_with(&self, ext: &Ext) -> bool {
        *ext == Ext::Disconnect(self.sequence)
    }
}

impl Qp {
    /// Handles the answer to a connect packet. Returns whether it is the one to the last connect.
    pub(crate) fn accept(&mut self, packet: &Packet<'_>) -> bool {
        let (Ext::Accept(_, sequence, number), Some(dci)) = (packet.ext, &mut self.dci) else { return false };
        let is_answer = dci.is_connecting() && sequence == dci.sequence && packet.bth.psn == self.req.acked();
        if is_answer {
            (dci.link, self.attrs.remote_qpn) = (Link::Up, number);
        }
        is_answer
    }
}
