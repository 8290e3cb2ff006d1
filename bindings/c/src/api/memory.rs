//! Symmetric memory
#![allow(unsafe_code, reason = "exports functions, and writes results for the caller")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]

use std::ffi::c_void;
use std::ptr;

use rushmem::{Pe, Result};
use rushmem_device::SymSlice;

use super::{peer_of, size};
use crate::addresses::Known;
use crate::error::status;
use crate::handle;
use crate::pointers::Out;
use crate::types::rushmem_pe;

/// Allocates `bytes` zeroed bytes in the symmetric heap of every PE, at a multiple of `align`. Collective.
///
/// All PEs pass the same sizes. `*ptr` becomes the address of this PE's copy: an address of GPU memory if kernels run
/// on a GPU. `align` is 0 for 128 bytes, or a power of two from 8 bytes to 2 MiB. For 0 bytes, `*ptr` becomes null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_malloc(
    pe: *mut rushmem_pe,
    bytes: usize,
    align: usize,
    ptr: *mut *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        allocate("rushmem_malloc", pe, ptr, |pe| match align {
            0 => pe.alloc(bytes),
            align => pe.alloc_aligned(bytes, align as u64),
        })
    }
}

/// Allocates `count` zeroed elements of `bytes` bytes each, as `rushmem_malloc` does. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_calloc(
    pe: *mut rushmem_pe,
    count: usize,
    bytes: usize,
    ptr: *mut *mut c_void,
) -> i32 {
    const CALL: &str = "rushmem_calloc";
    // SAFETY: promised by the caller.
    unsafe { allocate(CALL, pe, ptr, |pe| pe.alloc(size(CALL, count, bytes)?)) }
}

/// Calls `alloc` and writes the address of the new object to `ptr`.
///
/// # Safety
/// `ptr` is null, or valid for a write.
unsafe fn allocate(
    call: &'static str,
    pe: *mut rushmem_pe,
    ptr: *mut *mut c_void,
    alloc: impl FnOnce(&Pe) -> Result<SymSlice<u8>>,
) -> i32 {
    status(|| {
        let handle = handle::get(call, pe)?;
        // SAFETY: promised by the caller.
        let out = unsafe { Out::new(call, "ptr", ptr) }?;
        let object = alloc(handle.pe())?;
        if object.is_empty() {
            out.write(ptr::null_mut());
            return Ok(());
        }
        let address = handle.pe().address(object)?;
        handle.addresses.add(address, Known::Object(object));
        out.write(ptr::with_exposed_provenance_mut(address as usize));
        Ok(())
    })
}

/// Frees an allocation on every PE. Collective, except that a null `ptr` has no effect.
///
/// `ptr` is an address from `rushmem_malloc` or `rushmem_calloc`. Kernels and operations that use the memory must have
/// finished on all PEs.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_free(pe: *mut rushmem_pe, ptr: *mut c_void) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_free";
        let handle = handle::get(CALL, pe)?;
        if ptr.is_null() {
            return Ok(());
        }
        let object = handle.addresses.object(CALL, ptr.addr() as u64)?;
        handle.pe().free(object)?;
        handle.addresses.remove(ptr.addr() as u64);
        Ok(())
    })
}

/// Sets `*address` to the address at which this PE loads and stores the copy of `ptr` on PE `peer`.
///
/// Null if the memory of `peer` is not mapped into this PE, and reached through a NIC. The address cannot be passed to
/// functions of this library. OpenSHMEM's `shmem_ptr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_ptr(
    pe: *mut rushmem_pe,
    ptr: *const c_void,
    peer: i32,
    address: *mut *mut c_void,
) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_ptr";
        let handle = handle::get(CALL, pe)?;
        // SAFETY: promised by the caller.
        let out = unsafe { Out::new(CALL, "address", address) }?;
        let object = handle.addresses.symmetric((CALL, "ptr"), ptr, 1)?;
        let peer = peer_of(CALL, handle.pe(), peer)?;
        out.write(handle.pe().ptr(object, peer).map_or(ptr::null_mut(), |at| at.cast()));
        Ok(())
    })
}
