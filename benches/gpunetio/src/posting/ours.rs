//! Measures posting with `rushmem-device`: launches the unmodified kernels of `rushmem perf` with a context that the
//! host builds by hand.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Zeroable;
use rushmem::cuda::{Device, DeviceBuffer, Function, Image, Module, PinnedBuffer, Stream};
use rushmem::native::LaunchConfig;
use rushmem_bench_kernels as kernels;
use rushmem_device::SymSlice;
use rushmem_device::abi::{
    self, Connection, ControlPage, CtxParts, DevAddr, DeviceState, FIRST_BLOCK, Header, PeerDesc, QpDesc,
    QpEntry, QpState, SegmentTable, ctx_flags, qp_flags,
};
use rushmem_device::kernel::Call;

use super::{BASE, LKEY, Poster, QPN, Queues, RKEY, Row, Spans};
use crate::{Error, Result};

/// Number of PEs that the context claims. PE 0 posts to PE 1.
const PES: usize = 2;
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Posts a plan's benchmarks with `rushmem-device`.
pub struct Ours {
    kernels: HashMap<String, Function>,
    stream: Stream,
    /// Control page, to which kernels report errors.
    control: PinnedBuffer,
}

impl Ours {
    /// Loads the PTX of the `rushmem perf` kernels onto a GPU.
    ///
    /// # Errors
    /// [`Error::Missing`] if this crate was built without PTX, or the driver's error.
    pub fn load(device: &Arc<Device>) -> Result<Self> {
        let ptx = rushmem::ptx!("rushmem_bench_kernels");
        if ptx.image.is_empty() {
            return Err(Error::Missing(format!("there is no PTX of {}: {}", ptx.name, ptx.omitted)));
        }
        let kernels = Module::load_kernels(
            device,
            &Image { name: ptx.name, ptx: ptx.image, code: ptx.code, arch: None },
        )?;
        let control = PinnedBuffer::new(device, size_of::<ControlPage>())?;
        Ok(Self { kernels, stream: Stream::new(device)?, control })
    }
}

struct Tables {
    state: usize,
    segments: usize,
    peers: usize,
    entries: usize,
    ready: usize,
    bytes: usize,
}

impl Tables {
    fn new(state: usize, row: &Row, sets: usize) -> Self {
        let segments = state + size_of::<DeviceState>();
        let peers = segments + size_of::<SegmentTable>();
        let entries = (peers + PES * size_of::<PeerDesc>()).next_multiple_of(align_of::<QpEntry>());
        let ready = entries + sets * PES * size_of::<QpEntry>();
        Self {
            state,
            segments,
            peers,
            entries,
            ready,
            bytes: ready + row.queues() as usize * 8 * row.depth() as usize,
        }
    }
}

impl Poster for Ours {
    fn program(&self) -> String {
        format!("rushmem {}", env!("CARGO_PKG_VERSION"))
    }

    fn rings_in_order(&self) -> bool {
        true
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn launch(&self, row: &Row, queues: &Queues) -> Result<Spans> {
        let threads = row.blocks as usize * row.threads as usize;
        // SAFETY: the spans, and one word per thread from `BASE` on, lie in the heap.
        let (spans, words) =
            unsafe { (SymSlice::from_raw(0, 2 * row.blocks as usize), SymSlice::from_raw(BASE, threads)) };
        let post = |kernel: fn(_, _, _, _, _) -> Call| kernel(spans, words, words, row.rounds, 0);
        // Queue sets: the one that all blocks share, followed by those of the blocks or of the thread.
        let (call, blocks, exclusive) = match row.bench.as_str() {
            "post_exclusive" => (post(kernels::post_exclusive), 0, 1),
            "post_per_block" | "post_warp_per_block" => (post(kernels::post_per_block), row.queues(), 0),
            "post_shared" | "post_warp" => (post(kernels::post_shared), 0, 0),
            other => return Err(Error::wrong(other, "there is no such kernel")),
        };
        let kernel =
            self.kernels.get(call.name()).ok_or_else(|| Error::wrong(call.name(), "it is not loaded"))?;
        let sets = 1 + (blocks + exclusive) as usize;
        // The row posts to the last sets.
        let first = sets - row.queues() as usize;

        let tables = Tables::new(queues.shift, row, sets);
        let memory = DeviceBuffer::zeroed(&self.stream, tables.bytes)?;
        let heap = DeviceBuffer::zeroed(&self.stream, BASE as usize + 8 * threads)?;
        let at = |offset: usize| DevAddr(memory.address() + offset as u64);
        let control = DevAddr(self.control.address());
        let state =
            DeviceState { control, deadline_ns: CALL_TIMEOUT.as_nanos() as u64, ..Zeroable::zeroed() };
        memory.write(&self.stream, tables.state, bytemuck::bytes_of(&state))?;
        for i in 0..row.queues() as usize {
            let ready = at(tables.ready + i * 8 * row.depth() as usize);
            let entry = entry(row, queues, i, at(tables.state), ready);
            let offset = tables.entries + ((first + i) * PES + 1) * size_of::<QpEntry>();
            memory.write(&self.stream, offset, bytemuck::bytes_of(&entry))?;
        }
        let parts = CtxParts {
            header: Header { magic: abi::MAGIC, version: abi::VERSION, layout: abi::LAYOUT, control },
            state: at(tables.state),
            heap: DevAddr(heap.address()),
            heap_bytes: heap.len() as u64,
            segments: at(tables.segments),
            qps: at(tables.entries),
            // All zero: no peer's heap is mapped, so every operation goes through the NIC.
            peers: at(tables.peers),
            pe: 0,
            n_pes: PES as u32,
            n_sets: 1,
            block_sets: blocks,
            exclusive_sets: exclusive,
            rails: 1,
            // `PER_BLOCK` requires that no other kernel of the PE runs, which the host of a real job checks.
            flags: ctx_flags::GPU_QUEUES | ctx_flags::NO_P2P_OTHERS | ctx_flags::PER_BLOCK,
            ..Zeroable::zeroed()
        };
        let table = SegmentTable { parts, ..Zeroable::zeroed() };
        memory.write(&self.stream, tables.segments, bytemuck::bytes_of(&table))?;
        let grid = LaunchConfig::new(row.blocks, row.threads);
        let mut arguments: Vec<&[u8]> = vec![bytemuck::bytes_of(&parts)];
        arguments.extend(call.args());
        // SAFETY: these are the kernel's parameters, and everything they point to lives until the stream is idle.
        unsafe { kernel.launch(&self.stream, grid, &arguments)? };
        Ok(Spans { memory: heap, _kept: vec![memory] })
    }
}

/// Describes the QP to PE 1 that posts to queue `i`.
fn entry(row: &Row, queues: &Queues, i: usize, pe_state: DevAddr, ready: DevAddr) -> QpEntry {
    let addresses = queues.addresses(i);
    let flags = qp_flags::ON_GPU | if queues.no_record { qp_flags::LATE_RECORD } else { 0 };
    let log_depth = row.depth().trailing_zeros();
    let desc = QpDesc {
        pe_state,
        lkey: LKEY,
        rkey: RKEY,
        strict_lkey: LKEY,
        strict_rkey: RKEY,
        peer: 1,
        log_depth,
        flags,
        ..Zeroable::zeroed()
    };
    let connection = Connection {
        sq: DevAddr(addresses.sq),
        dbr: DevAddr(addresses.sq_record),
        uar: DevAddr(queues.doorbell()),
        cq: DevAddr(addresses.cq),
        ready,
        qpn: QPN,
        flags,
        ..Zeroable::zeroed()
    };
    let mut state = QpState::unconnected();
    state.done.word = FIRST_BLOCK;
    QpEntry { desc, connection, state }
}
