//! The fabric: exchanges packets with other adapters, with fault injection and capture.
//!
//! UDP carries packets between machines, shared memory between adapters of one machine ([`shared`]).
//!
//! **CRC.** Shared memory does not corrupt packets. An adapter with packet faults or a capture still seals each packet
//! with its CRC, and the receiver checks it, so an injected corruption drops the packet as it would on a wire. Any
//! other adapter writes its packets straight into the ring, unsealed. A receiver with a capture seals them for the
//! file.

pub(crate) mod batch;
pub(crate) mod capture;
pub(crate) mod fault;
mod groups;
mod offload;
pub(crate) mod shared;
pub(crate) mod udp;

use crate::config::Config;
use crate::error::Error;
use crate::report::{Lookout, Stats};
use crate::roce::{self, BTH, Bth, Ext, ICRC, icrc};
use batch::Batch;
use capture::Capture;
use fault::{FaultStage, Tally};
use groups::Groups;
use shared::SharedLink;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use udp::{TooLong, UdpLink, Waiter};

/// Maximum number of packets queued before the next flush.
const MAX_QUEUED: usize = 256;
/// Interval at which a busy adapter polls its sockets while packets arrive through shared memory.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Sends packets to other adapters and receives theirs, by UDP and through shared memory.
pub(crate) struct Fabric {
    udp: UdpLink,
    shared: Option<SharedLink>,
    outgoing: Batch,
    /// Number of datagrams in `outgoing` that have passed fault injection and capture.
    staged: usize,
    faults: FaultStage,
    capture: Option<Capture>,
    groups: Groups,
    /// Packets written to shared memory since the last flush, bypassing fault injection and capture.
    direct: u64,
    /// Total length of the packets counted in `direct`, in bytes.
    direct_bytes: u64,
    /// Number of times that a sender found no room for a packet.
    pub(crate) shortages: u64,
    now: Instant,
    /// When to poll the UDP socket next.
    next_look: Instant,
    next_attendance: Instant,
}

/// How the engine thread has slept before a pass, and whether it will sleep after it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// Whether the engine thread will sleep after this pass unless there is work.
    pub(crate) is_drowsy: bool,
    /// Whether a readable socket interrupted the engine thread's last sleep.
    pub(crate) has_mail: bool,
}

impl Fabric {
    /// Binds the UDP socket, creates the capture file and listens for adapters of the same machine. Returns `None` if
    /// the configuration disables the fabric.
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
        let shared = match config.shared_memory.then(|| SharedLink::open(udp.local())) {
            None => None,
            Some(Ok(shared)) => Some(shared),
            Some(Err(error)) => {
                tracing::warn!(%error, "no shared memory for the packets to adapters of this machine: they go by UDP");
                None
            }
        };
        let now = Instant::now();
        Ok(Some(Fabric {
            udp,
            shared,
            outgoing: Batch::default(),
            staged: 0,
            faults: FaultStage::new(config.faults.clone()),
            capture,
            direct: 0,
            direct_bytes: 0,
            shortages: 0,
            now,
            next_look: now,
            next_attendance: now,
            groups: Groups::default(),
        }))
    }

    pub(crate) fn local(&self) -> SocketAddrV4 {
        self.udp.local()
    }

    /// Returns the sockets that must wake the engine: the UDP socket and the one for shared memory.
    pub(crate) fn waiters(&self) -> [Option<Waiter>; 2] {
        [Some(self.udp.waiter()), self.shared.as_ref().map(SharedLink::waiter)]
    }

    /// Whether several packets to a software adapter can be sent as one message (segmentation offload).
    pub(crate) fn segments(&self) -> bool {
        self.udp.segments()
    }

    /// Records that the peer is a software adapter, which accepts segmented messages.
    pub(crate) fn note_software(&mut self, peer: SocketAddrV4) {
        self.udp.note_software(peer);
    }

    /// Returns how many packets, to any peers, may be queued before the next flush.
    pub(crate) fn room(&self) -> usize {
        MAX_QUEUED.saturating_sub(self.outgoing.len())
    }

    /// Returns how many packets to this peer may be queued before the next flush.
    pub(crate) fn room_to(&mut self, to: SocketAddrV4) -> usize {
        let queue = self.room();
        let ring = self.shared.as_mut().and_then(|shared| shared.room(to, self.now));
        let room = ring.map_or(queue, |ring| queue.min(ring.saturating_sub(self.outgoing.len())));
        self.shortages += u64::from(room == 0);
        room
    }

    /// Queues a packet from a QP to a peer. `fill` writes the payload. If it fails, the packet is not sent.
    pub(crate) fn send<E>(
        &mut self,
        (qpn, to): (u32, SocketAddrV4),
        bth: &Bth,
        ext: &Ext,
        payload: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (from, len) = (self.udp.local(), roce::packet_len(bth.len() + ext.len(), payload));
        let mut fill = Some(fill);
        if self.capture.is_none()
            && self.faults.passes_all()
            && let Some(shared) = &mut self.shared
        {
            let sent = shared.send(to, len, false, |packet| match fill.take() {
                Some(fill) => fill(roce::emit(bth, ext, payload, packet)),
                None => Ok(()),
            });
            if let Some(sent) = sent {
                self.direct += u64::from(sent.is_ok());
                self.direct_bytes += if sent.is_ok() { len as u64 } else { 0 };
                return sent;
            }
        }
        let Some(fill) = fill else { return Ok(()) };
        let packet = self.outgoing.push((qpn, to), len);
        let filled = fill(roce::emit(bth, ext, payload, packet));
        match filled {
            Ok(()) => icrc::seal(from, to, packet),
            Err(_) => self.outgoing.pop(),
        }
        filled
    }

    /// Queues a packet without payload.
    pub(crate) fn send_empty(&mut self, way: (u32, SocketAddrV4), bth: &Bth, ext: &Ext) {
        self.send_bytes(way, bth, ext, &[]);
    }

    /// Queues a packet with this payload.
    pub(crate) fn send_bytes(&mut self, way: (u32, SocketAddrV4), bth: &Bth, ext: &Ext, payload: &[u8]) {
        let Ok(()) = self.send(way, bth, ext, payload.len(), |to| {
            to.copy_from_slice(payload);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    /// Sends the queued packets through fault injection and capture, and then by shared memory or UDP.
    pub(crate) fn flush(&mut self, now: Instant, stats: &mut Stats, lookout: &mut Lookout) {
        self.now = now;
        let direct = std::mem::take(&mut self.direct);
        stats.packets_sent += direct;
        stats.bytes_sent += std::mem::take(&mut self.direct_bytes);
        stats.shared_sent += direct;
        let fresh = self.outgoing.len() - self.staged;
        if fresh != 0 || !self.outgoing.is_empty() || self.faults.holds_any() {
            stats.packets_sent += fresh as u64;
            let staged = &self.outgoing.entries[self.staged..];
            stats.bytes_sent += staged.iter().map(|entry| entry.bytes.len() as u64).sum::<u64>();
            self.faults.apply(&mut self.outgoing, self.staged, now, Tally { stats, lookout });
            if let Some(capture) = &mut self.capture {
                for entry in &self.outgoing.entries[self.staged..] {
                    capture.packet(self.udp.local(), entry.peer, &self.outgoing.arena[entry.bytes.clone()]);
                }
            }
            stats.shared_sent += self.share();
            stats.send_failures += self.udp.send(&mut self.outgoing);
            stats.segmented = self.udp.segmented;
            self.staged = self.outgoing.len();
        }
        if let Some(shared) = &mut self.shared {
            shared.publish();
        }
    }

    /// Moves packets that have just passed fault injection and capture into the shared-memory rings of their peers, if
    /// there are any. Returns the number of packets moved.
    fn share(&mut self) -> u64 {
        let Fabric { shared: Some(shared), outgoing: Batch { arena, entries }, staged, .. } = self else {
            return 0;
        };
        let before = entries.len();
        let mut number = 0;
        entries.retain(|entry| {
            number += 1;
            let bytes = &arena[entry.bytes.clone()];
            let copy = |packet: &mut [u8]| {
                packet.copy_from_slice(bytes);
                Ok::<(), std::convert::Infallible>(())
            };
            // A full ring leaves the packet to UDP. Packets that have been queued for the socket stay there.
            number <= *staged || shared.send(entry.peer, bytes.len(), true, copy).is_none()
        });
        if entries.is_empty() {
            arena.clear();
        }
        (before - entries.len()) as u64
    }

    /// Removes and returns the packets that exceeded the MTU of their link since the last call.
    pub(crate) fn take_too_long(&mut self) -> Vec<TooLong> {
        self.udp.take_too_long()
    }

    /// Receives a burst of packets, dropping those with a wrong CRC. Returns whether a packet arrived.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        rest: Rest,
        stats: &mut Stats,
        mut each: impl FnMut(SocketAddrV4, &[u8]),
    ) -> bool {
        self.now = now;
        let Fabric { udp, shared, faults, capture, next_look, next_attendance, .. } = self;
        let local = udp.local();
        let captures = capture.is_some();
        let mut arrive = |from, bytes: &[u8], is_checked: bool| {
            stats.packets_received += 1;
            stats.bytes_received += bytes.len() as u64;
            if let Some(capture) = capture {
                capture.packet(from, local, bytes);
            }
            if faults.hides(from) {
                stats.faults += 1;
            } else if is_checked || icrc::intact(from, local, bytes) {
                each(from, bytes);
            } else {
                stats.dropped += 1;
            }
        };
        let mut shared_received = 0;
        let has_rings = shared.as_ref().is_some_and(SharedLink::has_rings);
        let mut busy = false;
        if !has_rings || rest.has_mail || now >= *next_look {
            busy = udp.receive(|from, bytes| arrive(from, bytes, false)) != 0;
            *next_look = if busy { now } else { now + POLL_INTERVAL };
        }
        if let Some(shared) = shared {
            let mut take = |from, bytes: &mut [u8], is_sealed: bool| {
                shared_received += 1;
                if captures && !is_sealed && bytes.len() >= BTH + ICRC {
                    icrc::seal(from, local, bytes);
                }
                arrive(from, bytes, !is_sealed);
            };
            if rest.has_mail || now >= *next_attendance {
                shared.attend(&mut take);
                *next_attendance = now + POLL_INTERVAL;
            }
            shared.doze(rest.is_drowsy);
            busy |= shared.receive(&mut take);
        }
        stats.shared_received += shared_received;
        busy
    }

    /// Joins a multicast group to receive its packets.
    pub(crate) fn join(&mut self, group: Ipv4Addr) -> std::io::Result<()> {
        self.groups.join(group, *self.udp.local().ip())
    }

    pub(crate) fn leave(&mut self, group: Ipv4Addr) {
        self.groups.leave(group);
    }

    /// Receives a burst of packets of each group, like [`Fabric::receive`].
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
            stats.bytes_received += bytes.len() as u64;
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

    /// Starts or stops dropping all packets in both directions, as when the port goes down.
    pub(crate) fn cut(&mut self, is_cut: bool) {
        self.faults.is_cut = is_cut;
    }

    /// Returns when the next packet delayed by fault injection is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.faults.next_due()
    }

    /// Whether packets are queued because the UDP socket has no room for them.
    pub(crate) fn blocked(&self) -> bool {
        !self.outgoing.is_empty()
    }
}
