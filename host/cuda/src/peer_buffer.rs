//! GPU memory that the application has allocated, as other GPUs and other processes access it.
//!
//! How it was allocated decides what they need:
//!
//! - `cudaMalloc`: peer access between the GPUs, or CUDA IPC between processes
//! - virtual memory: the handles of its allocations, which a process passes on as files
//! - memory pools (`cudaMallocAsync`): access to the pool; the processes of other PEs cannot get that afterwards
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUpointer_attribute, CUresult};

use crate::error::{check, check_with, log_drop};
use crate::shared::{Handle, ReservedAddresses, access, check_peer_access};
use crate::{Device, DeviceBuffer, Error};

/// Length of a CUDA IPC handle, in bytes.
pub const IPC_HANDLE_BYTES: usize = size_of::<sys::CUipcMemHandle>();

/// What another process of the same node needs to map a buffer.
pub enum ExportedBuffer {
    /// CUDA IPC.
    Ipc {
        /// Handle of the allocation that contains the buffer.
        handle: [u8; IPC_HANDLE_BYTES],
        /// Offset of the buffer in the allocation, in bytes.
        offset: u64,
    },
    /// Virtual memory.
    Virtual {
        /// The adjacent allocations in which the buffer lies, as files with their lengths in bytes.
        allocations: Vec<(Arc<OwnedFd>, u64)>,
        /// Offset of the buffer in the first allocation, in bytes.
        offset: u64,
    },
}

/// A buffer of another PE, accessible to the kernels of one GPU while this object exists.
///
/// Creating and dropping it are blocking driver calls, so they pass the driver gate.
pub struct PeerBuffer {
    address: CUdeviceptr,
    _mapping: Mapping,
}

/// What keeps the memory accessible.
enum Mapping {
    /// Memory of this process, at its own address.
    Process(#[expect(dead_code, reason = "keeps the buffer alive")] Arc<DeviceBuffer>),
    Ipc(#[expect(dead_code, reason = "closes the handle on drop")] IpcMapping),
    Virtual(#[expect(dead_code, reason = "unmaps on drop")] VirtualMapping),
}

impl DeviceBuffer {
    /// Exports the buffer to other processes, which [open](PeerBuffer::open) it.
    ///
    /// # Errors
    /// - [`Error::NotShareable`] if its allocator did not allow that
    /// - [`Error::Call`] if the driver refuses
    pub fn export(&self) -> Result<ExportedBuffer, Error> {
        match Origin::of(self)? {
            Origin::Allocation => self.export_allocation(),
            Origin::Virtual(_) if self.handle_types()? & POSIX_FILES == 0 => Err(self.not_shareable(
                "it was created without the handle type CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
            )),
            Origin::Virtual(first) => {
                let (allocations, offset) = self.allocations(first)?;
                let file = |(handle, len): (Handle, u64)| Ok((Arc::new(handle.export()?), len));
                let allocations = allocations.into_iter().map(file).collect::<Result<_, Error>>()?;
                Ok(ExportedBuffer::Virtual { allocations, offset })
            }
            Origin::Pool(_) => Err(self.not_shareable(
                "it belongs to a memory pool (cudaMallocAsync); use cudaMalloc or cuMemCreate instead",
            )),
        }
    }

    fn export_allocation(&self) -> Result<ExportedBuffer, Error> {
        let (base, _) = self.allocation_at(self.address())?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; IPC_HANDLE_BYTES] };
        let _current = self.device().make_current()?;
        // SAFETY: the context is current. The handle is written to a live variable.
        check("cuIpcGetMemHandle", unsafe { sys::cuIpcGetMemHandle(&mut handle, base) })?;
        let handle = handle.reserved.map(|byte| byte.to_ne_bytes()[0]);
        Ok(ExportedBuffer::Ipc { handle, offset: self.address() - base })
    }

    /// Returns the handles of the allocations that contain the buffer, with their lengths, and the offset of the buffer
    /// in the first.
    fn allocations(&self, first: Handle) -> Result<(Vec<(Handle, u64)>, u64), Error> {
        let (base, len) = self.allocation_at(self.address())?;
        let (mut all, mut at) = (vec![(first, len)], base + len);
        while at < self.address() + self.len() as u64 {
            let handle = Handle::at(self.device(), at)?;
            let handle = handle.ok_or_else(|| self.not_shareable("its end is not virtual memory"))?;
            let (base, len) = self.allocation_at(at)?;
            all.push((handle, len));
            at = base + len;
        }
        Ok((all, self.address() - base))
    }

    /// Returns the address and the length of the allocation that contains `address`.
    fn allocation_at(&self, address: u64) -> Result<(u64, u64), Error> {
        let (mut base, mut len): (CUdeviceptr, usize) = (0, 0);
        let _current = self.device().make_current()?;
        // SAFETY: the context is current. Both are written to live variables.
        let result = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut len, address) };
        check_with("cuMemGetAddressRange", result, || format!("of {address:#x}"))?;
        Ok((base, len as u64))
    }

    /// Returns the types of handles that the allocation may be exported as, as bits.
    fn handle_types(&self) -> Result<u64, Error> {
        let mut types = 0_u64;
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES;
        // SAFETY: the driver writes at most 8 bytes.
        unsafe { self.attribute(attribute, (&raw mut types).cast()) }?;
        Ok(types)
    }

    /// Reads an attribute of the buffer's address.
    ///
    /// # Safety
    /// `value` points to a variable of the attribute's type.
    unsafe fn attribute(&self, attribute: CUpointer_attribute, value: *mut c_void) -> Result<(), Error> {
        let _current = self.device().make_current()?;
        // SAFETY: promised by the caller. The driver checks the address.
        let result = unsafe { sys::cuPointerGetAttribute(value, attribute, self.address()) };
        check_with("cuPointerGetAttribute", result, || format!("{attribute:?} of {:#x}", self.address()))
    }

    fn not_shareable(&self, why: &'static str) -> Error {
        Error::NotShareable { address: self.address(), why }
    }
}

/// Bit of `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX_FILES: u64 = 1;

/// How a buffer was allocated.
enum Origin {
    /// By `cudaMalloc`.
    Allocation,
    /// As virtual memory, with the handle of the first allocation.
    Virtual(Handle),
    /// In a memory pool.
    Pool(sys::CUmemoryPool),
}

impl Origin {
    fn of(buffer: &DeviceBuffer) -> Result<Self, Error> {
        let mut ipc: c_int = 0;
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
        // SAFETY: a live variable of the attribute's type.
        unsafe { buffer.attribute(attribute, (&raw mut ipc).cast()) }?;
        if ipc != 0 {
            return Ok(Self::Allocation);
        }
        if let Some(first) = Handle::at(buffer.device(), buffer.address())? {
            return Ok(Self::Virtual(first));
        }
        let mut pool: sys::CUmemoryPool = ptr::null_mut();
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
        // SAFETY: as above.
        let found = unsafe { buffer.attribute(attribute, (&raw mut pool).cast()) };
        // If it is not in a pool, the driver decides what can be done with it.
        Ok(if found.is_ok() && !pool.is_null() { Self::Pool(pool) } else { Self::Allocation })
    }
}

impl PeerBuffer {
    /// Makes a buffer of this process accessible to kernels of `device`.
    ///
    /// Access to memory of `cudaMalloc` or a memory pool is granted for good and covers all such memory of the GPU or
    /// the pool, as by `cudaDeviceEnablePeerAccess` or `cudaMemPoolSetAccess`.
    ///
    /// # Errors
    /// - [`Error::NoPeerAccess`] if `device` cannot access the memory of the owning GPU
    /// - [`Error::Call`] if the driver refuses
    pub fn of_process(device: &Arc<Device>, buffer: &Arc<DeviceBuffer>) -> Result<Self, Error> {
        let owner = buffer.device();
        check_peer_access(device, owner.raw())?;
        match Origin::of(buffer)? {
            Origin::Virtual(first) => {
                let (allocations, offset) = buffer.allocations(first)?;
                return Ok(Self::of_virtual(VirtualMapping::new(device, allocations)?, offset));
            }
            Origin::Pool(pool) => {
                let _current = owner.make_current()?;
                // SAFETY: the pool of live memory, and one access description.
                let result = unsafe { sys::cuMemPoolSetAccess(pool, &access(device), 1) };
                check("cuMemPoolSetAccess", result)?;
            }
            Origin::Allocation if owner.raw() != device.raw() => {
                let _exclusive = device.exclusive()?;
                // SAFETY: the context is current, and the device keeps its own alive.
                let result = unsafe { sys::cuCtxEnablePeerAccess(owner.context(), 0) };
                if result != CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
                    check("cuCtxEnablePeerAccess", result)?;
                }
            }
            Origin::Allocation => {}
        }
        Ok(Self { address: buffer.address(), _mapping: Mapping::Process(Arc::clone(buffer)) })
    }

    /// Maps a buffer of another process for kernels of `device`.
    ///
    /// # Errors
    /// - [`Error::NoPeerAccess`] if `device` cannot access the memory of the owning GPU
    /// - [`Error::Call`] if the driver refuses
    pub fn open(device: &Arc<Device>, exported: &ExportedBuffer) -> Result<Self, Error> {
        match exported {
            ExportedBuffer::Ipc { handle, offset } => {
                let mapping = IpcMapping::open(device, handle)?;
                Ok(Self { address: mapping.base + offset, _mapping: Mapping::Ipc(mapping) })
            }
            ExportedBuffer::Virtual { allocations, offset } => {
                let import = |(file, len): &(Arc<OwnedFd>, u64)| {
                    let _current = device.make_current()?;
                    Ok((Handle::import(device, file)?, *len))
                };
                let allocations = allocations.iter().map(import).collect::<Result<_, Error>>()?;
                Ok(Self::of_virtual(VirtualMapping::new(device, allocations)?, *offset))
            }
        }
    }

    fn of_virtual(mapping: VirtualMapping, offset: u64) -> Self {
        Self { address: mapping.addresses.address + offset, _mapping: Mapping::Virtual(mapping) }
    }

    /// Returns the address of the first byte, for kernels of this GPU.
    pub fn address(&self) -> u64 {
        self.address
    }
}

/// An allocation of another process, opened by CUDA IPC.
struct IpcMapping {
    device: Arc<Device>,
    base: CUdeviceptr,
}

impl IpcMapping {
    fn open(device: &Arc<Device>, handle: &[u8; IPC_HANDLE_BYTES]) -> Result<Self, Error> {
        let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| c_char::from_ne_bytes([byte])) };
        let mut base: CUdeviceptr = 0;
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as c_uint;
        let _exclusive = device.exclusive()?;
        // SAFETY: the context is current. The address is written to a live variable and closed in `drop`. A context
        // that opens a handle again gets the same address, and has to close it as often.
        let result = unsafe { sys::cuIpcOpenMemHandle_v2(&mut base, handle, flags) };
        check("cuIpcOpenMemHandle", result)?;
        Ok(Self { device: Arc::clone(device), base })
    }
}

impl Drop for IpcMapping {
    fn drop(&mut self) {
        let close = || {
            let _exclusive = self.device.exclusive()?;
            // SAFETY: opened in `open`, closed once.
            check("cuIpcCloseMemHandle", unsafe { sys::cuIpcCloseMemHandle(self.base) })
        };
        log_drop("GPU memory of another process", close());
    }
}

/// Adjacent mappings of another PE's allocations. Fields drop in order: the mappings before the allocations.
struct VirtualMapping {
    addresses: ReservedAddresses,
    _allocations: Vec<(Handle, u64)>,
}

impl VirtualMapping {
    fn new(device: &Arc<Device>, allocations: Vec<(Handle, u64)>) -> Result<Self, Error> {
        // Declared before the guard. If a call fails, it is dropped after it, as its destructor takes it, too.
        let mut addresses;
        let _exclusive = device.exclusive()?;
        let len: u64 = allocations.iter().map(|(_, len)| len).sum();
        addresses = ReservedAddresses::reserve(device, len as usize)?;
        let mut at = 0;
        for (handle, len) in &allocations {
            addresses.map_peer(at, *len as usize, handle)?;
            at += *len as usize;
        }
        Ok(Self { addresses, _allocations: allocations })
    }
}
