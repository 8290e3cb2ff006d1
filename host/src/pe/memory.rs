//! The symmetric heap: objects that all PEs have at the same offset.
#![allow(unsafe_code, reason = "makes handles of symmetric objects from the offsets of the allocator")]

use bytemuck::Pod;
use rushmem_device::{Handle, LocalBuffer, Sym, SymSlice};

use super::Pe;
use crate::memory::{ALIGNMENTS, Rejection, Segment, misuse};
use crate::{Error, Result};

/// Bytes that are zeroed or copied at a time.
const STEP: u64 = 1 << 20;

/// What memory will be used for. OpenSHMEM 1.6 section 9.4, the `SHMEM_MALLOC_*` constants.
///
/// Promises, not limits: memory with any hints does everything. Both ask for what every object has, lines of its own that
/// atomics from elsewhere share with no other object; nothing else depends on them here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints(u64);

impl Hints {
    /// No promise.
    pub const NONE: Self = Self(0);
    /// `SHMEM_MALLOC_ATOMICS_REMOTE`: remote atomics go there.
    pub const ATOMICS_REMOTE: Self = Self(1);
    /// `SHMEM_MALLOC_SIGNAL_REMOTE`: signals go there.
    pub const SIGNAL_REMOTE: Self = Self(2);

    /// The hints of these bits.
    ///
    /// # Errors
    /// [`Error::Misuse`] for bits that are no hints.
    pub fn from_bits(bits: u64) -> Result<Self> {
        match bits & !3 {
            0 => Ok(Self(bits)),
            unknown => Err(Error::Misuse {
                call: "alloc_with_hints",
                what: format!("{unknown:#x} is no hint: there are ATOMICS_REMOTE (1) and SIGNAL_REMOTE (2)"),
            }),
        }
    }
}

impl std::ops::BitOr for Hints {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Pe {
    /// Allocates `len` zeroed elements in the symmetric heap of every PE, at a multiple of 128 bytes. Collective; every PE's
    /// copy is zero when it returns. OpenSHMEM 1.6 section 9.4, `shmem_malloc` and `shmem_calloc`.
    ///
    /// No elements take no room, and [`Pe::free`] of them does nothing. With the setting `heap_max`, a heap that is full
    /// grows: objects stay where they are, and kernels that are launched afterwards know the new part.
    ///
    /// # Errors
    /// On all PEs or none, and nothing is allocated then: [`Error::HeapFull`]; [`Error::Misuse`] if so many bytes cannot be
    /// counted; [`Error::Mismatch`] if another PE asked for something else; [`Error::Elsewhere`] if one has not got the
    /// memory to grow; [`Error::Bootstrap`] if one did not come.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<SymSlice<T>> {
        let n = self.agree("alloc", &format!("{len} x {} bytes", size_of::<T>()))?;
        self.object("alloc", len, 1, n)
    }

    /// Allocates one zeroed element in the symmetric heap of every PE. Collective.
    ///
    /// # Errors
    /// As [`Pe::alloc`].
    pub fn alloc_one<T: Pod>(&self) -> Result<Sym<T>> {
        Ok(self.alloc::<T>(1)?.at(0))
    }

    /// As [`Pe::alloc`], at an address that is a multiple of `align` on every PE: a power of two from 8 bytes to 2 MiB.
    /// Collective. OpenSHMEM 1.6 section 9.4, `shmem_align`.
    ///
    /// # Errors
    /// As [`Pe::alloc`]; [`Error::Misuse`] for another `align`; [`Error::Unavailable`] where the heap itself does not begin
    /// at a multiple of it.
    pub fn alloc_aligned<T: Pod>(&self, len: usize, align: u64) -> Result<SymSlice<T>> {
        const CALL: &str = "alloc_aligned";
        let n = self.agree(CALL, &format!("{len} x {} bytes at a multiple of {align}", size_of::<T>()))?;
        if !align.is_power_of_two() || !ALIGNMENTS.contains(&align) {
            let (from, to) = ALIGNMENTS.into_inner();
            let what =
                format!("an alignment is a power of two from {from} to {to} bytes, which {align} is not");
            return Err(Error::Misuse { call: CALL, what });
        }
        self.object(CALL, len, align, n)
    }

    /// As [`Pe::alloc`], of memory that will be used as `hints` say. Collective. OpenSHMEM 1.6 section 9.4,
    /// `shmem_malloc_with_hints`.
    ///
    /// # Errors
    /// As [`Pe::alloc`].
    pub fn alloc_with_hints<T: Pod>(&self, len: usize, hints: Hints) -> Result<SymSlice<T>> {
        const CALL: &str = "alloc_with_hints";
        let n = self.agree(CALL, &format!("{len} x {} bytes, {hints:?}", size_of::<T>()))?;
        self.object(CALL, len, 1, n)
    }

    /// Makes an object `len` elements long on every PE, keeping as many of them as there were; more are zero. Collective.
    /// The object may move and has a new handle; the old one is refused from now on. OpenSHMEM 1.6 section 9.4,
    /// `shmem_realloc`.
    ///
    /// All PEs have finished their use of it when it is called on the last one. No elements free the object; an object of
    /// no elements is allocated. A moved object is aligned as by [`Pe::alloc`].
    ///
    /// # Errors
    /// As [`Pe::alloc`] and [`Pe::free`]. The object stays as it was then.
    pub fn realloc<T: Pod>(&self, object: SymSlice<T>, len: usize) -> Result<SymSlice<T>> {
        const CALL: &str = "realloc";
        let (from, old) = (object.offset(), object.handle());
        let n = self.agree(CALL, &format!("the object at {from:#x} to {len} x {} bytes", size_of::<T>()))?;
        if is_nothing(old) {
            return self.object(CALL, len, 1, n);
        }
        self.memory.whole(old).map_err(|why| misuse(CALL, object, why))?;
        let bytes = bytes_of::<T>(CALL, len)?;
        if bytes == 0 {
            self.memory.free(old).map_err(|why| misuse(CALL, object, why))?;
            return Ok(nothing(len));
        }
        let stamp = self.memory.stamp(n);
        let (kept, to) = (old.bytes.min(bytes), |offset| Handle { offset, bytes, stamp });
        if self.memory.resize(old, bytes, stamp) {
            let cleared = self.clear(to(from), kept);
            self.conclude(CALL, cleared)?;
            // SAFETY: the allocator has just given these bytes to this object, aligned as before.
            return Ok(unsafe { SymSlice::stamped(from, len, stamp) });
        }
        let made = self.room(CALL, bytes, 1, stamp);
        let moved = made.as_ref().map_or(Ok(()), |&offset| {
            self.copy(old, to(offset), kept)?;
            self.clear(to(offset), kept)
        });
        let offset = self.settle(CALL, made, moved, to)?;
        self.memory.free(old).map_err(|why| misuse(CALL, object, why))?;
        // SAFETY: the allocator has just given these bytes to this object, aligned for any `T`.
        Ok(unsafe { SymSlice::stamped(offset, len, stamp) })
    }

    /// Frees an object on every PE. Collective: no PE's memory goes before all have called it, and have thus finished
    /// their use of the object. OpenSHMEM 1.6 section 9.4, `shmem_free`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is no object, only a part of one, of another job or freed already; [`Error::Mismatch`] and
    /// [`Error::Bootstrap`] as [`Pe::alloc`].
    pub fn free<T: Pod>(&self, object: SymSlice<T>) -> Result<()> {
        self.agree("free", &format!("the object at {:#x}", object.offset()))?;
        if is_nothing(object.handle()) {
            return Ok(());
        }
        self.memory.free(object.handle()).map_err(|why| misuse("free", object, why))
    }

    /// Bytes of the symmetric heap that no object has. An object takes whole lines of 128 bytes.
    pub fn heap_free(&self) -> u64 {
        self.memory.available()
    }

    /// Bytes that the symmetric heap has for objects, free or not, with all that it has grown by.
    pub fn heap_size(&self) -> u64 {
        self.memory.total()
    }

    /// Writes this PE's own part of an object, or its registered buffer; it is visible to kernels launched afterwards.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the lengths differ or the object is not there (any more).
    pub fn write<T: Pod>(&self, object: impl LocalBuffer<T> + std::fmt::Debug, data: &[T]) -> Result<()> {
        if data.len() != object.elements() {
            let what = format!("{} elements for an object of {}", data.len(), object.elements());
            return Err(Error::Misuse { call: "write", what });
        }
        let (region, at) = self.memory.locate(object.handle()).map_err(|why| misuse("write", object, why))?;
        region.write(at, bytemuck::cast_slice(data))
    }

    /// Reads this PE's own part of an object, or its registered buffer.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the object is not there (any more).
    pub fn read<T: Pod>(&self, object: impl LocalBuffer<T> + std::fmt::Debug) -> Result<Vec<T>> {
        let (region, at) = self.memory.locate(object.handle()).map_err(|why| misuse("read", object, why))?;
        let mut data = vec![T::zeroed(); object.elements()];
        region.read(at, bytemuck::cast_slice_mut(&mut data))?;
        Ok(data)
    }

    /// Reads this PE's own copy of an element.
    ///
    /// # Errors
    /// As [`Pe::read`].
    pub fn read_one<T: Pod>(&self, object: Sym<T>) -> Result<T> {
        Ok(self.read(object.as_slice())?[0])
    }

    /// Where this PE's part of an object, or its registered buffer, lies for its kernels.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the object is not there (any more).
    pub fn address<T: Pod>(&self, object: impl LocalBuffer<T> + std::fmt::Debug) -> Result<u64> {
        let (region, at) =
            self.memory.locate(object.handle()).map_err(|why| misuse("address", object, why))?;
        Ok(region.addr.0 + at)
    }

    /// The copy of `object` on `pe` at its address for kernels of this PE, natively the process's own; `None` if it is not
    /// reached by loads and stores, or there is no such PE or object. Its own copy a PE always reaches.
    ///
    /// An address, and no symmetric one: no call takes it for an object. Kernels have [`Ctx::ptr`](rushmem_device::Ctx::ptr) instead. OpenSHMEM 1.6
    /// section 9.2, `shmem_ptr`.
    pub fn ptr<T: Pod>(&self, object: SymSlice<T>, pe: u32) -> Option<*mut T> {
        let (region, at) = self.memory.locate(object.handle()).ok()?;
        let base = match self.memory.mapped(object.offset(), pe) {
            _ if pe == self.my_pe() => region.addr,
            Some(segment) => segment?,
            None => self.peer_map.mapped(pe)?,
        };
        Some(base.add(at).ptr())
    }

    /// The element of `object` that lies at this address of this PE, as [`Pe::address`] gives it: the way back from an
    /// address to a place that all PEs know. None if the address is not that of an element.
    ///
    /// # Errors
    /// As [`Pe::address`].
    pub fn element_at<T: Pod>(&self, object: SymSlice<T>, address: u64) -> Result<Option<Sym<T>>> {
        let size = const { if size_of::<T>() == 0 { 1 } else { size_of::<T>() as u64 } };
        let Some(at) = address.checked_sub(self.address(object)?) else { return Ok(None) };
        let inside = at < object.bytes() && at.is_multiple_of(size);
        Ok(inside.then(|| object.at((at / size) as usize)))
    }

    /// An object of `len` zeroed elements, made by collective call number `n`.
    fn object<T: Pod>(&self, call: &'static str, len: usize, align: u64, n: u64) -> Result<SymSlice<T>> {
        const { assert!(align_of::<T>() <= 128, "objects of the symmetric heap are aligned to 128 bytes") };
        let bytes = bytes_of::<T>(call, len)?;
        if bytes == 0 {
            return Ok(nothing(len));
        }
        let stamp = self.memory.stamp(n);
        let object = |offset| Handle { offset, bytes, stamp };
        let made = self.room(call, bytes, align, stamp);
        let ready = made.as_ref().map_or(Ok(()), |&offset| {
            self.clear(object(offset), 0)?;
            self.aligned(object(offset), align)
        });
        let offset = self.settle(call, made, ready, object)?;
        // SAFETY: the allocator has just given these bytes to this object, aligned for any `T`.
        Ok(unsafe { SymSlice::stamped(offset, len, stamp) })
    }

    /// The offset of new memory; the heap grows if it must and may.
    fn room(&self, call: &'static str, bytes: u64, align: u64, stamp: u64) -> Result<u64> {
        match self.memory.alloc(bytes, align, stamp) {
            Err(full @ Error::HeapFull { .. }) => {
                let Some(piece) = self.memory.growth_for(bytes, align) else { return Err(full) };
                self.grow(call, piece)?;
                self.memory.alloc(bytes, align, stamp)
            }
            other => other,
        }
    }

    /// Adds `piece` bytes to the heap of every PE.
    fn grow(&self, call: &'static str, piece: u64) -> Result<()> {
        let made = crate::p2p::heap(&self.config, &*self.machine, piece, self.n_pes()).and_then(|region| {
            let keys = self.service.register(&region)?;
            Ok(Segment::new(region, keys, None))
        });
        let segment = self.share(call, made)?;
        let grown = self.memory.grow(segment);
        self.conclude(call, grown)?;
        tracing::info!(
            pe = self.my_pe(),
            bytes = piece,
            total = self.heap_size(),
            "the symmetric heap has grown"
        );
        Ok(())
    }

    /// Ends a call that makes an object: all PEs have it, or none. `ready` is what became of it after it was made.
    fn settle(
        &self,
        call: &'static str,
        made: Result<u64>,
        ready: Result<()>,
        object: impl Fn(u64) -> Handle,
    ) -> Result<u64> {
        let offset = made.as_ref().ok().copied();
        let outcome = self.conclude(call, made.and_then(|offset| ready.map(|()| offset)));
        if let (Err(_), Some(offset)) = (&outcome, offset) {
            self.memory.free(object(offset)).map_err(|why| misuse(call, "the new object", why))?;
        }
        outcome
    }

    fn place(&self, object: Handle) -> Result<(crate::machine::Region, u64)> {
        self.memory.locate(object).map_err(|why: Rejection| misuse("alloc", "the new object", why))
    }

    fn aligned(&self, object: Handle, align: u64) -> Result<()> {
        let (region, at) = self.place(object)?;
        let address = region.addr.0 + at;
        if address.is_multiple_of(align) {
            return Ok(());
        }
        let what = format!("memory at a multiple of {align} bytes");
        Err(Error::Unavailable { what, why: format!("this machine put it at {address:#x}") })
    }

    /// Zeroes an object from its byte `from` on.
    fn clear(&self, object: Handle, from: u64) -> Result<()> {
        let (region, base) = self.place(object)?;
        let zeros = vec![0; STEP.min(object.bytes - from) as usize];
        let mut at = from;
        while at < object.bytes {
            let len = STEP.min(object.bytes - at);
            region.memory.write(base + at, &zeros[..len as usize])?;
            at += len;
        }
        Ok(region.memory.flush()?)
    }

    /// Copies the first `len` bytes of an object to another one.
    fn copy(&self, from: Handle, to: Handle, len: u64) -> Result<()> {
        let ((source, a), (target, b)) = (self.place(from)?, self.place(to)?);
        let mut bytes = vec![0; STEP.min(len) as usize];
        let mut at = 0;
        while at < len {
            let part = &mut bytes[..STEP.min(len - at) as usize];
            source.read(a + at, part)?;
            target.write(b + at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }
}

/// The object of no bytes, which has no place in the heap.
fn nothing<T: Pod>(len: usize) -> SymSlice<T> {
    // SAFETY: nothing is read or written through it.
    unsafe { SymSlice::from_raw(0, len) }
}

fn is_nothing(object: Handle) -> bool {
    object == Handle { offset: 0, bytes: 0, stamp: 0 }
}

fn bytes_of<T>(call: &'static str, len: usize) -> Result<u64> {
    (len as u64).checked_mul(size_of::<T>() as u64).ok_or_else(|| Error::Misuse {
        call,
        what: format!("{len} x {} bytes are more than can be counted", size_of::<T>()),
    })
}
