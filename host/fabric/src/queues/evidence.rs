//! Adds the state of a probe's QPs to the recording of a NIC.

use rushmem_error::Result;
use rushmem_mlx5::{CqeOpcode, CqeWord};

use super::rail::{Qp, Rail};
use super::shape::CQE_BYTES;

/// Largest number of CQEs that are read. A probe posts fewer operations.
const MOST_CQES: u64 = 8;

/// Records the context and the CQEs of a QP, if the commands of its NIC are recorded.
///
/// # Errors
/// Fails if the machine cannot read the CQ. A NIC that refuses the query is recorded.
pub(super) fn record_qp(rail: &Rail, pair: &Qp) -> Result<()> {
    let Some(recorder) = rail.nic().recorder() else { return Ok(()) };
    if let Err(error) = rail.query_qp(pair) {
        tracing::debug!("{}: QUERY_QP: {error}", rail.nic().name());
    }
    let (at, shape) = (rail.shape().place(pair.slot).cq, rail.shape());
    for index in 0..shape.cqes().min(MOST_CQES) {
        let mut entry = [0; CQE_BYTES as usize];
        rail.memory().region().read(at + index * CQE_BYTES, &mut entry)?;
        let [.., a, b, c, d, e, f, g, h] = entry;
        let word = CqeWord(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        if word.op_own().opcode() == CqeOpcode::INVALID {
            break;
        }
        recorder.completion(pair.address.qpn, &entry);
    }
    Ok(())
}
