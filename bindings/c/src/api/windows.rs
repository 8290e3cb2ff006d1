//! Memory of the caller
#![allow(unsafe_code, reason = "exports functions, and registers memory of the caller")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]

use std::ffi::c_void;

use rushmem::{Error, UnregisterError};
use rushmem_base::lock;

use crate::addresses::Known;
use crate::caller_memory::CallerMemory;
use crate::error::status;
use crate::handle::{self, ticket};
use crate::pointers::Out;
use crate::types::{rushmem_pe, rushmem_window};

/// Registers the `bytes` bytes at `ptr` of every PE as symmetric memory. Collective.
///
/// All PEs pass the same size; addresses may differ. The memory is host memory or memory of the PE's GPU, aligned to 16
/// bytes. Nothing is copied. From then on, addresses in it are addresses of symmetric memory. The memory must stay
/// allocated until `rushmem_unregister_symmetric` or `rushmem_finalize` has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_register_symmetric(
    pe: *mut rushmem_pe,
    ptr: *mut c_void,
    bytes: usize,
    window: *mut *mut rushmem_window,
) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_register_symmetric";
        let handle = handle::get(CALL, pe)?;
        // SAFETY: promised by the caller.
        let (out, memory) =
            unsafe { (Out::new(CALL, "window", window)?, CallerMemory::new(CALL, handle.pe(), ptr, bytes)?) };
        let registered = handle.pe().register_symmetric(memory)?;
        let address = ptr.expose_provenance() as u64;
        handle.addresses.add(address, Known::Window(registered.handle()));
        let ticket = ticket::<rushmem_window>();
        lock(&handle.windows).insert(ticket.addr(), (address, registered));
        out.write(ticket);
        Ok(())
    })
}

/// Unregisters a window on every PE. Collective. No PE accesses the memory after the call.
///
/// Kernels and operations that use it must have finished on all PEs. If the call fails, the window remains valid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_unregister_symmetric(pe: *mut rushmem_pe, window: *mut rushmem_window) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_unregister_symmetric";
        let handle = handle::get(CALL, pe)?;
        let found = lock(&handle.windows).remove(&window.addr());
        let (address, registered) = found.ok_or_else(|| {
            Error::misuse(CALL, format!("`window` ({window:p}) is not a window, or has been unregistered"))
        })?;
        match handle.pe().unregister_symmetric(registered) {
            Ok(_) => {
                handle.addresses.remove(address);
                Ok(())
            }
            Err(UnregisterError { error, registration }) => {
                lock(&handle.windows).insert(window.addr(), (address, *registration));
                Err(*error)
            }
        }
    })
}

/// Registers the `bytes` bytes at `ptr` for the local side of transfers by this PE. Not collective.
///
/// Addresses in them can be the source of a put and the destination of a get. The memory must stay allocated until
/// `rushmem_unregister` or `rushmem_finalize` has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_register(pe: *mut rushmem_pe, ptr: *mut c_void, bytes: usize) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_register";
        let handle = handle::get(CALL, pe)?;
        // SAFETY: promised by the caller.
        let memory = unsafe { CallerMemory::new(CALL, handle.pe(), ptr, bytes) }?;
        let registered = handle.pe().register(memory)?;
        let address = ptr.expose_provenance() as u64;
        handle.addresses.add(address, Known::Local(registered.handle()));
        lock(&handle.buffers).insert(address, registered);
        Ok(())
    })
}

/// Unregisters the local buffer that starts at `ptr`. Not collective.
///
/// Kernels and operations that use it must have finished. If the call fails, the buffer remains registered.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_unregister(pe: *mut rushmem_pe, ptr: *mut c_void) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_unregister";
        let handle = handle::get(CALL, pe)?;
        let address = ptr.addr() as u64;
        let found = lock(&handle.buffers).remove(&address);
        let registered = found.ok_or_else(|| {
            Error::misuse(CALL, format!("{ptr:p} is not a local buffer, or has been unregistered"))
        })?;
        match handle.pe().unregister(registered) {
            Ok(_) => {
                handle.addresses.remove(address);
                Ok(())
            }
            Err(UnregisterError { error, registration }) => {
                lock(&handle.buffers).insert(address, *registration);
                Err(*error)
            }
        }
    })
}
