//! The fabric: a UDP socket, and the fault and capture stages before it.

pub(crate) mod batch;
pub(crate) mod capture;
pub(crate) mod fault;
mod groups;
pub(crate) mod udp;

use crate::config::Config;
use crate::nic::Error;
use crate::observe::Lookout;
use crate::roce::{self, Bth, Ext, icrc};
use crate::stats::Stats;
use batch::Batch;
use capture::Capture;
use fault::{FaultStage, Tally};
use groups::Groups;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;
use udp::{TooLong, UdpLink, Waiter};

/// Maximum number of datagrams that wait for the kernel.
const QUEUE: usize = 256;

/// The adapter's connection to other adapters.
pub(crate) struct Fabric {
    udp: UdpLink,
    outgoing: Batch,
    /// Datagrams of `outgoing` that have passed the stages.
    staged: usize,
    faults: FaultStage,
    capture: Option<Capture>,
    groups: Groups,
}

impl Fabric {
    /// Binds the socket and opens the capture; `None` where the configuration wants no fabric.
    pub(crate) fn open(config: &Config) -> Result<Option<Fabric>, Error> {
        let bind = |source| Error::Bind { ip: config.ip, port: config.port, source };
        let Some(udp) = UdpLink::bind(config.ip, config.port).map_err(bind)? else { return Ok(None) };
        let capture = match &config.capture {
            None => None,
            Some(path) => {
                let failed = |source| Error::Capture { path: path.clone(), source };
                Some(Capture::create(path).map_err(failed)?)
            }
        };
        let faults = FaultStage::new(config.faults.clone());
        Ok(Some(Fabric {
            udp,
            outgoing: Batch::default(),
            staged: 0,
            faults,
            capture,
            groups: Groups::default(),
        }))
    }

    pub(crate) fn local(&self) -> SocketAddrV4 {
        self.udp.local()
    }

    pub(crate) fn waiter(&self) -> Waiter {
        self.udp.waiter()
    }

    /// Returns the number of packets that may be added before the next flush.
    pub(crate) fn room(&self) -> usize {
        QUEUE.saturating_sub(self.outgoing.len())
    }

    /// Adds a packet from a QP to a peer; `fill` writes its payload. An error of `fill` removes the packet.
    pub(crate) fn send<E>(
        &mut self,
        (qpn, to): (u32, SocketAddrV4),
        bth: &Bth,
        ext: &Ext,
        payload: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let from = self.udp.local();
        let packet = self.outgoing.push((qpn, to), roce::packet_len(ext, payload));
        let filled = fill(roce::emit(bth, ext, payload, packet));
        match filled {
            Ok(()) => icrc::seal(from, to, packet),
            Err(_) => self.outgoing.pop(),
        }
        filled
    }

    /// Adds a packet without payload.
    pub(crate) fn send_empty(&mut self, way: (u32, SocketAddrV4), bth: &Bth, ext: &Ext) {
        let Ok(()) = self.send(way, bth, ext, 0, |_| Ok::<(), std::convert::Infallible>(()));
    }

    /// Passes waiting packets through the stages and to the kernel.
    pub(crate) fn flush(&mut self, now: Instant, stats: &mut Stats, lookout: &mut Lookout) {
        let fresh = self.outgoing.len() - self.staged;
        if fresh == 0 && self.outgoing.is_empty() && !self.faults.holds_any() {
            return;
        }
        stats.packets_sent += fresh as u64;
        self.faults.apply(&mut self.outgoing, self.staged, now, Tally { stats, lookout });
        if let Some(capture) = &mut self.capture {
            for entry in &self.outgoing.entries[self.staged..] {
                capture.packet(self.udp.local(), entry.peer, &self.outgoing.arena[entry.bytes.clone()]);
            }
        }
        stats.send_failures += self.udp.send(&mut self.outgoing);
        self.staged = self.outgoing.len();
    }

    /// Returns the packets that were too long for their link since the last call.
    pub(crate) fn take_too_long(&mut self) -> Vec<TooLong> {
        self.udp.take_too_long()
    }

    /// Receives one burst of packets and drops packets with a wrong CRC. Returns whether a datagram arrived.
    pub(crate) fn receive(&mut self, stats: &mut Stats, mut each: impl FnMut(SocketAddrV4, &[u8])) -> bool {
        let Fabric { udp, faults, capture, .. } = self;
        let local = udp.local();
        let got = udp.receive(|from, bytes| {
            stats.packets_received += 1;
            if let Some(capture) = capture {
                capture.packet(from, local, bytes);
            }
            if faults.hides(from) {
                stats.faults += 1;
            } else if icrc::intact(from, local, bytes) {
                each(from, bytes);
            } else {
                stats.dropped += 1;
            }
        });
        got != 0
    }

    /// Joins a multicast group, so that its packets arrive.
    pub(crate) fn join(&mut self, group: Ipv4Addr) -> std::io::Result<()> {
        self.groups.join(group, *self.udp.local().ip())
    }

    /// Leaves a multicast group.
    pub(crate) fn leave(&mut self, group: Ipv4Addr) {
        self.groups.leave(group);
    }

    /// Receives one burst of packets of each group, like [`Fabric::receive`].
    pub(crate) fn receive_groups(
        &mut self,
        stats: &mut Stats,
        mut each: impl FnMut(SocketAddrV4, SocketAddrV4, &[u8]),
    ) -> bool {
        let Fabric { faults, capture, groups, .. } = self;
        let mut any = false;
        groups.receive(|from, group, bytes| {
            any = true;
            let to = SocketAddrV4::new(group, roce::PORT);
            stats.packets_received += 1;
            if let Some(capture) = capture {
                capture.packet(from, to, bytes);
            }
            if faults.hides(from) {
                stats.faults += 1;
            } else if icrc::intact(from, to, bytes) {
                each(from, to, bytes);
            } else {
                stats.dropped += 1;
            }
        });
        any
    }

    /// Drops all packets in both directions, or carries them again.
    pub(crate) fn cut(&mut self, is_cut: bool) {
        self.faults.is_cut = is_cut;
    }

    /// Returns the time of the next delayed packet.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.faults.next_due()
    }

    /// Returns whether packets wait for room in the socket.
    pub(crate) fn blocked(&self) -> bool {
        !self.outgoing.is_empty()
    }
}
