//! Completion, barriers and streams
//!
//! Streams are `CUstream` handles. A null stream is one that the PE creates for the purpose. Natively, only a null
//! stream is valid. A stream must exist until `rushmem_finalize`. Operations that fail in a stream are reported by
//! `rushmem_stream_synchronize`, and until then later operations in the stream do nothing.
#![allow(unsafe_code, reason = "exports functions, and passes streams of the caller on")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]

use std::ffi::c_void;

use super::{in_stream, issue};
use crate::error::status;
use crate::handle::{self, On};
use crate::operation::Operation;
use crate::streams::RawStream;
use crate::types::rushmem_pe;

/// Completes all earlier operations of the host, of streams, and of kernels that have finished: puts are visible.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_quiet(pe: *mut rushmem_pe) -> i32 {
    issue("rushmem_quiet", pe, On::Host, |_| Ok(Operation::Quiet))
}

/// Queues `rushmem_quiet` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_quiet_on_stream(pe: *mut rushmem_pe, stream: *mut c_void) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue("rushmem_quiet", pe, on, |_| Ok(Operation::Quiet))
}

/// Completes operations as `rushmem_quiet` does, and waits until all PEs have made the call. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_barrier_all(pe: *mut rushmem_pe) -> i32 {
    issue("rushmem_barrier_all", pe, On::Host, |_| Ok(Operation::BarrierAll))
}

/// Queues `rushmem_barrier_all` in a stream. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_barrier_all_on_stream(pe: *mut rushmem_pe, stream: *mut c_void) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue("rushmem_barrier_all", pe, on, |_| Ok(Operation::BarrierAll))
}

/// Waits until all PEs have made the call, without completing operations. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_sync_all(pe: *mut rushmem_pe) -> i32 {
    issue("rushmem_sync_all", pe, On::Host, |_| Ok(Operation::SyncAll))
}

/// Queues `rushmem_sync_all` in a stream. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_sync_all_on_stream(pe: *mut rushmem_pe, stream: *mut c_void) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue("rushmem_sync_all", pe, on, |_| Ok(Operation::SyncAll))
}

/// Waits on the host until all PEs have made the call, which uses the launcher's network. Collective.
///
/// Puts that a PE has completed by `rushmem_quiet` are visible afterwards. With live membership, the call succeeds on all
/// living PEs or on none, so it shows whether a collective call of kernels before it has succeeded on all.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_host_sync(pe: *mut rushmem_pe) -> i32 {
    status(|| handle::get("rushmem_host_sync", pe)?.pe().host_sync())
}

/// Waits until everything in a stream has finished, and returns the error of the first operation that failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_stream_synchronize(pe: *mut rushmem_pe, stream: *mut c_void) -> i32 {
    status(|| {
        // SAFETY: promised by the caller.
        let stream = unsafe { RawStream::new(stream) };
        handle::get("rushmem_stream_synchronize", pe)?.wait(stream)
    })
}
