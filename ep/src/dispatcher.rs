//! [`Dispatcher`], the host side of expert parallelism: allocates buffers, checks arguments and launches kernels.

use std::cell::Cell;

use rushmem::{LaunchConfig, Operations, Pe, Stream};
use rushmem_device::{Bf16, LocalBuffer, Pod, Signal, SymSlice};
use rushmem_ep_kernels as kernels;
use rushmem_ep_kernels::{Batch, Buffers, Fault, Table, state};

use crate::{Dtype, Error, Form, Result, Shape};

/// Input of a dispatch and of its combine.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// Elements of the tokens, `[token][hidden]`.
    pub tokens: SymSlice<Bf16>,
    /// Index of the expert that each token chose, `[token][choice]`; -1 for none.
    pub choices: SymSlice<i32>,
    /// Weight of each choice in the sum, `[token][choice]`. Read by combine.
    pub weights: SymSlice<f32>,
    /// Number of tokens in the batch, from 0 to the shape's `tokens`.
    pub count: usize,
}

/// A dispatch whose rows are being sent to the experts. Pass it to [`Dispatcher::dispatch_receive`].
#[derive(Debug)]
#[must_use = "the call goes on with `dispatch_receive`"]
pub struct Sent(Batch);

/// A dispatch whose rows have reached the experts. Pass it to [`Dispatcher::combine`] or [`Dispatcher::combine_send`].
#[derive(Debug)]
#[must_use = "the call ends with `combine`"]
pub struct Received(Batch);

/// A combine whose rows are being sent back to their tokens. Pass it to [`Dispatcher::combine_receive`].
#[derive(Debug)]
#[must_use = "the call ends with `combine_receive`"]
pub struct Returning {
    batch: Batch,
    results: SymSlice<u128>,
}

/// Sends tokens to their experts and the results back, by kernels that this PE launches.
///
/// See the [crate](crate) for calls, layouts and errors.
pub struct Dispatcher<'a> {
    pe: &'a Pe,
    shape: Shape,
    buffers: Buffers,
    /// Whether a dispatch has been queued whose combine has not.
    is_busy: Cell<bool>,
}

impl<'a> Dispatcher<'a> {
    /// Allocates the buffers of a dispatcher. Collective.
    ///
    /// # Errors
    /// - [`Error::Shape`] if the shape does not fit the job.
    /// - [`Error::Runtime`] if the heap is too small or the shapes of the PEs differ: see [`Shape::heap_bytes`].
    pub fn new(pe: &'a Pe, shape: Shape) -> Result<Self> {
        shape.check(pe.n_pes())?;
        let buffers = allocate(pe, &shape)?;
        let dispatcher = Self { pe, shape, buffers, is_busy: Cell::new(false) };
        dispatcher.write_tables()?;
        pe.host_sync()?;
        Ok(dispatcher)
    }

    /// Returns the sizes with which the dispatcher was created.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the capacity of [`Dispatcher::rows`] in rows. The results of the experts need the same capacity.
    pub fn row_count(&self) -> usize {
        self.shape.rows(self.pe.n_pes())
    }

    /// Returns the size of a row of [`Dispatcher::rows`], in bytes.
    pub fn row_bytes(&self) -> usize {
        self.shape.row_bytes()
    }

    /// Returns the buffer of rows for this PE's experts, which dispatch fills.
    pub fn rows(&self) -> SymSlice<u128> {
        self.buffers.rows
    }

    /// Returns the number of rows of each local expert. Dispatch fills the array.
    pub fn totals(&self) -> SymSlice<u32> {
        self.table(Table::Totals, self.buffers.local_experts)
    }

    /// Returns the index of the first row of each local expert in [`Dispatcher::rows`]. The array is valid after
    /// dispatch.
    pub fn offsets(&self) -> SymSlice<u32> {
        self.table(Table::Offsets, self.buffers.local_experts)
    }

    /// Returns the index of the first row for each (local expert, source PE) in [`Dispatcher::rows`]. The array is
    /// valid after dispatch.
    pub fn sources(&self) -> SymSlice<u32> {
        self.table(Table::From, self.buffers.experts)
    }

    /// Returns the signal words that announce the rows of each (local expert, source PE).
    ///
    /// A kernel may wait for one of them, to start before all rows have arrived. The word is at least `call << 24` once
    /// the rows of that call have arrived. Its lower 23 bits are their number. Bit 23 is set if the source rejects the
    /// call.
    pub fn counters(&self) -> SymSlice<Signal> {
        let first = self.buffers.arrived(0);
        self.buffers.words.slice(first..first + self.shape.experts)
    }

    /// Returns the dispatcher's buffers as a kernel argument, for the application's own kernels.
    pub fn buffers(&self) -> Buffers {
        self.buffers
    }

    /// Returns the grid with which the dispatcher launches its kernels.
    pub fn grid(&self) -> LaunchConfig {
        let threads = self.shape.threads.unwrap_or(if self.pe.is_gpu() { 512 } else { 64 });
        let blocks = self.shape.blocks.unwrap_or(self.pe.grid().blocks());
        LaunchConfig::new(blocks, threads)
    }

    /// Queues the first half of dispatch, which sends the rows. In the low-latency form, it waits for nobody.
    ///
    /// The input must not change until the call has completed.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the input does not match the shape, or the last call has no combine yet.
    /// - [`Error::Runtime`] if the runtime refuses the launch.
    pub fn dispatch_send(&self, stream: &Stream<'_>, input: Input) -> Result<Sent> {
        let batch = self.batch(input)?;
        if self.is_busy.replace(true) {
            let what = "the last call has no combine: queue it, or call `reset` on all PEs";
            return Err(Error::Misuse { call: "dispatch_send", what: what.into() });
        }
        let (grid, is_placed) = (self.grid(), self.shape.form == Form::Throughput);
        if is_placed {
            stream.launch(grid, kernels::ep_place(self.buffers, batch))?;
            let one = grid.with_blocks(1).with_threads(grid.threads().min(256));
            stream.launch(one, kernels::ep_plan(self.buffers))?;
        }
        stream.launch(grid, kernels::ep_send(self.buffers, batch, is_placed))?;
        stream.launch(self.one_thread_each(), kernels::ep_announce(self.buffers))?;
        Ok(Sent(batch))
    }

    /// Queues the second half of dispatch, which waits for the rows of all PEs. Afterwards they are in
    /// [`Dispatcher::rows`].
    ///
    /// # Errors
    /// - [`Error::Runtime`] if the runtime refuses the launch.
    pub fn dispatch_receive(&self, stream: &Stream<'_>, sent: Sent) -> Result<Received> {
        // To just wait, one block suffices.
        let blocks = if self.compacts() { self.grid().blocks() } else { 1 };
        let grid = self.grid().with_blocks(blocks);
        stream.launch(grid, kernels::ep_receive(self.buffers, self.compacts()))?;
        Ok(Received(sent.0))
    }

    /// Queues both halves of dispatch, which sends tokens to their experts and waits for the rows of all PEs.
    ///
    /// # Errors
    /// - The errors of [`Dispatcher::dispatch_send`].
    pub fn dispatch(&self, stream: &Stream<'_>, input: Input) -> Result<Received> {
        let sent = self.dispatch_send(stream, input)?;
        self.dispatch_receive(stream, sent)
    }

    /// Queues the first half of combine, which signals to the PEs of the tokens that the rows in `results` are ready.
    ///
    /// `results` has [`Dispatcher::row_count`] rows in bf16, at the same positions as in [`Dispatcher::rows`], and is
    /// the same object on all PEs. Peers read it, so it must not change before [`Dispatcher::dispatch_receive`] of the
    /// next call, or before a barrier after this one.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if `results` is too short, or a P2P peer cannot map it.
    /// - [`Error::Runtime`] if the runtime refuses the launch.
    pub fn combine_send(
        &self,
        stream: &Stream<'_>,
        received: Received,
        results: SymSlice<Bf16>,
    ) -> Result<Returning> {
        const CALL: &str = "combine_send";
        let results = chunks(CALL, "results", results, self.row_count() * self.shape.hidden)?;
        let is_mapped = |object, peer| self.pe.ptr::<u128>(object, peer).is_some();
        let differs = |&peer: &u32| is_mapped(results, peer) != is_mapped(self.buffers.inbox, peer);
        if let Some(peer) = (0..self.pe.n_pes()).find(differs) {
            let what =
                format!("`results` of PE {peer} cannot be mapped, unlike its heap: allocate it in the heap");
            return Err(Error::Misuse { call: CALL, what });
        }
        stream.launch(self.one_thread_each(), kernels::ep_announce_back(self.buffers, results))?;
        Ok(Returning { batch: received.0, results })
    }

    /// Queues the second half of combine, which waits for the rows of all experts and stores the sum of each token's
    /// rows in `sums`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if `sums` is shorter than the tokens.
    /// - [`Error::Runtime`] if the runtime refuses the launch.
    pub fn combine_receive(
        &self,
        stream: &Stream<'_>,
        returning: Returning,
        sums: SymSlice<Bf16>,
    ) -> Result<()> {
        let Returning { batch, results } = returning;
        let sums = chunks("combine_receive", "sums", sums, batch.count as usize * self.shape.hidden)?;
        let call = kernels::ep_reduce(self.buffers, batch, results, sums, self.compacts());
        // The maximum for this kernel, which keeps many rows in registers.
        let threads = self.grid().threads().min(256);
        stream.launch(self.grid().with_threads(threads), call)?;
        self.is_busy.set(false);
        Ok(())
    }

    /// Queues both halves of combine, which returns the experts' rows and sums them per token.
    ///
    /// # Errors
    /// - The errors of [`Dispatcher::combine_send`] and [`Dispatcher::combine_receive`].
    pub fn combine(
        &self,
        stream: &Stream<'_>,
        received: Received,
        results: SymSlice<Bf16>,
        sums: SymSlice<Bf16>,
    ) -> Result<()> {
        let returning = self.combine_send(stream, received, results)?;
        self.combine_receive(stream, returning, sums)
    }

    /// Blocks until everything in the stream has completed, like [`Stream::wait`]. If a dispatch was rejected, returns
    /// the reason as an error.
    ///
    /// # Errors
    /// - [`Error::BadChoice`], [`Error::FullExpert`] or [`Error::FullPe`] if a call does not fit, and
    ///   [`Error::Refused`] if it does not fit on another PE. Call [`Dispatcher::reset`] after these.
    /// - [`Error::Runtime`] for other errors.
    pub fn wait(&self, stream: &Stream<'_>) -> Result<()> {
        let Err(error) = stream.wait() else { return Ok(()) };
        match self.fault() {
            Ok(Some(fault)) => Err(fault),
            _ => Err(error.into()),
        }
    }

    /// Makes the dispatcher usable again after a failed call. Collective. None of its kernels may be running or queued.
    ///
    /// # Errors
    /// - [`Error::Runtime`] if a PE does not arrive, or memory cannot be written.
    pub fn reset(&self) -> Result<()> {
        self.pe.quiet()?;
        self.pe.host_sync()?;
        let b = &self.buffers;
        self.zero(b.words)?;
        self.zero(self.table(Table::Counts, Buffers::table_len(b.experts)))?;
        self.zero(self.table(Table::Matrix, b.n_pes * Buffers::table_len(b.experts)))?;
        self.pe.host_sync()?;
        self.is_busy.set(false);
        Ok(())
    }

    /// Frees the dispatcher's buffers. Collective. No kernel may be using them.
    ///
    /// # Errors
    /// - [`Error::Runtime`] if a PE does not arrive.
    pub fn free(self) -> Result<()> {
        let (pe, b) = (self.pe, self.buffers);
        if self.shape.form == Form::LowLatency {
            pe.free(b.rows)?;
        }
        [b.inbox, b.outbox, b.back].into_iter().try_for_each(|object| pe.free(object))?;
        pe.free(b.words)?;
        pe.free(b.tables)?;
        Ok(())
    }

    /// Returns whether receiving a dispatch compacts the rows of each expert, as in the low-latency form.
    fn compacts(&self) -> bool {
        self.shape.form == Form::LowLatency
    }

    /// Returns the grid of kernels in which each thread serves one expert.
    fn one_thread_each(&self) -> LaunchConfig {
        let grid = self.grid();
        let threads = grid.threads().min(128);
        grid.with_blocks(self.buffers.experts.div_ceil(threads).min(grid.blocks())).with_threads(threads)
    }

    fn table(&self, table: Table, len: u32) -> SymSlice<u32> {
        let first = self.buffers.at(table, 0);
        self.buffers.tables.slice(first..first + len as usize)
    }

    fn batch(&self, input: Input) -> Result<Batch> {
        const CALL: &str = "dispatch_send";
        let Shape { tokens, hidden, top_k, .. } = self.shape;
        let count = input.count;
        if count > tokens {
            let what =
                format!("{count} tokens, but the shape has at most {tokens}: send them in several calls");
            return Err(Error::Misuse { call: CALL, what });
        }
        let pairs = count * top_k;
        Ok(Batch {
            tokens: chunks(CALL, "tokens", input.tokens, count * hidden)?,
            choices: first(CALL, "choices", input.choices, pairs)?,
            weights: first(CALL, "weights", input.weights, pairs)?,
            count: count as u64,
        })
    }

    /// Returns the error that kernels recorded for the last call, if any.
    fn fault(&self) -> Result<Option<Error>> {
        let words = self.pe.read(self.buffers.words.slice(0..state::WORDS))?;
        if words[state::FAULT_CALL] == 0 || words[state::FAULT_CALL] != words[state::BEGUN] {
            return Ok(None);
        }
        let Shape { top_k, experts, capacity, .. } = self.shape;
        Ok(Fault::from_word(words[state::FAULT]).map(|fault| match fault {
            Fault::BadChoice { pair, expert } => {
                let (token, choice) = (pair as usize / top_k, pair as usize % top_k);
                Error::BadChoice { token, choice, expert, experts }
            }
            Fault::FullExpert { expert } => Error::FullExpert { expert, capacity },
            Fault::FullPe { pe, rows } => Error::FullPe { pe, rows, max_rows: self.row_count() },
            Fault::Refused { pe } => Error::Refused { pe },
        }))
    }

    fn zero<T: Pod>(&self, object: SymSlice<T>) -> Result<()> {
        Ok(self.pe.write(object, &vec![T::zeroed(); object.len()])?)
    }

    /// Writes the tables of the low-latency form, which are constant since each (expert, source) has fixed slots.
    fn write_tables(&self) -> Result<()> {
        if self.shape.form == Form::Throughput {
            return Ok(());
        }
        let (pe, b, n_pes) = (self.pe, &self.buffers, self.pe.n_pes());
        let (experts, locals, capacity) = (b.experts, b.local_experts, b.capacity);
        let first = pe.my_pe() * locals;
        let to = |expert: u32| (expert % locals * n_pes + pe.my_pe()) * capacity;
        let back_to = |word: u32| (first + word / n_pes) * capacity;
        let fill = |table, len: u32, value: &dyn Fn(u32) -> u32| {
            pe.write(self.table(table, len), &(0..len).map(value).collect::<Vec<_>>())
        };
        fill(Table::To, experts, &to)?;
        fill(Table::BackFrom, experts, &|expert| expert * capacity)?;
        fill(Table::BackTo, experts, &back_to)?;
        fill(Table::Offsets, locals, &|local| local * n_pes * capacity)?;
        Ok(())
    }
}

fn allocate(pe: &Pe, shape: &Shape) -> Result<Buffers> {
    const PROBE: &str = "Dispatcher::new";
    let (n_pes, experts) = (pe.n_pes(), shape.experts);
    let (row, bf16_row) = (shape.row_bytes() / 16, shape.hidden / 8);
    let inbox = pe.alloc::<u128>(shape.rows(n_pes) * row)?;
    let rows = match shape.form {
        Form::LowLatency => pe.alloc(inbox.len())?,
        Form::Throughput => inbox,
    };
    let uses_nic = (0..n_pes).any(|peer| pe.ptr(inbox, peer).is_none());
    let uses_nic = pe.allgather(&[uses_nic.into()])?.concat().contains(&1);
    let back_rows = if uses_nic { shape.back_rows() } else { 0 };
    let warps = 16 * shape.blocks.unwrap_or(pe.grid().blocks());
    // All PEs must allocate the same sizes, so use the largest of all.
    let warps = pe.allgather(&warps.to_le_bytes())?.into_iter().filter_map(|bytes| bytes.try_into().ok());
    let warps = warps.map(u32::from_le_bytes).max().unwrap_or(0);
    let number = |n: usize| {
        u32::try_from(n)
            .map_err(|_| Error::Misuse { call: PROBE, what: format!("{n} does not fit: use less") })
    };
    let mut buffers = Buffers {
        words: inbox.slice(0..0).cast(),
        tables: inbox.slice(0..0).cast(),
        inbox,
        rows,
        outbox: pe.alloc((back_rows * row).max(1))?,
        back: pe.alloc((back_rows * bf16_row).max(1))?,
        capacity: number(shape.capacity)?,
        max_rows: number(shape.rows(n_pes))?,
        experts: number(experts)?,
        local_experts: number(experts / n_pes as usize)?,
        hidden: number(shape.hidden)?,
        top_k: number(shape.top_k)?,
        pairs: number(shape.tokens * shape.top_k)?,
        row_chunks: number(row)?,
        quantizes: (shape.dtype == Dtype::E4m3).into(),
        n_pes,
    };
    buffers.words = pe.alloc(buffers.met(n_pes))?;
    buffers.tables = pe.alloc(buffers.scratch_at(warps))?;
    Ok(buffers)
}

fn first<T: Pod>(call: &'static str, name: &str, object: SymSlice<T>, len: usize) -> Result<SymSlice<T>> {
    if object.len() < len {
        let what = format!("`{name}` has {} elements, and the call needs {len}: allocate more", object.len());
        return Err(Error::Misuse { call, what });
    }
    Ok(object.slice(0..len))
}

/// Returns the first `len` bf16 elements of an operand, viewed as 16-byte chunks.
fn chunks(call: &'static str, name: &str, object: SymSlice<Bf16>, len: usize) -> Result<SymSlice<u128>> {
    let chunks = first(call, name, object, len)?.cast::<u128>();
    if chunks.len() * 8 != len {
        let what =
            format!("`{name}` begins at {:#x}: begin at a multiple of 16 bytes", object.handle().offset);
        return Err(Error::Misuse { call, what });
    }
    Ok(chunks)
}
