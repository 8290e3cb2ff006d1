//! Places the timeline's rings for kernels in GPU memory.
#![allow(unsafe_code, reason = "reads constants of kernels at their addresses")]

use std::sync::Arc;

use rushmem_device::abi::DevAddr;
use rushmem_machine::{Machine, MemoryLocation, Region};
use rushmem_observe::trace::RingMemory;

use crate::Result;

/// A memory area of the machine in which kernels record timeline entries.
pub(super) struct MachineRings {
    machine: Arc<dyn Machine>,
    area: Region,
}

impl MachineRings {
    /// Allocates an area of `bytes` zeroed bytes.
    ///
    /// # Errors
    /// - The errors of the machine, if it has no memory left.
    pub(super) fn boxed(machine: &Arc<dyn Machine>, bytes: u64) -> Result<Box<dyn RingMemory>> {
        Ok(Box::new(Self { area: machine.local(bytes)?, machine: Arc::clone(machine) }))
    }
}

impl RingMemory for MachineRings {
    fn gpu(&self) -> u32 {
        self.machine.gpu().unwrap_or(0)
    }

    fn addr(&self) -> DevAddr {
        self.area.addr
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.area.write(offset, bytes)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.area.read(offset, bytes)
    }

    fn text(&self, address: u64, len: u8) -> Option<String> {
        let mut bytes = vec![0; len.into()];
        // SAFETY: only the copy below uses the region. The driver reports a copy from a wrong address as an error.
        let region = unsafe { self.machine.adopt(MemoryLocation::Gpu(address), len.into()) }.ok()?;
        region.read(0, &mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}
