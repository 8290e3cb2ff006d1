//! Multicast groups. Joining one needs no message: the program attaches its queue pair to the group.

use super::Cm;
use super::abi::{self, event};
use super::address::Given;
use super::attributes;
use super::connection::UDP_QKEY;
use super::request::Request;
use super::state::{Param, Phase};
use crate::errno::Errno;
use std::net::IpAddr;

/// QPN to which datagrams of a group are sent.
const GROUP_QPN: u32 = 0xff_ffff;

/// Handles JOIN_MCAST and JOIN_IP_MCAST.
pub(super) fn join(
    cm: &'static Cm,
    request: &Request<'_>,
    (handle, uid, response): (u32, u64, u64),
    given: Given,
) -> Result<(), Errno> {
    let group = match given.ip()?.map(|address| address.ip().to_canonical()) {
        Some(IpAddr::V4(group)) if group.is_multicast() => group,
        Some(IpAddr::V6(group)) => {
            tracing::error!(%group, "multicast groups have IPv4 addresses here");
            return Err(Errno::EAFNOSUPPORT);
        }
        _ => return Err(Errno::EINVAL),
    };
    let mut state = cm.state();
    let id = state.id(request.file, handle)?;
    let has_device = !matches!(id.phase, Phase::Idle | Phase::Listening | Phase::Ended);
    if !has_device || !id.is_datagram() {
        return Err(Errno::EINVAL);
    }
    let mut ah = attributes::ah(id)?;
    (ah.dgid, ah.hop_limit) = (group.to_ipv6_mapped().octets(), 1);
    let membership = state.add_membership(request.file, handle, uid)?;
    if let Err(error) = request.answer(response, &membership) {
        state.remove_membership(membership);
        return Err(error);
    }
    let param = abi::UdParam { qp_num: GROUP_QPN, qkey: UDP_QKEY, ah, ..abi::UdParam::default() };
    state.tell_member(membership, event::MULTICAST_JOIN, &Param::Datagram(param));
    Ok(())
}

/// Handles LEAVE_MCAST.
pub(super) fn leave(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::DestroyId = request.input()?;
    let mut state = cm.state();
    state.membership(request.file, given.id)?;
    let reported = state.remove_membership(given.id);
    request.answer(given.response, &reported)
}
