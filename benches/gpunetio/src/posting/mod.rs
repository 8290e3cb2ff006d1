//! Measures how fast NVIDIA's device code ([`Theirs`]) and ours ([`Ours`]) post the rows of `rushmem perf --list`.
//!
//! Queues and doorbell records are in GPU memory, as with a ConnectX. The doorbell register is a word in page-locked
//! host memory. No NIC executes the entries; afterwards, the queues are checked for complete and announced entries.

mod ours;
mod theirs;

use std::collections::BTreeMap;

use rushmem::cuda::{DeviceBuffer, Error as CudaError, PinnedBuffer, Stream};
use rushmem_mlx5::doorbell::{Doorbell, Record, record_counter};
use rushmem_mlx5::seg::{Segment, WQEBB_BYTES};
use rushmem_mlx5::{Opcode, View};

pub use self::ours::Ours;
pub use self::theirs::Theirs;
use crate::theirs::LAUNCH_TIMEOUT;
use crate::{Error, Result};

/// A row of the measurement plan: a posting benchmark with its grid and sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the benchmark, which is also the name of the kernel.
    pub bench: String,
    /// Size of each put, in bytes.
    pub bytes: u64,
    /// Number of thread blocks in the grid.
    pub blocks: u32,
    /// Number of threads per block.
    pub threads: u32,
    /// Number of puts that each thread posts per run.
    pub rounds: u32,
    /// Number of PEs in the row that this one is compared with.
    pub pes: u32,
    /// Number of measured runs.
    pub runs: usize,
}

impl Row {
    /// Parses the posting rows of a plan. Its lines are `bench bytes blocks threads rounds pes runs`.
    ///
    /// # Errors
    /// [`Error::Record`] for a malformed line.
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

    /// Number of send queues that the benchmark posts to.
    fn queues(&self) -> u32 {
        if self.bench.ends_with("per_block") { self.blocks } else { 1 }
    }

    fn entries(&self) -> u32 {
        self.blocks / self.queues() * self.threads * self.rounds
    }

    /// Number of WQEBBs in each send queue. It holds all entries of a run, so posting never waits for a slot.
    fn depth(&self) -> u32 {
        self.entries().next_power_of_two().max(64)
    }
}

/// A device library whose posting rate can be measured: NVIDIA's or ours.
pub trait Poster {
    /// Name of the device library, with its version if it has one.
    fn program(&self) -> String;

    /// Whether the last doorbell of a queue without a doorbell record is also the one with the highest producer index.
    /// If not, earlier doorbells may arrive late, and a NIC ignores them.
    fn rings_in_order(&self) -> bool;

    /// The CUDA stream in which the benchmark kernels run.
    fn stream(&self) -> &Stream;

    /// Launches the kernel that performs the benchmark of `row` once, with fresh send queues.
    ///
    /// # Errors
    /// - [`Error::Cuda`]: the driver fails.
    fn launch(&self, row: &Row, queues: &Queues) -> Result<Spans>;

    /// Measures the posting rate of each run of `row`, in millions of WQEs per second, after one warm-up run.
    /// `no_record` selects queues without a doorbell record.
    ///
    /// # Errors
    /// - [`Error::Wrong`]: WQEs are missing or wrong.
    /// - [`Error::Cuda`]: the driver fails.
    fn measure(&self, row: &Row, no_record: bool) -> Result<Vec<f64>> {
        if row.depth() > 1 << 15 {
            return Err(Error::wrong(&row.bench, format!("{} entries fit in no queue", row.entries())));
        }
        let entries = f64::from(row.queues()) * f64::from(row.entries());
        let once = |run: usize| {
            let queues = Queues::new(self.stream(), row, run * SHIFT, no_record)?;
            let spans = self.launch(row, &queues)?;
            if let Err(error @ CudaError::Deadline { .. }) = self.stream().wait(LAUNCH_TIMEOUT) {
                // A running kernel still uses its memory, so nothing can be freed. Only the exit of the process stops
                // it.
                eprintln!("{}: {error}", row.bench);
                std::process::abort();
            }
            self.stream().synchronize()?;
            queues.verify(self.stream(), row, self.rings_in_order())?;
            Ok(entries / spans.read(self.stream(), row)? * 1e3)
        };
        let rates: Vec<f64> = (0..=row.runs).map(once).collect::<Result<_>>()?;
        Ok(rates[1..].to_vec())
    }
}

/// GPU memory in which the blocks of a launch store when they started and finished.
///
/// It starts with two words per block, in nanoseconds of the GPU's clock. Other data of the kernel follows.
pub struct Spans {
    memory: DeviceBuffer,
    /// Buffers that are unused after the launch but must outlive the kernel.
    _kept: Vec<DeviceBuffer>,
}

impl Spans {
    /// Returns the nanoseconds from the start of the first block to the end of the last one.
    fn read(&self, stream: &Stream, row: &Row) -> Result<f64> {
        let mut told = vec![[0u64; 2]; row.blocks as usize];
        self.memory.read(stream, 0, bytemuck::cast_slice_mut(&mut told))?;
        let begin = told.iter().map(|span| span[0]).min().unwrap_or(0);
        let end = told.iter().map(|span| span[1]).max().unwrap_or(0);
        match end.checked_sub(begin) {
            Some(ns @ 1..) if begin != 0 => Ok(ns as f64),
            _ => Err(Error::wrong(&row.bench, format!("its blocks ran from {begin} to {end} ns"))),
        }
    }
}

/// Send queues, completion queues and doorbell records for one run of a benchmark.
pub struct Queues {
    memory: DeviceBuffer,
    /// Offset of the first queue in `memory`, in bytes. Other memory that posting uses must be shifted by the same
    /// amount.
    shift: usize,
    doorbell: PinnedBuffer,
    /// Sizes of a send queue and of a completion queue, in bytes.
    bytes: (usize, usize),
    no_record: bool,
}

struct QueueAddresses {
    sq: u64,
    cq: u64,
    /// Address of the send counter in the doorbell record.
    sq_record: u64,
    cq_record: u64,
}

const CQE_BYTES: usize = 64;
/// Sizes of one send queue and of one completion queue, in bytes.
const RECORD_BYTES: usize = 64;
const PAGE: usize = 4096;
/// Shift in GPU memory between the queues of consecutive runs, in bytes. Access time depends on the position in GPU
/// memory, so every run uses a different one.
const SHIFT: usize = 37 * 128;
/// Address of the puts' data, both locally and at the peer. No NIC accesses it.
const BASE: u64 = 1 << 16;
const QPN: u32 = 0x1234;
const LKEY: u32 = 0x5600;
const RKEY: u32 = 0x7800;

impl Queues {
    fn new(stream: &Stream, row: &Row, shift: usize, no_record: bool) -> Result<Self> {
        let bytes = (row.depth() as usize * WQEBB_BYTES, row.depth() as usize * CQE_BYTES);
        let doorbell = PinnedBuffer::new(stream.device(), PAGE)?;
        let one = bytes.0 + bytes.1 + 2 * RECORD_BYTES;
        let memory = DeviceBuffer::zeroed(stream, shift + row.queues() as usize * one)?;
        let queues = Self { memory, shift, doorbell, bytes, no_record };
        for i in 0..row.queues() as usize {
            // A completion entry of all ones reads as not yet completed.
            queues.memory.fill(stream, queues.start(i) + bytes.0, bytes.1, 0xff)?;
        }
        Ok(queues)
    }

    fn start(&self, i: usize) -> usize {
        self.shift + i * (self.bytes.0 + self.bytes.1 + 2 * RECORD_BYTES)
    }

    fn record(&self, i: usize) -> usize {
        self.start(i) + self.bytes.0 + self.bytes.1
    }

    fn addresses(&self, i: usize) -> QueueAddresses {
        let at = |offset: usize| self.memory.address() + offset as u64;
        QueueAddresses {
            sq: at(self.start(i)),
            cq: at(self.start(i) + self.bytes.0),
            sq_record: at(self.record(i) + Record::SND_OFFSET),
            cq_record: at(self.record(i) + RECORD_BYTES),
        }
    }

    fn doorbell(&self) -> u64 {
        self.doorbell.address()
    }

    fn verify(&self, stream: &Stream, row: &Row, in_order: bool) -> Result {
        for i in 0..row.queues() {
            let mut sq = vec![0; self.bytes.0];
            let mut record = [0; 4];
            self.memory.read(stream, self.start(i as usize), &mut sq)?;
            self.memory.read(stream, self.record(i as usize) + Record::SND_OFFSET, &mut record)?;
            verify(row, i, &sq, (!self.no_record).then(|| u32::from_ne_bytes(record)))?;
        }
        // SAFETY: the word is within the page, and the kernel has completed.
        let rung = Doorbell::from_raw(unsafe { self.doorbell.as_ptr().cast::<u64>().read() });
        match (rung.qpn(), rung.producer_index()) {
            (QPN, index) if index == row.entries() as u16 || self.no_record && !in_order => Ok(()),
            (qpn, index) => {
                Err(Error::wrong(&row.bench, format!("the doorbell says {index} of QP {qpn:#x} at the end")))
            }
        }
    }
}

/// Checks a send queue: every slot has an entry, and each thread's put appears once per round. If there is a doorbell
/// record, it must announce all entries.
fn verify(row: &Row, queue: u32, sq: &[u8], record: Option<u32>) -> Result {
    let wrong = |what: String| Err(Error::wrong(format!("{}, queue {queue}", row.bench), what));
    let entries = row.entries();
    let announced = record.map_or(entries as u16, record_counter);
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

    fn posted(block: u64) -> Vec<u8> {
        let put = |i: u64| {
            let at = BASE + 8 * (3 * block + i % 3);
            let wqe = Wqe::Write { raddr: at, rkey: RKEY, laddr: at, lkey: LKEY, len: 8 };
            wqe.emit(i as u16, QPN, Flags::SIGNALED).blocks[0]
        };
        (0..12).flat_map(|i| bytemuck::bytes_of(&put(i)).to_vec()).collect()
    }

    #[test]
    fn verify_names_the_wrong_entry_thread_or_record() {
        let row = row();
        assert_eq!((row.queues(), row.entries(), row.depth()), (2, 12, 64));
        let record = Some(record_word(12));
        verify(&row, 0, &posted(0), record).unwrap();
        verify(&row, 1, &posted(1), record).unwrap();
        let says = |queue: u32, sq: &[u8], record: Option<u32>| {
            verify(&row, queue, sq, record).unwrap_err().to_string()
        };
        assert!(says(0, &posted(1), record).contains("thread 0"));
        assert!(says(0, &posted(0), Some(record_word(11))).contains("says 11, not 12"));
        let mut twice = posted(0);
        twice.copy_within(0..64, 64);
        assert!(says(0, &twice, record).contains("entry 1"));
    }

    #[test]
    fn plan_error_names_the_malformed_line() {
        assert!(Row::read("post_shared\t8\t1\n").unwrap_err().to_string().contains("line 1"));
    }
}
