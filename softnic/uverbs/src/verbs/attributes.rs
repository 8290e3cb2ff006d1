//! QP attributes, as changed by MODIFY_QP.

use crate::abi::{self, command, qp_attr};
use crate::attrs::Call;
use crate::errno::Errno;
use rushmem_mlx5::prm::qp::AtomicMode;

/// Writes the response to the extended MODIFY_QP. The plain one has none.
pub(super) fn answer(number: u64, call: &Call) -> Result<(), Errno> {
    if number == command::EX_MODIFY_QP {
        let response_length = size_of::<abi::ExModifyQpResponse>() as u32;
        call.output(super::write::CORE_OUT, &abi::ExModifyQpResponse { comp_mask: 0, response_length })?;
    }
    Ok(())
}

/// Returns the atomic mode for a QP context. Like the kernel, chooses the largest reported mode, which includes masked
/// atomics.
pub(super) fn atomic_mode(atomics: bool) -> AtomicMode {
    if atomics { AtomicMode::UP_TO_8B } else { AtomicMode::NONE }
}

/// Returns the attributes after a change of those in the change's mask.
pub(super) fn merge(before: &abi::ModifyQp, change: &abi::ModifyQp) -> abi::ModifyQp {
    let mut merged = *before;
    macro_rules! take {
        ($($bit:ident: $($field:ident),*;)*) => {
            $(if change.attr_mask & qp_attr::$bit != 0 {
                $(merged.$field = change.$field;)*
            })*
        };
    }
    take! {
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: dest;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        DEST_QPN: dest_qp_num;
    }
    merged
}
