//! The software ConnectX's accesses to the memory of one GPU, executed by the service kernel or by the copy engines in
//! call order.
#![allow(unsafe_code, reason = "accesses GPU memory by address")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rushmem_base::lock;
use rushmem_service::{INLINE, Operation, Request};
use rushmem_softnic::{AtomicOp, Width};

use super::service::{Bar, Barrier, ServiceKernel};
use super::transfer::{Copies, SCRATCH_BYTES, Staging};
use crate::{Device, Error, Image};

/// Length of the longest copy between host and GPU that the service kernel executes, in bytes. For longer ones, the
/// copy engines are faster.
const SERVICE_COPY: u64 = 256 << 10;

/// Which of the service kernel and the copy engines may execute an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The service kernel if it is ready, otherwise the copy engines.
    Any,
    CopyEngines,
}

/// Executes the accesses of the software ConnectX to the memory of one GPU. All PEs of a process share it.
///
/// Accesses take effect in call order. They run concurrently with kernels and never wait for one.
pub struct CopyEngine {
    ordinal: u32,
    barrier: Option<Barrier>,
    queue: Mutex<Queue>,
}

impl CopyEngine {
    /// Returns the engine of the GPU, and creates it on first use. `service` is the service kernel; without it, only
    /// the copy engines are used. The call may block until no PE of this process runs a kernel.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    /// - [`Error::Ptx`], [`Error::OldGpu`] or [`Error::NoFunction`] if the service kernel cannot be loaded
    pub fn shared(device: &Arc<Device>, service: Option<&Image>) -> Result<Arc<Self>, Error> {
        static ENGINES: Mutex<Option<HashMap<u32, Weak<CopyEngine>>>> = Mutex::new(None);
        let mut engines = lock(&ENGINES);
        let engine = engines.get_or_insert_default().entry(device.ordinal()).or_default();
        if let Some(engine) = engine.upgrade() {
            return Ok(engine);
        }
        let new = Arc::new(Self::new(device, service)?);
        *engine = Arc::downgrade(&new);
        Ok(new)
    }

    /// Creates an engine. The call may block until no PE of this process runs a kernel.
    ///
    /// # Errors
    /// The errors of [`CopyEngine::shared`].
    pub fn new(device: &Arc<Device>, service: Option<&Image>) -> Result<Self, Error> {
        let staging = Staging::new(device)?;
        let copies = Copies::new(device, &staging)?;
        let service = service.map(|image| ServiceKernel::new(device, image)).transpose()?;
        let barrier = service.as_ref().map(ServiceKernel::barrier);
        let queue = Mutex::new(Queue { service, copies, staging });
        Ok(Self { ordinal: device.ordinal(), barrier, queue })
    }

    pub(super) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Blocks until all accesses that were started have completed.
    ///
    /// # Errors
    /// - [`Error::Call`] if an access failed, or if a kernel's fault lost the context
    pub fn flush(&self) -> Result<(), Error> {
        self.lock().drain()
    }

    /// Keeps the service kernel from running beside a launch that needs the whole GPU, and asks a running one to exit.
    /// Returns `None` if there is no service kernel.
    pub fn bar(&self) -> Option<Bar> {
        self.barrier.as_ref().map(Barrier::bar)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

impl Drop for CopyEngine {
    fn drop(&mut self) {
        // Pending copies use the staging buffer, which is freed next.
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "accesses to GPU memory may be incomplete");
        }
    }
}

/// Pending accesses to the memory of one GPU.
///
/// Either the service kernel or the copy engines have pending accesses, never both: each is drained before the other is
/// used, which keeps accesses in call order.
///
/// # Safety
/// The unsafe methods take addresses of this GPU's memory or of page-locked memory. The ranges must stay valid until
/// the next drain, and no other access of the CPU may race with a pending one.
pub(super) struct Queue {
    /// Declared first: its destructor waits for the kernel, which may use the staging buffer.
    service: Option<ServiceKernel>,
    copies: Copies,
    staging: Staging,
}

impl Queue {
    /// Blocks until all accesses that were started have completed.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        self.drain_service()?;
        self.copies.drain()?;
        self.staging.clear();
        Ok(())
    }

    /// Waits until all requests to the service kernel are executed. If the kernel exited early, the copy engines
    /// execute the rest.
    fn drain_service(&mut self) -> Result<(), Error> {
        let Some(service) = &mut self.service else { return Ok(()) };
        let left = service.settle()?;
        self.execute(&left)
    }

    /// Waits for all pending copies and returns the service kernel, if it accepts requests now.
    fn served(&mut self) -> Result<Option<&mut ServiceKernel>, Error> {
        let Some(service) = &mut self.service else { return Ok(None) };
        if !service.is_ready()? {
            return Ok(None);
        }
        self.copies.drain()?;
        Ok(Some(service))
    }

    /// Posts a request to the service kernel if it accepts requests now, and returns the request's sequence number.
    /// `make` receives the address for the result.
    fn request(&mut self, make: impl FnOnce(u64) -> Request) -> Result<Option<u64>, Error> {
        let Some(service) = self.served()? else { return Ok(None) };
        let (number, left) = service.post(make)?;
        self.execute(&left)?;
        Ok(Some(number))
    }

    /// Reserves `len` bytes of the staging buffer and returns their offset. Waits for all pending accesses if the
    /// buffer is full. `len` must not exceed the length of the buffer.
    fn reserve(&mut self, len: usize) -> Result<usize, Error> {
        if let Some(at) = self.staging.reserve(len) {
            return Ok(at);
        }
        self.drain()?;
        Ok(self.staging.reserve(len).unwrap_or(0))
    }

    /// Starts a write of `data` to address `to`.
    ///
    /// # Safety
    /// See [`Queue`].
    pub(super) unsafe fn write(&mut self, mut to: u64, data: &[u8], access: Access) -> Result<(), Error> {
        if access == Access::Any
            && let Some(store) = Request::store(to, data)
            && self.request(|_| store)?.is_some()
        {
            return Ok(());
        }
        for piece in data.chunks(self.staging.len()) {
            let at = self.reserve(piece.len())?;
            self.staging.put(at, piece);
            // SAFETY: promised by the caller; the reserved bytes are page-locked.
            unsafe { self.copy_host(to, self.staging.address(at), piece.len() as u64, access)? };
            to += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies the bytes at address `from` to `data`, after all accesses that were started. Blocks until done.
    ///
    /// # Safety
    /// See [`Queue`].
    pub(super) unsafe fn read(
        &mut self,
        mut from: u64,
        data: &mut [u8],
        access: Access,
    ) -> Result<(), Error> {
        if access == Access::Any
            && data.len() <= INLINE
            && let Some(number) = self.request(|result| Request::copy(result, from, data.len() as u64))?
        {
            self.drain()?;
            if let Some(service) = &self.service {
                service.read_result(number, data);
            }
            return Ok(());
        }
        for piece in data.chunks_mut(self.staging.len()) {
            let at = self.reserve(piece.len())?;
            // SAFETY: promised by the caller; the reserved bytes are page-locked.
            unsafe { self.copy_host(self.staging.address(at), from, piece.len() as u64, access)? };
            self.drain()?;
            self.staging.get(at, piece);
            from += piece.len() as u64;
        }
        Ok(())
    }

    /// Starts a copy between GPU memory and page-locked memory, in either direction.
    ///
    /// # Safety
    /// See [`Queue`].
    pub(super) unsafe fn copy_host(
        &mut self,
        to: u64,
        from: u64,
        len: u64,
        access: Access,
    ) -> Result<(), Error> {
        if access == Access::Any
            && len <= SERVICE_COPY
            && self.request(|_| Request::copy(to, from, len))?.is_some()
        {
            return Ok(());
        }
        self.drain_service()?;
        // SAFETY: promised by the caller.
        unsafe { self.copies.copy(to, from, len as usize) }
    }

    /// Starts a copy from or to pageable host memory, given by its CPU address. Returns `false` if the caller should
    /// stage the bytes instead, because that is faster.
    ///
    /// # Safety
    /// See [`Queue`]; one of the ranges is host memory.
    pub(super) unsafe fn copy_pageable(&mut self, to: u64, from: u64, len: u64) -> Result<bool, Error> {
        if len <= SERVICE_COPY && self.served()?.is_some() {
            return Ok(false);
        }
        self.drain_service()?;
        // SAFETY: promised by the caller.
        unsafe { self.copies.copy(to, from, len as usize)? };
        Ok(true)
    }

    /// Starts a copy within the memory of the GPU.
    ///
    /// # Safety
    /// See [`Queue`].
    pub(super) unsafe fn copy_within(&mut self, to: u64, from: u64, len: u64) -> Result<(), Error> {
        if self.request(|_| Request::copy(to, from, len))?.is_some() {
            return Ok(());
        }
        // A direct copy within one GPU would run on its multiprocessors and might wait for a kernel; see
        // `Copies::copy`. Copy through all of the staging buffer instead.
        self.drain()?;
        let most = self.staging.len();
        let all = self.reserve(most)?;
        // SAFETY: promised by the caller; the reserved bytes are page-locked.
        unsafe { self.copies.copy_staged(self.staging.address(all), most, to, from, len) }
    }

    /// Starts an atomic operation on the aligned word at address `at`. The old value is written to address `result`.
    /// Returns `false`, without doing anything, if the service kernel does not accept requests.
    ///
    /// # Safety
    /// See [`Queue`].
    pub(super) unsafe fn atomic_to(
        &mut self,
        at: u64,
        width: Width,
        op: AtomicOp,
        result: u64,
    ) -> Result<bool, Error> {
        Ok(self.request(|_| Request::atomic(at, width, op, result))?.is_some())
    }

    /// Executes an atomic operation on the aligned word at address `at`, after all accesses that were started. Returns
    /// the old value.
    ///
    /// Without the service kernel, the operation is atomic with respect to accesses through this queue only, not to
    /// kernels: copy engines have no atomic operations.
    ///
    /// # Safety
    /// See [`Queue`].
    pub(super) unsafe fn atomic(&mut self, at: u64, width: Width, op: AtomicOp) -> Result<u64, Error> {
        let Some(number) = self.request(|result| Request::atomic(at, width, op, result))? else {
            self.drain()?;
            // SAFETY: promised by the caller.
            return unsafe { self.atomic_by_copies(at, width, op) };
        };
        self.drain()?;
        let mut old = [0; 8];
        if let Some(service) = &self.service {
            service.read_result(number, &mut old);
        }
        // A 4-byte result is written big-endian, as the NIC returns it to the requester.
        Ok(match (width, old) {
            (Width::Eight, old) => u64::from_le_bytes(old),
            (Width::Four, [a, b, c, d, ..]) => u32::from_be_bytes([a, b, c, d]).into(),
        })
    }

    /// Executes an atomic operation by one copy in each direction. No other access may be pending.
    ///
    /// # Safety
    /// See [`Queue`].
    unsafe fn atomic_by_copies(&mut self, at: u64, width: Width, op: AtomicOp) -> Result<u64, Error> {
        let len = width.bytes() as usize;
        let scratch = self.staging.scratch();
        let mut old = [0; 8];
        // SAFETY: promised by the caller; no access uses the scratch bytes, which are page-locked.
        unsafe {
            self.copies.copy(self.staging.address(scratch), at, len)?;
            self.copies.drain()?;
            self.staging.get(scratch, &mut old[..len]);
            let old = u64::from_le_bytes(old);
            if let Some(new) = op.apply(old, width) {
                self.store_by_copies(at, &new.to_le_bytes()[..len])?;
            }
            Ok(old)
        }
    }

    /// Copies `data`, which fits into the scratch bytes of the staging buffer, to address `to`. Waits for completion.
    ///
    /// # Safety
    /// See [`Queue`].
    unsafe fn store_by_copies(&mut self, to: u64, data: &[u8]) -> Result<(), Error> {
        let scratch = self.staging.scratch();
        self.staging.put(scratch, data);
        // SAFETY: promised by the caller; no access uses the scratch bytes, which are page-locked.
        unsafe { self.copies.copy(to, self.staging.address(scratch), data.len())? };
        self.copies.drain()
    }

    /// Executes requests that the service kernel left unexecuted, by copies, and waits for them.
    fn execute(&mut self, left: &[Request]) -> Result<(), Error> {
        for request in left {
            tracing::debug!(?request, "the copy engines execute a request that the service kernel has left");
            // SAFETY: the request was posted under the rules of `Queue`. No other access is pending.
            unsafe {
                match request.operation() {
                    Operation::Copy { to, from, len } => {
                        let scratch = self.staging.scratch();
                        self.copies.copy_staged(
                            self.staging.address(scratch),
                            SCRATCH_BYTES,
                            to,
                            from,
                            len,
                        )?;
                        self.copies.drain()?;
                    }
                    Operation::Store { to, bytes, len } => self.store_by_copies(to, &bytes[..len])?,
                    Operation::Atomic { at, width, op, result } => {
                        let old = self.atomic_by_copies(at, width, op)?;
                        match width {
                            Width::Eight => self.store_by_copies(result, &old.to_le_bytes())?,
                            Width::Four => self.store_by_copies(result, &(old as u32).to_be_bytes())?,
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
