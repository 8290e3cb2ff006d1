//! Memory for queues and keys that a program registers through DevX.

use super::FIRST_ID;
use crate::abi::access;
use crate::attrs::Call;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::handles::Object;
use crate::memory;
use crate::open_device::OpenDevice;
use rushmem_softnic::page_size;

pub(crate) struct Umem {
    /// Umem ID at the adapter.
    id: u32,
}

impl Object for Umem {}

/// Access rights that a umem can have.
const RIGHTS: u32 =
    access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ | access::RELAXED_ORDERING;

/// Handles DEVX_UMEM reg.
pub(super) fn register(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    const HANDLE: u16 = FIRST_ID;
    const ADDRESS: u16 = FIRST_ID + 1;
    const LENGTH: u16 = FIRST_ID + 2;
    const ACCESS: u16 = FIRST_ID + 3;
    const NUMBER_OUT: u16 = FIRST_ID + 4;
    const PAGE_SIZES: u16 = FIRST_ID + 5;
    const DMA_BUF: u16 = FIRST_ID + 6;

    let (address, len): (u64, u64) = (call.input(ADDRESS)?, call.input(LENGTH)?);
    let rights: u32 = call.input(ACCESS)?;
    let write = rights & access::LOCAL_WRITE != 0;
    if rights & !RIGHTS != 0 || rights & access::REMOTE_WRITE != 0 && !write {
        return Err(Errno::EINVAL);
    }
    if call.optional::<u64>(PAGE_SIZES)?.is_some_and(|sizes| !fits(sizes, page_size() as u64)) {
        return Err(Errno::EINVAL);
    }
    if opened.device.has(Fault::DevxUmem) || opened.refuses_first(Fault::UmemOnce) {
        return Err(Errno::EOPNOTSUPP);
    }
    let region = match call.optional_fd(DMA_BUF)? {
        Some(_) if opened.device.has(Fault::DmaBuf) => return Err(Errno::EOPNOTSUPP),
        // The address is then an offset. GPU memory is registered by address instead, because its device address is
        // unknown here.
        Some(fd) => memory::dma_buf(fd, address, len, None)?,
        None if opened.device.has(Fault::Memlock) => return Err(Errno::ENOMEM),
        None => memory::user(address, len, write)?,
    };
    let id = opened.umem(region, len)?;
    let handle = opened.handles.insert(Umem { id })?;
    call.return_handle(HANDLE, handle)?;
    call.output(NUMBER_OUT, &id)
}

/// Whether `sizes`, the page sizes that a program allows for a umem, as a bit set, include that of the system.
///
/// Pages are not known to be contiguous, so no larger size fits them. not every Linux divides them.
fn fits(sizes: u64, page: u64) -> bool {
    sizes & page != 0
}

/// Handles DEVX_UMEM dereg.
pub(super) fn deregister(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(FIRST_ID)?;
    let id = opened.handles.get::<Umem>(handle)?.id;
    opened.session()?.context.umem_dereg(id)?;
    opened.handles.remove::<Umem>(handle).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_umem_needs_the_page_size_of_the_system() {
        let (small, large) = (4 << 10, 64 << 10);
        assert!(fits(small, small) && fits(large, large) && fits(!0xfff, small) && fits(!0xfff, large));
        assert!(!fits(large, small) && !fits(small, large));
    }
}
