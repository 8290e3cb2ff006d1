//! GPU memory that other GPUs and other processes can map, based on CUDA's virtual memory management.
//!
//! An allocation is represented by a handle. To use it, a process reserves an address range, maps the handle there and
//! grants access to its GPU. A file descriptor transfers a handle to another process.
//!
//! Creating and dropping the objects of this module are blocking driver calls, so they pass the driver gate.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUmemGenericAllocationHandle, CUresult};

use crate::error::{check, check_with, log_drop};
use crate::{Device, Error};

const FILE_DESCRIPTOR: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// GPU memory that is mapped for the GPU that owns it, and that other GPUs and processes can map.
pub struct SharedMemory {
    /// Address range at which the allocation is mapped. Declared first, so the mapping is dropped before the
    /// allocation.
    addresses: ReservedAddresses,
    handle: Arc<Handle>,
}

/// Address range through which the kernels of one GPU access the shared memory of peers.
///
/// It consists of slots of equal length, one for each peer.
pub struct PeerMappings {
    /// Slots of all peers. Declared first, so the mappings are dropped before the allocations.
    addresses: ReservedAddresses,
    /// Distance between the starts of two adjacent slots, in bytes.
    stride: usize,
    /// Keeps the mapped allocations alive.
    memory: Vec<Arc<Handle>>,
}

/// A reference to an allocation of this or another process. The driver frees the memory when the last reference is
/// released.
pub(crate) struct Handle {
    device: Arc<Device>,
    raw: CUmemGenericAllocationHandle,
}

impl Handle {
    /// Returns a reference to the allocation that is mapped at `address`, or `None` if it is not virtual memory.
    pub(crate) fn at(device: &Arc<Device>, address: u64) -> Result<Option<Self>, Error> {
        let mut raw: CUmemGenericAllocationHandle = 0;
        let _current = device.make_current()?;
        // SAFETY: the context is current. The handle is written to a live variable and released in `drop`.
        let result = unsafe { sys::cuMemRetainAllocationHandle(&mut raw, address as *mut c_void) };
        // The result for other memory depends on the driver.
        let is_virtual = result == CUresult::CUDA_SUCCESS;
        Ok(is_virtual.then(|| Self { device: Arc::clone(device), raw }))
    }

    /// Imports an allocation that another process [exported](Self::export). The context is current.
    pub(crate) fn import(device: &Arc<Device>, file: &OwnedFd) -> Result<Self, Error> {
        let mut raw: CUmemGenericAllocationHandle = 0;
        // The driver expects the descriptor's number in the pointer argument. It does not keep the descriptor.
        let number = file.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the context is current. The handle is written to a live variable and released in `drop`.
        let result = unsafe { sys::cuMemImportFromShareableHandle(&mut raw, number, FILE_DESCRIPTOR) };
        check("cuMemImportFromShareableHandle", result)?;
        Ok(Self { device: Arc::clone(device), raw })
    }

    pub(crate) fn export(&self) -> Result<OwnedFd, Error> {
        let _current = self.device.make_current()?;
        let mut fd: c_int = -1;
        // SAFETY: a live handle. The descriptor is written to a live variable of its size.
        let result = unsafe {
            sys::cuMemExportToShareableHandle((&raw mut fd).cast::<c_void>(), self.raw, FILE_DESCRIPTOR, 0)
        };
        check("cuMemExportToShareableHandle", result)?;
        // SAFETY: the driver has just created the descriptor for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Returns the GPU that owns the memory.
    fn owner(&self) -> Result<c_int, Error> {
        let mut properties = std::mem::MaybeUninit::<sys::CUmemAllocationProp>::zeroed();
        // SAFETY: a live handle. The properties are written to a live variable. Only the integer is read: other fields
        // may hold values that their Rust types do not have, such as several handle types at once.
        unsafe {
            let result = sys::cuMemGetAllocationPropertiesFromHandle(properties.as_mut_ptr(), self.raw);
            check("cuMemGetAllocationPropertiesFromHandle", result)?;
            Ok((&raw const (*properties.as_ptr()).location.id).read())
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let release = || {
            let _exclusive = self.device.exclusive()?;
            // SAFETY: the reference of this object, released once.
            check("cuMemRelease", unsafe { sys::cuMemRelease(self.raw) })
        };
        log_drop("shared GPU memory", release());
    }
}

/// A reserved address range, with the mappings in it. Dropping it removes both.
pub(crate) struct ReservedAddresses {
    device: Arc<Device>,
    pub(crate) address: CUdeviceptr,
    len: usize,
    /// Address and length of each mapping.
    mapped: Vec<(CUdeviceptr, usize)>,
}

impl ReservedAddresses {
    pub(crate) fn reserve(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: the context is current. The address is written to a live variable and freed in `drop`.
        let result = unsafe { sys::cuMemAddressReserve(&mut address, len, 0, 0, 0) };
        check_with("cuMemAddressReserve", result, || format!("of {len} bytes"))?;
        Ok(Self { device: Arc::clone(device), address, len, mapped: Vec::new() })
    }

    /// Maps a whole allocation of another PE, of `len` bytes, at `offset`, and grants access to kernels of this GPU.
    /// Returns the GPU that owns it.
    pub(crate) fn map_peer(&mut self, offset: usize, len: usize, handle: &Handle) -> Result<c_int, Error> {
        let owner = handle.owner()?;
        check_peer_access(&self.device, owner)?;
        self.map(offset, len, handle)?;
        Ok(owner)
    }

    /// Maps a whole allocation of `len` bytes at `offset`, and grants access to kernels of this GPU.
    fn map(&mut self, offset: usize, len: usize, handle: &Handle) -> Result<(), Error> {
        let address = self.address + offset as CUdeviceptr;
        // SAFETY: the driver checks that the addresses are reserved and that the allocation has this length.
        check("cuMemMap", unsafe { sys::cuMemMap(address, len, 0, handle.raw, 0) })?;
        // Recorded before the next call can fail, so `drop` unmaps it in any case.
        self.mapped.push((address, len));
        let (gpu, access) = (self.device.raw(), access(&self.device));
        // SAFETY: mapped addresses, and one access description.
        let result = unsafe { sys::cuMemSetAccess(address, len, &access, 1) };
        check_with("cuMemSetAccess", result, || format!("of {len} bytes for GPU {gpu}"))
    }
}

impl Drop for ReservedAddresses {
    fn drop(&mut self) {
        let free = || {
            let _exclusive = self.device.exclusive()?;
            for &(address, len) in &self.mapped {
                // SAFETY: mapped in `map`. The owner of this object ensures that no running kernel uses the mapping.
                check("cuMemUnmap", unsafe { sys::cuMemUnmap(address, len) })?;
            }
            // SAFETY: reserved in `reserve` and freed once. Nothing is mapped there any more.
            check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(self.address, self.len) })
        };
        log_drop("an address range of GPU memory", free());
    }
}

fn location(gpu: c_int) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu }
}

/// Returns the description of read and write access by kernels of `device`.
pub(crate) fn access(device: &Device) -> sys::CUmemAccessDesc {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    sys::CUmemAccessDesc { location: location(device.raw()), flags }
}

fn properties(device: &Device) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FILE_DESCRIPTOR,
        location: location(device.raw()),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: device.attributes().gpu_direct_rdma.into(),
            usage: 0,
            reserved: [0; 4],
        },
    }
}

impl SharedMemory {
    /// Allocates at least `len` bytes with undefined content. `len` must not be 0.
    ///
    /// # Errors
    /// - [`Error::Call`] if the GPU has too little free memory, or cannot export memory as a file descriptor
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        // Declared before the guard. If a call fails, their destructors run after it, as they take it themselves.
        let (handle, mut addresses);
        let _exclusive = device.exclusive()?;
        let properties = properties(device);
        let len = len.next_multiple_of(granularity(&properties)?);
        let mut raw: CUmemGenericAllocationHandle = 0;
        // SAFETY: the context is current. The handle is written to a live variable and released in `drop`.
        let result = unsafe { sys::cuMemCreate(&mut raw, len, &properties, 0) };
        check_with("cuMemCreate", result, || format!("of {len} bytes on GPU {}", device.ordinal()))?;
        handle = Handle { device: Arc::clone(device), raw };
        addresses = ReservedAddresses::reserve(device, len)?;
        addresses.map(0, len, &handle)?;
        Ok(Self { addresses, handle: Arc::new(handle) })
    }

    /// Maps the memory of this GPU, at least `len` bytes, that another process [exported](Self::export) as `file`.
    ///
    /// # Errors
    /// - [`Error::WrongMemoryGpu`] if the memory belongs to another GPU
    /// - [`Error::Call`] if the driver refuses, for example because the memory has another length
    pub(crate) fn import(device: &Arc<Device>, file: &OwnedFd, len: usize) -> Result<Self, Error> {
        // Declared before the guard, as in `new`.
        let (handle, mut addresses);
        let _exclusive = device.exclusive()?;
        let len = len.next_multiple_of(granularity(&properties(device))?);
        handle = Handle::import(device, file)?;
        addresses = ReservedAddresses::reserve(device, len)?;
        let owner = handle.owner()?;
        if owner != device.raw() {
            let address = addresses.address;
            return Err(Error::WrongMemoryGpu { address, gpu: owner, wanted: device.ordinal() });
        }
        addresses.map(0, len, &handle)?;
        Ok(Self { addresses, handle: Arc::new(handle) })
    }

    /// Returns the address of the first byte, for kernels of the GPU that owns the memory.
    pub fn address(&self) -> u64 {
        self.addresses.address
    }

    /// Exports the memory as a file descriptor, which another process can [map](PeerMappings::map_file).
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    pub fn export(&self) -> Result<OwnedFd, Error> {
        self.handle.export()
    }
}

impl PeerMappings {
    /// Reserves addresses for `count` peers with at least `len` bytes each. Neither may be 0.
    ///
    /// # Errors
    /// - [`Error::Call`] if the address space is exhausted
    pub fn new(device: &Arc<Device>, count: usize, len: usize) -> Result<Self, Error> {
        let _exclusive = device.exclusive()?;
        let stride = len.next_multiple_of(granularity(&properties(device))?);
        let addresses = ReservedAddresses::reserve(device, stride * count)?;
        Ok(Self { addresses, stride, memory: Vec::new() })
    }

    /// Returns the address of slot 0, for kernels of this GPU.
    pub fn address(&self) -> u64 {
        self.addresses.address
    }

    /// Returns the distance between the starts of two adjacent slots, in bytes.
    pub fn stride(&self) -> u64 {
        self.stride as u64
    }

    /// Maps memory that another process [exported](SharedMemory::export) as `file` at slot `index`.
    ///
    /// Returns whether atomic operations of this GPU on the memory are atomic towards the GPU that owns it.
    ///
    /// # Errors
    /// - [`Error::NoPeerAccess`] if this GPU cannot access the memory of the owning GPU
    /// - [`Error::Call`] if the driver refuses, for example because the memory has another length
    pub fn map_file(&mut self, index: usize, file: &OwnedFd) -> Result<bool, Error> {
        // Declared before the guard, as in `SharedMemory::new`.
        let handle;
        let _exclusive = self.addresses.device.exclusive()?;
        handle = Handle::import(&self.addresses.device, file)?;
        let atomics = self.map(index, &handle)?;
        self.memory.push(Arc::new(handle));
        Ok(atomics)
    }

    /// Maps memory of this process at slot `index`.
    ///
    /// Returns whether atomic operations of this GPU on the memory are atomic towards the GPU that owns it.
    ///
    /// # Errors
    /// - [`Error::NoPeerAccess`] if this GPU cannot access the memory of the owning GPU
    /// - [`Error::Call`] if the driver refuses, for example because the memory has another length
    pub fn map_memory(&mut self, index: usize, memory: &SharedMemory) -> Result<bool, Error> {
        let _exclusive = self.addresses.device.exclusive()?;
        let atomics = self.map(index, &memory.handle)?;
        self.memory.push(Arc::clone(&memory.handle));
        Ok(atomics)
    }

    /// Maps an allocation at slot `index`. Returns whether atomic operations of this GPU on it are atomic towards the
    /// GPU that owns it.
    fn map(&mut self, index: usize, handle: &Handle) -> Result<bool, Error> {
        let owner = self.addresses.map_peer(index * self.stride, self.stride, handle)?;
        native_atomics(&self.addresses.device, owner)
    }
}

/// Returns whether atomic operations of `device` on the memory of GPU `owner` are atomic with respect to that GPU.
fn native_atomics(device: &Device, owner: c_int) -> Result<bool, Error> {
    let attribute = sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    if owner == device.raw() {
        return Ok(true);
    }
    let mut value: c_int = 0;
    // SAFETY: two devices of this driver, and a live variable.
    let result = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, attribute, device.raw(), owner) };
    check("cuDeviceGetP2PAttribute", result)?;
    Ok(value != 0)
}

/// Returns the granularity of allocations with these properties, in bytes.
fn granularity(properties: &sys::CUmemAllocationProp) -> Result<usize, Error> {
    let kind = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    let mut unit = 0;
    // SAFETY: the unit is written to a live variable.
    let result = unsafe { sys::cuMemGetAllocationGranularity(&mut unit, properties, kind) };
    check("cuMemGetAllocationGranularity", result)?;
    Ok(unit.max(1))
}

/// Checks that kernels of `device` can access the memory of GPU `owner`.
pub(crate) fn check_peer_access(device: &Device, owner: c_int) -> Result<(), Error> {
    let mut can_access: c_int = 1;
    if owner != device.raw() {
        // SAFETY: two devices of this driver, and a live variable.
        let result = unsafe { sys::cuDeviceCanAccessPeer(&mut can_access, device.raw(), owner) };
        check("cuDeviceCanAccessPeer", result)?;
    }
    match can_access {
        0 => Err(Error::NoPeerAccess { gpu: device.ordinal(), other: owner as u32 }),
        _ => Ok(()),
    }
}
