//! GPU memory for other devices of the machine.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use cudarc::driver::sys;

use crate::error::{check, check_about};
use crate::{Cuda, DeviceBuffer, Error};

/// The unit in which memory is handed out to other devices (a CPU page).
const PAGE: u64 = 4096;

impl DeviceBuffer {
    /// A dma-buf of the buffer, which has pages of its own ([`DeviceBuffer::zeroed_pages`]): whole pages.
    ///
    /// # Errors
    /// What the driver says: the GPU, the driver or the kernel may be unable to.
    pub fn dma_buf(&self) -> Result<OwnedFd, Error> {
        let _current = self.device().current()?;
        let mut fd: c_int = -1;
        let len = (self.len() as u64).next_multiple_of(PAGE) as usize;
        let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        // SAFETY: the context is current, and a file descriptor is written to a live variable of its size.
        let result = unsafe {
            sys::cuMemGetHandleForAddressRange((&raw mut fd).cast::<c_void>(), self.address(), len, kind, 0)
        };
        check_about("cuMemGetHandleForAddressRange", result, || format!("of {len} bytes"))?;
        // SAFETY: the driver has just made the descriptor for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Makes copies that another device might overtake (`cudaMemcpy` and its like) wait for their end, as memory that a
    /// NIC reaches needs (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`).
    ///
    /// # Errors
    /// What the driver says.
    pub fn sync_copies(&self) -> Result<(), Error> {
        let _current = self.device().current()?;
        let on: c_uint = 1;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        // SAFETY: the attribute is read from a live variable of its type.
        let result = unsafe {
            sys::cuPointerSetAttribute((&raw const on).cast::<c_void>(), attribute, self.address())
        };
        check("cuPointerSetAttribute", result)
    }
}

impl Cuda {
    /// The PCI address of the GPU with this index, as the system writes it, such as `0000:3b:00.0`. Makes no context.
    ///
    /// # Errors
    /// What the driver says.
    pub fn pci_address(self, ordinal: u32) -> Result<String, Error> {
        let mut device = 0;
        let mut text = [0 as c_char; 32];
        // SAFETY: the driver is initialized; the device is written to a live variable, the text into a buffer of the
        // length that is told, with a zero at its end.
        let text = unsafe {
            check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal as c_int))?;
            let result = sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as c_int, device);
            check("cuDeviceGetPCIBusId", result)?;
            CStr::from_ptr(text.as_ptr()).to_string_lossy().to_ascii_lowercase()
        };
        // The driver may write a domain of eight digits where the system has four.
        Ok(match text.split_once(':') {
            Some((domain, rest)) if domain.len() > 4 => format!("{}:{rest}", &domain[domain.len() - 4..]),
            _ => text,
        })
    }
}
