//! GPU memory that other GPUs and other processes can map: CUDA's virtual memory management.
//!
//! An allocation is a handle; an address is reserved, the handle mapped there, and each GPU let in by itself. A file
//! descriptor carries a handle to another process.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUmemGenericAllocationHandle};

use super::error::{check, check_about, log_drop};
use super::{Device, Error};

const FD: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Memory of a GPU, mapped for kernels of `device`.
///
/// Making and dropping it may wait for kernels.
pub struct SharedMemory {
    /// Goes before the allocation: fields drop in order.
    mapping: Mapping,
    handle: Handle,
    /// The GPU whose memory it is.
    home: c_int,
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

/// Reserved addresses, and whether memory is mapped there.
struct Mapping {
    device: Arc<Device>,
    address: CUdeviceptr,
    len: usize,
    mapped: bool,
}

impl Mapping {
    fn reserve(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: the context is current, and the address is written to a live variable. Freed in `drop`.
        let result = unsafe { sys::cuMemAddressReserve(&mut address, len, 0, 0, 0) };
        check_about("cuMemAddressReserve", result, || format!("of {len} bytes"))?;
        Ok(Self { device: Arc::clone(device), address, len, mapped: false })
    }

    fn map(&mut self, handle: &Handle) -> Result<(), Error> {
        // SAFETY: addresses that were reserved for this, of the allocation's length.
        check("cuMemMap", unsafe { sys::cuMemMap(self.address, self.len, 0, handle.raw, 0) })?;
        self.mapped = true;
        Ok(())
    }

    /// Lets kernels of a GPU read and write here. Those that were let in before stay so.
    fn let_in(&self, gpu: c_int) -> Result<(), Error> {
        let access = sys::CUmemAccessDesc {
            location: at(gpu),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: mapped addresses, and one description of access.
        let result = unsafe { sys::cuMemSetAccess(self.address, self.len, &access, 1) };
        check_about("cuMemSetAccess", result, || format!("of {} bytes for GPU {gpu}", self.len))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let free = || {
            let _alone = self.device.alone()?;
            if self.mapped {
                // SAFETY: mapped in `map`; no kernel runs that uses it, as the owner of this object sees to.
                check("cuMemUnmap", unsafe { sys::cuMemUnmap(self.address, self.len) })?;
            }
            // SAFETY: reserved in `reserve`, freed once, and nothing is mapped there.
            check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(self.address, self.len) })
        };
        log_drop("a mapping of GPU memory", free());
    }
}

fn at(gpu: c_int) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu }
}

impl SharedMemory {
    /// Allocates at least `len` bytes, which is not 0. Their content is undefined.
    ///
    /// # Errors
    /// What the driver says, above all that there is not so much memory.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, Error> {
        let _alone = device.alone()?;
        let home = device.raw();
        let properties = sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: FD,
            location: at(home),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: device.attributes().gpu_direct_rdma.into(),
                usage: 0,
                reserved: [0; 4],
            },
        };
        let unit = granularity(&properties)?;
        let len = len.next_multiple_of(unit);
        let mut raw: CUmemGenericAllocationHandle = 0;
        // SAFETY: the context is current; the handle is written to a live variable. Released in `drop`.
        let result = unsafe { sys::cuMemCreate(&mut raw, len, &properties, 0) };
        check_about("cuMemCreate", result, || format!("of {len} bytes on GPU {}", device.ordinal()))?;
        Self::of(device, Handle { device: Arc::clone(device), raw }, len, home)
    }

    /// Maps at least `len` bytes of another process, whose [`export`](Self::export) `file` is, for kernels of `device`.
    ///
    /// # Errors
    /// What the driver says; [`Error::NoPeer`] if it is the memory of a GPU that `device` does not reach.
    pub fn import(device: &Arc<Device>, file: &OwnedFd, len: usize) -> Result<Self, Error> {
        let _alone = device.alone()?;
        let mut raw: CUmemGenericAllocationHandle = 0;
        // The driver takes the number of the descriptor in the place of a pointer, and keeps none of it.
        let number = file.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the context is current; the handle is written to a live variable. Released in `drop`.
        let result = unsafe { sys::cuMemImportFromShareableHandle(&mut raw, number, FD) };
        check("cuMemImportFromShareableHandle", result)?;
        let handle = Handle { device: Arc::clone(device), raw };
        let mut properties = std::mem::MaybeUninit::<sys::CUmemAllocationProp>::zeroed();
        // SAFETY: a live handle; the properties are written to a live variable.
        let properties = unsafe {
            let result = sys::cuMemGetAllocationPropertiesFromHandle(properties.as_mut_ptr(), handle.raw);
            check("cuMemGetAllocationPropertiesFromHandle", result)?;
            properties.assume_init()
        };
        let len = len.next_multiple_of(granularity(&properties)?);
        reaches(device, properties.location.id)?;
        Self::of(device, handle, len, properties.location.id)
    }

    fn of(device: &Arc<Device>, handle: Handle, len: usize, home: c_int) -> Result<Self, Error> {
        let mut mapping = Mapping::reserve(device, len)?;
        mapping.map(&handle)?;
        mapping.let_in(device.raw())?;
        Ok(Self { mapping, handle, home })
    }

    /// The address of its first byte, for the GPUs that were let in.
    pub fn address(&self) -> u64 {
        self.mapping.address
    }

    /// A file descriptor with which another process can [`import`](Self::import) it.
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

    /// Lets kernels of another GPU of this process use it, at the same address.
    ///
    /// # Errors
    /// [`Error::NoPeer`], or what the driver says.
    pub fn let_in(&self, device: &Arc<Device>) -> Result<(), Error> {
        reaches(device, self.home)?;
        let _alone = device.alone()?;
        self.mapping.let_in(device.raw())
    }

    /// Whether atomics of `device` on it exclude those of the GPU that it belongs to.
    ///
    /// # Errors
    /// What the driver says.
    pub fn native_atomics(&self, device: &Device) -> Result<bool, Error> {
        let attribute = sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
        if self.home == device.raw() {
            return Ok(true);
        }
        let mut value: c_int = 0;
        // SAFETY: two devices of this driver, and a live variable.
        let result = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, attribute, device.raw(), self.home) };
        check("cuDeviceGetP2PAttribute", result)?;
        Ok(value != 0)
    }
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
