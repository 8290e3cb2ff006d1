//! The memory of a PE that kernels refer to by offset: the symmetric heap, the segments added to it, and registered
//! buffers.
//!
//! ```text
//! 0            heap_bytes        next                        2^63
//! | first heap |  gap  | segment | gap | segment | ...       | local buffers ...
//! ```
//!
//! The first heap is described by its length alone. Every other range is a [`Segment`]. Each launch gets an immutable
//! segment table with its context; kernels that others launch share the resident table. Offsets of segments are never
//! reused, so an offset in a removed segment stays invalid.

mod allocator;
mod resident;
mod segment;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rushmem_base::lock;
use rushmem_device::abi::{CtxParts, DevAddr, LOCAL_OFFSETS};
use rushmem_device::{Handle, InvalidRange};
use rushmem_error::{Error, ObjectNames, Result};
use rushmem_fabric::queues::RemoteEnd;
use rushmem_machine::{HEAP_ALIGN, Machine, Region};
use rushmem_observe::sanitize::Addresses;
use rushmem_observe::trace::WireRange;

use crate::p2p::PeerMapping;

use self::allocator::{ALIGN, Allocator, HandleError};
use self::resident::ResidentTable;
pub use self::segment::{Segment, SegmentMap};

/// Alignment of a segment's offset and of its memory, in bytes. It is also the maximum alignment of an object.
pub const SEGMENT_ALIGN: u64 = HEAP_ALIGN;

/// Range of alignments that a caller may request for an object, in bytes.
pub const ALIGNMENTS: std::ops::RangeInclusive<u64> = 8..=SEGMENT_ALIGN;

/// The memory of an object or of a registered buffer. Keeps a user buffer registered.
pub struct Located {
    pub region: Region,
    /// Offset of the object in the region.
    pub at: u64,
    segment: Option<Arc<Segment>>,
}

impl Located {
    fn in_segment(segment: &Arc<Segment>, handle: Handle) -> Self {
        let (region, at) = (segment.region().clone(), handle.offset - segment.begin);
        Self { region, at, segment: Some(Arc::clone(segment)) }
    }

    /// Returns a guard that keeps a user buffer registered.
    pub fn guard(self) -> Option<Arc<Segment>> {
        self.segment
    }
}

/// All memory of a PE to which kernels refer by offset. Must be dropped before the protection domains of its keys.
pub struct Memory {
    heap: Region,
    /// Number of bytes at the start of the heap that the runtime uses for itself.
    reserved: u64,
    /// The kernel context, without segments.
    parts: CtxParts,
    /// Random ID of the job, in the upper half of each stamp of symmetric memory.
    job: u32,
    /// Maximum size of the heap in bytes. 0 if it must not grow.
    max: u64,
    machine: Arc<dyn Machine>,
    names: ObjectNames,
    state: Mutex<State>,
}

struct State {
    allocator: Allocator,
    table: Arc<SegmentMap>,
    /// The segment table of kernels that the runtime does not launch. `None` until [`Memory::resident`] creates it.
    resident: Option<ResidentTable>,
    /// First offset that no symmetric segment has used. `next_local` is its counterpart for local buffers.
    next: u64,
    next_local: u64,
    /// Size of the heap in bytes, including growth.
    given: u64,
    /// The objects of the other PEs that this one, which replaces a lost PE, has yet to allocate.
    inherited: VecDeque<Handle>,
}

/// Why a handle is rejected, as a predicate that follows the handle in a message.
pub type Rejection = &'static str;

pub const GONE: Rejection = "is not an object, or has been freed";
const UNREGISTERED: Rejection = "is not registered with this PE, or no longer registered";
const IN_USE: Rejection = "may be in use by a kernel or a copy: wait for the end of all launches first";
const ANOTHER_JOB: Rejection = "belongs to another job";
const REGISTERED: Rejection = "is a registered buffer: return it with `unregister_symmetric`";
const OUTSIDE: Rejection = "is not inside its object";
const PART: Rejection = "is only a part of an object";

impl Memory {
    /// Creates the memory of a PE. Objects are allocated in `heap` starting at offset `reserved`. `parts` is the kernel
    /// context without segments.
    ///
    /// # Errors
    /// An error if there is no memory for the segment table.
    pub fn new(
        heap: Region,
        reserved: u64,
        parts: CtxParts,
        job: u32,
        max: Option<u64>,
        machine: Arc<dyn Machine>,
        names: ObjectNames,
    ) -> Result<Self> {
        let state = State {
            allocator: Allocator::new(reserved, parts.heap_bytes),
            table: Arc::new(SegmentMap::new(&*machine, parts, Vec::new())?),
            resident: None,
            // One past the heap, as between segments: see `insert`.
            next: parts.heap_bytes + 1,
            next_local: LOCAL_OFFSETS,
            given: parts.heap_bytes - reserved,
            inherited: VecDeque::new(),
        };
        Ok(Self {
            heap,
            reserved,
            parts,
            job,
            max: max.unwrap_or(0),
            machine,
            names,
            state: Mutex::new(state),
        })
    }

    pub fn names(&self) -> &ObjectNames {
        &self.names
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the kernel context for a new launch, and the segment table that must live as long as the launch.
    pub fn current(&self) -> (CtxParts, Arc<SegmentMap>) {
        let table = Arc::clone(&self.state().table);
        (table.ctx(), table)
    }

    /// Returns the address of the resident segment table, and whether this call has created it.
    ///
    /// The table contains all segments, now and in the future, and exists as long as this value.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if there are more segments than the table can hold.
    /// - Another error if there is no memory for the table.
    pub fn resident(&self) -> Result<(DevAddr, bool)> {
        let mut state = self.state();
        if let Some(resident) = &state.resident {
            return Ok((resident.addr(), false));
        }
        let mut resident = ResidentTable::new(&*self.machine, self.parts)?;
        resident.update(state.table.segments())?;
        Ok((state.resident.insert(resident).addr(), true))
    }

    /// Checks that another segment can be added. PEs call this before they agree on a segment, because only some of
    /// them may have a resident table.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if the resident table is full.
    pub fn check_room(&self) -> Result<()> {
        self.state().resident.as_ref().map_or(Ok(()), ResidentTable::check_room)
    }

    /// Returns the addresses that kernels can currently access, for the sanitizer.
    pub fn addresses(&self) -> Addresses {
        self.state().table.addresses(self.reserved)
    }

    /// Returns the wire addresses of all symmetric memory except the first heap. The timeline uses them to identify
    /// memory.
    pub fn wire_ranges(&self) -> Vec<WireRange> {
        let state = self.state();
        state.table.segments().iter().flat_map(|segment| segment.wire_ranges()).collect()
    }

    /// Returns the stamp for the object created by the `n`-th collective call. Equal on all PEs.
    pub fn stamp(&self, n: u64) -> u64 {
        u64::from(self.job) << 32 | u64::from(n as u32)
    }

    /// Returns the number of free bytes in the heap.
    pub fn available(&self) -> u64 {
        self.state().allocator.available()
    }

    /// Returns the number of bytes in the heap that objects can use, free and in use.
    pub fn total(&self) -> u64 {
        self.state().allocator.total()
    }

    /// Allocates an object in the heap. Returns its offset.
    ///
    /// # Errors
    /// [`Error::HeapFull`] if no free range is large enough.
    pub fn alloc(&self, bytes: u64, align: u64, stamp: u64) -> Result<u64> {
        self.state().allocator.alloc(bytes, align, stamp)
    }

    /// Returns the number of bytes at the start of the heap that the runtime uses for itself.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Returns the objects of the heap, in the order of their allocation. `None` if there is other symmetric memory, which another
    /// process cannot [inherit](Self::inherit): windows, or parts by which the heap has grown.
    pub fn objects(&self) -> Option<Vec<Handle>> {
        let state = self.state();
        let is_symmetric = |segment: &Arc<Segment>| segment.keep_mapped().is_some();
        (!state.table.segments().iter().any(is_symmetric)).then(|| state.allocator.objects())
    }

    /// Takes over the objects of the other PEs, for [`Memory::next_inherited`]. They replace those of an earlier call. This PE has no
    /// others yet.
    ///
    /// # Errors
    /// The first object that does not fit the heap.
    pub fn inherit(&self, objects: &[Handle]) -> Result<(), Handle> {
        let mut state = self.state();
        for earlier in std::mem::take(&mut state.inherited) {
            state.allocator.free(earlier).map_err(|_| earlier)?;
        }
        state.inherited = objects.iter().copied().collect();
        objects
            .iter()
            .try_for_each(|&object| if state.allocator.place(object) { Ok(()) } else { Err(object) })
    }

    /// Returns the next object that the other PEs have allocated before this one joined. `choose` returns whether to take it.
    pub fn next_inherited(&self, choose: impl FnOnce(Handle) -> bool) -> Option<Handle> {
        let mut state = self.state();
        let next = *state.inherited.front()?;
        if choose(next) {
            state.inherited.pop_front();
        }
        Some(next)
    }

    pub fn free(&self, object: Handle) -> Result<(), Rejection> {
        self.known(object)?;
        let freed = self.state().allocator.free(object);
        freed.map_err(|wrong| self.refused(object, wrong))
    }

    /// Checks that `object` is a whole object of the heap, not a part of one.
    pub fn whole(&self, object: Handle) -> Result<(), Rejection> {
        self.known(object)?;
        let found = self.state().allocator.whole(object);
        found.map_err(|wrong| self.refused(object, wrong))
    }

    /// Resizes an object in place. Returns false if there is no room after it.
    pub fn resize(&self, object: Handle, bytes: u64, stamp: u64) -> bool {
        self.state().allocator.resize(object.offset, bytes, stamp)
    }

    /// Returns the reason why a handle is not a whole object of the heap, for messages.
    fn refused(&self, object: Handle, wrong: HandleError) -> Rejection {
        match wrong {
            HandleError::Part => PART,
            HandleError::Gone if object.offset > self.parts.heap_bytes && self.locate(object).is_ok() => {
                REGISTERED
            }
            HandleError::Gone => GONE,
        }
    }

    /// Checks that `handle` belongs to this job. Handles without a stamp, and local buffers, carry no job ID.
    fn known(&self, handle: Handle) -> Result<(), Rejection> {
        let ours =
            handle.stamp == 0 || handle.offset >= LOCAL_OFFSETS || handle.stamp >> 32 == u64::from(self.job);
        if ours { Ok(()) } else { Err(ANOTHER_JOB) }
    }

    /// Checks that the object or buffer of `handle` still exists.
    ///
    /// A part outside its object passes, since the call that uses it rejects it. So does a handle from `from_raw`:
    /// whoever created it vouches for it.
    pub fn check(&self, handle: Handle) -> Result<(), Rejection> {
        if handle.stamp == 0 || InvalidRange::of_offset(handle.offset).is_some() {
            return Ok(());
        }
        self.locate(handle).map(|_| ())
    }

    /// Returns the memory that `handle` refers to. A user buffer stays registered while the result exists.
    pub fn locate(&self, handle: Handle) -> Result<Located, Rejection> {
        self.known(handle)?;
        if InvalidRange::of_offset(handle.offset).is_some() {
            return Err(OUTSIDE);
        }
        let state = self.state();
        let segments = state.table.segments();
        if let Some(segment) = segments.iter().find(|segment| segment.holds(handle)) {
            return Ok(Located::in_segment(segment, handle));
        }
        if handle.offset >= LOCAL_OFFSETS {
            return Err(UNREGISTERED);
        }
        // Not a user buffer, so it must be inside an object. Growth segments only tell where the object's memory is.
        if handle.bytes > 0 && !state.allocator.holds(handle) {
            return Err(GONE);
        }
        let inside = |segment: &&Arc<Segment>| {
            handle.offset.checked_sub(segment.begin).is_some_and(|at| at <= segment.bytes)
        };
        match segments.iter().find(inside) {
            Some(segment) => Ok(Located::in_segment(segment, handle)),
            None => Ok(Located { region: self.heap.clone(), at: handle.offset, segment: None }),
        }
    }

    /// Returns the number of bytes by which the heap must grow to hold an object of `bytes` bytes. The heap doubles,
    /// within its limit. Returns `None` if the limit does not allow it. Equal on all PEs.
    pub fn growth_for(&self, bytes: u64) -> Option<u64> {
        growth(self.state().given, self.max, bytes)
    }

    /// Adds the first `bytes` of `segment`, which must be symmetric, to the heap.
    ///
    /// # Errors
    /// An error if there is no memory for the segment table, or the resident one is full.
    pub fn grow(&self, segment: Segment, bytes: u64) -> Result<()> {
        let mut state = self.state();
        let begin = state.next.next_multiple_of(SEGMENT_ALIGN);
        self.insert(&mut state, segment.at(begin, bytes, 0))?;
        state.allocator.add(begin, begin + bytes);
        state.given += bytes;
        Ok(())
    }

    /// Adds a window: a user buffer that becomes symmetric memory. Returns its offset.
    ///
    /// # Errors
    /// The errors of [`Memory::grow`].
    pub fn add_window(&self, segment: Segment, bytes: u64, stamp: u64) -> Result<u64> {
        let mut state = self.state();
        let begin = state.next.next_multiple_of(SEGMENT_ALIGN);
        self.insert(&mut state, segment.at(begin, bytes, stamp))?;
        Ok(begin)
    }

    /// Adds a local buffer: user memory for this PE's side of transfers. Returns its offset and stamp.
    ///
    /// # Errors
    /// The errors of [`Memory::grow`].
    pub fn add_local(&self, segment: Segment, bytes: u64) -> Result<(u64, u64)> {
        /// The stamp of the last local buffer of this process. Stamps are unique, so a handle never matches a buffer of
        /// another PE.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let stamp = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let mut state = self.state();
        let begin = state.next_local;
        self.insert(&mut state, segment.at(begin, bytes, stamp))?;
        Ok((begin, stamp))
    }

    fn insert(&self, state: &mut State, segment: Segment) -> Result<()> {
        // With a gap of at least one byte, the end of a segment is not also the start of the next.
        let after = (segment.begin + segment.bytes + 1).next_multiple_of(SEGMENT_ALIGN);
        let next = if segment.begin >= LOCAL_OFFSETS { &mut state.next_local } else { &mut state.next };
        *next = after;
        self.enter(state, segment)
    }

    fn enter(&self, state: &mut State, segment: Segment) -> Result<()> {
        let mut segments = state.table.segments().to_vec();
        segments.push(Arc::new(segment));
        self.replace(state, segments)
    }

    /// Replaces the segment table of launches, and updates the resident one.
    fn replace(&self, state: &mut State, segments: Vec<Arc<Segment>>) -> Result<()> {
        let table = Arc::new(SegmentMap::new(&*self.machine, self.parts, segments)?);
        if let Some(resident) = &mut state.resident {
            resident.update(table.segments())?;
        }
        state.table = table;
        Ok(())
    }

    /// Removes a user buffer from the segment table. Kernels launched later cannot access it.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the handle is not a whole registered buffer, or if a launch may be using it.
    /// - Another error if there is no memory for the new segment table.
    pub fn remove(&self, call: &'static str, buffer: Handle) -> Result<Segment> {
        let mut state = self.state();
        let place = self.find_removable(&state, call, buffer)?;
        let mut stay = state.table.segments().to_vec();
        let gone = stay.remove(place);
        self.replace(&mut state, stay)?;
        // Cannot fail: `find_removable` has found no other owner, and launches need the lock to become one.
        Arc::into_inner(gone).ok_or_else(|| misuse(call, buffer, IN_USE))
    }

    /// Checks, as [`Memory::remove`] does, that `buffer` is registered and that no launch may be using it.
    ///
    /// # Errors
    /// [`Error::Misuse`], for the same reasons as [`Memory::remove`].
    pub fn check_removable(&self, call: &'static str, buffer: Handle) -> Result<()> {
        self.find_removable(&self.state(), call, buffer).map(drop)
    }

    /// Returns the index of a user buffer in the segment table, if no launch uses it.
    fn find_removable(&self, state: &State, call: &'static str, buffer: Handle) -> Result<usize> {
        let wrong = |why| misuse(call, buffer, why);
        self.known(buffer).map_err(wrong)?;
        let all = state.table.segments();
        let place =
            all.iter().position(|segment| segment.holds(buffer)).ok_or_else(|| wrong(UNREGISTERED))?;
        if all[place].bytes != buffer.bytes {
            return Err(wrong(PART));
        }
        // A launch keeps its table, and each table its segments. So with one owner each, no launch has this table or an
        // older one.
        if Arc::strong_count(&state.table) > 1 || Arc::strong_count(&all[place]) > 1 {
            return Err(wrong(IN_USE));
        }
        Ok(place)
    }

    /// Undoes [`Memory::remove`]. The segment keeps its offsets.
    ///
    /// # Errors
    /// An error if there is no memory for the segment table.
    pub fn restore(&self, segment: Segment) -> Result<()> {
        let mut state = self.state();
        self.enter(&mut state, segment)
    }

    /// Returns the wire addresses and rkeys of `pe`'s symmetric segments, for access through rail `rail`.
    pub fn ends(&self, pe: u32, rail: usize) -> Vec<RemoteEnd> {
        self.state().table.segments().iter().filter_map(|segment| segment.end(pe, rail)).collect()
    }

    /// Returns the handles of all local buffers.
    pub fn locals(&self) -> Vec<Handle> {
        let state = self.state();
        let local = state.table.segments().iter().filter(|segment| segment.begin >= LOCAL_OFFSETS);
        local.map(|s| Handle { offset: s.begin, bytes: s.bytes, stamp: s.stamp }).collect()
    }

    /// Returns whether the heap or a registered user buffer overlaps the `bytes` bytes at `address`.
    pub fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let heap = self.heap.memory.host_ptr().map_or(self.heap.addr.0, |start| start.as_ptr() as u64);
        let in_heap = heap < address.saturating_add(bytes) && address < heap + self.heap.memory.len();
        in_heap || self.state().table.segments().iter().any(|segment| segment.overlaps(address, bytes))
    }

    /// Returns the device address at which `pe`'s part of the segment at `offset` is mapped into this PE. The inner
    /// `None` means that it is not mapped, the outer one that `offset` is in the first heap.
    pub fn mapped(&self, offset: u64, pe: u32) -> Option<Option<DevAddr>> {
        self.segment_at(offset).map(|segment| segment.mapped(pe))
    }

    /// Returns a guard that keeps the segment at `offset` mapped from other PEs. Otherwise like
    /// [`mapped`](Self::mapped).
    pub fn keep_mapped(&self, offset: u64) -> Option<Option<Arc<PeerMapping>>> {
        self.segment_at(offset).map(|segment| segment.keep_mapped())
    }

    fn segment_at(&self, offset: u64) -> Option<Arc<Segment>> {
        let state = self.state();
        let inside =
            |segment: &&Arc<Segment>| offset.checked_sub(segment.begin).is_some_and(|at| at < segment.bytes);
        state.table.segments().iter().find(inside).cloned()
    }
}

/// Returns the number of bytes by which a heap of `given` bytes, limited to `max`, must grow for an object of `bytes`
/// bytes.
///
/// Segments start at a multiple of every alignment that an object may have, so the object needs no padding.
fn growth(given: u64, max: u64, bytes: u64) -> Option<u64> {
    let needed = bytes.max(1).checked_next_multiple_of(ALIGN)?;
    let allowed = max.checked_sub(given)? / ALIGN * ALIGN;
    // Whole segment units, unless only the limit allows less.
    let piece = needed.max(given).checked_next_multiple_of(SEGMENT_ALIGN)?.min(allowed);
    (piece >= needed).then_some(piece)
}

pub fn misuse(call: &'static str, handle: impl std::fmt::Debug, why: Rejection) -> Error {
    Error::misuse(call, format!("{handle:?} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn heap_grows_for_an_object_that_just_fits_the_limit() {
        assert_eq!(growth(MIB, 2 * MIB, MIB), Some(MIB));
        assert_eq!(growth(MIB, 2 * MIB, MIB + 1), None);
        assert_eq!(growth(MIB, MIB, 1), None);
        assert_eq!(growth(2 * MIB, MIB, 1), None);
    }

    #[test]
    fn a_heap_doubles_in_whole_segments() {
        assert_eq!(growth(32 << 10, 24 * MIB, MIB), Some(SEGMENT_ALIGN));
        assert_eq!(growth(8 * MIB, 64 * MIB, MIB), Some(8 * MIB));
        assert_eq!(growth(8 * MIB, u64::MAX, u64::MAX), None);
    }
}
