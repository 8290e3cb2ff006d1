//! GPU memory that belongs to cudarc.

use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaSlice, DevicePtrMut, DriverError};

use crate::Error;
use crate::error::check;

/// Waits until all work on a slice of cudarc has completed, and returns the address of its first element.
///
/// That is the work in the slice's own stream, and the work of other streams that cudarc's events record.
///
/// # Errors
/// - [`Error::Call`] if such work failed, or if the stream is being captured
pub fn settled_address<T>(slice: &mut CudaSlice<T>) -> Result<u64, Error> {
    let stream = Arc::clone(slice.stream());
    let (address, record) = slice.device_ptr_mut(&stream);
    drop(record);
    // cudarc keeps the errors of the waits that it has just queued.
    let queued = stream.context().check_err();
    let ended = stream.synchronize();
    check("cuStreamWaitEvent", code(queued))?;
    check("cuStreamSynchronize", code(ended))?;
    Ok(address)
}

/// Returns the driver's result behind a result of cudarc.
fn code(result: Result<(), DriverError>) -> CUresult {
    result.map_or_else(|error| error.0, |()| CUresult::CUDA_SUCCESS)
}
