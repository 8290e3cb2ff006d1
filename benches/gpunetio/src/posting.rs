//! How fast NVIDIA's device code posts: the rows of `rushmem perf --list` that post.
//!
//! Its queues lie in page-locked host memory, as those of the software ConnectX do, and so does the doorbell. Nobody
//! executes what is posted; that it is all there is read off the queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytemuck::Zeroable;
use rushmem::cuda::{Device, DeviceBuffer, Error as CudaError, Module, PinnedBuffer, Stream};
use rushmem::native::Grid;
use rushmem_mlx5::doorbell::{Record, record_counter};
use rushmem_mlx5::seg::{Segment, WQEBB_BYTES};
use rushmem_mlx5::{Opcode, View};

use crate::theirs::{LIMIT, QP_ROOM, Queue, Work};
use crate::{Error, Result};

/// A row to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The benchmark, which is the kernel's name too.
    pub bench: String,
    /// Bytes of each put.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Puts of each thread in a run.
    pub rounds: u32,
    /// PEs that the row is compared with.
    pub pes: u32,
    /// Runs that count.
    pub runs: usize,
}

impl Row {
    /// The rows of a plan that post: lines of `bench bytes blocks threads rounds pes runs`.
    ///
    /// # Errors
    /// [`Error::Record`] for a line that is none.
    pub fn read(plan: &str) -> Result<Vec<Self>> {
        let lines = plan.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        let rows = lines.map(|(i, line)| {
            Self::parse(line)
                .ok_or_else(|| Error::Record { line: i + 1, what: format!("`{line}` is no row") })
        });
        let mut rows: Vec<Self> = rows.collect::<Result<_>>()?;
        rows.retain(|row| row.bench.starts_with("post_"));
        Ok(rows)
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split('\t').collect();
        let [bench, bytes, blocks, threads, rounds, pes, runs] = words[..] else { return None };
        Some(Self {
            bench: bench.into(),
            bytes: bytes.parse().ok()?,
            blocks: blocks.parse().ok()?,
            threads: threads.parse().ok()?,
            rounds: rounds.parse().ok()?,
            pes: pes.parse().ok()?,
            runs: runs.parse().ok()?,
        })
    }

    /// Queues that it posts to.
    fn queues(&self) -> u32 {
        if self.bench.ends_with("per_block") { self.blocks } else { 1 }
    }

    /// Entries that come into each.
    fn entries(&self) -> u32 {
        self.blocks / self.queues() * self.threads * self.rounds
    }

    /// Entries that each has room for.
    fn depth(&self) -> u32 {
        self.entries().next_power_of_two().max(64)
    }
}

/// Posts the rows of a plan.
pub struct Poster {
    module: Arc<Module>,
    stream: Stream,
}

const CQE_BYTES: usize = 64;
/// A doorbell record, alone in its line.
const RECORD_BYTES: usize = 64;
const PAGE: usize = 4096;
/// Where data would lie, here and at the peer.
const BASE: u64 = 1 << 16;
const QPN: u32 = 0x1234;
const LKEY: u32 = 0x5600;
const RKEY: u32 = 0x7800;

impl Poster {
    /// Loads PTX that [`compile`](crate::theirs::compile) made.
    ///
    /// # Errors
    /// What the driver says.
    pub fn load(device: &Arc<Device>, ptx: &str) -> Result<Self> {
        Ok(Self { module: Module::load(device, "gpunetio", ptx)?, stream: Stream::new(device)? })
    }

    /// Millions of entries a second in each run that counts; one before them does not.
    ///
    /// # Errors
    /// [`Error::Wrong`] if entries are missing or wrong, or what the driver says.
    pub fn measure(&self, row: &Row) -> Result<Vec<f64>> {
        if row.depth() > 1 << 15 {
            return Err(Error::wrong(&row.bench, format!("{} entries fit in no queue", row.entries())));
        }
        let mut rates = Vec::new();
        for run in 0..=row.runs {
            let ns = self.once(row)?;
            if run > 0 {
                let entries = f64::from(row.queues()) * f64::from(row.entries());
                rates.push(entries / ns * 1e3);
            }
        }
        Ok(rates)
    }

    /// One run, into fresh queues; nanoseconds from the first block's begin to the last one's end.
    fn once(&self, row: &Row) -> Result<f64> {
        let device = self.stream.device();
        let depth = row.depth() as usize;
        let (sq_bytes, cq_bytes) = (depth * WQEBB_BYTES, depth * CQE_BYTES);
        let one = sq_bytes + cq_bytes + 2 * RECORD_BYTES;
        let memory = PinnedBuffer::new(device, PAGE + row.queues() as usize * one)?;
        let qps = DeviceBuffer::zeroed(&self.stream, row.queues() as usize * QP_ROOM)?;
        let spans = DeviceBuffer::zeroed(&self.stream, 16 * row.blocks as usize)?;

        let prepare = self.module.function("prepare")?;
        let single = Grid { blocks: 1, threads: 1, shared_bytes: 0 };
        for i in 0..row.queues() as usize {
            let start = PAGE + i * one;
            // SAFETY: inside of the buffer, which nobody uses yet; an entry of ones has never completed.
            unsafe { memory.as_ptr().add(start + sq_bytes).write_bytes(0xff, cq_bytes) };
            let at = |offset: usize| memory.address() + (start + offset) as u64;
            let queue = Queue {
                sq: at(0),
                cq: at(sq_bytes),
                sq_record: at(sq_bytes + cq_bytes + Record::SND_OFFSET),
                cq_record: at(sq_bytes + cq_bytes + RECORD_BYTES),
                doorbell: memory.address(),
                qpn: QPN,
                cqn: QPN,
                depth: row.depth(),
                collapsed: 0,
            };
            let qp = (qps.address() + (i * QP_ROOM) as u64).to_ne_bytes();
            // SAFETY: the kernel's own parameters; all that they lead to lives until the stream is done.
            unsafe { prepare.launch(&self.stream, single, &[&qp, bytemuck::bytes_of(&queue)])? };
        }
        let work = Work {
            raddr: BASE,
            laddr: BASE,
            bytes: row.bytes,
            stride: row.bytes,
            rounds: row.rounds.into(),
            lkey: LKEY,
            rkey: RKEY,
            ..Zeroable::zeroed()
        };
        let kernel = self.module.function(&row.bench)?;
        let grid = Grid { blocks: row.blocks, threads: row.threads, shared_bytes: 0 };
        let (qps_at, spans_at) = (qps.address().to_ne_bytes(), spans.address().to_ne_bytes());
        // SAFETY: as above.
        unsafe { kernel.launch(&self.stream, grid, &[&qps_at, bytemuck::bytes_of(&work), &spans_at])? };
        if let Err(error @ CudaError::Deadline { .. }) = self.stream.wait(LIMIT) {
            // Nothing that a running kernel uses can be given back: only the end of the process ends it.
            eprintln!("{}: {error}", row.bench);
            std::process::abort();
        }
        self.stream.synchronize()?;
        for i in 0..row.queues() {
            let start = PAGE + i as usize * one;
            // SAFETY: inside of the buffer; the kernels are done.
            let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr().add(start).as_ptr(), one) };
            let record = sq_bytes + cq_bytes + Record::SND_OFFSET;
            verify(row, i, &bytes[..sq_bytes], bytemuck::pod_read_unaligned(&bytes[record..record + 4]))?;
        }
        let mut told = vec![[0u64; 2]; row.blocks as usize];
        spans.read(&self.stream, 0, bytemuck::cast_slice_mut(&mut told))?;
        let begin = told.iter().map(|span| span[0]).min().unwrap_or(0);
        let end = told.iter().map(|span| span[1]).max().unwrap_or(0);
        Ok(end.saturating_sub(begin).max(1) as f64)
    }
}

/// Reads a send queue: an entry in each place, each thread's put as often as it made it, and all of it announced.
fn verify(row: &Row, queue: u32, sq: &[u8], record: u32) -> Result {
    let wrong = |what: String| Err(Error::wrong(format!("{}, queue {queue}", row.bench), what));
    let entries = row.entries();
    let announced = record_counter(record);
    if announced != entries as u16 {
        return wrong(format!("the doorbell record says {announced}, not {entries}"));
    }
    let mut puts: BTreeMap<u64, u32> = BTreeMap::new();
    for (i, entry) in sq.chunks_exact(WQEBB_BYTES).take(entries as usize).enumerate() {
        let segments: Vec<Segment> = entry.chunks_exact(16).map(bytemuck::pod_read_unaligned).collect();
        let view = match View::parse(&segments) {
            Ok(view) => view,
            Err(malformed) => return wrong(format!("entry {i}: {malformed}")),
        };
        let at = view.remote().map(|remote| remote.addr.get());
        match at {
            Some(at)
                if view.opcode() == Opcode::RDMA_WRITE
                    && view.ctrl().index() == i as u16
                    && view.data_len() == row.bytes =>
            {
                *puts.entry(at).or_default() += 1;
            }
            _ => return wrong(format!("entry {i} is {view}")),
        }
    }
    let threads = u64::from(row.blocks / row.queues() * row.threads);
    let first = BASE + u64::from(if row.queues() > 1 { queue } else { 0 }) * threads * row.bytes;
    match (0..threads).find(|i| puts.get(&(first + i * row.bytes)) != Some(&row.rounds)) {
        None => Ok(()),
        Some(thread) => wrong(format!("thread {thread} has not posted {} times", row.rounds)),
    }
}

#[cfg(test)]
mod tests {
    use rushmem_mlx5::doorbell::record_word;
    use rushmem_mlx5::{Flags, Wqe};

    use super::*;

    fn row() -> Row {
        let plan = "#bench\t...\nput_bw\t8\t1\t32\t4\t2\t7\npost_per_block\t8\t2\t3\t4\t2\t7\n";
        let rows = Row::read(plan).unwrap();
        assert_eq!(rows.len(), 1);
        rows[0].clone()
    }

    /// What three threads of block `block` post in four rounds.
    fn posted(block: u64) -> Vec<u8> {
        let put = |i: u64| {
            let at = BASE + 8 * (3 * block + i % 3);
            let wqe = Wqe::Write { raddr: at, rkey: RKEY, laddr: at, lkey: LKEY, len: 8 };
            wqe.emit(i as u16, QPN, Flags::SIGNALED).blocks[0]
        };
        (0..12).flat_map(|i| bytemuck::bytes_of(&put(i)).to_vec()).collect()
    }

    #[test]
    fn a_queue_is_as_it_should_be_or_an_error() {
        let row = row();
        assert_eq!((row.queues(), row.entries(), row.depth()), (2, 12, 64));
        let record = record_word(12);
        verify(&row, 0, &posted(0), record).unwrap();
        verify(&row, 1, &posted(1), record).unwrap();
        let says =
            |queue: u32, sq: &[u8], record: u32| verify(&row, queue, sq, record).unwrap_err().to_string();
        assert!(says(0, &posted(1), record).contains("thread 0"));
        assert!(says(0, &posted(0), record_word(11)).contains("says 11, not 12"));
        let mut twice = posted(0);
        twice.copy_within(0..64, 64);
        assert!(says(0, &twice, record).contains("entry 1"));
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        assert!(Row::read("post_shared\t8\t1\n").unwrap_err().to_string().contains("line 1"));
    }
}
