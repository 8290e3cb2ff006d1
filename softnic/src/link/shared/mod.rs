//! Shared memory that carries packets between adapters of one machine instead of UDP.
//!
//! | file | does |
//! |---|---|
//! | `mapping` | creates, checks and maps memory files |
//! | `ring` | holds the packets of one direction between two adapters |
//! | `rendezvous` | connects adapters and exchanges descriptors |
//! | `epoll` | waits for many connections |
//! | `budget` | limits the descriptors that the process uses |
//!
//! On the first packet to an address, the adapter tries to connect to a peer there. If there is none on this machine,
//! or it refuses, packets go by UDP, and the adapter tries again after a second. A ring is closed with its connection,
//! and so when either process exits. The last packets of a dead producer are still delivered. Packets that nobody reads
//! are lost, as on a wire.

mod budget;
mod epoll;
mod mapping;
mod rendezvous;
mod ring;
#[cfg(test)]
mod tests;

use crate::link::udp::Waiter;
use budget::Share;
use epoll::Epoll;
use ring::{Consumer, Corrupt, MAX_BYTES, MIN_BYTES, Producer, SLOT, SLOT_AT};
use socket2::Socket;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// Fuzzes a packet ring: reads and writes one whose contents are `data`.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn hostile_ring(data: &[u8]) {
    ring::hostile(data);
}

/// Maximum number of packets read from one ring before the next one is served.
const BURST: usize = 64;
/// How long packets to a peer go by UDP before the adapter tries again to connect to it through shared memory.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// Number of rings per adapter that have the maximum size. Those after it, up to `MIDDLE_RINGS`, have the middle size,
/// and the rest the minimum.
const LARGE_RINGS: usize = 8;
const MIDDLE_RINGS: usize = 32;
const MIDDLE_BYTES: usize = 128 << 10;

pub(crate) struct SharedLink {
    local: SocketAddrV4,
    listener: Socket,
    epoll: Epoll,
    /// How packets to each address are carried, for addresses with traffic.
    carriers: HashMap<SocketAddrV4, Carrier>,
    producers: Slots<Outgoing>,
    consumers: Slots<Incoming>,
    /// Indices of producers with unpublished packets.
    unpublished: Vec<usize>,
    /// Buffer into which a packet is copied before it is parsed, because the peer could still change it in the ring.
    slot: Box<[u8; SLOT]>,
    /// Whether the peers know that this adapter is about to sleep, so they must wake it.
    dozing: bool,
}

/// How packets to an address are carried.
#[derive(Clone, Copy)]
enum Carrier {
    /// By shared memory, through the producer with this index.
    Ring(usize),
    /// By UDP. At this time, the adapter tries again to connect through shared memory.
    Udp(Instant),
}

/// A shared-memory ring to a peer, and the connection by which the two wake each other.
struct Outgoing {
    to: SocketAddrV4,
    ring: Producer,
    socket: Socket,
    is_listed: bool,
    _share: Share,
}

/// A shared-memory ring from a peer, and the connection by which the two wake each other.
struct Incoming {
    socket: Socket,
    _share: Share,
    /// The producer's address and the ring, once the greeting has arrived.
    source: Option<(SocketAddrV4, Consumer)>,
}

/// A collection whose values keep their indices when others are removed.
struct Slots<T> {
    values: Vec<Option<T>>,
}

impl<T> Slots<T> {
    fn insert(&mut self, value: T) -> usize {
        match self.values.iter().position(Option::is_none) {
            Some(free) => {
                self.values[free] = Some(value);
                free
            }
            None => {
                self.values.push(Some(value));
                self.values.len() - 1
            }
        }
    }

    fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.values.get_mut(number)?.as_mut()
    }

    fn remove(&mut self, number: usize) -> Option<T> {
        self.values.get_mut(number)?.take()
    }

    fn count(&self) -> usize {
        self.values.iter().flatten().count()
    }
}

/// Epoll token of the listening socket. Connections of producers have even tokens from 2, those of consumers odd ones
/// from 3.
const LISTENER: u64 = 0;

fn producer_token(number: usize) -> u64 {
    2 * number as u64 + 2
}

fn consumer_token(number: usize) -> u64 {
    2 * number as u64 + 3
}

impl SharedLink {
    /// Starts to accept connections from adapters of the same machine.
    ///
    /// # Errors
    ///
    /// Errors of the system calls, for example because another process holds the name.
    pub(crate) fn open(local: SocketAddrV4) -> io::Result<SharedLink> {
        let listener = rendezvous::listen(local)?;
        let epoll = Epoll::new()?;
        epoll.add(listener.as_fd(), LISTENER)?;
        Ok(SharedLink {
            local,
            listener,
            epoll,
            carriers: HashMap::new(),
            producers: Slots { values: Vec::new() },
            consumers: Slots { values: Vec::new() },
            unpublished: Vec::new(),
            slot: Box::new([0; SLOT]),
            dozing: false,
        })
    }

    /// Returns a handle that waits for new connections and for messages on existing ones.
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::of(self.epoll.as_fd())
    }

    /// Whether any ring has been connected.
    pub(crate) fn has_rings(&self) -> bool {
        !self.consumers.values.is_empty()
    }

    /// Returns how many packets the ring to `to` has room for, or `None` if packets go by UDP.
    pub(crate) fn room(&mut self, to: SocketAddrV4, now: Instant) -> Option<usize> {
        let number = self.carrier(to, now)?;
        match self.producers.get_mut(number)?.ring.room() {
            Ok(room) => Some(room),
            Err(Corrupt) => {
                self.end_producer(number, "its position is impossible");
                None
            }
        }
    }

    /// Returns the index of the producer for `to`, or `None` if packets go by UDP. Connects to the peer if necessary.
    fn carrier(&mut self, to: SocketAddrV4, now: Instant) -> Option<usize> {
        match self.carriers.get(&to) {
            Some(Carrier::Ring(number)) => return Some(*number),
            Some(Carrier::Udp(until)) if *until > now => return None,
            Some(Carrier::Udp(_)) | None => {}
        }
        match self.connect(to) {
            Ok(number) => {
                tracing::debug!(%to, "packets go through shared memory");
                self.carriers.insert(to, Carrier::Ring(number));
                Some(number)
            }
            Err(error) => {
                tracing::debug!(%to, %error, "packets go by UDP");
                self.carriers.insert(to, Carrier::Udp(now + RECONNECT_INTERVAL));
                None
            }
        }
    }

    fn connect(&mut self, to: SocketAddrV4) -> io::Result<usize> {
        let share = Share::take().ok_or(io::ErrorKind::QuotaExceeded)?;
        let bytes = match self.producers.count() {
            0..LARGE_RINGS => MAX_BYTES,
            LARGE_RINGS..MIDDLE_RINGS => MIDDLE_BYTES,
            _ => MIN_BYTES,
        };
        let (ring, file) = Producer::create(bytes)?;
        let socket = rendezvous::connect(self.local, to, &file)?;
        let outgoing = Outgoing { to, ring, socket, is_listed: false, _share: share };
        let number = self.producers.insert(outgoing);
        let added = match self.producers.get_mut(number) {
            Some(outgoing) => self.epoll.add(outgoing.socket.as_fd(), producer_token(number)),
            None => Ok(()),
        };
        if let Err(error) = added {
            self.producers.remove(number);
            return Err(error);
        }
        Ok(number)
    }

    /// Has `fill` write a packet of `len` bytes into the ring to `to`. Returns `None` if there is no ring or no room.
    ///
    /// If `fill` fails, no packet is sent. `is_sealed` says that the packet has its CRC.
    pub(crate) fn send<E>(
        &mut self,
        to: SocketAddrV4,
        len: usize,
        is_sealed: bool,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let Some(Carrier::Ring(number)) = self.carriers.get(&to).copied() else { return None };
        let outgoing = self.producers.get_mut(number)?;
        let filled = fill(outgoing.ring.reserve(len)?);
        if filled.is_ok() {
            outgoing.ring.commit(len, is_sealed);
            // A long burst is published in parts, to let the peer start on it. The rest is published once per pass.
            if outgoing.ring.is_ripe() {
                outgoing.publish();
            } else if !std::mem::replace(&mut outgoing.is_listed, true) {
                self.unpublished.push(number);
            }
        }
        Some(filled)
    }

    /// Publishes to the peers all packets written so far.
    pub(crate) fn publish(&mut self) {
        for number in self.unpublished.drain(..) {
            if let Some(outgoing) = self.producers.get_mut(number) {
                outgoing.is_listed = false;
                outgoing.publish();
            }
        }
    }

    /// Reads a burst from each ring. `each` gets the sender, the packet, and whether it has its CRC. Returns
    /// whether there was a packet.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(SocketAddrV4, &mut [u8], bool)) -> bool {
        let mut busy = false;
        for number in 0..self.consumers.values.len() {
            let Some(incoming) = &mut self.consumers.values[number] else { continue };
            match incoming.read(&mut self.slot, BURST, &mut each) {
                Ok(got) => busy |= got,
                Err(Corrupt) => self.end_consumer(number, "its contents are impossible"),
            }
        }
        busy
    }

    /// Announces to all peers with a ring to this adapter that it is about to sleep, or is awake. Before it sleeps, it
    /// must read all rings once more.
    pub(crate) fn doze(&mut self, asleep: bool) {
        if asleep || self.dozing {
            let sources =
                self.consumers.values.iter().flatten().filter_map(|incoming| incoming.source.as_ref());
            sources.for_each(|(_, ring)| ring.doze(asleep));
            // Pairs with the fence in `Producer::publish`: either the next read finds a packet, or its producer finds
            // the flag.
            fence(Ordering::SeqCst);
            self.dozing = asleep;
        }
    }

    /// Handles new connections, messages on existing ones, and disconnects. `each` gets the last packets of rings that
    /// are closed.
    pub(crate) fn attend(&mut self, mut each: impl FnMut(SocketAddrV4, &mut [u8], bool)) {
        for token in self.epoll.ready() {
            if token == LISTENER {
                self.accept();
                continue;
            }
            let number = (token as usize - 2) / 2;
            if token.is_multiple_of(2) {
                self.attend_producer(number);
            } else {
                self.attend_consumer(number, &mut each);
            }
        }
    }

    fn accept(&mut self) {
        while let Some(socket) = rendezvous::accept(&self.listener) {
            // Closing the connection makes the peer fall back to UDP.
            let Some(share) = Share::take() else { continue };
            let number = self.consumers.insert(Incoming { socket, _share: share, source: None });
            if let Some(incoming) = self.consumers.get_mut(number)
                && let Err(error) = self.epoll.add(incoming.socket.as_fd(), consumer_token(number))
            {
                tracing::debug!(%error, "connection refused");
                self.consumers.remove(number);
                continue;
            }
            // The greeting usually arrives with the connection.
            self.greet(number);
        }
    }

    /// Receives the greeting of a newly connected producer, if it has arrived.
    fn greet(&mut self, number: usize) {
        let Some(incoming) = self.consumers.get_mut(number) else { return };
        let greeted = rendezvous::greeted(&incoming.socket)
            .and_then(|(from, file)| Ok((from, Consumer::adopt(&file)?)));
        match greeted {
            Ok(source) => incoming.source = Some(source),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.end_consumer(number, &error.to_string()),
        }
    }

    fn attend_producer(&mut self, number: usize) {
        let Some(outgoing) = self.producers.get_mut(number) else { return };
        match rendezvous::hear(&outgoing.socket) {
            // The peer has made room, which this pass will notice.
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.end_producer(number, &error.to_string()),
        }
    }

    /// Handles a message of a producer: its greeting, a wake-up byte, or the end of the connection.
    fn attend_consumer(&mut self, number: usize, each: &mut impl FnMut(SocketAddrV4, &mut [u8], bool)) {
        let Some(incoming) = self.consumers.get_mut(number) else { return };
        if incoming.source.is_none() {
            return self.greet(number);
        }
        match rendezvous::hear(&incoming.socket) {
            // The peer has sent packets, which this pass will read.
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // The peer's last packets are still delivered. The limit is for a process that keeps writing.
                let _ = incoming.read(&mut self.slot, MAX_BYTES / 8, each);
                self.end_consumer(number, &error.to_string());
            }
        }
    }

    fn end_producer(&mut self, number: usize, why: &str) {
        if let Some(outgoing) = self.producers.remove(number) {
            tracing::debug!(to = %outgoing.to, why, "ring closed");
            // The next packet to this address connects again.
            self.carriers.remove(&outgoing.to);
        }
    }

    fn end_consumer(&mut self, number: usize, why: &str) {
        if let Some(incoming) = self.consumers.remove(number) {
            tracing::debug!(from = ?incoming.source.map(|(from, _)| from), why, "ring closed");
        }
    }
}

impl Outgoing {
    fn publish(&mut self) {
        if self.ring.publish() {
            rendezvous::wake(&self.socket);
        }
    }
}

impl Incoming {
    /// Reads up to `limit` packets from a ring. Returns whether there were any.
    fn read(
        &mut self,
        slot: &mut [u8; SLOT],
        limit: usize,
        each: &mut impl FnMut(SocketAddrV4, &mut [u8], bool),
    ) -> Result<bool, Corrupt> {
        let Some((from, ring)) = &mut self.source else { return Ok(false) };
        if !ring.look()? {
            return Ok(false);
        }
        for _ in 0..limit {
            let Some((len, is_sealed)) = ring.pop(slot)? else { break };
            each(*from, &mut slot[SLOT_AT..SLOT_AT + len], is_sealed);
        }
        if ring.release() {
            rendezvous::wake(&self.socket);
        }
        Ok(true)
    }
}
