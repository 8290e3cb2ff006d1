//! The memory that holds the queues of QPs, registered with a NIC.

use bytemuck::Zeroable;
use rushmem_error::{NicError, Result};
use rushmem_machine::Region;
use rushmem_mlx5::doorbell::Record;

use super::shape::{CQE_BYTES, Shape};
use crate::provider::{NicKind, Provider, Umem};

/// The queues and doorbell records of QPs. Fields drop in order: the registration before the memory.
pub(super) struct QueueMemory {
    umem: Box<dyn Umem>,
    region: Region,
    shape: Shape,
}

impl QueueMemory {
    /// Registers `region`, which must have room for the queues of `shape`.
    ///
    /// # Errors
    /// Fails if the NIC refuses the registration.
    pub(super) fn new(nic: &dyn Provider, region: Region, shape: Shape) -> Result<Self, NicError> {
        Ok(Self { umem: nic.umem_reg(&region)?, region, shape })
    }

    pub(super) fn umem(&self) -> u32 {
        self.umem.id()
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Resets a slot for a new QP of `nic`: marks the CQEs as unwritten, and zeroes the doorbell records.
    ///
    /// The software ConnectX needs only the first CQE reset. The others then take up no memory until they are used.
    ///
    /// # Errors
    /// Fails if the machine cannot write the queue memory.
    pub(super) fn clear(&self, nic: &dyn Provider, slot: u64) -> Result<()> {
        let at = self.shape.place(slot);
        let cqes = if nic.port().kind == NicKind::Software { 1 } else { self.shape.cqes() };
        self.region.write(at.cq, &vec![0xff; (cqes * CQE_BYTES) as usize])?;
        for record in [at.sq_record, at.cq_record] {
            self.region.write(record, bytemuck::bytes_of(&Record::zeroed()))?;
        }
        Ok(())
    }
}
