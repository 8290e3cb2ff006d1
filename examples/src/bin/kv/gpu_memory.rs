//! GPU memory that the application allocates itself, as a framework does, and plain copies between such memory.
#![allow(unsafe_code, reason = "calls the CUDA driver, and vouches for its own memory")]

use std::ffi::c_int;
use std::sync::Arc;

use rushmem::cudarc::driver::{CudaContext, CudaStream, result, sys};
use rushmem::{GpuBuffer, Pe, Stream};
use rushmem_examples::Result;

use crate::args::MemoryArg;

/// Length of an allocation of virtual memory, in bytes. Allocators that grow by parts map several, one after the other.
const PART: usize = 64 << 20;

/// Allocates `chunks` zeroed 16-byte chunks on the GPU of `pe`.
pub(crate) fn allocate(pe: &Pe, kind: MemoryArg, chunks: usize) -> Result<GpuBuffer<u128, Allocation>> {
    let gpu = pe.gpu().ok_or_else(|| {
        format!(
            "--memory {} is GPU memory, but kernels run natively: use --memory registered or symmetric, or set \
             RUSHMEM_DEVICE=gpu",
            kind.name()
        )
    })?;
    let context = CudaContext::new(gpu as usize)?;
    context.bind_to_thread()?;
    let bytes = chunks * size_of::<u128>();
    let allocation = match kind {
        MemoryArg::Vmm => Allocation::mapped(context, gpu as c_int, bytes)?,
        _ => Allocation::new(context, bytes)?,
    };
    // SAFETY: the bytes were just allocated.
    unsafe { result::memset_d8_sync(allocation.address, 0, bytes) }?;
    let address = allocation.address;
    // SAFETY: the owner keeps the zeroed elements allocated, and nothing else refers to them.
    Ok(unsafe { GpuBuffer::new(allocation, address, chunks) })
}

/// Memory of a GPU, freed on drop.
pub(crate) struct Allocation {
    context: Arc<CudaContext>,
    address: u64,
    kind: Kind,
}

enum Kind {
    /// Memory of `cudaMalloc`.
    Plain,
    /// An address range of `reserved` bytes, and the allocations that are mapped at its start.
    Virtual { reserved: usize, parts: Vec<sys::CUmemGenericAllocationHandle> },
}

impl Allocation {
    fn new(context: Arc<CudaContext>, bytes: usize) -> Result<Self> {
        // SAFETY: the context is current. Freed in `drop`.
        let address = unsafe { result::malloc_sync(bytes) }?;
        Ok(Self { context, address, kind: Kind::Plain })
    }

    /// Maps allocations of virtual memory that other processes can map, one after the other.
    fn mapped(context: Arc<CudaContext>, gpu: c_int, bytes: usize) -> Result<Self> {
        let count = bytes.div_ceil(PART);
        let reserved = count * PART;
        let location =
            sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu };
        let properties = sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location,
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location, flags };
        let mut address = 0;
        // SAFETY: the context is current, and the address is written to a live variable. Freed in `drop`.
        unsafe { sys::cuMemAddressReserve(&mut address, reserved, 0, 0, 0) }.result()?;
        let mut parts = Vec::new();
        for at in (0..count).map(|i| address + (i * PART) as u64) {
            let mut part = 0;
            // SAFETY: live variables, and reserved addresses at which nothing is mapped yet.
            unsafe {
                sys::cuMemCreate(&mut part, PART, &properties, 0).result()?;
                sys::cuMemMap(at, PART, 0, part, 0).result()?;
            }
            parts.push(part);
        }
        // SAFETY: mapped addresses, and one description.
        unsafe { sys::cuMemSetAccess(address, reserved, &access, 1) }.result()?;
        Ok(Self { context, address, kind: Kind::Virtual { reserved, parts } })
    }

    fn free(&self) -> Result<()> {
        self.context.bind_to_thread()?;
        match &self.kind {
            // SAFETY: allocated in `new`, freed once. The window is closed, so nothing uses the memory.
            Kind::Plain => unsafe { result::free_sync(self.address) }?,
            Kind::Virtual { reserved, parts } => {
                // SAFETY: as above, for the mapping, its allocations and addresses.
                unsafe {
                    sys::cuMemUnmap(self.address, *reserved).result()?;
                    for part in parts {
                        sys::cuMemRelease(*part).result()?;
                    }
                    sys::cuMemAddressFree(self.address, *reserved).result()?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            eprintln!("kv: GPU memory cannot be freed: {error}");
        }
    }
}

/// Copies by the copy engine of a PE's GPU.
pub(crate) struct Copies<'a> {
    raw: Arc<CudaStream>,
    /// The same stream, for waits that cost as much as those for kernels.
    pub(crate) stream: Stream<'a>,
}

impl<'a> Copies<'a> {
    /// Returns the copies of `pe`, or `None` if its kernels run natively.
    pub(crate) fn new(pe: &'a Pe) -> Result<Option<Self>> {
        let Some(gpu) = pe.gpu() else { return Ok(None) };
        let raw = CudaContext::new(gpu as usize)?.new_stream()?;
        let stream = pe.stream_from(&raw)?;
        Ok(Some(Self { raw, stream }))
    }

    /// Queues a copy of `chunks` 16-byte chunks between addresses of the PE's kernels.
    pub(crate) fn copy(&self, to: *mut u128, from: *mut u128, chunks: usize) -> Result<()> {
        let bytes = chunks * size_of::<u128>();
        self.raw.context().bind_to_thread()?;
        // SAFETY: both addresses come from `Pe::ptr` of pools with at least `chunks` chunks, which no kernel uses.
        let queued =
            unsafe { result::memcpy_dtod_async(to as u64, from as u64, bytes, self.raw.cu_stream()) };
        Ok(queued?)
    }
}
