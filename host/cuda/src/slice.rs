//! Access to GPU memory that the application has allocated with cudarc.

use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaSlice, DevicePtrMut, DriverError};

use crate::Error;
use crate::error::check;

/// Blocks until all work on a cudarc slice has completed. Returns the address of its first element.
///
/// This covers the slice's own stream, and other streams as far as cudarc's events track them.
///
/// # Errors
/// - [`Error::Call`] if such work failed, or if the stream is being captured
pub fn settled_address<T>(slice: &mut CudaSlice<T>) -> Result<u64, Error> {
    let stream = Arc::clone(slice.stream());
    let (address, record) = slice.device_ptr_mut(&stream);
    drop(record);
    // cudarc stores errors of the event waits it has just queued in the context, instead of returning them.
    let queued = stream.context().check_err();
    let ended = stream.synchronize();
    check("cuStreamWaitEvent", code(queued))?;
    check("cuStreamSynchronize", code(ended))?;
    Ok(address)
}

/// Converts the result of a call of cudarc to the driver's result code.
fn code(result: Result<(), DriverError>) -> CUresult {
    result.map_or_else(|error| error.0, |()| CUresult::CUDA_SUCCESS)
}
