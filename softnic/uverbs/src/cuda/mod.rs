//! GPU memory of programs that use CUDA. The adapter copies it with the program's own CUDA driver.
//!
//! With a ConnectX, a kernel module (nvidia-peermem) or a dma-buf gives the NIC access to GPU memory. Here the driver's
//! library in the process tells which addresses are GPU memory, and copies.
//!
//! This module never loads or initializes CUDA, but uses the `libcuda.so.1` that the program has loaded. Copies run in
//! a stream that waits for no other stream, because a kernel may wait for the adapter.
//!
//! | module | holds |
//! |---|---|
//! | `driver` | the functions of the driver |
//! | `owner` | the owner of an address |
//! | `copier` | the stream and the page-locked buffer of a context |
//! | `memory` | registered GPU memory |

mod copier;
mod driver;
mod memory;
mod owner;

use crate::errno::Errno;
use driver::Driver;
use memory::DeviceMemory;
use rushmem_softnic::Memory;
use std::sync::Arc;

/// Whether the program has loaded the CUDA driver.
pub(crate) fn is_loaded() -> bool {
    driver::is_loaded()
}

/// Returns the GPU memory at a device address, or `None` if the address is not GPU memory.
///
/// Fails with `EFAULT` if the range exceeds the GPU's memory, or `ENOMEM` if the driver has no resources for the
/// copies.
pub(crate) fn claim(address: u64, len: u64) -> Result<Option<Arc<dyn Memory>>, Errno> {
    let Some(driver) = Driver::get() else { return Ok(None) };
    let Some(owner) = owner::find(driver, address, len)? else { return Ok(None) };
    let copier = copier::shared(driver, owner).map_err(|error| {
        tracing::error!("GPU memory at {address:#x} cannot be registered: {error}");
        Errno::ENOMEM
    })?;
    tracing::debug!(address, len, gpu = owner.ordinal, "GPU memory is registered");
    Ok(Some(Arc::new(DeviceMemory::new(copier, address, len))))
}
