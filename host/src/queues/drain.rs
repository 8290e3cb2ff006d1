//! Completing a QP from the host, after the kernels that posted to it.

use std::time::Instant;

use rushmem_device::abi::{FIRST_BLOCK, QpState};
use rushmem_device::sq;
use rushmem_mlx5::{CqeOpcode, CqeWord, Opcode};

use super::StateMap;
use super::rail::{Qp, Rail};
use crate::{Error, Result};

/// Waits until everything that kernels posted to QP `i` has completed, and counts the completions in its state. `pair`
/// holds the queues of the QP. No kernel may post to it meanwhile.
///
/// # Errors
/// [`Error::Unavailable`] if an operation failed or is not complete at `until`.
pub(super) fn drain(state: &StateMap, i: u64, rail: &Rail, pair: &Qp, until: Instant) -> Result<()> {
    let mut words = state.read_qp(i)?;
    let (depth, collapsed) = (rail.shape().depth, rail.shape().collapsed);
    let posted = words.reserved.word;
    while posted != FIRST_BLOCK && words.poison.word == 0 && words.done.word < posted {
        let index = if collapsed { 0 } else { words.cq_next.word & (depth - 1) };
        let word = CqeWord(rail.completion(pair, index)?);
        let kind = word.op_own();
        let fresh = if collapsed {
            kind.opcode() != CqeOpcode::INVALID
        } else {
            kind.is_ready(words.cq_next.word as u32, depth as u32)
        };
        if fresh && kind.opcode() != CqeOpcode::REQ {
            let what = format!("the completion of QP {:#x}", pair.address.qpn);
            return Err(Error::Unavailable { what, why: "the NIC reports a failed operation".into() });
        }
        let news = fresh.then(|| sq::completed(words.done.word, word.wqe_counter().wrapping_add(1), depth));
        match news.flatten() {
            Some(done) => {
                // Only this WQE has two basic blocks. If it is last, no other completion covers its second block.
                let second = word.opcode() == Opcode::ATOMIC_MASKED_CS && done + 1 == posted;
                words.done.word = done + u64::from(second);
            }
            None if fresh && !collapsed => {}
            None => {
                if Instant::now() > until {
                    let what = format!("the completion of QP {:#x}", pair.address.qpn);
                    let why =
                        format!("{} of {posted} basic blocks completed before the deadline", words.done.word);
                    return Err(Error::Unavailable { what, why });
                }
                std::thread::yield_now();
                continue;
            }
        }
        words.cq_next.word += u64::from(!collapsed);
        state.count_completions(i, &words)?;
    }
    Ok(())
}

impl StateMap {
    /// Reads the state of QP `i`.
    pub(super) fn read_qp(&self, i: u64) -> Result<QpState> {
        let mut words = QpState::unconnected();
        self.region.read(Self::qp_at(i), bytemuck::bytes_of_mut(&mut words))?;
        Ok(words)
    }

    /// Writes the counted completions of QP `i`.
    fn count_completions(&self, i: u64, words: &QpState) -> Result<()> {
        use std::mem::offset_of;
        for (at, word) in
            [(offset_of!(QpState, done), words.done.word), (offset_of!(QpState, cq_next), words.cq_next.word)]
        {
            self.region.write(Self::qp_at(i) + at as u64, bytemuck::bytes_of(&word))?;
        }
        Ok(())
    }
}
