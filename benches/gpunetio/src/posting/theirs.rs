//! Measures posting with NVIDIA's DOCA GPUNetIO device code.

use std::sync::Arc;

use bytemuck::Zeroable;
use rushmem::cuda::{Device, DeviceBuffer, Module, Stream};
use rushmem::native::LaunchConfig;

use super::{BASE, LKEY, Poster, QPN, Queues, RKEY, Row, Spans};
use crate::Result;
use crate::theirs::{QP_ROOM, Queue, Work};

/// Posts a plan's benchmarks with DOCA GPUNetIO.
pub struct Theirs {
    module: Arc<Module>,
    stream: Stream,
}

impl Theirs {
    /// Loads PTX that [`compile`](crate::theirs::compile) returned onto a GPU.
    ///
    /// # Errors
    /// - [`Error::Cuda`](crate::Error::Cuda): the driver fails.
    pub fn load(device: &Arc<Device>, ptx: &str) -> Result<Self> {
        Ok(Self { module: Module::load(device, "gpunetio", ptx)?, stream: Stream::new(device)? })
    }
}

impl Poster for Theirs {
    fn program(&self) -> String {
        "DOCA GPUNetIO".into()
    }

    fn rings_in_order(&self) -> bool {
        false
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn launch(&self, row: &Row, queues: &Queues) -> Result<Spans> {
        let qps = DeviceBuffer::zeroed(&self.stream, queues.shift + row.queues() as usize * QP_ROOM)?;
        let first_qp = qps.address() + queues.shift as u64;
        let spans = DeviceBuffer::zeroed(&self.stream, 16 * row.blocks as usize)?;
        let prepare = self.module.function("prepare")?;
        let single = LaunchConfig::new(1, 1);
        for i in 0..row.queues() as usize {
            let addresses = queues.addresses(i);
            let queue = Queue {
                sq: addresses.sq,
                cq: addresses.cq,
                sq_record: addresses.sq_record,
                cq_record: addresses.cq_record,
                doorbell: queues.doorbell(),
                qpn: QPN,
                cqn: QPN,
                depth: row.depth(),
                collapsed: 0,
                on_gpu: 1,
                reserved: 0,
            };
            let qp = (first_qp + (i * QP_ROOM) as u64).to_ne_bytes();
            // SAFETY: these are the kernel's parameters, and everything they point to lives until the stream is idle.
            unsafe { prepare.launch(&self.stream, single, &[&qp, bytemuck::bytes_of(&queue)])? };
        }
        let work = Work {
            raddr: BASE,
            laddr: BASE,
            bytes: row.bytes,
            stride: row.bytes,
            rounds: row.rounds.into(),
            no_record: queues.no_record.into(),
            lkey: LKEY,
            rkey: RKEY,
            ..Zeroable::zeroed()
        };
        let kernel = self.module.function(&row.bench)?;
        let grid = LaunchConfig::new(row.blocks, row.threads);
        let (qps_at, spans_at) = (first_qp.to_ne_bytes(), spans.address().to_ne_bytes());
        // SAFETY: as above.
        unsafe { kernel.launch(&self.stream, grid, &[&qps_at, bytemuck::bytes_of(&work), &spans_at])? };
        Ok(Spans { memory: spans, _kept: vec![qps] })
    }
}
