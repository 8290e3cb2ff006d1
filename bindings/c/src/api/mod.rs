//! The exported functions, one module per section of the header. The first line of each module is the section's title.

pub mod collectives;
pub mod job;
pub mod kernels;
pub mod membership;
pub mod memory;
pub mod order;
pub mod rma;
pub mod storage;
pub mod teams;
pub mod windows;

use std::ffi::c_void;

use rushmem::{Error, Pe, Result};

use crate::error::status;
use crate::handle::{self, Handle, On};
use crate::operation::Operation;
use crate::streams::RawStream;
use crate::types::rushmem_pe;

/// Issues the operation that `describe` makes of the arguments, and returns its status.
fn issue(
    call: &'static str,
    pe: *mut rushmem_pe,
    on: On,
    describe: impl FnOnce(&Handle) -> Result<Operation>,
) -> i32 {
    status(|| {
        let handle = handle::get(call, pe)?;
        handle.issue(on, describe(&handle)?)
    })
}

/// Returns the place of an operation in a stream of the caller.
///
/// # Safety
/// `stream` is null, or a stream that exists until the PE is finalized.
#[allow(unsafe_code, reason = "passes the caller's promise on")]
unsafe fn in_stream(stream: *mut c_void) -> On {
    // SAFETY: promised by the caller.
    On::Stream(unsafe { RawStream::new(stream) })
}

/// Returns a PE number or another count of the caller, `name`, in the form of the runtime.
///
/// # Errors
/// - [`Error::Misuse`] if it is negative.
fn natural(call: &'static str, name: &str, number: i32) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::misuse(call, format!("`{name}` is {number}")))
}

/// Returns the number `peer` of a PE of the job of `pe`.
///
/// # Errors
/// - [`Error::Misuse`] if there is no such PE.
fn peer_of(call: &'static str, pe: &Pe, peer: i32) -> Result<u32> {
    let (peer, n_pes) = (natural(call, "peer", peer)?, pe.n_pes());
    if peer < n_pes {
        Ok(peer)
    } else {
        Err(Error::misuse(call, format!("there is no PE {peer}: the job has {n_pes}")))
    }
}

/// Returns the size of `count` parts of `each` bytes.
///
/// # Errors
/// - [`Error::Misuse`] if it overflows.
fn size(call: &'static str, count: usize, each: usize) -> Result<usize> {
    let size = count.checked_mul(each);
    size.ok_or_else(|| Error::misuse(call, format!("the size of {count} x {each} bytes overflows")))
}
