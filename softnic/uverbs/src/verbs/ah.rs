//! Address handles: of use to a driver that asks for the Ethernet address of a peer.

use super::pd::Pd;
use super::{core_in, core_out};
use crate::abi::{self, driver_data, gid_type};
use crate::attrs::Call;
use crate::device::address_of;
use crate::errno::Errno;
use crate::opened::Opened;

/// An address handle; all about it has been told.
pub(crate) struct Ah;

/// CREATE_AH: resolves the peer's GID.
pub(super) fn create(opened: &mut Opened, call: &Call) -> Result<(), Errno> {
    let request: abi::CreateAh = core_in(call)?;
    opened.handles.get::<Pd>(request.pd_handle)?;
    let nic = &opened.session()?.adapter.nic;
    if request.port_num != 1 || request.is_global == 0 {
        return Err(Errno::EINVAL);
    }
    let table = opened.device.gids(nic);
    let own = table.iter().find(|entry| entry.gid_index == request.sgid_index.into()).ok_or(Errno::EINVAL)?;
    if own.gid_type != gid_type::ROCE_V2 {
        return Err(Errno::EOPNOTSUPP);
    }
    address_of(request.dgid).ok_or(Errno::EINVAL)?;
    // The address of an adapter tells its UDP port, and all adapters have the same one.
    let response = abi::CreateAhResponse {
        response_length: size_of::<abi::CreateAhResponse>() as u32,
        dmac: nic.mac(),
        ..abi::CreateAhResponse::default()
    };
    let handle = opened.handles.insert(Ah)?;
    core_out(call, &handle)?;
    call.output(driver_data::OUT, &response)
}

/// AH destroy.
pub(crate) fn destroy(opened: &mut Opened, call: &Call) -> Result<(), Errno> {
    opened.handles.remove::<Ah>(call.handle(0)?)?;
    Ok(())
}
