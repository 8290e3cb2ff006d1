//! State of dynamic connections, on the side of the initiator (DCI) and of the target (DCT).

use super::Qp;
use crate::request::RemoteError;
use crate::roce::{Connect, Ext, Packet};
use crate::route::Address;
use crate::wqe::LocalError;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::wqe::View;
use std::net::SocketAddrV4;
use std::time::Instant;

/// The additional state of a DC initiator (DCI).
#[derive(Debug, Default)]
pub(crate) struct Dci {
    /// Target of the current connection, or of the last attempt to connect.
    pub(crate) target: Option<DcTarget>,
    pub(crate) link: Link,
    /// Sequence number of the current connection, by which the target distinguishes the connections of this DCI.
    pub(crate) sequence: u32,
    /// Set when the next WQE cannot use the current connection, so the DCI must connect first.
    pub(crate) turn: bool,
}

/// The target of a dynamic connection, as the address vector of a WQE names it.
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

/// State of a DCI's connection to its target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Link {
    #[default]
    None,
    /// A connect packet was sent and has not been answered.
    Asked,
    Up,
    Refused(Refusal),
}

/// Why a DCI cannot connect to the target of a WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// No route leads to the target's address.
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

    /// Returns why the current target cannot be reached, or `None` if it may be.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self.link {
            Link::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub(crate) fn dctn(&self) -> Option<u32> {
        self.target.map(|target| target.dctn)
    }

    /// Returns the DCTN of the current target, and the contents of a connect packet to it.
    pub(crate) fn request(&self, qpn: u32, mtu: u8) -> Option<(u32, Connect)> {
        let DcTarget { dctn, key, .. } = self.target?;
        Some((dctn, Connect { key, mtu, source_qpn: qpn, sequence: self.sequence }))
    }
}

/// The additional state of a QP that serves one connection of a DCT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfDct {
    pub(crate) dctn: u32,
    /// Address of the initiator's adapter.
    pub(crate) source: SocketAddrV4,
    /// Connection sequence number, chosen by the initiator.
    pub(crate) sequence: u32,
    /// When the last packet of the connection arrived.
    pub(crate) used: Instant,
}

impl OfDct {
    /// Whether `ext` is the header of a disconnect packet for this connection.
    pub(crate) fn ends_with(&self, ext: &Ext) -> bool {
        *ext == Ext::Disconnect(self.sequence)
    }
}

impl Qp {
    /// Processes the answer to a connect packet. Returns `false` if it does not answer the last connect packet of this
    /// QP.
    pub(crate) fn accept(&mut self, packet: &Packet<'_>) -> bool {
        let (Ext::Accept(_, sequence, number), Some(dci)) = (packet.ext, &mut self.dci) else { return false };
        let is_answer = dci.is_connecting() && sequence == dci.sequence && packet.bth.psn == self.req.acked();
        if is_answer {
            (dci.link, self.attrs.remote_qpn) = (Link::Up, number);
        }
        is_answer
    }
}
