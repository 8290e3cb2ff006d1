//! Waits on the host until the operations that kernels posted to a QP are complete.

use std::mem::offset_of;
use std::time::Instant;

use rushmem_device::abi::{FIRST_BLOCK, QpState, reserved};
use rushmem_device::sq;
use rushmem_error::Result;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::{CqeOpcode, CqeWord, Opcode, Wqe};

use super::StateMap;
use super::host_queue::post;
use super::private_queue::RemoteEnd;
use super::rail::{Qp, Rail};

/// A QP whose operations the host completes. No kernel may use the QP until [`run`](Self::run) returns.
pub(super) struct Drain<'a> {
    pub(super) state: &'a StateMap,
    /// Index of the QP in the QP table.
    pub(super) i: u64,
    pub(super) rail: &'a Rail,
    pub(super) pair: &'a Qp,
    pub(super) until: Instant,
}

/// How far [`Drain::run`] has come.
pub(super) enum Progress {
    Complete,
    /// An operation has failed, for this reason.
    Failed(String),
    /// The deadline has passed, in this state.
    Late(String),
}

impl Drain<'_> {
    /// Waits until everything that kernels posted has completed, and records the completions in the QP's state.
    ///
    /// An ACK of the peer's NIC does not imply that the data is in memory. So the QP reads back from each of `ends`,
    /// which are memory of peers, as kernels do in `quiet`. For a DC initiator, each comes with the address of its DC
    /// target.
    ///
    /// # Errors
    /// An error if the machine cannot access the queues.
    pub(super) fn run(&self, ends: &[(RemoteEnd, Option<&AvSeg>)]) -> Result<Progress> {
        let mut words = self.state.read_qp(self.i)?;
        // Nothing was posted, or a kernel has already reported the error.
        if words.reserved.word == FIRST_BLOCK || words.poison.word != 0 {
            return Ok(Progress::Complete);
        }
        let mut progress = self.complete(&mut words)?;
        for &((raddr, rkey), target) in ends {
            let Progress::Complete = progress else { break };
            let lkey = self.rail.keys().strict().lkey();
            let read = Wqe::Read { raddr, rkey, laddr: reserved::SINK, lkey, len: 1 };
            let first = words.reserved.word;
            let entry = self.pair.emit(&read, first, target);
            let end = post(self.rail, self.rail.memory_of(self.pair), self.pair, first, &entry)?;
            // Recorded before waiting: even if that fails, kernels that post later must not reuse the block.
            (words.reserved.word, words.doorbell.word) = (end, end);
            self.state.count_postings(self.i, &words)?;
            progress = self.complete(&mut words)?;
        }
        Ok(progress)
    }

    /// Waits until all posted WQEs have completed.
    fn complete(&self, words: &mut QpState) -> Result<Progress> {
        let (depth, collapsed) = (self.rail.shape().depth, self.rail.shape().collapsed);
        let posted = words.reserved.word;
        while words.done.word < posted {
            // A collapsed CQ has one entry, which the NIC overwrites with the latest completion.
            let index = if collapsed { 0 } else { words.cq_next.word & (depth - 1) };
            let word = CqeWord(self.rail.completion(self.pair, index)?);
            let kind = word.op_own();
            let fresh = if collapsed {
                kind.opcode() != CqeOpcode::INVALID
            } else {
                kind.is_ready(words.cq_next.word as u32, depth as u32)
            };
            if fresh && kind.opcode() != CqeOpcode::REQ {
                return Ok(Progress::Failed("the NIC reports a failed operation".into()));
            }
            // Assume a WQE of the usual size. A masked compare-and-swap is corrected below.
            let end = word.wqe_counter().wrapping_add(self.rail.shape().wqe_blocks());
            let news = fresh.then(|| sq::completed(words.done.word, end, depth));
            match news.flatten() {
                Some(done) => {
                    // On a connected QP, only this WQE takes two basic blocks. If it is the last one, no later
                    // completion covers its second block.
                    let second = word.opcode() == Opcode::ATOMIC_MASKED_CS && done + 1 == posted;
                    words.done.word = done + u64::from(second);
                }
                // Completes nothing beyond `done`: consume the CQE only.
                None if fresh && !collapsed => {}
                None => {
                    if Instant::now() > self.until {
                        let done = words.done.word;
                        let why = format!("{done} of {posted} basic blocks completed before the deadline");
                        return Ok(Progress::Late(why));
                    }
                    std::thread::yield_now();
                    continue;
                }
            }
            words.cq_next.word += u64::from(!collapsed);
            self.state.count_completions(self.i, words)?;
        }
        Ok(Progress::Complete)
    }
}

impl StateMap {
    pub(super) fn read_qp(&self, i: u64) -> Result<QpState> {
        let mut words = QpState::unconnected();
        self.region.read(Self::qp_at(i), bytemuck::bytes_of_mut(&mut words))?;
        Ok(words)
    }

    /// Stores in the QP table how many operations of QP `i` have completed.
    fn count_completions(&self, i: u64, words: &QpState) -> Result<()> {
        let done = (offset_of!(QpState, done), words.done.word);
        self.write_words(i, &[done, (offset_of!(QpState, cq_next), words.cq_next.word)])
    }

    /// Stores in the QP table how many blocks have been posted to QP `i`. The doorbell has been rung for all of them.
    fn count_postings(&self, i: u64, words: &QpState) -> Result<()> {
        let reserved = (offset_of!(QpState, reserved), words.reserved.word);
        self.write_words(i, &[reserved, (offset_of!(QpState, doorbell), words.doorbell.word)])
    }

    /// Stores words in the QP table entry of QP `i`. Each word comes with its offset in [`QpState`].
    pub(super) fn write_words(&self, i: u64, words: &[(usize, u64)]) -> Result<()> {
        let write = |&(at, word): &(usize, u64)| {
            self.region.write(Self::qp_at(i) + at as u64, bytemuck::bytes_of(&word))
        };
        words.iter().try_for_each(write)
    }
}
