//! Commands that attach datagram QPs to multicast groups.

use super::CmdResult;
use super::refuse::{Reason, bad_resource, refuse};
use crate::engine::core::Core;
use crate::error::Error;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::mcg::{AttachToMcg, AttachToMcgOut, DetachFromMcg, DetachFromMcgOut};

pub(super) fn attach(core: &mut Core, context: u32, command: AttachToMcg) -> CmdResult<AttachToMcgOut> {
    core.join_group(context, command.qpn, command.multicast_gid).map_err(|error| match error {
        Error::Unknown { .. } => bad_resource(Reason::NoQp),
        Error::Exhausted(_) => refuse(CmdStatus::NO_RES, Reason::Full),
        _ => refuse(CmdStatus::BAD_PARAM, Reason::Group),
    })?;
    Ok(AttachToMcgOut {})
}

pub(super) fn detach(core: &mut Core, context: u32, command: DetachFromMcg) -> CmdResult<DetachFromMcgOut> {
    core.leave_group(context, command.qpn, command.multicast_gid)
        .map_err(|_| bad_resource(Reason::NoMember))?;
    Ok(DetachFromMcgOut {})
}
