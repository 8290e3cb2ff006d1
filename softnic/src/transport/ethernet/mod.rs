//! Ethernet: sends and receives whole frames.
//!
//! Adapters of one network form a broadcast domain, like the stations at a learning switch. A frame for several stations
//! goes to a multicast group of UDP, which all adapters with an Ethernet function join; so does one for an address that
//! is not known yet. Other frames go straight to the adapter from which frames of that address have come. Frames are
//! lost if a queue is full, or if the receiver has not posted a receive.

mod hash;
mod receive;
mod send;
#[cfg(test)]
mod tests;

pub(super) use receive::receive;
pub(crate) use send::LOG_MAX_SEGMENTED;
pub(super) use send::run;

use super::datapath::Datapath;
use crate::address::{Mac, is_group, mac_of_function};
use crate::frame;
use crate::roce::{self, Bth, DEFAULT_PKEY, Ext, Op, Psn, Service};
use crate::route::{Address, BadAddress, Route};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The multicast group of all adapters, of the range for local administration.
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 82, 78);

/// Minimum length of a frame without its check sequence. Shorter ones are padded.
const MIN_FRAME: usize = 60;

/// Maximum length of a frame without its check sequence.
pub(crate) const MAX_FRAME: usize = roce::MAX_MTU;

/// Length of the check sequence, which the adapter does not transfer.
pub(crate) const CHECK_SEQUENCE: usize = 4;

/// Returns the header of the packet that carries a frame.
pub(crate) fn frame_header() -> Bth {
    Bth {
        service: Service::Raw,
        op: Op::Frame,
        solicited: false,
        pkey: DEFAULT_PKEY,
        ack_req: false,
        dest_qpn: 0,
        psn: Psn::default(),
        srqn: None,
    }
}

impl Datapath {
    /// Returns the MAC address of the function's port.
    pub(crate) fn mac(&self) -> Mac {
        self.objects.ethernet.vport.address.unwrap_or_else(|| mac_of_function(*self.address.ip()))
    }

    /// Whether a MAC address is that of the port, or the source of a RoCE address.
    fn is_own(&self, mac: Mac) -> bool {
        let mut sources = self.objects.ethernet.vport.addresses.values();
        mac == self.mac() || sources.any(|address| address.source_mac == mac)
    }

    /// Returns the route to an address of RDMA. A function with an Ethernet port has and finds addresses by MAC.
    pub(crate) fn route_to(&self, address: &Address) -> Result<Route, BadAddress> {
        if self.objects.ethernet.vport.owner.is_some() {
            if self.is_own(address.mac) {
                return Ok(Route::Loopback);
            }
            if let Some(peer) = self.neighbors.find(address.mac) {
                return Ok(Route::Peer(peer));
            }
        }
        address.route(self.address)
    }

    /// Whether an address of RDMA certainly belongs to a software adapter.
    pub(crate) fn is_software(&self, address: &Address) -> bool {
        address.is_software() || self.neighbors.find(address.mac).is_some()
    }

    /// Sends a frame to the stations that it names, which may include the function itself.
    fn transmit(&mut self, frame: &[u8]) {
        let Some((to, _)) = frame::addresses(frame) else { return };
        let is_own = self.is_own(to);
        self.objects.ethernet.vport.count(false, to, frame.len());
        if is_own || is_group(to) {
            receive::deliver(self, frame, true);
        }
        if is_own {
            return;
        }
        let peer = if is_group(to) { None } else { self.neighbors.find(to) };
        let peer = peer.unwrap_or(SocketAddrV4::new(GROUP, roce::PORT));
        let Some(fabric) = &mut self.fabric else { return };
        if fabric.room_to(peer) == 0 {
            self.report.stats.lost += 1;
            return;
        }
        fabric.send_bytes((0, peer), &frame_header(), &Ext::None, frame);
    }
}

/// Stops receiving frames for several stations, unless there is a flow table for them.
pub(crate) fn leave_if_unused(path: &mut Datapath) {
    if path.objects.ethernet.flow.root.is_none()
        && let Some(fabric) = &mut path.fabric
    {
        fabric.leave(GROUP);
    }
}

/// Sends the frames of datagrams.
pub(crate) fn send_datagrams(path: &mut Datapath) {
    for frame in std::mem::take(&mut path.frames) {
        if frame.len() <= MAX_FRAME {
            path.transmit(&frame);
        } else {
            path.report.stats.lost += 1;
        }
    }
}
