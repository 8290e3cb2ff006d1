//! What the kernels of the conformance suite do besides their call.
#![allow(unsafe_code, reason = "writes to the memory that the launch passes")]

use rushmem_device::arch;

/// Stores the calling thread's result.
///
/// # Safety
/// `out` is the address of a word for each thread of the block.
#[inline(always)]
pub(crate) unsafe fn store(out: u64, result: i64) {
    let words = out as *mut i64;
    // SAFETY: the thread's own word, by this function's contract.
    unsafe { words.add(arch::thread() as usize).write(result) }
}
