//! The methods of [`Pe`] for the symmetric heap: allocation, and host access to this PE's copies of objects.
#![allow(unsafe_code, reason = "makes handles of symmetric objects from the offsets of the allocator")]

use std::panic::Location;

use bytemuck::Pod;
use rushmem_device::{Handle, LocalBuffer, Sym, SymSlice};
use rushmem_error::call_site;
use rushmem_error::call_site::CallSite;
use rushmem_memory::{ALIGNMENTS, Rejection, SEGMENT_ALIGN, Segment, misuse};

use super::Pe;
use crate::{Error, Result};

/// Number of bytes zeroed or copied at a time.
const STEP: u64 = 1 << 20;

/// The intended use of allocated memory, for [`Pe::alloc_with_hints`]. OpenSHMEM 1.6 section 9.4, the `SHMEM_MALLOC_*`
/// constants.
///
/// Hints do not restrict the use of the memory, and currently have no effect: every object has its own cache lines
/// anyway, so remote atomics never share a line with another object. Combine hints with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints(u64);

impl Hints {
    /// No hint.
    pub const NONE: Self = Self(0);
    /// `SHMEM_MALLOC_ATOMICS_REMOTE`: other PEs access the memory with atomics.
    pub const ATOMICS_REMOTE: Self = Self(1);
    /// `SHMEM_MALLOC_SIGNAL_REMOTE`: other PEs send signals to the memory.
    pub const SIGNAL_REMOTE: Self = Self(2);

    /// Returns the hints for a bit mask: 1 is `ATOMICS_REMOTE`, and 2 is `SIGNAL_REMOTE`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if a bit is not a hint.
    pub fn from_bits(bits: u64) -> Result<Self> {
        match bits & !3 {
            0 => Ok(Self(bits)),
            unknown => Err(Error::misuse(
                "alloc_with_hints",
                format!("{unknown:#x} is not a hint; the hints are ATOMICS_REMOTE (1) and SIGNAL_REMOTE (2)"),
            )),
        }
    }
}

impl std::ops::BitOr for Hints {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// # Symmetric memory
///
/// Allocation in the symmetric heap, and access to this PE's copies of objects.
impl Pe {
    /// Allocates a symmetric object of `len` zeroed elements on every PE. Collective.
    ///
    /// The object has the same offset in the heap of every PE, a multiple of 128 bytes. When the call returns, the
    /// copies on all PEs are zero. An object without elements takes up no memory. OpenSHMEM 1.6 section 9.4,
    /// `shmem_malloc` and `shmem_calloc`.
    ///
    /// With the setting `heap_max`, a full heap grows. Existing objects keep their addresses, and kernels launched from
    /// then on can use the new part.
    ///
    /// # Errors
    /// Every PE returns an error, and nothing stays allocated:
    /// - [`Error::HeapFull`] if the heap has no room.
    /// - [`Error::Misuse`] if the number of bytes overflows.
    /// - [`Error::Mismatch`] if a PE makes another call, or passes another length or element size.
    /// - [`Error::Elsewhere`] if another PE has no memory left for its heap to grow.
    /// - [`Error::Bootstrap`] if a PE never makes the call.
    /// - [`Error::Unavailable`] if a NIC of this PE fails: see [`Pe::host_sync`].
    ///
    /// # Examples
    /// ```no_run
    /// # fn app(pe: &rushmem::Pe) -> Result<(), rushmem::Error> {
    /// let cells = pe.alloc::<f32>(1 << 20)?;
    /// assert_eq!(pe.read(cells.slice(0..4))?, [0.0; 4]);
    /// pe.free(cells)
    /// # }
    /// ```
    #[track_caller]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<SymSlice<T>> {
        let _site = call_site::enter();
        self.new_object(("alloc", ""), len, *ALIGNMENTS.start(), &format!("{len} x {} bytes", size_of::<T>()))
    }

    /// Like [`Pe::alloc`], and gives the object a name for errors, sanitizer reports, `rushmem top` and timelines.
    /// Collective. Without a name, these identify objects by the line of their allocation.
    ///
    /// # Errors
    /// - The errors of [`Pe::alloc`].
    #[track_caller]
    pub fn alloc_named<T: Pod>(&self, name: &str, len: usize) -> Result<SymSlice<T>> {
        let _site = call_site::enter();
        let arguments = format!("`{name}`, {len} x {} bytes", size_of::<T>());
        self.new_object(("alloc_named", name), len, *ALIGNMENTS.start(), &arguments)
    }

    /// Allocates a symmetric object of one zeroed element on every PE. Collective.
    ///
    /// # Errors
    /// - The errors of [`Pe::alloc`].
    #[track_caller]
    pub fn alloc_one<T: Pod>(&self) -> Result<Sym<T>> {
        let _site = call_site::enter();
        Ok(self.alloc::<T>(1)?.at(0))
    }

    /// Like [`Pe::alloc`], at an address that is a multiple of `align` bytes on every PE. Collective.
    ///
    /// `align` is a power of two from 8 bytes to 2 MiB. OpenSHMEM 1.6 section 9.4, `shmem_align`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for any other `align`.
    /// - [`Error::Unavailable`] if the heap of a PE is not aligned to `align` bytes.
    /// - The errors of [`Pe::alloc`].
    #[track_caller]
    pub fn alloc_aligned<T: Pod>(&self, len: usize, align: u64) -> Result<SymSlice<T>> {
        let _site = call_site::enter();
        let arguments = format!("{len} x {} bytes at a multiple of {align}", size_of::<T>());
        self.new_object(("alloc_aligned", ""), len, align, &arguments)
    }

    /// Like [`Pe::alloc`], with hints about the use of the memory. Collective. OpenSHMEM 1.6 section 9.4,
    /// `shmem_malloc_with_hints`.
    ///
    /// # Errors
    /// - The errors of [`Pe::alloc`].
    #[track_caller]
    pub fn alloc_with_hints<T: Pod>(&self, len: usize, hints: Hints) -> Result<SymSlice<T>> {
        let _site = call_site::enter();
        let arguments = format!("{len} x {} bytes, {hints:?}", size_of::<T>());
        self.new_object(("alloc_with_hints", ""), len, *ALIGNMENTS.start(), &arguments)
    }

    /// Resizes an object to `len` elements on every PE, and returns its new handle. Collective.
    ///
    /// Elements keep their values, as far as the new length allows, and new elements are zero. The object may move to
    /// another multiple of 128 bytes. The old handle becomes invalid. OpenSHMEM 1.6 section 9.4, `shmem_realloc`.
    ///
    /// No PE and no kernel may use the object while any PE is in the call. A length of 0 frees the object. For an
    /// object without elements, the call is the same as [`Pe::alloc`].
    ///
    /// # Errors
    /// The object is unchanged:
    /// - [`Error::Misuse`] if `object` is not a whole object, or has been freed.
    /// - The errors of [`Pe::alloc`].
    #[track_caller]
    pub fn realloc<T: Pod>(&self, object: SymSlice<T>, len: usize) -> Result<SymSlice<T>> {
        let _site = call_site::enter();
        const CALL: &str = "realloc";
        let (from, old) = (object.offset(), object.handle());
        let n = self.agree(CALL, &format!("the object at {from:#x} to {len} x {} bytes", size_of::<T>()))?;
        if is_empty_object(old) {
            return self.allocate_object((CALL, ""), len, 1, n);
        }
        self.memory.whole(old).map_err(|why| misuse(CALL, object, why))?;
        self.watch.free(CALL, old);
        let name = self.memory.names().name_of(from);
        let bytes = bytes_of::<T>(CALL, len)?;
        if bytes == 0 {
            self.memory.free(old).map_err(|why| misuse(CALL, object, why))?;
            return Ok(empty_object(len));
        }
        let stamp = self.memory.stamp(n);
        let (kept, to) = (old.bytes.min(bytes), |offset| Handle { offset, bytes, stamp });
        // All allocators are in the same state, so all PEs take the same branch.
        if self.memory.resize(old, bytes, stamp) {
            self.begin_object(to(from), name, Location::caller());
            let cleared = self.clear(to(from), kept);
            if let Err(error) = self.conclude(CALL, cleared) {
                // Undo the resize. Nobody has allocated the bytes in between.
                self.memory.resize(to(from), old.bytes, old.stamp);
                return Err(error);
            }
            // SAFETY: the allocator has just given these bytes to this object, aligned as before.
            return Ok(unsafe { SymSlice::stamped(from, len, stamp) });
        }
        let made = self.allocate(CALL, bytes, 1, stamp);
        let site = Location::caller();
        made.iter().for_each(|&offset| self.begin_object(to(offset), name, site));
        let moved = made.as_ref().map_or(Ok(()), |&offset| {
            self.copy(old, to(offset), kept)?;
            self.clear(to(offset), kept)
        });
        let offset = self.conclude_allocation(CALL, made, moved, to)?;
        self.memory.free(old).map_err(|why| misuse(CALL, object, why))?;
        // SAFETY: the allocator has just given these bytes to this object, aligned for any `T`.
        Ok(unsafe { SymSlice::stamped(offset, len, stamp) })
    }

    /// Frees an object on every PE. Collective.
    ///
    /// The call returns after all PEs have made it. A PE must not use the object any more once it makes the call, and
    /// kernels that use it must have finished. Freeing an object without elements does nothing. OpenSHMEM 1.6 section
    /// 9.4, `shmem_free`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if `object` is not a whole object of this job, or has been freed.
    /// - [`Error::Mismatch`] if a PE makes another call, or frees another object.
    /// - [`Error::Bootstrap`] if a PE never makes the call.
    /// - [`Error::Unavailable`] if a NIC of this PE fails: see [`Pe::host_sync`].
    #[track_caller]
    pub fn free<T: Pod>(&self, object: SymSlice<T>) -> Result<()> {
        let _site = call_site::enter();
        self.agree("free", &format!("the object at {:#x}", object.offset()))?;
        if is_empty_object(object.handle()) {
            return Ok(());
        }
        self.watch.free("free", object.handle());
        self.memory.free(object.handle()).map_err(|why| misuse("free", object, why))
    }

    /// Returns the number of free bytes in the symmetric heap. Each object occupies a multiple of 128 bytes.
    pub fn heap_free(&self) -> u64 {
        self.memory.available()
    }

    /// Returns the size of the symmetric heap in bytes, free or not, including all growth so far.
    pub fn heap_size(&self) -> u64 {
        self.memory.total()
    }

    /// Writes `data` to this PE's copy of an object, or to its registered buffer. Kernels launched afterwards see it.
    ///
    /// `object` and `data` must have the same length. Use [`SymSlice::slice`] to write a part.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the lengths differ, or the object has been freed.
    /// - [`Error::Memory`] or [`Error::Cuda`] if the copy fails.
    #[track_caller]
    pub fn write<T: Pod>(&self, object: impl LocalBuffer<T> + std::fmt::Debug, data: &[T]) -> Result<()> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        if data.len() != object.elements() {
            let what = format!("{} elements for an object of {}", data.len(), object.elements());
            return Err(Error::misuse("write", what));
        }
        let place = self.memory.locate(object.handle()).map_err(|why| misuse("write", object, why))?;
        self.watch.write("write", object.handle());
        place.region.write(place.at, bytemuck::cast_slice(data))
    }

    /// Reads this PE's copy of an object, or its registered buffer. Use [`SymSlice::slice`] to read a part.
    ///
    /// Puts by other PEs are visible after their `quiet`, followed by a collective call such as [`Pe::host_sync`]. They
    /// are also visible after a kernel of this PE has seen their signal. Messages by other means, such as MPI,
    /// establish neither.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the object has been freed.
    /// - [`Error::Memory`] or [`Error::Cuda`] if the copy fails.
    #[track_caller]
    pub fn read<T: Pod>(&self, object: impl LocalBuffer<T> + std::fmt::Debug) -> Result<Vec<T>> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        let place = self.memory.locate(object.handle()).map_err(|why| misuse("read", object, why))?;
        self.watch.read("read", object.handle());
        let mut data = vec![T::zeroed(); object.elements()];
        place.region.read(place.at, bytemuck::cast_slice_mut(&mut data))?;
        Ok(data)
    }

    /// Reads this PE's copy of an object with one element.
    ///
    /// # Errors
    /// - The errors of [`Pe::read`].
    #[track_caller]
    pub fn read_one<T: Pod>(&self, object: Sym<T>) -> Result<T> {
        let _site = call_site::enter();
        Ok(self.read(object.as_slice())?[0])
    }

    /// Returns the device address of this PE's copy of an object, or of its registered buffer.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the object has been freed.
    #[track_caller]
    pub fn address<T: Pod>(&self, object: impl LocalBuffer<T> + std::fmt::Debug) -> Result<u64> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        let place = self.memory.locate(object.handle()).map_err(|why| misuse("address", object, why))?;
        Ok(place.region.addr.0 + place.at)
    }

    /// Returns the address at which kernels of this PE load and store the copy of `object` on `pe`. OpenSHMEM 1.6
    /// section 9.2, `shmem_ptr`.
    ///
    /// Returns `None` if `pe` is a NIC peer, or if the PE or the object does not exist. The PE's own copy always has an
    /// address. With native kernels, the addresses are valid in this process.
    ///
    /// The address cannot be passed to other calls in place of the object. Kernels use
    /// [`Ctx::ptr`](rushmem_device::Ctx::ptr).
    pub fn ptr<T: Pod>(&self, object: SymSlice<T>, pe: u32) -> Option<*mut T> {
        self.wait_for_dropped();
        let place = self.memory.locate(object.handle()).ok()?;
        let base = match self.memory.mapped(object.offset(), pe) {
            _ if pe == self.my_pe() => place.region.addr,
            Some(segment) => segment?,
            None => self.peer_map.mapped(pe)?,
        };
        Some(base.add(place.at).ptr())
    }

    /// Returns the element of `object` that starts at `address` on this PE, or `None` if there is none.
    ///
    /// This is the inverse of [`Pe::address`]. The element refers to the same location on every PE.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the object has been freed.
    #[track_caller]
    pub fn element_at<T: Pod>(&self, object: SymSlice<T>, address: u64) -> Result<Option<Sym<T>>> {
        let _site = call_site::enter();
        let size = const { if size_of::<T>() == 0 { 1 } else { size_of::<T>() as u64 } };
        let Some(at) = address.checked_sub(self.address(object)?) else { return Ok(None) };
        let inside = at < object.bytes() && at.is_multiple_of(size);
        Ok(inside.then(|| object.at((at / size) as usize)))
    }

    /// Allocates an object of `len` zeroed elements, in the collective call with these `arguments`. A process that replaces a
    /// lost PE first takes over the objects of the others.
    #[track_caller]
    fn new_object<T: Pod>(
        &self,
        (call, name): (&'static str, &str),
        len: usize,
        align: u64,
        arguments: &str,
    ) -> Result<SymSlice<T>> {
        let bytes = bytes_of::<T>(call, len)?;
        match self.memory.next_inherited(|next| next.bytes == bytes) {
            None if bytes == 0 && self.membership.has_joined() => Ok(empty_object(len)),
            None => {
                let n = self.agree(call, arguments)?;
                check_requested(call, align)?;
                self.allocate_object((call, name), len, align, n)
            }
            Some(_) if bytes == 0 => Ok(empty_object(len)),
            Some(next) if next.bytes == bytes => {
                self.begin_object(next, name, Location::caller());
                self.check_alignment(next, align)?;
                // SAFETY: the allocator has given these bytes to this object, aligned for any `T`.
                Ok(unsafe { SymSlice::stamped(next.offset, len, next.stamp) })
            }
            Some(next) => {
                let what = format!(
                    "{bytes} bytes, where the other PEs have allocated {}; a process that replaces a lost PE allocates the same \
                     objects first",
                    next.bytes
                );
                Err(Error::misuse(call, what))
            }
        }
    }

    /// Allocates an object of `len` zeroed elements. `n` is the sequence number of the collective call.
    #[track_caller]
    fn allocate_object<T: Pod>(
        &self,
        (call, name): (&'static str, &str),
        len: usize,
        align: u64,
        n: u64,
    ) -> Result<SymSlice<T>> {
        const { assert!(align_of::<T>() <= 128, "objects of the symmetric heap are aligned to 128 bytes") };
        let bytes = bytes_of::<T>(call, len)?;
        if bytes == 0 {
            return Ok(empty_object(len));
        }
        let stamp = self.memory.stamp(n);
        let object = |offset| Handle { offset, bytes, stamp };
        let made = self.allocate(call, bytes, align, stamp);
        let site = Location::caller();
        made.iter().for_each(|&offset| self.begin_object(object(offset), name, site));
        let ready = made.as_ref().map_or(Ok(()), |&offset| {
            self.clear(object(offset), 0)?;
            self.check_alignment(object(offset), align)
        });
        let offset = self.conclude_allocation(call, made, ready, object)?;
        // SAFETY: the allocator has just given these bytes to this object, aligned for any `T`.
        Ok(unsafe { SymSlice::stamped(offset, len, stamp) })
    }

    /// Records the name and source line of a new object or buffer, for the sanitizer and for messages. `name` may be
    /// empty.
    pub(super) fn begin_object(&self, object: Handle, name: &str, site: &'static Location<'static>) {
        self.memory.names().add(object, name, site);
        self.watch.alloc(object, name, site);
    }

    /// Allocates `bytes` bytes in the heap, and returns their offset. Grows the heap if needed and allowed.
    fn allocate(&self, call: &'static str, bytes: u64, align: u64, stamp: u64) -> Result<u64> {
        // The allocators of all PEs are in the same state, so all PEs find the heap full and take part in `grow`.
        match self.memory.alloc(bytes, align, stamp) {
            Err(Error::HeapFull { wanted, free, largest, total, .. }) => {
                let Some(growth) = self.memory.growth_for(bytes) else {
                    let max = self.config.heap_max.0.map(|max| max.0);
                    return Err(Error::HeapFull {
                        wanted,
                        free,
                        largest,
                        total,
                        max,
                        site: CallSite::current(),
                    });
                };
                self.extend_heap(call, growth)?;
                self.memory.alloc(bytes, align, stamp)
            }
            other => other,
        }
    }

    /// Extends the heap of every PE by `bytes` bytes, in a new segment. Collective.
    fn extend_heap(&self, call: &'static str, bytes: u64) -> Result<()> {
        self.needs_all_pes()?;
        let whole = bytes.next_multiple_of(SEGMENT_ALIGN);
        let made = self.memory.check_room().and_then(|()| {
            let region = rushmem_memory::p2p::heap(&self.config, &*self.machine, whole, self.n_pes())?;
            let keys = self.service.register(&region)?;
            Ok(Segment::new(region, keys, None))
        });
        let segment = self.share(call, made)?;
        let grown = self.memory.grow(segment, bytes);
        self.watch.set_addresses(|| self.memory.addresses());
        self.trace.add_ranges(|| self.memory.wire_ranges());
        self.conclude(call, grown)?;
        tracing::info!(pe = self.my_pe(), bytes, total = self.heap_size(), "the symmetric heap has grown");
        Ok(())
    }

    /// Concludes the allocation of an object: either all PEs have it, or none does.
    ///
    /// `made` is the offset of the memory, and `ready` the result of preparing it.
    fn conclude_allocation(
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

    /// Returns the memory region that contains a new object, and the object's offset in it.
    fn locate_new(&self, object: Handle) -> Result<(rushmem_machine::Region, u64)> {
        let place = self.memory.locate(object);
        let place = place.map_err(|why: Rejection| misuse("alloc", "the new object", why))?;
        Ok((place.region, place.at))
    }

    /// Checks that the address of a new object is a multiple of `align`.
    fn check_alignment(&self, object: Handle, align: u64) -> Result<()> {
        let (region, at) = self.locate_new(object)?;
        let address = region.addr.0 + at;
        if address.is_multiple_of(align) {
            return Ok(());
        }
        let what = format!("memory aligned to {align} bytes");
        Err(Error::Unavailable { what, why: format!("the heap of this PE has it at {address:#x}") })
    }

    /// Zeroes an object, except its first `from` bytes.
    fn clear(&self, object: Handle, from: u64) -> Result<()> {
        let (region, base) = self.locate_new(object)?;
        let zeros = vec![0; STEP.min(object.bytes - from) as usize];
        let mut at = from;
        while at < object.bytes {
            let len = STEP.min(object.bytes - at);
            region.memory.write(base + at, &zeros[..len as usize])?;
            at += len;
        }
        Ok(region.memory.flush()?)
    }

    /// Copies the first `len` bytes of one object to another.
    fn copy(&self, from: Handle, to: Handle, len: u64) -> Result<()> {
        let ((source, a), (target, b)) = (self.locate_new(from)?, self.locate_new(to)?);
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

/// Checks the alignment that the caller of `call` has requested.
fn check_requested(call: &'static str, align: u64) -> Result<()> {
    if align.is_power_of_two() && ALIGNMENTS.contains(&align) {
        return Ok(());
    }
    let (from, to) = ALIGNMENTS.into_inner();
    let what = format!("the alignment {align} is not a power of two from {from} to {to} bytes");
    Err(Error::misuse(call, what))
}

/// Returns an object of `len` elements without bytes. It takes up no memory in the heap.
fn empty_object<T: Pod>(len: usize) -> SymSlice<T> {
    // SAFETY: nothing is read or written through it.
    unsafe { SymSlice::from_raw(0, len) }
}

fn is_empty_object(object: Handle) -> bool {
    object == Handle { offset: 0, bytes: 0, stamp: 0 }
}

/// Returns the size of `len` elements of type `T` in bytes. Fails on overflow.
fn bytes_of<T>(call: &'static str, len: usize) -> Result<u64> {
    (len as u64)
        .checked_mul(size_of::<T>() as u64)
        .ok_or_else(|| Error::misuse(call, format!("the size of {len} x {} bytes overflows", size_of::<T>())))
}
