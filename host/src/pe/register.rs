//! Memory of the user's, registered: for all PEs as symmetric memory, or with this PE as the near end of its transfers.
#![allow(
    unsafe_code,
    reason = "makes handles of registered memory, and adopts user memory at its own address"
)]

use std::marker::PhantomData;

use rushmem_device::abi::SegmentEnd;
use rushmem_device::{Handle, Local, LocalBuffer, SymSlice};

use super::Pe;
use crate::buffer::{Buffer, MemoryLocation};
use crate::memory::{GONE, Segment, misuse};
use crate::{Error, Result};

/// What windows are aligned to: kernels may look at their bytes as elements of another type.
const WINDOW_ALIGN: u64 = 16;

/// A buffer that is registered with one PE. [`Pe::unregister`] gives it back; dropping this leaves it with the runtime
/// until the PE ends.
#[must_use = "`Pe::unregister` gives the buffer back"]
pub struct RegisteredBuffer<B: Buffer> {
    handle: Local<B::Element>,
    _buffer: PhantomData<fn() -> B>,
}

impl<B: Buffer> RegisteredBuffer<B> {
    /// The buffer, for kernels and for [`Pe::read`] and [`Pe::write`].
    pub fn handle(&self) -> Local<B::Element> {
        self.handle
    }
}

/// A buffer on each PE that is symmetric memory: a window, in which a place is told by its index on whatever PE.
/// [`Pe::unregister_symmetric`] gives the buffer back; dropping this leaves it with the runtime until the PE ends.
#[must_use = "`Pe::unregister_symmetric` gives the buffer back"]
pub struct Window<B: Buffer> {
    handle: SymSlice<B::Element>,
    _buffer: PhantomData<fn() -> B>,
}

impl<B: Buffer> Window<B> {
    /// The window, for kernels and for all calls that take symmetric memory.
    pub fn handle(&self) -> SymSlice<B::Element> {
        self.handle
    }
}

/// A registration that could not be ended: it goes on, and is handed back. Converts to its [`Error`], as `?` does.
pub struct UnregisterError<R> {
    /// Why.
    pub error: Box<Error>,
    /// The registration.
    pub registration: Box<R>,
}

impl<R> UnregisterError<R> {
    fn new(error: Error, registration: R) -> Self {
        Self { error: Box::new(error), registration: Box::new(registration) }
    }
}

impl<R> std::fmt::Debug for UnregisterError<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl<R> From<UnregisterError<R>> for Error {
    fn from(kept: UnregisterError<R>) -> Self {
        *kept.error
    }
}

impl Pe {
    /// Registers a buffer with this PE's NICs and kernels: its handle may be the near end of puts, gets and puts with
    /// signals, as symmetric memory may. Nothing is copied. Not collective. NVSHMEM's `nvshmemx_buffer_register`.
    ///
    /// With kernels on a GPU it waits until none of this process's PEs runs one.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is empty or overlaps the heap or another registered buffer; [`Error::Unavailable`] if kernels
    /// cannot reach it; what CUDA or a NIC refuses. The buffer is dropped then.
    pub fn register<B: Buffer>(&self, buffer: B) -> Result<RegisteredBuffer<B>> {
        let len = buffer.len();
        let bytes = len as u64 * size_of::<B::Element>() as u64;
        let segment = self.adopt("register", buffer, 1)?;
        let (offset, stamp) = self.memory.add_local(segment, bytes)?;
        // SAFETY: the buffer's own elements, registered with this PE.
        let handle = unsafe { Local::from_raw(offset, len, stamp) };
        Ok(RegisteredBuffer { handle, _buffer: PhantomData })
    }

    /// Ends a registration, and gives the buffer back. Not collective. `nvshmemx_buffer_unregister`.
    ///
    /// Handles of it are refused from now on. Ending a registration twice does not compile, but for one that
    /// [`Pe::unregister_all`] has ended.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it has ended, or while a launch goes on, which might use the buffer.
    pub fn unregister<B: Buffer>(
        &self,
        registered: RegisteredBuffer<B>,
    ) -> Result<B, UnregisterError<RegisteredBuffer<B>>> {
        let closed = self.memory.remove("unregister", registered.handle.handle());
        closed.and_then(buffer_of::<B>).map_err(|error| UnregisterError::new(error, registered))
    }

    /// Ends the registrations of all buffers with this PE only, and drops the buffers; how many there were.
    /// `nvshmemx_buffer_unregister_all`.
    ///
    /// # Errors
    /// [`Error::Misuse`] while a launch goes on.
    pub fn unregister_all(&self) -> Result<usize> {
        const CALL: &str = "unregister_all";
        let all = self.memory.locals();
        for &buffer in &all {
            drop(self.memory.remove(CALL, buffer)?);
        }
        Ok(all.len())
    }

    /// Makes a buffer of each PE symmetric memory, of the same length everywhere and at whatever address. Nothing is
    /// copied: what peers put there is in the buffer. Collective. NVSHMEM's `nvshmemx_buffer_register_symmetric`, NCCL's
    /// `ncclCommWindowRegister`.
    ///
    /// A place in it is told by its index (`handle().at(i)`), on any PE; [`Pe::address`] and [`Pe::element_at`] convert to
    /// addresses of this PE and back. It begins at a multiple of 16 bytes. Signals may lie in a window of `u64`s. Launches know it that begin afterwards.
    ///
    /// # Errors
    /// On all PEs or none: [`Error::Mismatch`] if lengths differ; as [`Pe::register`], and [`Error::Elsewhere`] on the PEs
    /// that had no part in it; [`Error::Unavailable`] in a job of P2P peers (`peer_path=p2p`) for memory that others
    /// cannot map, which otherwise goes through the NIC; [`Error::Bootstrap`].
    pub fn register_symmetric<B: Buffer>(&self, buffer: B) -> Result<Window<B>> {
        const CALL: &str = "register_symmetric";
        let (len, size) = (buffer.len(), size_of::<B::Element>());
        let bytes = len as u64 * size as u64;
        let n = self.agree(CALL, &format!("{len} x {size} bytes"))?;
        let made = self.adopt(CALL, buffer, WINDOW_ALIGN);
        let segment = self.share(CALL, made)?;
        let stamp = self.memory.stamp(n);
        let opened = self.memory.add_window(segment, bytes, stamp);
        let here = opened.as_ref().ok().copied();
        let outcome = self.conclude(CALL, opened);
        if let (Err(_), Some(offset)) = (&outcome, here) {
            drop(self.memory.remove(CALL, Handle { offset, bytes, stamp })?);
        }
        // SAFETY: the buffers' own elements, which all PEs have at this offset.
        let handle = unsafe { SymSlice::stamped(outcome?, len, stamp) };
        Ok(Window { handle, _buffer: PhantomData })
    }

    /// Ends a window on every PE, and gives each its buffer back. Collective: no buffer goes before all have called it.
    ///
    /// # Errors
    /// On all PEs or none: [`Error::Misuse`] while a launch of this PE goes on, [`Error::Elsewhere`] while one of another PE
    /// does; [`Error::Mismatch`] if PEs name different windows.
    pub fn unregister_symmetric<B: Buffer>(
        &self,
        window: Window<B>,
    ) -> Result<B, UnregisterError<Window<B>>> {
        const CALL: &str = "unregister_symmetric";
        let buffer = window.handle.handle();
        let closed = self.agree(CALL, &format!("the window at {:#x}", buffer.offset)).and_then(|_| {
            // All know first that nobody uses it: closing allocates, which waits for the kernels of others on the same GPU.
            self.conclude(CALL, self.memory.check_removable(CALL, buffer))?;
            let (ready, segment) = match self.memory.remove(CALL, buffer) {
                Ok(segment) => (Ok(()), Some(segment)),
                Err(error) => (Err(error), None),
            };
            let concluded = self.conclude(CALL, ready);
            match (concluded, segment) {
                (Ok(()), Some(segment)) => Ok(segment),
                (outcome, segment) => {
                    segment.map_or(Ok(()), |segment| self.memory.restore(segment))?;
                    outcome.and(Err(misuse(CALL, window.handle, GONE)))
                }
            }
        });
        // Nobody knows the window any more, and nobody has it mapped once all have come here.
        let closed = closed.and_then(buffer_of::<B>).and_then(|buffer| {
            self.bootstrap.barrier("rushmem.closed")?;
            Ok(buffer)
        });
        closed.map_err(|error| UnregisterError::new(error, window))
    }

    /// Takes a buffer in: known to kernels and to all NICs of this PE.
    fn adopt<B: Buffer>(&self, call: &'static str, mut buffer: B, align: u64) -> Result<Segment> {
        let wrong = |what: String| Error::Misuse { call, what };
        let bytes = (buffer.len() as u64).checked_mul(size_of::<B::Element>() as u64);
        let bytes = bytes.filter(|&bytes| bytes > 0).ok_or_else(|| wrong("a buffer of no bytes".into()))?;
        let place = buffer.location();
        let address = match place {
            MemoryLocation::Host(start) => start.as_ptr() as u64,
            MemoryLocation::Gpu(address) => address,
        };
        let align = align.max(align_of::<B::Element>() as u64);
        if !address.is_multiple_of(align) {
            return Err(wrong(format!("a buffer at {address:#x}, which is not a multiple of {align} bytes")));
        }
        if self.memory.overlaps(address, bytes) {
            let what = format!("{bytes} bytes at {address:#x} overlap the heap or a registered buffer");
            return Err(wrong(what));
        }
        // SAFETY: memory of a `Buffer`, which the segment keeps for longer than the region.
        let region = unsafe { self.machine.adopt(place, bytes) }?;
        let keys = self.service.register(&region)?;
        Ok(Segment::new(region, keys, Some(Box::new(buffer))))
    }

    /// Tells all PEs how this one's NICs know a segment, and learns of theirs. An error if a PE has none.
    pub(super) fn share(&self, call: &'static str, made: Result<Segment>) -> Result<Segment> {
        type Told = Result<Vec<(u64, u32)>, String>;
        let malformed = |pe| Error::Misuse { call, what: format!("PE {pe} sent malformed keys") };
        let told: Told = match &made {
            Ok(segment) => Ok(segment.rkeys().iter().map(|end| (end.base, end.key)).collect()),
            Err(error) => Err(error.to_string()),
        };
        let bytes = serde_json::to_vec(&told).map_err(|_| malformed(self.my_pe()))?;
        let all = self.bootstrap.allgather(&self.next_tag(), &bytes)?;
        let segment = made?;
        let mut ends = Vec::new();
        for (pe, bytes) in (0..).zip(&all) {
            let told: Told = serde_json::from_slice(bytes).map_err(|_| malformed(pe))?;
            let theirs = told.map_err(|why| Error::Elsewhere { pe, call, why })?;
            if theirs.len() != segment.rkeys().len() {
                return Err(malformed(pe));
            }
            ends.extend(theirs.into_iter().map(|(base, key)| SegmentEnd { base, key, reserved: 0 }));
        }
        let (addrs, mappings) =
            self.peer_map.segment(&self.config, &*self.machine, &*self.bootstrap, call, segment.region())?;
        Ok(segment.symmetric(ends, addrs, mappings))
    }
}

/// Ends the registration of a segment, and takes the user's buffer out of it.
fn buffer_of<B: Buffer>(segment: Segment) -> Result<B> {
    let buffer = segment.into_owner().and_then(|owner| owner.downcast::<B>().ok());
    buffer.map(|buffer| *buffer).ok_or_else(|| misuse("unregister", "the registration", GONE))
}
