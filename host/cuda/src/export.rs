//! Preparation of GPU memory for NICs: export as a dma-buf, and copies that return only after completion.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use cudarc::driver::sys;
use rushmem_softnic::page_size;

use crate::error::{check, check_with};
use crate::{DeviceBuffer, Error};

/// How devices reach the memory of a dma-buf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaBufMapping {
    /// As the driver chooses, which is by way of the CPU where NVLink connects it with the GPU.
    Default,
    /// Through the GPU's BAR on PCIe. Drivers before CUDA 12.8 and some platforms do not offer it.
    Pcie,
}

impl DmaBufMapping {
    /// Returns the flags of `cuMemGetHandleForAddressRange`.
    const fn flags(self) -> u64 {
        match self {
            Self::Default => 0,
            // CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE
            Self::Pcie => 1,
        }
    }
}

impl DeviceBuffer {
    /// Exports the buffer as a dma-buf. Its length is rounded up to whole pages of the CPU.
    ///
    /// The buffer must not share pages with other allocations, or the NIC could access those too. Allocate it with
    /// [`DeviceBuffer::zeroed_pages`].
    ///
    /// # Errors
    /// - [`Error::Call`] if the GPU, the driver or the Linux kernel does not support dma-buf, or not with this mapping
    pub fn dma_buf(&self, mapping: DmaBufMapping) -> Result<OwnedFd, Error> {
        let _current = self.device().make_current()?;
        let mut fd: c_int = -1;
        let len = self.len().next_multiple_of(page_size());
        let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        // SAFETY: the context is current. A file descriptor is written to a live variable of its size.
        let result = unsafe {
            sys::cuMemGetHandleForAddressRange(
                (&raw mut fd).cast::<c_void>(),
                self.address(),
                len,
                kind,
                mapping.flags(),
            )
        };
        check_with("cuMemGetHandleForAddressRange", result, || format!("of {len} bytes"))?;
        // SAFETY: the driver has just created the descriptor for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Sets `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`: synchronous copies and fills of the buffer, such as `cudaMemcpy`, then
    /// return only after completion.
    ///
    /// Memory that a NIC accesses needs this. Otherwise such a call may return early, and the NIC could access the
    /// memory before the copy.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    pub fn sync_copies(&self) -> Result<(), Error> {
        let _current = self.device().make_current()?;
        let on: c_uint = 1;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        // SAFETY: the attribute is read from a live variable of its type.
        let result = unsafe {
            sys::cuPointerSetAttribute((&raw const on).cast::<c_void>(), attribute, self.address())
        };
        check("cuPointerSetAttribute", result)
    }
}
