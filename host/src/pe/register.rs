//! The methods of [`Pe`] that register user memory: as a local buffer of one PE, or as a window that all PEs can
//! access.
#![allow(
    unsafe_code,
    reason = "makes handles of registered memory, and adopts user memory at its own address"
)]

use std::marker::PhantomData;
use std::panic::Location;

use rushmem_device::abi::SegmentEnd;
use rushmem_device::{Handle, Local, LocalBuffer, SymSlice};
use rushmem_error::call_site;
use rushmem_error::call_site::CallSite;
use rushmem_machine::{Buffer, MemoryLocation};
use rushmem_memory::{GONE, Segment, misuse};

use super::Pe;
use crate::{Error, Result};

/// Alignment of windows (user memory registered as symmetric) in bytes. Kernels may view their bytes as elements of
/// another type.
const WINDOW_ALIGN: u64 = 16;

/// User memory registered with one PE as a local buffer. [`Pe::register`] creates it.
///
/// [`Pe::unregister`] returns the memory. If this value is dropped, the runtime keeps the memory until the PE shuts
/// down.
#[must_use = "`Pe::unregister` gives the buffer back"]
pub struct RegisteredBuffer<B: Buffer> {
    handle: Local<B::Element>,
    _buffer: PhantomData<fn() -> B>,
}

impl<B: Buffer> RegisteredBuffer<B> {
    /// Returns the buffer's handle, for kernels and for [`Pe::read`] and [`Pe::write`].
    pub fn handle(&self) -> Local<B::Element> {
        self.handle
    }
}

/// User memory that every PE has registered as symmetric memory. [`Pe::register_symmetric`] creates it.
///
/// An element has the same index on every PE. [`Pe::unregister_symmetric`] returns the memory. If this value is
/// dropped, the runtime keeps the memory until the PE shuts down.
#[must_use = "`Pe::unregister_symmetric` gives the buffer back"]
pub struct Window<B: Buffer> {
    handle: SymSlice<B::Element>,
    _buffer: PhantomData<fn() -> B>,
}

impl<B: Buffer> Window<B> {
    /// Returns the window's handle, for kernels and for all calls that take symmetric memory.
    pub fn handle(&self) -> SymSlice<B::Element> {
        self.handle
    }
}

/// The error of a failed attempt to unregister memory, with the registration. `?` converts it to an [`Error`].
///
/// ```no_run
/// # fn app(pe: &rushmem::Pe) -> Result<(), Box<dyn std::error::Error>> {
/// let registered = pe.register(vec![0_u64; 64])?;
/// let numbers = pe.unregister(registered)?;
/// # Ok(())
/// # }
/// ```
pub struct UnregisterError<R> {
    /// The reason why the memory is still registered.
    pub error: Box<Error>,
    /// The registration, which is still valid.
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

impl<R> std::fmt::Display for UnregisterError<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl<R> std::error::Error for UnregisterError<R> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<R> From<UnregisterError<R>> for Error {
    fn from(kept: UnregisterError<R>) -> Self {
        *kept.error
    }
}

/// # Local buffers and windows
///
/// Registration of the application's own memory.
impl Pe {
    /// Registers a buffer with this PE's NICs and kernels. Not collective.
    ///
    /// The handle can be the local side of puts, gets and puts with signals, as symmetric memory can. Nothing is
    /// copied. NVSHMEM's `nvshmemx_buffer_register`.
    ///
    /// On a GPU, the call waits until no PE of this process runs a kernel.
    ///
    /// # Errors
    /// The buffer is dropped if the call fails:
    /// - [`Error::Misuse`] if it is empty, or overlaps the heap or another registered buffer.
    /// - [`Error::Unavailable`] if kernels cannot access it.
    /// - [`Error::Cuda`] or [`Error::Nic`] if CUDA or a NIC refuses it.
    ///
    /// # Examples
    /// ```no_run
    /// # fn app(pe: &rushmem::Pe) -> Result<(), rushmem::Error> {
    /// let registered = pe.register(vec![1_u64; 4096])?;
    /// // Pass `registered.handle()` to a kernel that puts from the buffer.
    /// let numbers: Vec<u64> = pe.unregister(registered)?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn register<B: Buffer>(&self, buffer: B) -> Result<RegisteredBuffer<B>> {
        let _site = call_site::enter();
        let len = buffer.len();
        let bytes = len as u64 * size_of::<B::Element>() as u64;
        let segment = self.adopt_buffer("register", buffer, 1)?;
        let (offset, stamp) = self.memory.add_local(segment, bytes)?;
        self.watch.set_addresses(|| self.memory.addresses());
        // SAFETY: the buffer's own elements, registered with this PE.
        let handle = unsafe { Local::from_raw(offset, len, stamp) };
        self.begin_object(handle.handle(), "", Location::caller());
        Ok(RegisteredBuffer { handle, _buffer: PhantomData })
    }

    /// Unregisters a buffer and returns it. Not collective. NVSHMEM's `nvshmemx_buffer_unregister`.
    ///
    /// Its handles become invalid.
    ///
    /// # Errors
    /// - [`Error::Misuse`] while a launch that might use the buffer has not been waited for, or a copy uses it.
    /// - [`Error::Misuse`] if [`Pe::unregister_all`] has already unregistered it.
    #[track_caller]
    pub fn unregister<B: Buffer>(
        &self,
        registered: RegisteredBuffer<B>,
    ) -> Result<B, UnregisterError<RegisteredBuffer<B>>> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        const CALL: &str = "unregister";
        let buffer = registered.handle.handle();
        let closed = self.memory.remove(CALL, buffer);
        if closed.is_ok() {
            self.watch.free(CALL, buffer);
        }
        closed.and_then(buffer_of::<B>).map_err(|error| UnregisterError::new(error, registered))
    }

    /// Unregisters and drops all local buffers of this PE. Returns how many there were. Not collective. NVSHMEM's
    /// `nvshmemx_buffer_unregister_all`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] while a launch has not been waited for.
    #[track_caller]
    pub fn unregister_all(&self) -> Result<usize> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        const CALL: &str = "unregister_all";
        let all = self.memory.locals();
        for &buffer in &all {
            drop(self.memory.remove(CALL, buffer)?);
            self.watch.free(CALL, buffer);
        }
        Ok(all.len())
    }

    /// Registers a buffer of every PE as symmetric memory. Collective.
    ///
    /// Lengths must be equal, but addresses may differ. Nothing is copied: puts by other PEs write to the buffer
    /// itself. NVSHMEM's `nvshmemx_buffer_register_symmetric`, NCCL's `ncclCommWindowRegister`.
    ///
    /// The index of an element (`handle().at(i)`) is the same on every PE. [`Pe::address`] and [`Pe::element_at`]
    /// convert between elements and addresses of this PE. The buffer must be aligned to 16 bytes. A window of `u64` may
    /// contain signals. Kernels launched from then on can use the window.
    ///
    /// P2P peers load and store a window in GPU memory, also of other processes if its allocator permits that. They load
    /// and store one in host memory if all PEs are threads of one process, and their kernels run natively, on one GPU,
    /// or on several GPUs with atomics on host memory. Otherwise, peers access the window through the NIC.
    ///
    /// # Errors
    /// Every PE returns an error, and no buffer remains registered:
    /// - [`Error::Mismatch`] if the lengths or element sizes differ.
    /// - [`Error::Unavailable`] with `peer_path=p2p` if P2P peers cannot map the memory; the text says why. Also if a
    ///   NIC of this PE fails: see [`Pe::host_sync`].
    /// - [`Error::Elsewhere`] if another PE fails, and [`Error::Bootstrap`] if a PE never makes the call.
    /// - [`Error::Unavailable`] if the job has lost a PE.
    /// - The errors of [`Pe::register`].
    #[track_caller]
    pub fn register_symmetric<B: Buffer>(&self, buffer: B) -> Result<Window<B>> {
        let _site = call_site::enter();
        const CALL: &str = "register_symmetric";
        self.needs_all_pes()?;
        let (len, size) = (buffer.len(), size_of::<B::Element>());
        // All PEs have to agree on the length before any of them registers memory.
        let bytes = len as u64 * size as u64;
        let n = self.agree(CALL, &format!("{len} x {size} bytes"))?;
        let made = self.adopt_buffer(CALL, buffer, WINDOW_ALIGN);
        let segment = self.share(CALL, made)?;
        let stamp = self.memory.stamp(n);
        let opened = self.memory.add_window(segment, bytes, stamp);
        self.watch.set_addresses(|| self.memory.addresses());
        self.trace.add_ranges(|| self.memory.wire_ranges());
        // From here on the window exists on this PE, but maybe not on others: `conclude` decides.
        let here = opened.as_ref().ok().copied();
        let site = Location::caller();
        here.iter().for_each(|&offset| self.begin_object(Handle { offset, bytes, stamp }, "", site));
        let outcome = self.conclude(CALL, opened);
        if let (Err(_), Some(offset)) = (&outcome, here) {
            drop(self.memory.remove(CALL, Handle { offset, bytes, stamp })?);
        }
        // SAFETY: the buffers' own elements, which all PEs have at this offset.
        let handle = unsafe { SymSlice::stamped(outcome?, len, stamp) };
        Ok(Window { handle, _buffer: PhantomData })
    }

    /// Unregisters a window on every PE, and returns this PE's buffer. Collective.
    ///
    /// When the call returns, all PEs have made it, so no PE accesses the buffer any more.
    ///
    /// # Errors
    /// Every PE returns an error, and the window remains valid:
    /// - [`Error::Misuse`] while a launch of this PE has not been waited for, or a copy uses the buffer.
    /// - [`Error::Elsewhere`] while a launch of another PE has not been waited for.
    /// - [`Error::Mismatch`] if the PEs name different windows, and [`Error::Bootstrap`] if a PE never makes the call.
    /// - [`Error::Unavailable`] if a NIC of this PE fails: see [`Pe::host_sync`].
    #[track_caller]
    pub fn unregister_symmetric<B: Buffer>(
        &self,
        window: Window<B>,
    ) -> Result<B, UnregisterError<Window<B>>> {
        let _site = call_site::enter();
        const CALL: &str = "unregister_symmetric";
        let buffer = window.handle.handle();
        let closed = self.agree(CALL, &format!("the window at {:#x}", buffer.offset)).and_then(|_| {
            // First check on all PEs that no launch uses it. Removal waits for the kernels of other PEs on the same
            // GPU, and they might wait for this PE.
            self.conclude(CALL, self.memory.check_removable(CALL, buffer))?;
            let (ready, segment) = match self.memory.remove(CALL, buffer) {
                Ok(segment) => (Ok(()), Some(segment)),
                Err(error) => (Err(error), None),
            };
            let concluded = self.conclude(CALL, ready);
            match (concluded, segment) {
                (Ok(()), Some(segment)) => Ok(segment),
                // Some PE could not remove it, so every other PE adds it again.
                (outcome, segment) => {
                    segment.map_or(Ok(()), |segment| self.memory.restore(segment))?;
                    outcome.and(Err(misuse(CALL, window.handle, GONE)))
                }
            }
        });
        if closed.is_ok() {
            self.watch.free(CALL, buffer);
        }
        // Peers have the buffer mapped until they have dropped their segments, which all have done after this barrier.
        let closed = closed.and_then(buffer_of::<B>).and_then(|buffer| {
            self.bootstrap.barrier("the end of unregister").map_err(|error| self.failed(error))?;
            Ok(buffer)
        });
        closed.map_err(|error| UnregisterError::new(error, window))
    }

    /// Registers a user buffer with the machine and with all NICs of this PE. The buffer's address must be a multiple
    /// of `align` bytes.
    fn adopt_buffer<B: Buffer>(&self, call: &'static str, mut buffer: B, align: u64) -> Result<Segment> {
        self.memory.check_room()?;
        let wrong = |what: String| Error::misuse(call, what);
        let bytes = (buffer.len() as u64).checked_mul(size_of::<B::Element>() as u64);
        let bytes =
            bytes.filter(|&bytes| bytes > 0).ok_or_else(|| wrong("the buffer has no bytes".into()))?;
        let location = buffer.location();
        let address = match location {
            MemoryLocation::Host(start) | MemoryLocation::PageLocked(start) => start.as_ptr() as u64,
            MemoryLocation::Gpu(address) => address,
        };
        let align = align.max(align_of::<B::Element>() as u64);
        if !address.is_multiple_of(align) {
            return Err(wrong(format!(
                "the address {address:#x} of the buffer is not a multiple of {align} bytes"
            )));
        }
        if self.memory.overlaps(address, bytes) {
            let what = format!("{bytes} bytes at {address:#x} overlap the heap or a registered buffer");
            return Err(wrong(what));
        }
        // SAFETY: the memory belongs to a `Buffer`, which the segment keeps longer than the region.
        let region = unsafe { self.machine.adopt(location, bytes) }?;
        let keys = self.service.register(&region)?;
        Ok(Segment::new(region, keys, Some(Box::new(buffer))))
    }

    /// Exchanges the keys of a segment that every PE has created, and maps the parts of P2P peers. Collective.
    ///
    /// # Errors
    /// - The error of `made`, or [`Error::Elsewhere`] if another PE has failed.
    pub(super) fn share(&self, call: &'static str, made: Result<Segment>) -> Result<Segment> {
        /// For each rail, wire address, data key and strict key of the PE's part. Or the reason why the PE has no
        /// segment.
        type KeyMessage = Result<Vec<(u64, u32, u32)>, String>;
        let malformed = |pe| Error::misuse(call, format!("PE {pe} sent malformed keys"));
        // A PE that failed takes part as well: the others learn of its error instead of waiting for it.
        let message: KeyMessage = match &made {
            Ok(segment) => {
                Ok(segment.rkeys().iter().map(|end| (end.base, end.key, end.strict_key)).collect())
            }
            Err(error) => Err(error.to_string()),
        };
        let bytes = serde_json::to_vec(&message).map_err(|_| malformed(self.my_pe()))?;
        let all = self.allgather_for(self.next_collective(), call, &bytes)?;
        let segment = made?;
        let mut ends = Vec::new();
        for (pe, bytes) in (0..).zip(all.iter()) {
            let message: KeyMessage = serde_json::from_slice(bytes).map_err(|_| malformed(pe))?;
            let theirs =
                message.map_err(|why| Error::Elsewhere { pe, call, why, site: CallSite::current() })?;
            if theirs.len() != segment.rkeys().len() {
                return Err(malformed(pe));
            }
            ends.extend(theirs.into_iter().map(|(base, key, strict_key)| SegmentEnd {
                base,
                key,
                strict_key,
            }));
        }
        let mapped =
            self.peer_map.segment(&self.config, &*self.machine, &*self.bootstrap, call, segment.region());
        let (addrs, mappings) = mapped.map_err(|error| self.failed(error))?;
        Ok(segment.symmetric(ends, addrs, mappings))
    }
}

/// Deregisters a segment, and returns the user's buffer.
fn buffer_of<B: Buffer>(segment: Segment) -> Result<B> {
    let buffer = segment.into_owner().and_then(|owner| owner.downcast::<B>().ok());
    buffer.map(|buffer| *buffer).ok_or_else(|| misuse("unregister", "the registration", GONE))
}
