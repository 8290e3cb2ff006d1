//! Multicast groups, to which programs attach their datagram QPs.

use super::core_in;
use super::qp::Qp;
use crate::abi;
use crate::attrs::Call;
use crate::errno::Errno;
use crate::open_device::OpenDevice;
use rushmem_mlx5::prm::qp::ServiceType;

/// Handles ATTACH_MCAST.
pub(super) fn attach(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let (qpn, group) = member(opened, call)?;
    Ok(opened.session()?.context.join_group(qpn, group)?)
}

/// Handles DETACH_MCAST.
pub(super) fn detach(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let (qpn, group) = member(opened, call)?;
    Ok(opened.session()?.context.leave_group(qpn, group)?)
}

/// Returns the QPN and the group of a request.
fn member(opened: &OpenDevice, call: &Call) -> Result<(u32, [u8; 16]), Errno> {
    let request: abi::Mcast = core_in(call)?;
    let qp = opened.handles.get::<Qp>(request.qp_handle)?;
    if qp.service == ServiceType::UD { Ok((qp.qpn, request.gid)) } else { Err(Errno::EINVAL) }
}
