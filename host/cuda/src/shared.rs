//! GPU memory that other GPUs and other processes can map: CUDA's virtual memory management.
//!
//! An allocation is a handle; an address is reserved, the handle mapped there, and each GPU let in by itself. A file
//! descriptor carries a handle to another process.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUmemGenericAllocationHandle};

use crate::error::{check, check_about, log_drop};
use crate::{Device, DeviceBuffer, Error};

const FD: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Memory of a GPU, mapped for its kernels.
///
/// Making and dropping it may wait for kernels.
pub struct SharedMemory {
    /// Goes before the allocation: fields drop in order.
    room: Room,
    handle: Handle,
}

/// Addresses for the memory of others, in places of equal size, mapped for kernels of `device`.
///
/// Making and dropping it may wait for kernels.
pub struct SharedWindow {
    /// Goes before the allocations: fields drop in order.
    room: Room,
    /// Bytes of a place.
    stride: usize,
    /// What is mapped.
    kept: Vec<Kept>,
}

/// Who has memory that is mapped.
#[expect(dead_code, reason = "kept for as long as it is mapped")]
enum Kept {
    /// Another process.
    Elsewhere(Handle),
    /// This one.
    Here(Arc<DeviceBuffer>),
}

/// An allocation, or a reference to that of another process: it lives as long as somebody has one.
struct Handle {
    device: Arc<Device>,
    raw: CUmemGenericAllocationHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let release = || {
            let _alone = self.device.alone()?;
            // SAFETY: this object's own reference, given back once.
            check("cuMemRelease", unsafe { sys::cuMemRelease(self.raw) })
        };
        log_drop("shared GPU memory", release());
    }
}

/// Reserved addresses, and what is mapped there.
struct Room {
    device: Arc<Device>,
    address: CUdeviceptr,
    len: usize,
    /// Begin and length of each mapping.
    mapped: Vec<(CUdeviceptr, usize)>,
}

impl Room {
    fn reserve(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: the context is current, and the address is written to a live variable. Freed in `drop`.
        let result = unsafe { sys::cuMemAddressReserve(&mut address, len, 0, 0, 0) };
        check_about("cuMemAddressReserve", result, || format!("of {len} bytes"))?;
        Ok(Self { device: Arc::clone(device), address, len, mapped: Vec::new() })
    }

    /// Maps the whole of an allocation of `len` bytes `at` bytes from the beginning, for kernels of this GPU.
    fn map(&mut self, at: usize, len: usize, handle: &Handle) -> Result<(), Error> {
        let address = self.address + at as CUdeviceptr;
        // SAFETY: addresses that were reserved for this, of the allocation's length.
        check("cuMemMap", unsafe { sys::cuMemMap(address, len, 0, handle.raw, 0) })?;
        self.mapped.push((address, len));
        let gpu = self.device.raw();
        let access = sys::CUmemAccessDesc {
            location: place(gpu),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: mapped addresses, and one description of access.
        let result = unsafe { sys::cuMemSetAccess(address, len, &access, 1) };
        check_about("cuMemSetAccess", result, || format!("of {len} bytes for GPU {gpu}"))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let free = || {
            let _alone = self.device.alone()?;
            for &(address, len) in &self.mapped {
                // SAFETY: mapped in `map`; no kernel runs that uses it, as the owner of this object sees to.
                check("cuMemUnmap", unsafe { sys::cuMemUnmap(address, len) })?;
            }
            // SAFETY: reserved in `reserve`, freed once, and nothing is mapped there.
            check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(self.address, self.len) })
        };
        log_drop("addresses of GPU memory", free());
    }
}

fn place(gpu: c_int) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu }
}

fn properties(device: &Device) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FD,
        location: place(device.raw()),
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
    /// Allocates at least `len` bytes, which is not 0. Their content is undefined.
    ///
    /// # Errors
    /// What the driver says, above all that there is not so much memory.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        let _alone = device.alone()?;
        let properties = properties(device);
        let len = len.next_multiple_of(granularity(&properties)?);
        let mut raw: CUmemGenericAllocationHandle = 0;
        // SAFETY: the context is current; the handle is written to a live variable. Released in `drop`.
        let result = unsafe { sys::cuMemCreate(&mut raw, len, &properties, 0) };
        check_about("cuMemCreate", result, || format!("of {len} bytes on GPU {}", device.ordinal()))?;
        let handle = Handle { device: Arc::clone(device), raw };
        let mut room = Room::reserve(device, len)?;
        room.map(0, len, &handle)?;
        Ok(Self { room, handle })
    }

    /// The address of its first byte.
    pub fn address(&self) -> u64 {
        self.room.address
    }

    /// A file descriptor with which another process can [map](SharedWindow::map_file) it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn export(&self) -> Result<OwnedFd, Error> {
        let _current = self.handle.device.current()?;
        let mut fd: c_int = -1;
        // SAFETY: a live handle; the descriptor is written to a live variable of its size.
        let result = unsafe {
            sys::cuMemExportToShareableHandle((&raw mut fd).cast::<c_void>(), self.handle.raw, FD, 0)
        };
        check("cuMemExportToShareableHandle", result)?;
        // SAFETY: the driver has just made the descriptor for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl SharedWindow {
    /// Reserves `slots` places of `len` bytes each, both not 0.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Arc<Device>, slots: usize, len: usize) -> Result<Self, Error> {
        let _alone = device.alone()?;
        let stride = len.next_multiple_of(granularity(&properties(device))?);
        Ok(Self { room: Room::reserve(device, stride * slots)?, stride, kept: Vec::new() })
    }

    /// The address of its first place.
    pub fn address(&self) -> u64 {
        self.room.address
    }

    /// Bytes of a place.
    pub fn stride(&self) -> u64 {
        self.stride as u64
    }

    /// Maps the memory of another process, which [exported](SharedMemory::export) it as `file`, at place number `slot`. True
    /// if atomics of this GPU on it exclude those of the GPU that it belongs to.
    ///
    /// # Errors
    /// What the driver says; [`Error::NoPeer`] if it is the memory of a GPU that this one does not reach.
    pub fn map_file(&mut self, slot: usize, file: &OwnedFd) -> Result<bool, Error> {
        let _alone = self.room.device.alone()?;
        let mut raw: CUmemGenericAllocationHandle = 0;
        // The driver takes the number of the descriptor in the place of a pointer, and keeps none of it.
        let number = file.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the context is current; the handle is written to a live variable. Released in `drop`.
        let result = unsafe { sys::cuMemImportFromShareableHandle(&mut raw, number, FD) };
        check("cuMemImportFromShareableHandle", result)?;
        let handle = Handle { device: Arc::clone(&self.room.device), raw };
        let atomics = self.map(slot, &handle)?;
        self.kept.push(Kept::Elsewhere(handle));
        Ok(atomics)
    }

    /// As [`SharedWindow::map_file`], of memory of this process. `None` if it is not such that others can map it.
    ///
    /// # Errors
    /// As there.
    pub fn map_here(&mut self, slot: usize, buffer: &Arc<DeviceBuffer>) -> Result<Option<bool>, Error> {
        let Some(memory) = buffer.shared() else { return Ok(None) };
        let _alone = self.room.device.alone()?;
        let atomics = self.map(slot, &memory.handle)?;
        self.kept.push(Kept::Here(Arc::clone(buffer)));
        Ok(Some(atomics))
    }

    fn map(&mut self, slot: usize, handle: &Handle) -> Result<bool, Error> {
        let mut properties = std::mem::MaybeUninit::<sys::CUmemAllocationProp>::zeroed();
        // SAFETY: a live handle; the properties are written to a live variable.
        let properties = unsafe {
            let result = sys::cuMemGetAllocationPropertiesFromHandle(properties.as_mut_ptr(), handle.raw);
            check("cuMemGetAllocationPropertiesFromHandle", result)?;
            properties.assume_init()
        };
        let home = properties.location.id;
        reaches(&self.room.device, home)?;
        self.room.map(slot * self.stride, self.stride, handle)?;
        native_atomics(&self.room.device, home)
    }
}

/// Whether atomics of `device` on the memory of another GPU exclude those of that GPU.
fn native_atomics(device: &Device, home: c_int) -> Result<bool, Error> {
    let attribute = sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    if home == device.raw() {
        return Ok(true);
    }
    let mut value: c_int = 0;
    // SAFETY: two devices of this driver, and a live variable.
    let result = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, attribute, device.raw(), home) };
    check("cuDeviceGetP2PAttribute", result)?;
    Ok(value != 0)
}

/// The unit of lengths of such an allocation.
fn granularity(properties: &sys::CUmemAllocationProp) -> Result<usize, Error> {
    let kind = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    let mut unit = 0;
    // SAFETY: the unit is written to a live variable.
    let result = unsafe { sys::cuMemGetAllocationGranularity(&mut unit, properties, kind) };
    check("cuMemGetAllocationGranularity", result)?;
    Ok(unit.max(1))
}

/// Shows that kernels of `device` can reach the memory of another GPU.
fn reaches(device: &Device, home: c_int) -> Result<(), Error> {
    let mut can: c_int = 1;
    if home != device.raw() {
        // SAFETY: two devices of this driver, and a live variable.
        let result = unsafe { sys::cuDeviceCanAccessPeer(&mut can, device.raw(), home) };
        check("cuDeviceCanAccessPeer", result)?;
    }
    if can != 0 { Ok(()) } else { Err(Error::NoPeer { gpu: device.ordinal(), other: home as u32 }) }
}
