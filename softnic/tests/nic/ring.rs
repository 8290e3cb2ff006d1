//! A CQ ring as a driver polls it.

use crate::script::TIMEOUT;
use rushmem_mlx5::Cqe;
use rushmem_mlx5::cqe::{CQE_BYTES, OpOwn};
use rushmem_mlx5::doorbell::{ArmWord, CqRecord, set_ci_word};
use rushmem_softnic::{HostBuffer, Memory};
use std::sync::Arc;
use std::time::Instant;

/// The driver's side of a CQ: its ring, its doorbell record and its consumer counter.
pub(crate) struct Ring {
    pub(crate) memory: Arc<HostBuffer>,
    pub(crate) log: u8,
    pub(crate) slot: usize,
    pub(crate) consumer: u32,
    pub(crate) record: Arc<HostBuffer>,
    pub(crate) record_at: usize,
}

impl Ring {
    pub(crate) fn poll(&mut self) -> Option<Cqe> {
        let entries = 1u32 << self.log;
        let at = ((self.consumer & (entries - 1)) as usize + 1) * self.slot - CQE_BYTES;
        let own = OpOwn((self.memory.load_u64(at + 0x38) >> 56) as u8);
        if !own.is_ready(self.consumer, entries) {
            return None;
        }
        let cqe = self.entry(at);
        self.consumer += 1;
        Some(cqe)
    }

    pub(crate) fn entry(&self, at: usize) -> Cqe {
        let mut bytes = [0; CQE_BYTES];
        self.memory.read(at as u64, &mut bytes).unwrap();
        bytemuck::cast(bytes)
    }

    /// Stores the consumer counter in the CQ's doorbell record.
    pub(crate) fn report(&self) {
        self.record.store_u32(self.record_at, set_ci_word(self.consumer));
    }

    /// Stores an arm request for CQEs after `consumer` in the CQ's doorbell record, and returns it.
    pub(crate) fn request(&self, sequence: u8, solicited_only: bool, consumer: u32) -> ArmWord {
        let request = ArmWord::new(sequence, solicited_only, consumer);
        self.record.store_u32(self.record_at + CqRecord::ARM_OFFSET, request.0.raw());
        request
    }

    pub(crate) fn wait(&mut self) -> Cqe {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.poll() {
                return cqe;
            }
            assert!(start.elapsed() < TIMEOUT, "no completion {} in time", self.consumer);
            std::thread::yield_now();
        }
    }
}
