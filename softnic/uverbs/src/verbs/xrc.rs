//! Commands that open and close XRC domains.

use super::{core_in, core_out};
use crate::abi;
use crate::attrs::Call;
use crate::errno::Errno;
use crate::open_device::OpenDevice;
use crate::sys;
use crate::user;
use crate::xrc_domain::{Domain, Opening, Xrcd};
use std::os::fd::RawFd;
use std::sync::Arc;

/// Handles OPEN_XRCD.
pub(super) fn open(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::OpenXrcd = core_in(call)?;
    let adapter = &opened.session()?.adapter;
    let domain = match request.fd {
        // A domain without a file is not shared.
        u32::MAX => Domain::new(&adapter.driver)?,
        fd => {
            let file = sys::identity(user::descriptor(fd as RawFd)?).ok_or(Errno::EBADF)?;
            adapter.domains.open(file, request.oflags, || Domain::new(&adapter.driver))?
        }
    };
    let handle = opened.handles.insert(Xrcd(Arc::new(Opening(domain))))?;
    core_out(call, &handle)
}

/// Handles XRCD destroy. The domain stays while it has objects created through this handle.
pub(crate) fn close(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(0)?;
    if Arc::strong_count(&opened.handles.get::<Xrcd>(handle)?.0) > 1 {
        return Err(Errno::EBUSY);
    }
    opened.handles.remove::<Xrcd>(handle).map(drop)
}
