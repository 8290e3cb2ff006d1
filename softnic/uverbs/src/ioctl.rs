//! Dispatch of uverbs ioctls.

use crate::abi::{self, object};
use crate::attrs::Call;
use crate::errno::Errno;
use crate::open_device::OpenDevice;
use crate::{devx, verbs};

pub(crate) fn execute(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let result = dispatch(opened, call);
    if let Some(session) = &mut opened.context {
        opened.handles.record(&mut session.inventory);
    }
    result
}

fn dispatch(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    match (call.object, call.method) {
        (object::DEVICE, method) => verbs::device::call(opened, method, call),
        (object::PD, 0) => verbs::pd::destroy(opened, call),
        (object::PD, abi::PD_QUERY) => verbs::pd::query(opened, call),
        (object::CQ, 0) => verbs::cq::create(opened, call),
        (object::CQ, 1) => verbs::cq::destroy(opened, call),
        (object::QP, 0) => verbs::qp::create(opened, call),
        (object::QP, 1) => verbs::qp::destroy(opened, call),
        (object::AH, 0) => verbs::ah::destroy(opened, call),
        (object::MR, 1) => verbs::mr::destroy(opened, call),
        (object::XRCD, 0) => verbs::xrc::close(opened, call),
        (object::DM, 0) => verbs::dm::allocate(opened, call),
        (object::DM, 1) => verbs::dm::free(opened, call),
        (object::MR, 0) => verbs::dm::register(opened, call),
        (object::MR, 2) => verbs::mr::advise(opened, call),
        (object::MR, 3) => verbs::mr::query(opened, call),
        (object::MR, 4) => verbs::mr::register_dma_buf(opened, call),
        (object::ASYNC_EVENT, 0) => verbs::device::async_event_file(opened, call),
        (object::DEVX | object::DEVX_OBJ | object::DEVX_UMEM | object::UAR, _)
        | (object::DEVX_ASYNC_CMD_FD | object::DEVX_ASYNC_EVENT_FD, _) => devx::call(opened, call),
        _ => Err(Errno::EPROTONOSUPPORT),
    }
}
