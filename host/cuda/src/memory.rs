#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr};

use crate::error::{check, check_about, log_drop};
use crate::{Device, Error, SharedMemory, Stream};

/// Unit of a GPU's memory; smaller allocations share one.
const GPU_PAGE: usize = 2 << 20;

/// Memory of a GPU.
///
/// Allocating and freeing it may wait for kernels that run on the GPU: do it before and after them.
pub struct DeviceBuffer {
    device: Arc<Device>,
    address: CUdeviceptr,
    len: usize,
    /// What others can map, if it was made so; then it frees itself.
    shared: Option<SharedMemory>,
    /// Somebody else's, who frees it.
    borrowed: bool,
}

impl DeviceBuffer {
    /// Allocates `len` bytes, which is not 0, aligned to 256. Their content is undefined.
    ///
    /// # Errors
    /// What the driver says, above all that there is not so much memory.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        Self::allocate(device, len, len)
    }

    /// Allocates `len` bytes, which is not 0, in pages of their own, so that another device can be let in to them
    /// alone; and sets them to 0 by work in `stream`, which it waits for.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn zeroed_pages(stream: &Stream, len: usize) -> Result<Self, Error> {
        let buffer = Self::allocate(stream.device(), len, len.next_multiple_of(GPU_PAGE))?;
        buffer.fill(stream, 0, len, 0)?;
        Ok(buffer)
    }

    /// As [`zeroed_pages`](Self::zeroed_pages), such that other GPUs and processes can map it.
    ///
    /// # Errors
    /// As [`SharedMemory::new`].
    pub fn zeroed_shared(stream: &Stream, len: usize) -> Result<Self, Error> {
        let device = Arc::clone(stream.device());
        let shared = SharedMemory::new(&device, len)?;
        let buffer = Self { device, address: shared.address(), len, shared: Some(shared), borrowed: false };
        buffer.fill(stream, 0, len, 0)?;
        Ok(buffer)
    }

    /// What others can map, if it was made so.
    pub fn shared(&self) -> Option<&SharedMemory> {
        self.shared.as_ref()
    }

    fn allocate(device: &Arc<Device>, len: usize, allocated: usize) -> Result<Self, Error> {
        let _alone = device.alone()?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: the context is current, and the address is written to a live variable. Freed in `drop`.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, allocated) };
        check_about("cuMemAlloc", result, || format!("of {allocated} bytes on GPU {}", device.ordinal()))?;
        Ok(Self { device: Arc::clone(device), address, len, shared: None, borrowed: false })
    }

    /// The `len` bytes at `address`, which somebody else has allocated and frees.
    ///
    /// # Errors
    /// What the driver says of the address; [`Error::Elsewhere`] if it is not one of this GPU's memory.
    ///
    /// # Safety
    /// The bytes stay allocated as long as this object lives.
    pub unsafe fn of(device: &Arc<Device>, address: u64, len: usize) -> Result<Self, Error> {
        let mut ordinal: c_int = -1;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        {
            let _current = device.current()?;
            // SAFETY: the attribute is written to a live variable of its type; the driver checks the address.
            let result = unsafe {
                sys::cuPointerGetAttribute((&raw mut ordinal).cast::<c_void>(), attribute, address)
            };
            check_about("cuPointerGetAttribute", result, || format!("of {address:#x}"))?;
        }
        if ordinal != device.ordinal() as c_int {
            return Err(Error::Elsewhere { address, gpu: ordinal, wanted: device.ordinal() });
        }
        Ok(Self { device: Arc::clone(device), address, len, shared: None, borrowed: true })
    }

    /// Allocates `len` bytes and sets them to 0 by work in `stream`, which it waits for.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self, Error> {
        let buffer = Self::new(stream.device(), len)?;
        buffer.fill(stream, 0, len, 0)?;
        Ok(buffer)
    }

    /// The GPU that it belongs to.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The address of its first byte, for GPUs, in the one address space of all.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets `len` bytes from `offset` on to `value`, after what is in `stream`, and waits for it.
    ///
    /// # Errors
    /// [`Error::Range`], or what the driver says.
    pub fn fill(&self, stream: &Stream, offset: usize, len: usize, value: u8) -> Result<(), Error> {
        let address = self.at(offset, len)?;
        let _current = self.device.current()?;
        // SAFETY: the range lies in this allocation.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, value, len, stream.raw()) })?;
        stream.synchronize()
    }

    /// Copies `data` to `offset`, after what is in `stream`, and waits for it.
    ///
    /// # Errors
    /// [`Error::Range`], or what the driver says.
    pub fn write(&self, stream: &Stream, offset: usize, data: &[u8]) -> Result<(), Error> {
        let address = self.at(offset, data.len())?;
        let _current = self.device.current()?;
        // SAFETY: the range lies in this allocation, and `data` is borrowed until the copy is done.
        let result =
            unsafe { sys::cuMemcpyHtoDAsync_v2(address, data.as_ptr().cast(), data.len(), stream.raw()) };
        finish_copy(stream, check("cuMemcpyHtoDAsync", result))
    }

    /// Copies from `offset` on into `data`, after what is in `stream`, and waits for it.
    ///
    /// # Errors
    /// [`Error::Range`], or what the driver says.
    pub fn read(&self, stream: &Stream, offset: usize, data: &mut [u8]) -> Result<(), Error> {
        let address = self.at(offset, data.len())?;
        let _current = self.device.current()?;
        // SAFETY: the range lies in this allocation, and `data` is borrowed until the copy is done.
        let result =
            unsafe { sys::cuMemcpyDtoHAsync_v2(data.as_mut_ptr().cast(), address, data.len(), stream.raw()) };
        finish_copy(stream, check("cuMemcpyDtoHAsync", result))
    }

    /// The address of a range, if it lies in the buffer.
    pub(crate) fn at(&self, offset: usize, len: usize) -> Result<u64, Error> {
        in_range(offset, len, self.len)?;
        Ok(self.address + offset as u64)
    }
}

/// Waits also after a failed call, since the borrow of the data ends with it.
fn finish_copy(stream: &Stream, queued: Result<(), Error>) -> Result<(), Error> {
    let done = stream.synchronize();
    queued.and(done)
}

fn in_range(offset: usize, len: usize, size: usize) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::Range { offset, len, size }),
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.shared.is_some() || self.borrowed {
            return;
        }
        let free = || {
            let _alone = self.device.alone()?;
            // SAFETY: allocated in `allocate`, freed once.
            check("cuMemFree", unsafe { sys::cuMemFree_v2(self.address) })
        };
        log_drop("GPU memory", free());
    }
}

/// Page-locked host memory that the driver allocated, which every GPU of the process can reach.
///
/// It is handed out by address only: GPUs may touch it at any time. Allocating and freeing it may wait for kernels.
pub struct PinnedBuffer {
    device: Arc<Device>,
    start: NonNull<u8>,
    address: CUdeviceptr,
    len: usize,
}

// SAFETY: plain memory, handed out by raw pointer.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates `len` bytes, which is not 0, aligned to a page, and sets them to 0.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        let _alone = device.alone()?;
        let mut pointer: *mut c_void = ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is current, and the pointer is written to a live variable. Freed in `drop`.
        let result = unsafe { sys::cuMemHostAlloc(&mut pointer, len, flags) };
        check_about("cuMemHostAlloc", result, || format!("of {len} bytes"))?;
        let Some(start) = NonNull::new(pointer.cast::<u8>()) else {
            return Err(Error::Range { offset: 0, len, size: 0 });
        };
        // SAFETY: `len` bytes that nobody else knows of yet.
        unsafe { start.write_bytes(0, len) };
        let mut buffer = Self { device: Arc::clone(device), start, address: 0, len };
        buffer.address = device_address(start)?;
        Ok(buffer)
    }

    /// Its first byte, for the CPU.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Its first byte, for GPUs.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let free = || {
            let _alone = self.device.alone()?;
            // SAFETY: allocated in `new`, freed once.
            check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) })
        };
        log_drop("page-locked memory", free());
    }
}

/// What lies behind host pages that GPUs are to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// Ordinary memory, shared or not, which gets page-locked.
    Memory,
    /// Registers of a device, such as a NIC's UAR page.
    Io,
}

/// Host pages of somebody else that GPUs can reach as long as this object lives.
///
/// Registering and unregistering may wait for kernels.
pub struct RegisteredHost {
    device: Arc<Device>,
    start: NonNull<u8>,
    address: CUdeviceptr,
    len: usize,
}

// SAFETY: an address range, handed out by raw pointer.
unsafe impl Send for RegisteredHost {}
// SAFETY: as above.
unsafe impl Sync for RegisteredHost {}

impl RegisteredHost {
    /// Registers `len` bytes from `start` on (whole pages) with every GPU of the process.
    ///
    /// # Errors
    /// What the driver says; it does not register a page twice.
    ///
    /// # Safety
    /// The pages are of this kind and stay mapped until the object is dropped.
    pub unsafe fn new(
        device: &Arc<Device>,
        start: NonNull<u8>,
        len: usize,
        kind: HostKind,
    ) -> Result<Self, Error> {
        let _alone = device.alone()?;
        let flags: c_uint = sys::CU_MEMHOSTREGISTER_PORTABLE
            | sys::CU_MEMHOSTREGISTER_DEVICEMAP
            | match kind {
                HostKind::Memory => 0,
                HostKind::Io => sys::CU_MEMHOSTREGISTER_IOMEMORY,
            };
        // SAFETY: mapped pages, as the caller promises. Unregistered in `drop`.
        let result = unsafe { sys::cuMemHostRegister_v2(start.as_ptr().cast(), len, flags) };
        check_about("cuMemHostRegister", result, || format!("of {len} bytes at {start:p} ({kind:?})"))?;
        let mut registered = Self { device: Arc::clone(device), start, address: 0, len };
        registered.address = device_address(start)?;
        Ok(registered)
    }

    /// Its first byte, for the CPU.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Its first byte, for GPUs.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for RegisteredHost {
    fn drop(&mut self) {
        let free = || {
            let _alone = self.device.alone()?;
            // SAFETY: registered in `new`, unregistered once.
            check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(self.start.as_ptr().cast()) })
        };
        log_drop("registered memory", free());
    }
}

/// The GPUs' address of page-locked memory. The context is current.
fn device_address(start: NonNull<u8>) -> Result<u64, Error> {
    let mut address: CUdeviceptr = 0;
    // SAFETY: the driver checks the pointer; the address is written to a live variable.
    let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, start.as_ptr().cast(), 0) };
    check("cuMemHostGetDevicePointer", result)?;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_the_buffer_does() {
        assert_eq!(in_range(0, 8, 8), Ok(()));
        assert_eq!(in_range(8, 0, 8), Ok(()));
        for (offset, len) in [(1, 8), (9, 0), (usize::MAX, 2)] {
            assert_eq!(in_range(offset, len, 8), Err(Error::Range { offset, len, size: 8 }));
        }
    }
}
