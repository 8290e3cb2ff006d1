//! Kernels of other languages
#![allow(unsafe_code, reason = "exports functions, and writes results for the caller")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]

use crate::error::status;
use crate::handle;
use crate::pointers::Out;
use crate::types::rushmem_pe;

/// Sets `*context` to the value that kernels pass to the device functions of Rushmem.
///
/// It is the same for each call and valid until `rushmem_finalize`, so captured graphs may contain it. Kernels reach
/// all symmetric memory that existed when they were launched. On a GPU, the first call waits for running kernels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_context(pe: *mut rushmem_pe, context: *mut u64) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_context";
        let handle = handle::get(CALL, pe)?;
        // SAFETY: promised by the caller.
        let out = unsafe { Out::new(CALL, "context", context) }?;
        out.write(handle.pe().resident_context()?);
        Ok(())
    })
}

/// Returns the error that kernels have recorded since the last call, if any. Does not wait for anything.
///
/// Call it after waiting for kernels that use `rushmem_context`.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_check(pe: *mut rushmem_pe) -> i32 {
    status(|| handle::get("rushmem_check", pe)?.pe().check())
}
