//! DevX: a program's own commands pass through to the adapter, which knows the owner of each object.

mod caps;
mod event;
mod filter;
pub(crate) mod obj;
pub(crate) mod uar;
pub(crate) mod umem;

use crate::abi::object;
use crate::attrs::Call;
use crate::errno::Errno;
use crate::events::Kind;
use crate::open_device::OpenDevice;

/// First ID of the driver's methods and attributes.
const FIRST_ID: u16 = 0x1000;

pub(crate) fn call(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    // Doorbell pages are available without DevX too.
    if call.object != object::UAR && !opened.session()?.devx {
        return Err(Errno::EINVAL);
    }
    match (call.object, call.method.checked_sub(FIRST_ID).ok_or(Errno::EPROTONOSUPPORT)?) {
        (object::DEVX, 0) => obj::general(opened, call),
        (object::DEVX, 2) => obj::query_eqn(call),
        (object::DEVX, 3) => event::subscribe(opened, call),
        (object::DEVX_OBJ, 0) => obj::create(opened, call),
        (object::DEVX_OBJ, 1) => obj::destroy(opened, call),
        (object::DEVX_OBJ, 2) => obj::modify(opened, call),
        (object::DEVX_OBJ, 3) => obj::query(opened, call),
        (object::DEVX_OBJ, 4) => obj::query_async(opened, call),
        (object::DEVX_UMEM, 0) => umem::register(opened, call),
        (object::DEVX_UMEM, 1) => umem::deregister(opened, call),
        (object::DEVX_ASYNC_EVENT_FD, 0) => event::create_file(opened, call),
        (object::DEVX_ASYNC_CMD_FD, 0) => {
            let fd = opened.new_channel(Kind::Packets)?;
            call.return_file(FIRST_ID, fd)
        }
        (object::UAR, 0) => uar::allocate(opened, call),
        (object::UAR, 1) => uar::destroy(opened, call),
        _ => Err(Errno::EOPNOTSUPP),
    }
}
