//! Address handles. libmlx5 writes the address vector into each WQE by itself. It asks the kernel only whether the GID
//! is reachable, and for its MAC address.

use super::address::resolve;
use super::pd::Pd;
use super::{core_in, core_out};
use crate::abi::{self, driver_data};
use crate::attrs::Call;
use crate::errno::Errno;
use crate::handles::Object;
use crate::open_device::OpenDevice;

/// Address handle of a program. It has no state, since libmlx5 itself keeps the address vector.
pub(crate) struct Ah;

impl Object for Ah {}

/// Handles CREATE_AH.
pub(super) fn create(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::CreateAh = core_in(call)?;
    opened.handles.get::<Pd>(request.pd_handle)?;
    let attributes = request.attributes;
    if attributes.port_num != 1 || attributes.is_global == 0 {
        return Err(Errno::EINVAL);
    }
    let peer = resolve(opened, attributes.sgid_index, attributes.dgid)?;
    let handle = opened.handles.insert(Ah)?;
    let response = abi::DriverCreateAhResponse {
        response_length: size_of::<abi::DriverCreateAhResponse>() as u32,
        dmac: peer.mac,
        ..abi::DriverCreateAhResponse::default()
    };
    call.output(driver_data::OUT, &response)?;
    core_out(call, &handle)
}

/// Handles AH destroy.
pub(crate) fn destroy(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    opened.handles.remove::<Ah>(call.handle(0)?).map(drop)
}
