//! Finds the counter set of a port. Linux reports errors of the QPs that use it in the port's `hw_counters` in sysfs.
#![allow(unsafe_code, reason = "calls libibverbs and libmlx5")]

use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_sys::{ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type};
use rushmem_error::RdmaError;
use rushmem_mlx5::prm::Response;
use rushmem_mlx5::prm::qp::{QueryQp, QueryQpOut};

use super::context::Context;
use super::ffi;
use super::memory::RdmaPd;
use super::remedy::{SEE_DMESG, last_errno, memory_remedy};

/// Returns the ID of the port's counter set. If it cannot be found, warns once per process and returns 0.
pub(super) fn counter_set(context: &Context, pd: &RdmaPd, port: u8) -> u8 {
    static WARNED: AtomicBool = AtomicBool::new(false);
    find(context, pd, port).unwrap_or_else(|error| {
        if !WARNED.swap(true, Ordering::Relaxed) {
            tracing::warn!("the error counters of the port will not count this job: {error}");
        }
        0
    })
}

/// Finds the counter set of a port, by reading it from the context of a QP that Linux has initialized.
///
/// A counter set allocated by the process itself would not be reported in `hw_counters`.
fn find(context: &Context, pd: &RdmaPd, port: u8) -> Result<u8, RdmaError> {
    // SAFETY: the context is open, and the CQ has no channel.
    let cq = unsafe { ffi::ibv_create_cq(context.raw(), 1, null_mut(), null_mut(), 0) };
    let Some(cq) = NonNull::new(cq).map(VerbsCq) else {
        return Err(failed(context, "ibv_create_cq", last_errno()));
    };
    // SAFETY: all fields are numbers or pointers, so all zeros is a valid value.
    let mut wanted: ibv_qp_init_attr = unsafe { zeroed() };
    (wanted.send_cq, wanted.recv_cq) = (cq.0.as_ptr(), cq.0.as_ptr());
    wanted.qp_type = ibv_qp_type::IBV_QPT_RC;
    wanted.cap.max_send_wr = 1;
    wanted.cap.max_recv_wr = 1;
    wanted.cap.max_send_sge = 1;
    wanted.cap.max_recv_sge = 1;
    // SAFETY: the protection domain and the CQ are live, and `wanted` is a live variable.
    let Some(qp) = NonNull::new(unsafe { ffi::ibv_create_qp(pd.raw(), &mut wanted) }).map(VerbsQp) else {
        return Err(failed(context, "ibv_create_qp", last_errno()));
    };
    // SAFETY: all fields are numbers, so all zeros is a valid value.
    let mut init: ibv_qp_attr = unsafe { zeroed() };
    init.qp_state = ibv_qp_state::IBV_QPS_INIT;
    init.port_num = port;
    let mask = ibv_qp_attr_mask::IBV_QP_STATE
        | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
        | ibv_qp_attr_mask::IBV_QP_PORT
        | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
    // SAFETY: the QP is live, and `init` is a live variable.
    let errno = unsafe { ffi::ibv_modify_qp(qp.0.as_ptr(), &mut init, mask.0 as i32) };
    if errno != 0 {
        return Err(failed(context, "ibv_modify_qp to INIT", errno));
    }
    // SAFETY: the QP is live.
    let qpn = unsafe { qp.0.as_ref() }.qp_num;
    let (input, mut answer) = (QueryQp { qpn, ..Default::default() }.encode(), QueryQpOut::EMPTY);
    // SAFETY: the QP is live, and the mailboxes have these lengths.
    let errno = unsafe {
        ffi::mlx5dv_devx_qp_query(
            qp.0.as_ptr(),
            input.as_ptr().cast(),
            input.len(),
            answer.as_mut_ptr().cast(),
            answer.len(),
        )
    };
    match QueryQpOut::decode(&answer) {
        Ok(out) if errno == 0 => Ok(out.context.counter_set_id),
        _ => Err(failed(context, "mlx5dv_devx_qp_query", errno)),
    }
}

fn failed(context: &Context, call: &str, errno: i32) -> RdmaError {
    let remedy = if errno == libc::ENOMEM { memory_remedy(errno) } else { SEE_DMESG.into() };
    context.error(call, errno, remedy)
}

/// A CQ of libibverbs, destroyed on drop.
struct VerbsCq(NonNull<ibv_cq>);

impl Drop for VerbsCq {
    fn drop(&mut self) {
        // SAFETY: `find` created the CQ, its QP is gone, and it is destroyed once.
        unsafe { ffi::ibv_destroy_cq(self.0.as_ptr()) };
    }
}

/// A QP of libibverbs, destroyed on drop.
struct VerbsQp(NonNull<ibv_qp>);

impl Drop for VerbsQp {
    fn drop(&mut self) {
        // SAFETY: `find` created the QP, and it is destroyed once.
        unsafe { ffi::ibv_destroy_qp(self.0.as_ptr()) };
    }
}
