//! Memory keys, and the copies and atomics between the ranges of memory that they map.
#![allow(unsafe_code, reason = "copies between checked spans of registered memory")]

use crate::changeable::Changeable;
use crate::copy;
use crate::memory::{Memory, MemoryAddr, MemoryError};
use crate::posted::{PostedWrite, PostedWrites};
use crate::rng::Rng;
use crate::table::Table;
use rushmem_mlx5::{AtomicOp, Width};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

/// Size of the staging buffer for copies between two memories that cannot access each other, in bytes.
const STAGE: usize = 64 << 10;

/// Number of payload bytes that are collected before they are written to memory without a host address.
const MAX_HELD_BYTES: usize = 256 << 10;

/// Registered memory, which DevX calls a umem.
pub(crate) struct Umem {
    pub(crate) owner: u32,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Number of memory keys and queues that use the umem.
    pub(crate) users: u32,
}

/// Access rights of a memory key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u8);

impl Rights {
    pub(crate) const LOCAL_READ: Rights = Rights(1);
    pub(crate) const LOCAL_WRITE: Rights = Rights(2);
    pub(crate) const REMOTE_READ: Rights = Rights(4);
    pub(crate) const REMOTE_WRITE: Rights = Rights(8);
    pub(crate) const REMOTE_ATOMIC: Rights = Rights(16);

    pub(crate) fn with(self, other: Rights, on: bool) -> Rights {
        if on { Rights(self.0 | other.0) } else { self }
    }

    pub(crate) fn set(self, other: Rights, on: bool) -> Rights {
        if on { Rights(self.0 | other.0) } else { Rights(self.0 & !other.0) }
    }

    pub(crate) fn and(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }

    fn include(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A memory key: an address range with access rights.
pub(crate) struct Mkey {
    pub(crate) owner: u32,
    pub(crate) key: u32,
    pub(crate) pd: u32,
    /// The only QP that may use the key, or `None` if any QP of the protection domain may.
    pub(crate) qpn: Option<u32>,
    pub(crate) rights: Rights,
    /// Whether writes and atomics through this key may overtake earlier writes.
    pub(crate) relaxed: bool,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) umem: u32,
    pub(crate) memory: Arc<dyn Memory>,
    /// Offset in `memory` at which the key's range starts.
    pub(crate) base: u64,
    /// CPU address of the first byte of the range, if the CPU can access `memory`.
    pub(crate) host: Option<HostPtr>,
    /// Set if work requests can change the key.
    pub(crate) changeable: Option<Changeable>,
}

/// An address in host memory that a [`Memory`] keeps valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPtr(NonNull<u8>);

// SAFETY: a plain address. Whoever dereferences it holds the memory that keeps it valid.
unsafe impl Send for HostPtr {}

impl HostPtr {
    pub(crate) fn of(memory: &dyn Memory, offset: u64) -> Option<HostPtr> {
        let base = memory.host_ptr()?;
        NonNull::new(base.as_ptr().wrapping_add(offset as usize)).map(HostPtr)
    }

    fn add(self, offset: u64) -> *mut u8 {
        self.0.as_ptr().wrapping_add(offset as usize)
    }
}

/// Reason why a memory key does not allow an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyFault {
    /// No key has this index, or the low byte of its key differs.
    Unknown,
    /// The key belongs to another protection domain, or is bound to another QP.
    Domain,
    /// The access leaves the key's range.
    Range,
    /// The key lacks the access right.
    Right,
    /// The DC access key in a request differs from that of the DCT.
    DcKey,
}

impl KeyFault {
    /// Returns the vendor syndrome that distinguishes the reasons in CQEs and traces.
    pub(crate) fn vendor(self) -> u8 {
        match self {
            KeyFault::Unknown => 0x51,
            KeyFault::Domain => 0x52,
            KeyFault::Range => 0x53,
            KeyFault::Right => 0x54,
            KeyFault::DcKey => 0x55,
        }
    }
}

/// The QP that uses a memory key, with its protection domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) pd: u32,
    pub(crate) qpn: u32,
}

/// A range of registered memory that has been checked against its key.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    memory: &'a Arc<dyn Memory>,
    host: Option<*mut u8>,
    offset: u64,
    pub(crate) len: u64,
    /// Whether writes and atomics to this range may overtake earlier writes.
    relaxed: bool,
}

impl<'a> Span<'a> {
    /// Returns the part of the range that starts at byte `skip` and has up to `len` bytes.
    pub(crate) fn part(&self, skip: u64, len: u64) -> Span<'a> {
        let skip = skip.min(self.len);
        Span {
            memory: self.memory,
            host: self.host.map(|p| p.wrapping_add(skip as usize)),
            offset: self.offset + skip,
            len: len.min(self.len - skip),
            relaxed: self.relaxed,
        }
    }

    fn place(&self) -> Option<MemoryAddr> {
        Some(self.memory.place()?.after(self.offset))
    }
}

/// A list of ranges within one [`Memory`] that the CPU cannot access directly.
#[derive(Default)]
pub(crate) struct FarRanges {
    memory: Option<Arc<dyn Memory>>,
    /// Offset and length of each range.
    ranges: Vec<(u64, usize)>,
    len: usize,
}

impl FarRanges {
    /// Adds a range. Returns `false` without adding it if it lies in another memory, or in one that the CPU can access.
    pub(crate) fn push(&mut self, span: &Span<'_>) -> bool {
        let memory = self.memory.get_or_insert_with(|| Arc::clone(span.memory));
        if span.host.is_some() || !Arc::ptr_eq(memory, span.memory) {
            return false;
        }
        match self.ranges.last_mut() {
            Some((offset, len)) if *offset + *len as u64 == span.offset => *len += span.len as usize,
            _ => self.ranges.push((span.offset, span.len as usize)),
        }
        self.len += span.len as usize;
        true
    }

    /// Returns the total length of all ranges, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

pub(crate) type Mkeys = Table<Mkey>;

/// Looks up a memory key, checks that it allows an access, and returns the range of memory.
#[inline]
pub(crate) fn resolve(
    mkeys: &Mkeys,
    user: User,
    key: u32,
    addr: u64,
    len: u64,
    need: Rights,
) -> Result<Span<'_>, KeyFault> {
    let mkey = mkeys.get(key >> 8).filter(|mkey| mkey.key == key).ok_or(KeyFault::Unknown)?;
    if mkey.pd != user.pd || mkey.qpn.is_some_and(|qpn| qpn != user.qpn) {
        return Err(KeyFault::Domain);
    }
    let offset = addr.wrapping_sub(mkey.start);
    if offset > mkey.len || mkey.len - offset < len {
        return Err(KeyFault::Range);
    }
    if !mkey.rights.include(need) {
        return Err(KeyFault::Right);
    }
    Ok(Span {
        memory: &mkey.memory,
        host: mkey.host.map(|host| host.add(offset)),
        offset: mkey.base + offset,
        len,
        relaxed: mkey.relaxed,
    })
}

/// Copies between registered memories, executes atomics on them, and tracks the copies in flight.
#[derive(Default)]
pub(crate) struct Dma {
    /// The only memory that may have copies in flight. It is flushed before another memory is accessed, which keeps
    /// data and a later flag in order if they lie in different memories.
    dirty: Option<Arc<dyn Memory>>,
    /// Error of a flush whose result nobody received. The next flush returns it.
    failed: Option<MemoryError>,
    stage: Vec<u8>,
    /// A memory without a host address, and the offset at which the bytes collected in `held_bytes` belong.
    held: Option<(Arc<dyn Memory>, u64)>,
    held_bytes: Vec<u8>,
    /// Writes that have been acknowledged, but not yet delivered to memory.
    posted: PostedWrites,
    /// Whether any key has ever mapped memory without a host address.
    pub(crate) has_far: bool,
    /// Probability that an atomic is executed as a load and a store, and the random generator that decides.
    loose: Option<(f64, Rng)>,
}

impl Dma {
    /// Creates a copy engine that executes atomics on host memory as a load and a store with probability `rate`.
    pub(crate) fn with_loose_atomics(rate: f64, rng: Rng) -> Dma {
        Dma { loose: (rate > 0.0).then_some((rate, rng)), ..Dma::default() }
    }

    /// Waits until all copies in flight are complete. Returns the first error of any of them.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), MemoryError> {
        match (self.dirty.take(), self.failed.take()) {
            (None, None) => Ok(()),
            (dirty, failed) => {
                let written = self.write_held();
                let flushed = dirty.map_or(Ok(()), |memory| memory.flush());
                failed.map_or(written.and(flushed), Err)
            }
        }
    }

    /// Whether no copy is in flight, and no earlier one has an unreported error.
    #[inline]
    pub(crate) fn has_landed(&self) -> bool {
        self.dirty.is_none() && self.failed.is_none()
    }

    /// Flushes the copies in flight, without writing the payload still being collected. Any error is kept for the next
    /// [`Dma::flush`].
    #[inline]
    pub(crate) fn settle(&mut self) {
        if let Some(memory) = &self.dirty {
            let flushed = memory.flush();
            if self.held.is_none() {
                self.dirty = None;
            }
            self.failed = self.failed.or(flushed.err());
        }
    }

    /// Completes all copies, because their memory may be about to go away.
    pub(crate) fn finish(&mut self) {
        self.failed = self.flush().err();
    }

    /// Schedules a posted write of `data` to `dst`, in memory of context `owner`. It is delivered at time `due`, or
    /// earlier if an access must see it.
    #[cold]
    pub(crate) fn post(&mut self, dst: &Span<'_>, data: Box<[u8]>, due: Instant, owner: u32) {
        let (memory, offset, relaxed) = (Arc::clone(dst.memory), dst.offset, dst.relaxed);
        self.posted.push(PostedWrite { due, owner, memory, offset, data, relaxed });
    }

    /// Returns when the next posted write is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.posted.next_due()
    }

    /// Delivers the posted writes that are due at `now`, or all of them if that is `None`. Calls `changed` with the
    /// context whose memory each of them changes.
    pub(crate) fn land_due(&mut self, now: Option<Instant>, changed: impl FnMut(u32)) {
        if !self.posted.is_empty() {
            self.posted.land_due(now, changed);
        }
    }

    /// Delivers the posted writes to the memory of `span`.
    #[inline]
    fn land_on(&mut self, span: &Span<'_>) -> Result<(), MemoryError> {
        if self.posted.is_empty() { Ok(()) } else { self.posted.land_on(span.memory) }
    }

    /// Delivers the posted writes that a write or an atomic to `dst` must not overtake.
    #[inline]
    fn land_unpassed(&mut self, dst: &Span<'_>) -> Result<(), MemoryError> {
        if dst.relaxed { Ok(()) } else { self.land_on(dst) }
    }

    fn begin(&mut self, memory: &Arc<dyn Memory>) -> Result<(), MemoryError> {
        self.write_held()?;
        self.keep_order(memory)
    }

    /// Completes the copies to other memories that an access to `memory` must not overtake, and marks `memory` as
    /// having copies in flight.
    fn keep_order(&mut self, memory: &Arc<dyn Memory>) -> Result<(), MemoryError> {
        match &self.dirty {
            Some(dirty) if Arc::ptr_eq(dirty, memory) => return Ok(()),
            Some(dirty) if dirty.queue().is_some() && dirty.queue() == memory.queue() => {}
            _ => self.flush()?,
        }
        self.dirty = Some(Arc::clone(memory));
        Ok(())
    }

    /// Copies `src` to `dst`, up to the length of the shorter one.
    #[inline]
    pub(crate) fn copy(&mut self, dst: &Span<'_>, src: &Span<'_>) -> Result<(), MemoryError> {
        let len = dst.len.min(src.len);
        self.land_on(src)?;
        self.land_unpassed(dst)?;
        match (dst.host, src.host) {
            (Some(to), Some(from)) => {
                self.flush()?;
                publish();
                // SAFETY: both spans were checked against their keys, and the memory outlives this borrow.
                unsafe { copy::copy_bytes(to, from, len as usize) };
                Ok(())
            }
            _ => self.copy_slow(dst, src, len),
        }
    }

    #[cold]
    fn copy_slow(&mut self, dst: &Span<'_>, src: &Span<'_>, len: u64) -> Result<(), MemoryError> {
        let copies = match dst.host {
            Some(_) => {
                self.begin(src.memory)?;
                dst.place().map(|to| src.memory.copy_out(src.offset, to, len))
            }
            None => {
                // Copies to the source must be complete before another memory reads it.
                self.begin(dst.memory)?;
                src.place().map(|from| dst.memory.copy_in(dst.offset, from, len))
            }
        };
        if copies.transpose()? == Some(true) {
            return Ok(());
        }
        let mut stage = std::mem::take(&mut self.stage);
        stage.resize(STAGE, 0);
        let mut done = 0;
        let mut result = Ok(());
        while done < len && result.is_ok() {
            let part = &mut stage[..(len - done).min(STAGE as u64) as usize];
            result = self.read(&src.part(done, part.len() as u64), part);
            if result.is_ok() {
                result = self.write(&dst.part(done, part.len() as u64), part);
            }
            done += part.len() as u64;
        }
        self.stage = stage;
        result
    }

    pub(crate) fn read(&mut self, src: &Span<'_>, buf: &mut [u8]) -> Result<(), MemoryError> {
        let len = buf.len().min(src.len as usize);
        self.land_on(src)?;
        match src.host {
            Some(from) => {
                self.flush()?;
                // SAFETY: the span was checked against its key, and `buf` has `len` bytes.
                unsafe { copy::copy_bytes(buf.as_mut_ptr(), from, len) };
                Ok(())
            }
            None => {
                self.begin(src.memory)?;
                src.memory.read(src.offset, &mut buf[..len])
            }
        }
    }

    #[inline]
    pub(crate) fn write(&mut self, dst: &Span<'_>, data: &[u8]) -> Result<(), MemoryError> {
        let len = data.len().min(dst.len as usize);
        self.land_unpassed(dst)?;
        match dst.host {
            Some(to) => {
                self.flush()?;
                publish();
                // SAFETY: the span was checked against its key, and `data` has `len` bytes.
                unsafe { copy::copy_bytes(to, data.as_ptr(), len) };
                Ok(())
            }
            None => {
                self.begin(dst.memory)?;
                dst.memory.write(dst.offset, &data[..len])
            }
        }
    }

    /// Writes the payload of one packet of a message to `dst`.
    ///
    /// If the memory has no host address, the payload of several packets is collected, and written at the latest with
    /// the `last` packet.
    pub(crate) fn write_packet(
        &mut self,
        dst: &Span<'_>,
        data: &[u8],
        last: bool,
    ) -> Result<(), MemoryError> {
        if dst.host.is_some() || (last && self.held.is_none()) {
            return self.write(dst, data);
        }
        let len = data.len().min(dst.len as usize);
        self.land_unpassed(dst)?;
        let continues = self.held.as_ref().is_some_and(|(memory, offset)| {
            Arc::ptr_eq(memory, dst.memory) && offset + self.held_bytes.len() as u64 == dst.offset
        });
        if !continues {
            self.begin(dst.memory)?;
            self.held = Some((Arc::clone(dst.memory), dst.offset));
        }
        self.held_bytes.extend_from_slice(&data[..len]);
        if last || self.held_bytes.len() >= MAX_HELD_BYTES { self.write_held() } else { Ok(()) }
    }

    /// Writes the payload that [`Dma::write_packet`] has collected.
    fn write_held(&mut self) -> Result<(), MemoryError> {
        let Some((memory, offset)) = self.held.take() else { return Ok(()) };
        let written = memory.write(offset, &self.held_bytes);
        self.held_bytes.clear();
        written
    }

    /// Fills `buf` with the bytes of `ranges`, concatenated.
    pub(crate) fn gather(&mut self, ranges: &FarRanges, buf: &mut [u8]) -> Result<(), MemoryError> {
        let Some(memory) = &ranges.memory else { return Ok(()) };
        if !self.posted.is_empty() {
            self.posted.land_on(memory)?;
        }
        self.begin(memory)?;
        memory.gather(&ranges.ranges, buf)
    }

    /// Executes an atomic on the operand at `at`, and returns its old value. Earlier writes are visible to every
    /// observer of its result, unless the key is relaxed.
    pub(crate) fn atomic(&mut self, at: &Span<'_>, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        self.land_unpassed(at)?;
        self.flush()?;
        match at.host {
            Some(word) if (word as u64).is_multiple_of(width.bytes()) && at.len >= width.bytes() => {
                let loosely = self.loose.as_mut().is_some_and(|(rate, rng)| rng.chance(*rate));
                // SAFETY: checked against its key, long enough, and aligned.
                Ok(unsafe {
                    if loosely {
                        copy::non_atomic_rmw(word, width, op)
                    } else {
                        copy::atomic(word, width, op)
                    }
                })
            }
            Some(_) => Err(MemoryError::Misaligned { offset: at.offset }),
            None => at.memory.atomic(at.offset, width, op),
        }
    }

    /// Starts an atomic on the operand at `at`, and has the memory write the old value to `result`. Returns `false`,
    /// and has done nothing, if the memory cannot do that.
    ///
    /// Earlier writes to the memory are visible to every observer of its result, unless the key is relaxed.
    pub(crate) fn atomic_to(
        &mut self,
        at: &Span<'_>,
        width: Width,
        op: AtomicOp,
        result: &Span<'_>,
    ) -> Result<bool, MemoryError> {
        if at.host.is_some() || result.len < width.bytes() {
            return Ok(false);
        }
        let Some(place) = result.place() else { return Ok(false) };
        self.land_unpassed(at)?;
        self.land_unpassed(result)?;
        self.begin(at.memory)?;
        at.memory.atomic_to(at.offset, width, op, place)
    }
}

/// Orders the copies of earlier WQEs before those of later ones, so a program that polls a flag sees the data written
/// before it. `queue_memory::order` has a model of it.
#[inline]
fn publish() {
    fence(Ordering::Release);
}
