//! Multicast groups, to which programs attach their datagram QPs.

use super::core_in;
use super::qp::Qp;
use crate::abi;
use crate::attrs::Call;
use crate::errno::Errno;
use crate::open_device::OpenDevice;
use rushmem_mlx5::prm::qp::ServiceType;
use rushmem_softnic::ip_of_gid;
use std::net::Ipv4Addr;

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

/// Returns the QPN and the group of a request. On Ethernet a group is an IPv4 address.
fn member(opened: &OpenDevice, call: &Call) -> Result<(u32, Ipv4Addr), Errno> {
    let request: abi::Mcast = core_in(call)?;
    let qp = opened.handles.get::<Qp>(request.qp_handle)?;
    let group = ip_of_gid(request.gid).filter(Ipv4Addr::is_multicast).ok_or(Errno::EINVAL)?;
    if qp.service == ServiceType::UD { Ok((qp.qpn, group)) } else { Err(Errno::EINVAL) }
}
