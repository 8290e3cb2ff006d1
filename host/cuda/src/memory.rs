//! GPU memory, page-locked host memory and registered host memory.
//!
//! Allocating, registering and freeing are blocking driver calls, so they pass the driver gate.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUresult};

use crate::error::{check, check_with, log_drop};
use crate::{Device, Error, SharedMemory};

/// A range of GPU memory.
///
/// Allocating and freeing block until no PE of this process runs a kernel.
pub struct DeviceBuffer {
    device: Arc<Device>,
    address: CUdeviceptr,
    len: usize,
    /// Set if other GPUs and processes can map the memory. It then owns the allocation.
    shared: Option<SharedMemory>,
    /// Whether the memory belongs to the caller, who frees it.
    borrowed: bool,
}

impl DeviceBuffer {
    /// Allocates `len` bytes with undefined content, aligned to 256 bytes. `len` must not be 0.
    ///
    /// # Errors
    /// - [`Error::Call`] if the GPU has too little free memory
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        Self::allocate(device, len, len)
    }

    /// Returns a buffer of the first `len` bytes of `shared`.
    pub(crate) fn of_shared(device: Arc<Device>, shared: SharedMemory, len: usize) -> Self {
        Self { device, address: shared.address(), len, shared: Some(shared), borrowed: false }
    }

    /// Returns the memory in the form that other GPUs and processes can map, if the buffer comes from
    /// [`zeroed_shared`](Self::zeroed_shared).
    pub fn shared(&self) -> Option<&SharedMemory> {
        self.shared.as_ref()
    }

    /// Allocates `allocated` bytes, of which the buffer exposes `len`.
    pub(crate) fn allocate(device: &Arc<Device>, len: usize, allocated: usize) -> Result<Self, Error> {
        let _exclusive = device.exclusive()?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: the context is current. The address is written to a live variable and freed in `drop`.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, allocated) };
        check_with("cuMemAlloc", result, || format!("of {allocated} bytes on GPU {}", device.ordinal()))?;
        Ok(Self { device: Arc::clone(device), address, len, shared: None, borrowed: false })
    }

    /// Wraps the `len` bytes at `address`, which the caller allocated and frees.
    ///
    /// # Errors
    /// - [`Error::WrongMemoryGpu`] if the address belongs to the memory of another GPU
    /// - [`Error::Call`] if the driver does not know the address
    ///
    /// # Safety
    /// The bytes stay allocated while this object exists.
    pub unsafe fn from_address(device: &Arc<Device>, address: u64, len: usize) -> Result<Self, Error> {
        let mut ordinal: c_int = -1;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        {
            let _current = device.make_current()?;
            // SAFETY: the attribute is written to a live variable of its type. The driver checks the address.
            let result = unsafe {
                sys::cuPointerGetAttribute((&raw mut ordinal).cast::<c_void>(), attribute, address)
            };
            check_with("cuPointerGetAttribute", result, || format!("of {address:#x}"))?;
        }
        if ordinal != device.ordinal() as c_int {
            return Err(Error::WrongMemoryGpu { address, gpu: ordinal, wanted: device.ordinal() });
        }
        Ok(Self { device: Arc::clone(device), address, len, shared: None, borrowed: true })
    }

    /// Returns the GPU that owns the memory.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the address of the first byte for kernels and copies.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length of the buffer, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0, which no constructor allows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of a range, after checking that it lies in the buffer.
    pub(crate) fn range_address(&self, offset: usize, len: usize) -> Result<u64, Error> {
        check_range(offset, len, self.len)?;
        Ok(self.address + offset as u64)
    }
}

/// Memory that the driver knows, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownMemory {
    /// Memory of a GPU.
    Gpu,
    /// Page-locked host memory.
    PageLocked,
}

impl Device {
    /// Returns the kind of the memory at `address`, or `None` if the driver does not know it, as is the case with
    /// ordinary host memory.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver fails
    pub fn known_memory(self: &Arc<Self>, address: u64) -> Result<Option<KnownMemory>, Error> {
        let mut kind: c_uint = 0;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        let _current = self.make_current()?;
        // SAFETY: the attribute is written to a live variable of its size. The driver checks the address.
        let result =
            unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast::<c_void>(), attribute, address) };
        if result == CUresult::CUDA_ERROR_INVALID_VALUE {
            return Ok(None);
        }
        check_with("cuPointerGetAttribute", result, || format!("of {address:#x}"))?;
        let is_host = kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as c_uint;
        Ok(Some(if is_host { KnownMemory::PageLocked } else { KnownMemory::Gpu }))
    }
}

fn check_range(offset: usize, len: usize, size: usize) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::OutOfRange { offset, len, size }),
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.shared.is_some() || self.borrowed {
            return;
        }
        let free = || {
            let _exclusive = self.device.exclusive()?;
            // SAFETY: allocated in `allocate`, freed once.
            check("cuMemFree", unsafe { sys::cuMemFree_v2(self.address) })
        };
        log_drop("GPU memory", free());
    }
}

/// Page-locked host memory allocated by the driver, accessible to every GPU of the process.
///
/// The API exposes only addresses, since GPUs may access the memory at any time. Allocating and freeing block until no
/// PE of this process runs a kernel.
pub struct PinnedBuffer {
    device: Arc<Device>,
    start: NonNull<u8>,
    address: CUdeviceptr,
    len: usize,
}

// SAFETY: plain memory, exposed only as a raw pointer.
unsafe impl Send for PinnedBuffer {}
// SAFETY: see above.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates `len` zeroed bytes, aligned to a page. `len` must not be 0.
    ///
    /// # Errors
    /// - [`Error::Call`] if the memory cannot be allocated or page-locked
    /// - [`Error::OutOfRange`] if the driver returns a null pointer
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        let _exclusive = device.exclusive()?;
        let mut pointer: *mut c_void = ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is current. The pointer is written to a live variable and freed in `drop`.
        let result = unsafe { sys::cuMemHostAlloc(&mut pointer, len, flags) };
        check_with("cuMemHostAlloc", result, || format!("of {len} bytes"))?;
        let Some(start) = NonNull::new(pointer.cast::<u8>()) else {
            return Err(Error::OutOfRange { offset: 0, len, size: 0 });
        };
        // SAFETY: `len` bytes that no other code has access to yet.
        unsafe { start.write_bytes(0, len) };
        let mut buffer = Self { device: Arc::clone(device), start, address: 0, len };
        buffer.address = device_address(start)?;
        Ok(buffer)
    }

    /// Returns a pointer to the first byte for the CPU.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the address of the first byte for GPUs.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length of the buffer, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0, which no constructor allows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let free = || {
            let _exclusive = self.device.exclusive()?;
            // SAFETY: allocated in `new`, freed once.
            check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) })
        };
        log_drop("page-locked memory", free());
    }
}

/// Kind of memory that host pages belong to, for their registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// Ordinary memory, private or shared. Registration page-locks it.
    Memory,
    /// Device registers, such as a UAR page of a NIC.
    Io,
}

/// Host pages of the caller that GPUs can access while this object exists.
///
/// Registering and unregistering block until no PE of this process runs a kernel.
pub struct RegisteredHost {
    device: Arc<Device>,
    start: NonNull<u8>,
    address: CUdeviceptr,
    len: usize,
    /// Whether another library page-locked the memory and will unlock it.
    borrowed: bool,
}

// SAFETY: an address range, exposed only as a raw pointer.
unsafe impl Send for RegisteredHost {}
// SAFETY: see above.
unsafe impl Sync for RegisteredHost {}

impl RegisteredHost {
    /// Registers the `len` bytes at `start`, which are whole pages, with every GPU of the process.
    ///
    /// # Errors
    /// - [`Error::SharedPage`] if a page is already registered
    /// - [`Error::Call`] if a page cannot be page-locked
    ///
    /// # Safety
    /// The pages are of this kind, and stay mapped until the object is dropped.
    pub unsafe fn new(
        device: &Arc<Device>,
        start: NonNull<u8>,
        len: usize,
        kind: HostKind,
    ) -> Result<Self, Error> {
        let _exclusive = device.exclusive()?;
        let flags: c_uint = sys::CU_MEMHOSTREGISTER_PORTABLE
            | sys::CU_MEMHOSTREGISTER_DEVICEMAP
            | match kind {
                HostKind::Memory => 0,
                HostKind::Io => sys::CU_MEMHOSTREGISTER_IOMEMORY,
            };
        // SAFETY: the caller guarantees mapped pages. They are unregistered in `drop`.
        let result = unsafe { sys::cuMemHostRegister_v2(start.as_ptr().cast(), len, flags) };
        if result == CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED {
            return Err(Error::SharedPage { start: start.as_ptr().addr(), len });
        }
        check_with("cuMemHostRegister", result, || format!("of {len} bytes at {start:p} ({kind:?})"))?;
        let mut registered = Self { device: Arc::clone(device), start, address: 0, len, borrowed: false };
        registered.address = device_address(start)?;
        Ok(registered)
    }

    /// Wraps the `len` bytes at `start`, which another library has page-locked.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver does not know the memory as page-locked
    ///
    /// # Safety
    /// The bytes stay page-locked until the object is dropped.
    pub unsafe fn page_locked(device: &Arc<Device>, start: NonNull<u8>, len: usize) -> Result<Self, Error> {
        let _current = device.make_current()?;
        Ok(Self { device: Arc::clone(device), start, address: device_address(start)?, len, borrowed: true })
    }

    /// Returns the GPU through which the pages were registered.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns a pointer to the first byte for the CPU.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the address of the first byte for GPUs.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length of the registered pages, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0, which no constructor allows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for RegisteredHost {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        let free = || {
            let _exclusive = self.device.exclusive()?;
            // SAFETY: registered in `new`, unregistered once.
            check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(self.start.as_ptr().cast()) })
        };
        log_drop("registered memory", free());
    }
}

/// Returns the address of page-locked memory for GPUs. A context must be current.
fn device_address(start: NonNull<u8>) -> Result<u64, Error> {
    let mut address: CUdeviceptr = 0;
    // SAFETY: the driver checks the pointer. The address is written to a live variable.
    let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, start.as_ptr().cast(), 0) };
    check("cuMemHostGetDevicePointer", result)?;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_ranges_beyond_the_buffer() {
        assert_eq!(check_range(0, 8, 8), Ok(()));
        assert_eq!(check_range(8, 0, 8), Ok(()));
        for (offset, len) in [(1, 8), (9, 0), (usize::MAX, 2)] {
            assert_eq!(check_range(offset, len, 8), Err(Error::OutOfRange { offset, len, size: 8 }));
        }
    }
}
