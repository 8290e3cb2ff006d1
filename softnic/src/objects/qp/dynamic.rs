//! State of dynamic connections: of a DCI, and of a connection of a DCT.

use super::Qp;
use crate::request::RemoteError;
use crate::roce::{Connect, Ext, Packet};
use crate::route::Address;
use crate::wqe::LocalError;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::wqe::View;
use std::net::SocketAddrV4;
use std::time::Instant;

/// The state of a DCI.
#[derive(Debug, Default)]
pub(crate) struct Dci {
    /// Target of the last WQE that named one.
    pub(crate) target: Option<DcTarget>,
    pub(crate) link: Link,
    /// Identifies the current connection among those that this DCI makes.
    pub(crate) sequence: u32,
    /// Set when the next WQE names another target, or a target without a connection.
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

/// State of a DCI's connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Link {
    #[default]
    None,
    /// A connect packet was sent.
    Asked,
    Up,
    Refused(Refusal),
}

/// Why a WQE cannot be sent to its target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// No route leads to the address.
    Local(LocalError),
    /// The target rejected the connection.
    Remote(RemoteError),
}

impl Dci {
    /// Whether a WQE can be executed on the current connection. If not, the DCI must connect first.
    pub(crate) fn serves(&mut self, view: &View<'_>) -> bool {
        let Some(av) = view.av() else { return true };
        let serves = self.target == Some(DcTarget::of(&av)) && !self.is_connecting();
        self.turn |= !serves;
        serves
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.link, Link::Asked)
    }

    /// Returns why the target cannot be reached, if it cannot.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self.link {
            Link::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub(crate) fn dctn(&self) -> Option<u32> {
        self.target.map(|target| target.dctn)
    }

    /// Returns the DCTN and the contents of a connect packet.
    pub(crate) fn request(&self, qpn: u32, mtu: u8) -> Option<(u32, Connect)> {
        let DcTarget { dctn, key, .. } = self.target?;
        Some((dctn, Connect { key, mtu, source_qpn: qpn, sequence: self.sequence }))
    }
}

/// State of a QP that is a connection of a DCT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfDct {
    pub(crate) dctn: u32,
    /// Address of the initiator's adapter.
    pub(crate) source: SocketAddrV4,
    /// Connection sequence number, chosen by the initiator.
    pub(crate) sequence: u32,
    /// When the last packet arrived.
    pub(crate) used: Instant,
}

impl OfDct {
    /// Whether a disconnect packet with these contents closes the connection.
    pub(crate) fn ends_with(&self, ext: &Ext) -> bool {
        *ext == Ext::Disconnect(self.sequence)
    }
}

impl Qp {
    /// Processes the answer to a connect packet. Returns `false` if it does not answer the last one.
    pub(crate) fn accept(&mut self, packet: &Packet<'_>) -> bool {
        let (Ext::Accept(_, sequence, number), Some(dci)) = (packet.ext, &mut self.dci) else { return false };
        let is_answer = dci.is_connecting() && sequence == dci.sequence && packet.bth.psn == self.req.acked();
        if is_answer {
            (dci.link, self.attrs.remote_qpn) = (Link::Up, number);
        }
        is_answer
    }
}
