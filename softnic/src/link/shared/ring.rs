//! A ring of packets in memory that two processes map: one writes, the other reads.
//!
//! The header holds four words, each in its own cache line:
//!
//! | word | writer | meaning |
//! |---|---|---|
//! | tail | producer | bytes written since the start |
//! | head | consumer | bytes read since the start |
//! | asleep | both | set before the consumer sleeps; the producer clears it and wakes the consumer |
//! | starved | both | set by a producer without room; the consumer clears it and wakes the producer |
//!
//! A record is a word, padding, and a packet, rounded up to 8 bytes. It is contiguous: a record
//! that does not fit before the ring wraps is preceded by a skip record, and starts at offset 0.
//!
//! **Untrusted memory.** The peer may write anything at any time. Each side therefore keeps its own position in private
//! memory, reads the peer's position once, and checks the distance. The consumer reads the word of a record once,
//! checks it, and copies the packet out before parsing it.
#![allow(unsafe_code, reason = "memory that another process changes at the same time")]

use super::mapping::Mapping;
use crate::copy;
use crate::roce::MAX_PACKET;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Length of a ring's header, in bytes.
const HEADER: usize = 4096;
// Offsets of the words in the header.
const TAIL: usize = 64;
const HEAD: usize = 128;
const ASLEEP_AT: usize = 192;
const STARVED_AT: usize = 256;

/// Minimum size of a ring, in bytes.
pub(super) const MIN_BYTES: usize = 64 << 10;
pub(super) const MAX_BYTES: usize = 512 << 10;

/// Offset of the packet in a record, in bytes. It aligns the payload of most packets to 8 bytes.
const PACKET_AT: usize = 12;
/// Length of the largest record, in bytes.
const MAX_RECORD: usize = (PACKET_AT + MAX_PACKET).next_multiple_of(8);
/// Flag in the first word of a record: the packet contains its CRC.
const SEALED: u64 = 1 << 32;
/// First word of a skip record, which fills the rest of the ring.
const SKIP: u64 = u64::MAX;
/// Number of unpublished bytes at which the producer should publish, although its burst is not complete.
const PUBLISH: u64 = 16 << 10;
/// Size of the buffer into which a consumer copies a packet, in bytes.
pub(super) const SLOT: usize = (SLOT_AT + MAX_PACKET).next_multiple_of(64);
/// Offset of the packet in the consumer's buffer. It gives the packet the same alignment as in its record.
pub(super) const SLOT_AT: usize = PACKET_AT % 8;

/// Error: the peer has written impossible positions or records into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

#[derive(Debug)]
struct Memory {
    mapping: Mapping,
    /// Size of the record area in bytes, a power of two.
    bytes: u64,
}

impl Memory {
    /// Wraps a mapping, whose length must be that of a ring.
    fn new(mapping: Mapping) -> Memory {
        let bytes = (mapping.len() - HEADER) as u64;
        Memory { mapping, bytes }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < HEADER);
        // SAFETY: within the header, and aligned. The mapping lives as long as the borrow. All accesses are atomic.
        unsafe { AtomicU64::from_ptr(self.mapping.base().add(at).cast()) }
    }

    fn flag(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < HEADER);
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.mapping.base().add(at).cast()) }
    }

    /// Returns the address of the record at `position`, and the number of bytes from there to where the ring wraps.
    fn record(&self, position: u64) -> (*mut u8, u64) {
        let offset = position & (self.bytes - 1);
        (self.mapping.base().wrapping_add(HEADER + offset as usize), self.bytes - offset)
    }

    /// Returns the first word of the record at `position`. Positions are multiples of 8, so the word lies within the
    /// ring.
    fn record_word(&self, position: u64) -> &AtomicU64 {
        let (record, _) = self.record(position);
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(record.cast()) }
    }
}

fn file_bytes(ring: usize) -> usize {
    HEADER + ring
}

/// Whether a memory file of `len` bytes can be a ring.
fn is_ring(len: usize) -> bool {
    len.checked_sub(HEADER)
        .is_some_and(|bytes| bytes.is_power_of_two() && (MIN_BYTES..=MAX_BYTES).contains(&bytes))
}

/// The writing end of a packet ring.
#[derive(Debug)]
pub(super) struct Producer {
    memory: Memory,
    /// Position at which the next record is written.
    tail: u64,
    /// Position up to which the consumer may read.
    published: u64,
    /// Position up to which the consumer had read when this end last checked.
    head: u64,
    /// Length of the reserved record that is not committed yet, in bytes.
    reserved: u64,
    /// Set once the consumer has reported an impossible position. The ring is no longer used.
    is_corrupt: bool,
}

impl Producer {
    /// Creates a ring of `bytes`, and returns its memory file for the consumer.
    ///
    /// # Errors
    ///
    /// Errors of [`Mapping::create`].
    pub(super) fn create(bytes: usize) -> io::Result<(Producer, OwnedFd)> {
        let (mapping, file) = Mapping::create(file_bytes(bytes))?;
        let memory = Memory::new(mapping);
        Ok((Producer { memory, tail: 0, published: 0, head: 0, reserved: 0, is_corrupt: false }, file))
    }

    fn refresh(&mut self) -> Result<(), Corrupt> {
        let head = self.memory.word(HEAD).load(Ordering::Acquire);
        // The consumer only advances, and never past what was published.
        if head.wrapping_sub(self.head) > self.published.wrapping_sub(self.head) {
            self.is_corrupt = true;
            return Err(Corrupt);
        }
        self.head = head;
        Ok(())
    }

    fn free(&self) -> u64 {
        self.memory.bytes - self.tail.wrapping_sub(self.head)
    }

    /// Returns the number of packets of maximum length for which there is room.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: the consumer's position is impossible.
    pub(super) fn room(&mut self) -> Result<usize, Corrupt> {
        // Minus one, because a skip record may waste up to one record.
        let packets = |free: u64| (free / MAX_RECORD as u64).saturating_sub(1) as usize;
        if self.is_corrupt {
            return Err(Corrupt);
        }
        // The cached position is enough most of the time. Reading the peer's would move its cache line.
        if packets(self.free()) == 0 {
            self.refresh()?;
            if packets(self.free()) == 0 {
                self.memory.flag(STARVED_AT).store(1, Ordering::Relaxed);
                // Either the consumer sees the flag after it has advanced, or this load sees that it has.
                fence(Ordering::SeqCst);
                self.refresh()?;
            }
        }
        Ok(packets(self.free()))
    }

    /// Returns memory for a packet of `len` bytes, which [`Producer::commit`] adds to the ring. Returns `None` if there
    /// is no room or the ring is corrupt.
    pub(super) fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        let need = ((PACKET_AT + len).next_multiple_of(8)) as u64;
        let (_, rest) = self.memory.record(self.tail);
        let skip = if rest < need { rest } else { 0 };
        if self.free() < skip + need {
            self.refresh().ok()?;
            if self.free() < skip + need {
                return None;
            }
        }
        if skip != 0 {
            self.memory.record_word(self.tail).store(SKIP, Ordering::Relaxed);
            self.tail = self.tail.wrapping_add(skip);
        }
        self.reserved = need;
        let (record, _) = self.memory.record(self.tail);
        // SAFETY: `need` bytes of the ring from `record` on are free, in one piece. Only this side writes there, unless
        // the peer misbehaves; the borrower only writes, so it depends on no value there.
        Some(unsafe { std::slice::from_raw_parts_mut(record.add(PACKET_AT), len) })
    }

    /// Adds to the ring the packet of `len` bytes in the memory that the last [`Producer::reserve`] returned.
    pub(super) fn commit(&mut self, len: usize, is_sealed: bool) {
        let word = len as u64 | if is_sealed { SEALED } else { 0 };
        // Relaxed: `publish` releases it.
        self.memory.record_word(self.tail).store(word, Ordering::Relaxed);
        self.tail = self.tail.wrapping_add(std::mem::take(&mut self.reserved));
    }

    /// Whether there are enough unpublished bytes that the consumer should start reading them.
    pub(super) fn is_ripe(&self) -> bool {
        self.tail.wrapping_sub(self.published) >= PUBLISH
    }

    /// Publishes all packets written so far. Returns whether the consumer is asleep and must be woken.
    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        self.memory.word(TAIL).store(self.tail, Ordering::Release);
        // Either the consumer finds the packets before it sleeps, or this load finds that it is asleep.
        fence(Ordering::SeqCst);
        let asleep = self.memory.flag(ASLEEP_AT);
        // The swap clears the flag, so one wake-up is sent per sleep.
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }
}

/// The reading end of a packet ring.
#[derive(Debug)]
pub(super) struct Consumer {
    memory: Memory,
    /// Position of the next record to read.
    head: u64,
    /// Position up to which the producer had published when this end last checked.
    tail: u64,
}

impl Consumer {
    /// Maps the memory file of a producer.
    ///
    /// # Errors
    ///
    /// Errors of [`Mapping::adopt`].
    pub(super) fn adopt(file: &OwnedFd) -> io::Result<Consumer> {
        Ok(Consumer { memory: Memory::new(Mapping::adopt(file, is_ring)?), head: 0, tail: 0 })
    }

    /// Reads the producer's position. Returns whether the ring holds packets.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: the position is impossible.
    pub(super) fn look(&mut self) -> Result<bool, Corrupt> {
        let tail = self.memory.word(TAIL).load(Ordering::Acquire);
        let waiting = tail.wrapping_sub(self.head);
        // The producer only advances, in whole records, and never past the ring.
        if waiting > self.memory.bytes
            || !tail.is_multiple_of(8)
            || waiting < self.tail.wrapping_sub(self.head)
        {
            return Err(Corrupt);
        }
        self.tail = tail;
        Ok(waiting != 0)
    }

    /// Copies the next packet to `slot`, starting at [`SLOT_AT`]. Returns its length, and whether it has a CRC.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: the record is impossible.
    pub(super) fn pop(&mut self, slot: &mut [u8; SLOT]) -> Result<Option<(usize, bool)>, Corrupt> {
        loop {
            let waiting = self.tail.wrapping_sub(self.head);
            if waiting == 0 {
                return Ok(None);
            }
            let word = self.memory.record_word(self.head).load(Ordering::Relaxed);
            let (record, rest) = self.memory.record(self.head);
            if word == SKIP {
                // The rest of the ring must have been published together with the skip record.
                if waiting < rest {
                    return Err(Corrupt);
                }
                self.head = self.head.wrapping_add(rest);
                continue;
            }
            let (len, is_sealed) = (word & !SEALED, word & SEALED != 0);
            if len > MAX_PACKET as u64 {
                return Err(Corrupt);
            }
            let need = (PACKET_AT as u64 + len).next_multiple_of(8);
            if need > waiting || need > rest {
                return Err(Corrupt);
            }
            let len = len as usize;
            // SAFETY: the record lies within the ring, and the slot has room for the largest packet.
            unsafe { copy::copy_bytes(slot[SLOT_AT..].as_mut_ptr(), record.add(PACKET_AT), len) };
            self.head = self.head.wrapping_add(need);
            return Ok(Some((len, is_sealed)));
        }
    }

    /// Frees the room of all packets read so far for the producer. Returns whether the producer is waiting for room and
    /// must be woken.
    pub(super) fn release(&mut self) -> bool {
        self.memory.word(HEAD).store(self.head, Ordering::Release);
        // Waking it once half the ring is free is cheaper than for every packet.
        if self.tail.wrapping_sub(self.head) > self.memory.bytes / 2 {
            return false;
        }
        // Pairs with the fence in `room`.
        fence(Ordering::SeqCst);
        let starved = self.memory.flag(STARVED_AT);
        starved.load(Ordering::Relaxed) != 0 && starved.swap(0, Ordering::Relaxed) != 0
    }

    /// Announces to the producer that the consumer is about to sleep, or is awake. A fence and one more `look` must
    /// follow.
    pub(super) fn doze(&self, asleep: bool) {
        self.memory.flag(ASLEEP_AT).store(asleep.into(), Ordering::Relaxed);
    }
}

#[cfg(any(test, feature = "fuzz"))]
impl Producer {
    /// Publishes a position `bytes` beyond what has been written, like a hostile peer.
    pub(super) fn claim(&mut self, bytes: u64) {
        self.memory.word(TAIL).store(self.published.wrapping_add(bytes), Ordering::Release);
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes as usize
    }
}

/// Reads and writes a ring whose contents and positions come from a hostile peer. The first two words of `data` are the
/// positions of the producer and the consumer, and the rest is repeated to fill the ring.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn hostile(data: &[u8]) {
    let Some(([tail, head], contents)) = data.as_chunks::<8>().0.split_first_chunk() else { return };
    let Ok((mut producer, file)) = Producer::create(MIN_BYTES) else { return };
    let Ok(mut consumer) = Consumer::adopt(&file) else { return };
    for (i, word) in contents.iter().cycle().take(MIN_BYTES / 8).enumerate() {
        producer.memory.record_word(8 * i as u64).store(u64::from_le_bytes(*word), Ordering::Relaxed);
    }
    producer.claim(u64::from_le_bytes(*tail));
    let mut slot = [0; SLOT];
    let mut packets = 0;
    while consumer.look() == Ok(true) {
        while let Ok(Some((len, _))) = consumer.pop(&mut slot) {
            packets += 1;
            assert!(
                len <= MAX_PACKET && packets <= MIN_BYTES / 8,
                "{packets} packets, the last of {len} bytes"
            );
        }
        consumer.release();
        if consumer.pop(&mut slot).is_err() {
            break;
        }
    }
    producer.memory.word(HEAD).store(u64::from_le_bytes(*head), Ordering::Relaxed);
    for len in [0, 64, MAX_PACKET].into_iter().cycle().take(64) {
        if producer.room().is_err() {
            break;
        }
        let Some(packet) = producer.reserve(len) else { break };
        packet.fill(1);
        producer.commit(len, false);
        producer.publish();
    }
}
