//! A PE's pool of KV cache pages, its transfer operations, and the verification of every page.

use rushmem::{Error, GpuBuffer, LaunchConfig, Operations, Pages, Pe, Stream, Window};
use rushmem_device::{Signal, SymSlice};
use rushmem_example_kernels::{KvShape, KvTransfer, kv_attend, kv_copy, kv_post, kv_store, kv_sum};
use rushmem_examples::{Result, pattern};

use crate::args::{MemoryArg, pool_chunks};
use crate::gpu_memory::{self, Allocation, Copies};

/// Content of a chunk of the pool that belongs to no request or has not arrived yet.
const EMPTY: u128 = u128::MAX;

pub(crate) enum Memory {
    /// Host memory of the application, registered as a window.
    Registered(Window<Pages<u128>>),
    /// An array in the symmetric heap.
    Symmetric(SymSlice<u128>),
    /// GPU memory of the application, registered as a window.
    Gpu(Window<GpuBuffer<u128, Allocation>>),
}

impl Memory {
    /// Allocates a pool of `chunks` 16-byte chunks. Collective.
    fn new(pe: &Pe, kind: MemoryArg, chunks: usize) -> Result<Self> {
        Ok(match kind {
            MemoryArg::Registered => Self::Registered(pe.register_symmetric(Pages::zeroed(chunks))?),
            MemoryArg::Symmetric => Self::Symmetric(pe.alloc(chunks)?),
            MemoryArg::Cuda | MemoryArg::Vmm => {
                Self::Gpu(pe.register_symmetric(gpu_memory::allocate(pe, kind, chunks)?)?)
            }
        })
    }

    fn handle(&self) -> SymSlice<u128> {
        match self {
            Self::Registered(window) => window.handle(),
            Self::Symmetric(object) => *object,
            Self::Gpu(window) => window.handle(),
        }
    }

    /// Frees the pool. Collective.
    fn end(self, pe: &Pe) -> Result<()> {
        match self {
            Self::Registered(window) => drop(pe.unregister_symmetric(window).map_err(Error::from)?),
            Self::Symmetric(object) => pe.free(object)?,
            Self::Gpu(window) => drop(pe.unregister_symmetric(window).map_err(Error::from)?),
        }
        Ok(())
    }
}

pub(crate) struct Cache<'a> {
    pub(crate) pe: &'a Pe,
    pub(crate) shape: KvShape,
    pool: Memory,
    /// Destination of local copies, which serve as the baseline.
    spare: Memory,
    transfer: KvTransfer,
    sums: SymSlice<u64>,
    /// Page tables that this PE knows, as `[PE][page]`.
    tables: Vec<u32>,
    /// Expected content of the pool after a transfer.
    wanted: Vec<u128>,
}

impl<'a> Cache<'a> {
    /// Allocates the pool, exchanges the page tables, and fills the pages of prefill PEs. Collective.
    pub(crate) fn new(pe: &'a Pe, shape: KvShape, kind: MemoryArg) -> Result<Self> {
        let (pages, layers) = (shape.pages as usize, shape.layers as usize);
        let pool = Memory::new(pe, kind, pool_chunks(&shape))?;
        let spare = Memory::new(pe, kind, pool_chunks(&shape))?;
        let transfer = KvTransfer {
            shape,
            pool: pool.handle(),
            tables: pe.alloc(pe.n_pes() as usize * pages)?,
            arrived: pe.alloc::<Signal>(layers * shape.prefill as usize)?,
            stored: pe.alloc(layers)?,
        };
        let sums = pe.alloc(layers * pages)?;
        let tables = exchange_tables(pe, &transfer)?;
        let mut cache = Self { pe, shape, pool, spare, transfer, sums, tables, wanted: Vec::new() };
        cache.wanted = cache.content();
        cache.reset()?;
        Ok(cache)
    }

    /// Frees the pool and all other memory of the transfer. Collective.
    pub(crate) fn end(self) -> Result<()> {
        self.pool.end(self.pe)?;
        self.spare.end(self.pe)
    }

    pub(crate) fn is_prefill(&self) -> bool {
        self.pe.my_pe() < self.shape.prefill
    }

    /// Describes how kernels of this PE reach the pages of another PE.
    pub(crate) fn route(&self, peer: u32) -> &'static str {
        if self.pe.ptr(self.pool.handle(), peer).is_some() { "p2p" } else { "NIC" }
    }

    /// Returns the launch configuration of the kernels that read or write whole layers.
    fn grid(&self) -> LaunchConfig {
        let grid = self.pe.grid();
        // A GPU needs many loads in flight to hide memory latency.
        let threads = if self.pe.is_gpu() { 512 } else { grid.threads() };
        grid.with_threads(threads)
    }

    /// Restores the pool's initial content: filled pages on prefill PEs, empty ones on decode PEs. Collective.
    pub(crate) fn reset(&self) -> Result<()> {
        match self.is_prefill() {
            true => self.pe.write(self.pool.handle(), &self.wanted)?,
            false => self.pe.write(self.pool.handle(), &vec![EMPTY; self.wanted.len()])?,
        }
        Ok(self.pe.host_sync()?)
    }

    /// Returns the number that page `i` of the requests has in the pool of `pe`.
    fn number(&self, pe: u32, i: u32) -> u32 {
        self.tables[(pe * self.shape.pages + i) as usize]
    }

    /// Returns the content of this PE's pool if all pages are present. Every chunk of the model's cache is different.
    fn content(&self) -> Vec<u128> {
        const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        let (shape, me) = (&self.shape, self.pe.my_pe());
        let mut pool = vec![EMPTY; pool_chunks(shape)];
        let all = u128::from(shape.heads * shape.head_chunks);
        let first = u128::from(shape.heads_of(me).start * shape.head_chunks);
        for layer in 0..shape.layers {
            for i in 0..shape.pages {
                let row = u128::from(layer * shape.pages + i) * u128::from(shape.rows);
                let page = &mut pool[shape.page(me, layer, self.number(me, i))];
                for (row, chunks) in (row..).zip(page.chunks_mut(shape.row_chunks(me) as usize)) {
                    for (number, chunk) in (row * all + first..).zip(chunks) {
                        *chunk = number.wrapping_mul(FACTOR);
                    }
                }
            }
        }
        pool
    }

    /// Verifies the whole pool after a transfer. `how` names the transfer in error messages.
    pub(crate) fn verify_pages(&self, how: &str) -> Result<()> {
        let (shape, me) = (&self.shape, self.pe.my_pe());
        let found = self.pe.read(self.pool.handle())?;
        let Some(at) = found.iter().zip(&self.wanted).position(|(found, wanted)| found != wanted) else {
            return Ok(());
        };
        let (found, wanted) = (found[at], self.wanted[at]);
        let (page, chunk) = (at / shape.page_chunks(me) as usize, at % shape.page_chunks(me) as usize);
        let (layer, page) = (page / shape.pool_pages as usize, page % shape.pool_pages as usize);
        Err(format!(
            "after {how}, chunk {chunk} of page {page} of layer {layer} on PE {me} is {found:#034x}, not {wanted:#034x}"
        )
        .into())
    }

    /// Compares the page checksums of this decode PE with a serial computation.
    pub(crate) fn verify_sums(&self) -> Result<()> {
        let (shape, me) = (&self.shape, self.pe.my_pe());
        let found = self.pe.read(self.sums)?;
        let pages = (0..shape.layers).flat_map(|layer| (0..shape.pages).map(move |i| (layer, i)));
        for ((layer, i), found) in pages.zip(found) {
            let page = &self.wanted[shape.page(me, layer, self.number(me, i))];
            let sums = (0..).zip(page).map(|(at, &chunk)| kv_sum(at, chunk));
            let wanted = sums.fold(0, u64::wrapping_add);
            if found != wanted {
                return Err(format!(
                    "the sum of page {i} of layer {layer} on PE {me} is {found:#x}, not {wanted:#x}"
                )
                .into());
            }
        }
        Ok(())
    }

    /// Queues the transfer of all layers on a prefill PE. Does nothing on a decode PE.
    ///
    /// The stores of successive layers run in two streams, so those of a layer start while the last ones of the
    /// previous layer complete.
    pub(crate) fn send(&self, stores: [&Stream; 2], posts: &Stream, round: u64) -> Result<()> {
        if !self.is_prefill() {
            return Ok(());
        }
        let (mut p2p, mut nic) = (false, false);
        for peer in self.shape.peers(self.pe.my_pe()) {
            let is_mapped = self.pe.ptr(self.pool.handle(), peer).is_some();
            (p2p, nic) = (p2p || is_mapped, nic || !is_mapped);
        }
        for (layer, stores) in (0..self.shape.layers).zip(stores.into_iter().cycle()) {
            if p2p {
                stores.launch(self.grid(), kv_store(self.transfer, layer, round))?;
            }
            if nic {
                posts.launch(LaunchConfig::new(1, 128), kv_post(self.transfer, layer, round))?;
            }
        }
        if nic {
            // After this, the pages may be reused for other requests.
            posts.quiet()?;
        }
        Ok(())
    }

    /// Queues the kernels with which a decode PE reads its pages, one per layer. Does nothing on a prefill PE.
    pub(crate) fn attend(&self, stream: &Stream, round: u64) -> Result<()> {
        if self.is_prefill() {
            return Ok(());
        }
        for layer in 0..self.shape.layers {
            stream.launch(self.grid(), kv_attend(self.transfer, self.sums, layer, round))?;
        }
        Ok(())
    }

    /// Queues the transfer of all layers as host operations: one put per page and peer, strided if the widths differ.
    pub(crate) fn put(&self, stream: &Stream, round: u64) -> Result<()> {
        let (shape, me, pool) = (&self.shape, self.pe.my_pe(), self.pool.handle());
        for layer in (0..shape.layers).filter(|_| self.is_prefill()) {
            for peer in shape.peers(me) {
                let runs = shape.runs(me, peer);
                for i in 0..shape.pages {
                    let from = shape.page(me, layer, self.number(me, i));
                    let to = shape.page(peer, layer, self.number(peer, i));
                    if runs.count == 1 {
                        stream.put_nbi(pool.slice(to), pool.slice(from), peer)?;
                    } else {
                        let dst = self.transfer.blocks(to, runs.to, runs.chunks, runs.to_step);
                        let src = self.transfer.blocks(from, runs.from, runs.chunks, runs.from_step);
                        stream.iput(dst, src, peer)?;
                    }
                }
            }
            stream.fence()?;
            let arrived = self.transfer.arrived.at(shape.signal(layer, me));
            for peer in shape.peers(me) {
                stream.signal_op(arrived.set(round), peer)?;
            }
        }
        Ok(stream.quiet()?)
    }

    /// Queues plain copies of as many bytes as a prefill PE sends, to the same peers. Overwrites pages. Returns
    /// `false`, and copies nothing, if this PE does not map the pools of all its peers.
    pub(crate) fn peer_copy(&self, copies: &Copies) -> Result<bool> {
        let (shape, me, pool) = (&self.shape, self.pe.my_pe(), self.pool.handle());
        let here = self.pe.ptr(pool, me).ok_or("this PE's own pool has no address")?;
        let there: Option<Vec<_>> = shape.peers(me).map(|peer| self.pe.ptr(pool, peer)).collect();
        let Some(there) = there.filter(|_| self.is_prefill()) else { return Ok(!self.is_prefill()) };
        for (peer, there) in shape.peers(me).zip(there) {
            let runs = shape.runs(me, peer);
            let chunks = shape.layers as usize * shape.pages as usize * (runs.count * runs.chunks) as usize;
            copies.copy(there, here, chunks)?;
        }
        Ok(true)
    }

    /// Queues local copies of as many bytes as a prefill PE sends, one kernel per layer.
    pub(crate) fn copy(&self, stream: &Stream) -> Result<()> {
        let (shape, from, to) = (&self.shape, self.pool.handle(), self.spare.handle());
        let layer_chunks = shape.pages as usize * shape.page_chunks(self.pe.my_pe()) as usize;
        for layer in (0..shape.layers as usize).filter(|_| self.is_prefill()) {
            let part = layer * layer_chunks..(layer + 1) * layer_chunks;
            stream.launch(self.grid(), kv_copy(to.slice(part.clone()), from.slice(part)))?;
        }
        Ok(())
    }
}

/// Creates this PE's page table and sends it to the PEs that need it. Returns all tables that this PE knows.
/// Collective.
fn exchange_tables(pe: &Pe, transfer: &KvTransfer) -> Result<Vec<u32>> {
    let (shape, me) = (&transfer.shape, pe.my_pe());
    // Hand out the pages in a shuffled order, as a real pool allocator would after a while.
    let mut numbers: Vec<u32> = (0..shape.pool_pages).collect();
    numbers.sort_by_key(|&number| pattern(me.into(), number.into()));
    let own = &numbers[..shape.pages as usize];
    let row = (me * shape.pages) as usize;
    let row = transfer.tables.slice(row..row + own.len());
    pe.write(row, own)?;
    for peer in shape.peers(me).filter(|_| me >= shape.prefill) {
        pe.put_from(row, own, peer)?;
    }
    pe.barrier_all()?;
    Ok(pe.read(transfer.tables)?)
}
