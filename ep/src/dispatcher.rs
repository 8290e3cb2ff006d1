//! [`Dispatcher`], the host side of expert parallelism: allocates buffers, checks arguments and launches kernels.

use std::cell::Cell;

use rushmem::{LaunchConfig, Operations, Pe, Stream};
use rushmem_device::{Bf16, LocalBuffer, Pod, SymSlice, Team};
use rushmem_ep_kernels as kernels;
use rushmem_ep_kernels::{Batch, Buffers, Fault, Table, state};

use crate::{Dtype, Error, Layout, Partials, Result, Shape};

/// Input of a dispatch and of its combine.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// Elements of the tokens, `[token][hidden]`.
    pub tokens: SymSlice<Bf16>,
    /// Index of the expert that each token chose, `[token][choice]`; -1 for none.
    pub choices: SymSlice<i32>,
    /// Weight of each choice in the sum, `[token][choice]`.
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

/// A combine whose partial sums are being sent back to their tokens. Pass it to [`Dispatcher::combine_receive`].
#[derive(Debug)]
#[must_use = "the call ends with `combine_receive`"]
pub struct Returning(Batch);

/// Sends tokens to their experts and the results back, by kernels that this PE launches.
///
/// See the [crate](crate) for calls, layouts and errors.
pub struct Dispatcher<'a> {
    pe: &'a Pe,
    shape: Shape,
    buffers: Buffers,
    /// The team whose members take part, unless they are masked.
    team: Cell<Team>,
    /// Whether a dispatch has been queued whose combine has not.
    is_busy: Cell<bool>,
}

impl<'a> Dispatcher<'a> {
    /// Allocates the buffers of a dispatcher. Collective.
    ///
    /// A process that replaces a lost PE calls it before its first [`Pe::grow`], and gets the buffers that the others have.
    ///
    /// # Errors
    /// - [`Error::Shape`] if the shape does not fit the job.
    /// - [`Error::Runtime`] if the heap is too small or the shapes of the PEs differ: see [`Shape::heap_bytes`].
    pub fn new(pe: &'a Pe, shape: Shape) -> Result<Self> {
        shape.check(pe.n_pes())?;
        let buffers = allocate(pe, &shape)?;
        let new = Self { pe, shape, buffers, team: Cell::new(Team::WORLD), is_busy: Cell::new(false) };
        // Others may already have set signals, which follow these words.
        pe.write(buffers.words.slice(0..state::WORDS), &new.initial_state())?;
        Ok(new)
    }

    /// Returns the sizes with which the dispatcher was created.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns how many rows this PE's experts can get. Their results need room for as many.
    pub fn row_count(&self) -> usize {
        self.shape.rows(self.pe.n_pes())
    }

    /// Returns the size of a row of [`Dispatcher::rows`], in bytes.
    pub fn row_bytes(&self) -> usize {
        self.shape.row_bytes()
    }

    /// Returns the buffer of rows for this PE's experts, which dispatch fills: a row per (token, choice) or per token,
    /// depending on the [`Layout`].
    pub fn rows(&self) -> SymSlice<u128> {
        self.buffers.rows
    }

    /// Returns an array with an element for each row that this PE's experts receive, sorted by expert: `source * tokens
    /// + token`, where `tokens` is that of the shape. With [`Layout::Tokens`], this is the index of the row in
    /// [`Dispatcher::rows`]. The array is valid after dispatch.
    pub fn index(&self) -> SymSlice<u32> {
        self.buffers.index
    }

    /// Returns the number of rows of each local expert. The array is valid after dispatch.
    pub fn totals(&self) -> SymSlice<u32> {
        self.table(Table::Totals, self.buffers.local_experts)
    }

    /// Returns the index of the first row of each local expert. The array is valid after dispatch.
    pub fn offsets(&self) -> SymSlice<u32> {
        self.table(Table::Offsets, self.buffers.local_experts)
    }

    /// Returns the index of the first row for each (local expert, source PE). The array is valid after dispatch.
    pub fn sources(&self) -> SymSlice<u32> {
        self.table(Table::From, self.buffers.experts)
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

    /// Masks the PEs for which `masked` has `true`, until the next call of this function: later dispatches skip the
    /// choices of their experts like -1, and nothing is sent to these PEs or awaited from them.
    ///
    /// All PEs that are not masked call it with the same `masked`, with none of the dispatcher's kernels running or
    /// queued. Before a PE takes part again, all PEs call [`Dispatcher::reset`]. Lost PEs stay masked until
    /// [`Dispatcher::continue_with`].
    ///
    /// # Errors
    /// - [`Error::Misuse`] if `masked` does not have an element for each PE, or masks this PE; if a dispatch has been
    ///   queued whose combine has not; or if the dispatcher's team has been destroyed.
    /// - [`Error::Runtime`] if memory cannot be written.
    pub fn mask(&self, masked: &[bool]) -> Result<()> {
        let (n_pes, me) = (self.pe.n_pes(), self.pe.my_pe());
        if masked.len() != n_pes as usize || masked[me as usize] {
            let what =
                format!("{} elements: pass one for each of {n_pes} PEs, `false` for PE {me}", masked.len());
            return Err(Error::Misuse { call: "mask", what });
        }
        if self.is_busy.get() {
            let what = "a dispatch has no combine yet: queue it, or call `reset` on all PEs".into();
            return Err(Error::Misuse { call: "mask", what });
        }
        let members = self.members("mask", self.team.get())?;
        self.write_mask(|pe| masked[pe as usize] || !members.contains(&pe))
    }

    /// Continues with the members of `team`, which [`Pe::shrink`] or [`Pe::grow`] has returned: masks all other PEs, and
    /// makes the dispatcher usable again, as [`Dispatcher::reset`] does. Collective over the members, processes that have
    /// just joined included. None of the dispatcher's kernels may be running or queued.
    ///
    /// The loss of any member then makes calls fail, even of one that [`Dispatcher::mask`] masks. Graphs that contain
    /// calls of the dispatcher stay valid. Earlier masks do not.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if this PE is not in `team`.
    /// - [`Error::Runtime`] if another PE is lost, which `grow` or `shrink` then leaves out, or as for `reset`.
    pub fn continue_with(&self, team: Team) -> Result<()> {
        let members = self.members("continue_with", team)?;
        self.team.set(team);
        self.write_mask(|pe| !members.contains(&pe))?;
        self.reset()
    }

    /// Returns the members of `team`, among which this PE must be.
    fn members(&self, call: &'static str, team: Team) -> Result<Vec<u32>> {
        let me = self.pe.my_pe();
        let members = self.pe.team_pes(team).filter(|members| members.contains(&me));
        members.ok_or_else(|| {
            let what = format!("PE {me} is in no such team: continue with the one that `grow` returns");
            Error::Misuse { call, what }
        })
    }

    fn write_mask(&self, is_masked: impl Fn(u32) -> bool) -> Result<()> {
        let words: Vec<u32> = (0..self.pe.n_pes()).map(|pe| is_masked(pe).into()).collect();
        Ok(self.pe.write(self.masked(), &words)?)
    }

    /// Returns a word for each PE, which is 1 if the PE is masked and 0 otherwise. A router that reads it can choose
    /// other experts.
    pub fn masked(&self) -> SymSlice<u32> {
        self.table(Table::Masked, self.buffers.n_pes)
    }

    /// Returns the (token, choice) pairs of `input` that a dispatch skips because the PE of the expert is masked now, as
    /// `token * top_k + choice`. The host reads the choices and the mask.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the input does not match the shape.
    /// - [`Error::Runtime`] if memory cannot be read.
    pub fn skipped(&self, input: Input) -> Result<Vec<usize>> {
        let choices = self.pe.read(self.batch("skipped", input)?.choices)?;
        let (masked, local_experts) = (self.pe.read(self.masked())?, self.buffers.local_experts as usize);
        let is_masked = |expert: usize| masked.get(expert / local_experts).is_some_and(|&masked| masked != 0);
        let is_skipped = |&pair: &usize| usize::try_from(choices[pair]).is_ok_and(is_masked);
        Ok((0..choices.len()).filter(is_skipped).collect())
    }

    /// Queues the first half of dispatch, which sends the rows. It waits for nobody.
    ///
    /// The input must not change until the call has completed.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the input does not match the shape, or the last call has no combine yet.
    /// - [`Error::Runtime`] if the runtime refuses the launch.
    pub fn dispatch_send(&self, stream: &Stream<'_>, input: Input) -> Result<Sent> {
        let batch = self.batch("dispatch_send", input)?;
        if self.is_busy.replace(true) {
            let what = "the last call has no combine: queue it, or call `reset` on all PEs";
            return Err(Error::Misuse { call: "dispatch_send", what: what.into() });
        }
        let grid = self.grid();
        // Beyond a few pairs per warp, comparing each pair with all earlier ones takes longer than another kernel.
        let pairs = batch.count * u64::from(self.buffers.top_k);
        let is_placed = pairs > 2 * u64::from(grid.blocks() * grid.threads() / 32);
        if is_placed {
            stream.launch(grid, kernels::ep_place(self.buffers, batch))?;
        }
        // A few more blocks than tokens share the counting.
        let grid = self.grid_for(batch.count.max(4));
        stream.launch(grid, kernels::ep_send(self.buffers, batch, is_placed))?;
        Ok(Sent(batch))
    }

    /// Queues the second half of dispatch, which waits for the rows of all PEs. Afterwards they are in
    /// [`Dispatcher::rows`].
    ///
    /// # Errors
    /// - [`Error::Runtime`] if the runtime refuses the launch.
    pub fn dispatch_receive(&self, stream: &Stream<'_>, sent: Sent) -> Result<Received> {
        stream.launch(self.grid_for(self.received_tokens()), kernels::ep_receive(self.buffers))?;
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

    /// Queues the first half of combine, which sends the sums of this PE's results to the PEs of the tokens.
    ///
    /// `results` has [`Dispatcher::row_count`] rows in bf16, in the order of [`Dispatcher::index`]. It must not change
    /// before the operation has completed.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if `results` is too short.
    /// - [`Error::Runtime`] if the runtime refuses the launch.
    pub fn combine_send(
        &self,
        stream: &Stream<'_>,
        received: Received,
        results: SymSlice<Bf16>,
    ) -> Result<Returning> {
        let results = chunks("combine_send", "results", results, self.row_count() * self.shape.hidden)?;
        stream.launch(self.grid_for(self.received_tokens()), kernels::ep_combine(self.buffers, results))?;
        Ok(Returning(received.0))
    }

    /// Queues the second half of combine, which waits for the partial sums of all PEs and stores the sum of each token
    /// in `sums`.
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
        let count = returning.0.count as usize;
        let sums = chunks("combine_receive", "sums", sums, count * self.shape.hidden)?;
        stream.launch(self.grid_for(returning.0.count), kernels::ep_reduce(self.buffers, sums))?;
        self.is_busy.set(false);
        Ok(())
    }

    /// Queues both halves of combine, which sums the experts' results per token.
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
    /// - [`Error::BadChoice`] or [`Error::FullPe`] if a call does not fit, and
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
        match self.pe.quiet() {
            // Operations to others are complete.
            Err(rushmem::Error::PeerLost(_)) => {}
            outcome => outcome?,
        }
        self.pe.host_sync()?;
        let b = &self.buffers;
        self.pe.write(b.words.slice(0..state::WORDS), &self.initial_state())?;
        self.zero(b.words.slice(state::WORDS..b.words.len()))?;
        self.zero(b.records)?;
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
        if self.shape.layout == Layout::Rows {
            pe.free(b.rows)?;
        }
        [b.inbox, b.outbox, b.back].into_iter().try_for_each(|object| pe.free(object))?;
        [b.records, b.index, b.tables].into_iter().try_for_each(|object| pe.free(object))?;
        Ok(pe.free(b.words)?)
    }

    /// Returns the grid for `tokens` tokens: at most one block for each.
    fn grid_for(&self, tokens: u64) -> LaunchConfig {
        let grid = self.grid();
        grid.with_blocks(tokens.clamp(1, u64::from(grid.blocks())) as u32)
    }

    /// Returns how many tokens this PE can receive.
    fn received_tokens(&self) -> u64 {
        u64::from(self.pe.n_pes()) * self.shape.tokens as u64
    }

    fn table(&self, table: Table, len: u32) -> SymSlice<u32> {
        let first = self.buffers.at(table, 0);
        self.buffers.tables.slice(first..first + len as usize)
    }

    fn batch(&self, call: &'static str, input: Input) -> Result<Batch> {
        let Shape { tokens, hidden, top_k, .. } = self.shape;
        let count = input.count;
        if count > tokens {
            let what =
                format!("{count} tokens, but the shape has at most {tokens}: send them in several calls");
            return Err(Error::Misuse { call, what });
        }
        let pairs = count * top_k;
        Ok(Batch {
            tokens: chunks(call, "tokens", input.tokens, count * hidden)?,
            choices: first(call, "choices", input.choices, pairs)?,
            weights: first(call, "weights", input.weights, pairs)?,
            count: count as u64,
        })
    }

    /// Returns the error that kernels recorded for the last call, if any.
    fn fault(&self) -> Result<Option<Error>> {
        let words = self.pe.read(self.buffers.words.slice(0..state::WORDS))?;
        if words[state::FAULT_CALL] == 0 || words[state::FAULT_CALL] != words[state::BEGUN] {
            return Ok(None);
        }
        let Shape { top_k, experts, .. } = self.shape;
        Ok(Fault::from_word(words[state::FAULT]).map(|fault| match fault {
            Fault::BadChoice { pair, expert } => {
                let (token, choice) = (pair as usize / top_k, pair as usize % top_k);
                Error::BadChoice { token, choice, expert, experts }
            }
            Fault::FullPe { pe, rows } => Error::FullPe { pe, rows, max_rows: self.row_count() },
            Fault::Refused { pe } => Error::Refused { pe },
        }))
    }

    /// Returns the words of PE state before the first call.
    fn initial_state(&self) -> [u64; state::WORDS] {
        let b = &self.buffers;
        let mut words = [0; state::WORDS];
        words[state::TEAM] = self.team.get().to_bits();
        words[state::HAS_NIC_PEERS] = b.has_nic_peers.into();
        words[state::SCRATCH] = (b.tables.len() - b.scratch_at(0)) as u64;
        words
    }

    fn zero<T: Pod>(&self, object: SymSlice<T>) -> Result<()> {
        Ok(self.pe.write(object, &vec![T::zeroed(); object.len()])?)
    }
}

fn allocate(pe: &Pe, shape: &Shape) -> Result<Buffers> {
    let (n_pes, experts) = (pe.n_pes(), shape.experts);
    let (row, partial, tokens) =
        (shape.row_bytes() / 16, shape.partial_bytes() / 16, n_pes as usize * shape.tokens);
    let inbox = pe.alloc::<u128>(tokens * row)?;
    let mut buffers = Buffers {
        words: inbox.slice(0..0).cast(),
        tables: inbox.slice(0..0).cast(),
        inbox,
        records: pe.alloc(tokens * kernels::RECORD_WORDS as usize)?,
        rows: match shape.layout {
            Layout::Rows => pe.alloc(shape.rows(n_pes) * row)?,
            Layout::Tokens => inbox,
        },
        index: pe.alloc(shape.rows(n_pes))?,
        back: pe.alloc(tokens * partial)?,
        outbox: inbox.slice(0..0),
        max_rows: number(shape.rows(n_pes))?,
        experts: number(experts)?,
        local_experts: number(experts / n_pes as usize)?,
        hidden: number(shape.hidden)?,
        top_k: number(shape.top_k)?,
        tokens: number(shape.tokens)?,
        row_chunks: number(row)?,
        quantizes: (shape.dtype == Dtype::E4m3).into(),
        gathers: (shape.layout == Layout::Tokens).into(),
        wide_partials: (shape.partials == Partials::F32).into(),
        has_nic_peers: 0,
        n_pes,
    };
    buffers.words = pe.alloc(buffers.returned(n_pes))?;
    let facts = if pe.is_joining() { find_facts(pe, &buffers)? } else { gather_facts(pe, shape, &buffers)? };
    buffers.has_nic_peers = facts.has_nic_peers.into();
    buffers.outbox = pe.alloc(if facts.has_nic_peers { tokens * partial } else { 1 })?;
    buffers.tables = pe.alloc(buffers.scratch_at(facts.scratch))?;
    Ok(buffers)
}

/// What the PEs know only together, and on which sizes of buffers depend.
struct Facts {
    has_nic_peers: bool,
    /// Number of scratch words.
    scratch: u32,
}

/// Gathers the facts from all PEs. Collective.
fn gather_facts(pe: &Pe, shape: &Shape, buffers: &Buffers) -> Result<Facts> {
    let Buffers { inbox, records, back, n_pes, .. } = *buffers;
    // 0 if no object of the peer is mapped, 3 if all are.
    let mapped = |peer| {
        let objects =
            [pe.ptr(inbox, peer).is_some(), pe.ptr(records, peer).is_some(), pe.ptr(back, peer).is_some()];
        objects.into_iter().filter(|&is_mapped| is_mapped).count()
    };
    let is_split = (0..n_pes).any(|peer| !matches!(mapped(peer), 0 | 3));
    let has_nic_peers = (0..n_pes).any(|peer| mapped(peer) == 0);
    let paths = pe.allgather(&[is_split.into(), has_nic_peers.into()])?;
    if let Some(peer) = paths.iter().position(|path| path.first() == Some(&1)) {
        let what = format!(
            "PE {peer} has mapped only a part of a heap: reserve all of it at the start (heap_bytes)"
        );
        return Err(Error::Misuse { call: "new", what });
    }
    let has_nic_peers = paths.iter().any(|path| path.get(1) == Some(&1));
    let warps = 16 * shape.blocks.unwrap_or(pe.grid().blocks());
    // All PEs must allocate the same sizes, so use the largest of all.
    let warps = pe.allgather(&warps.to_le_bytes())?.into_iter().filter_map(|bytes| bytes.try_into().ok());
    Ok(Facts { has_nic_peers, scratch: warps.map(u32::from_le_bytes).max().unwrap_or(0) })
}

/// Reads the facts from another PE, for a process that replaces a lost one.
fn find_facts(pe: &Pe, buffers: &Buffers) -> Result<Facts> {
    let facts = buffers.words.slice(state::HAS_NIC_PEERS..state::SCRATCH + 1);
    for peer in (0..pe.n_pes()).filter(|&peer| peer != pe.my_pe() && !pe.is_lost(peer)) {
        let mut found = [0; 2];
        pe.get_into(&mut found, facts, peer)?;
        let [has_nic_peers, scratch] = found;
        // Those of a process that is joining, too, are zero.
        if scratch != 0 {
            return Ok(Facts { has_nic_peers: has_nic_peers != 0, scratch: number(scratch as usize)? });
        }
    }
    let what =
        "no PE has the dispatcher that this process is to have: create the same ones in the same order";
    Err(Error::Misuse { call: "new", what: what.into() })
}

fn number(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::Shape(format!("{n} does not fit in 32 bits: use less")))
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
