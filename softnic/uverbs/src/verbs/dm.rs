//! Device memory, which programs map and register.

use super::mr;
use crate::abi::{access, driver_data};
use crate::attrs::Call;
use crate::errno::Errno;
use crate::handles::Object;
use crate::memory::{Mapping, Region};
use crate::open_device::OpenDevice;
use rushmem_softnic::page_size;
use std::sync::Arc;

pub(crate) struct Dm {
    memory: Arc<Mapping>,
    len: u64,
    /// Index of the allocation's first page in the device memory.
    page: u64,
}

impl Object for Dm {}

/// Maximum length of an allocation, in bytes.
pub(crate) const MAX_BYTES: u64 = 128 << 10;

/// Handles DM alloc.
pub(crate) fn allocate(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    const START_OUT: u16 = driver_data::IN;
    const PAGE_OUT: u16 = driver_data::OUT;
    const TYPE: u16 = driver_data::OUT + 1;
    opened.session()?;
    let (len, log_align): (u64, u32) = (call.input(1)?, call.input(2)?);
    if call.optional::<u64>(TYPE)?.unwrap_or(0) != 0 {
        // Memory types for steering.
        return Err(Errno::EOPNOTSUPP);
    }
    if len == 0 || len > MAX_BYTES || log_align > page_size().ilog2() {
        return Err(Errno::EINVAL);
    }
    let (page, memory) = opened.pages.allocate_device_memory(len.div_ceil(page_size() as u64))?;
    let handle = opened.handles.insert(Dm { memory: Arc::new(memory), len, page })?;
    call.return_handle(0, handle)?;
    call.output(START_OUT, &0u64)?;
    call.output(PAGE_OUT, &(page as u16))
}

/// Handles DM free. Registered memory stays until its MR is destroyed.
pub(crate) fn free(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(0)?;
    let page = opened.handles.get::<Dm>(handle)?.page;
    if Arc::strong_count(&opened.handles.get::<Dm>(handle)?.memory) > 1 {
        return Err(Errno::EBUSY);
    }
    opened.handles.remove::<Dm>(handle)?;
    opened.pages.release_device_memory(page)
}

/// Handles the registration of device memory as an MR, whose addresses start at 0.
pub(crate) fn register(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let (offset, len): (u64, u64) = (call.input(1)?, call.input(2)?);
    let flags: u32 = call.input(4)?;
    let dm = opened.handles.get::<Dm>(call.handle(5)?)?;
    let end = offset.checked_add(len).ok_or(Errno::EINVAL)?;
    if end > dm.len || flags & access::ZERO_BASED == 0 {
        return Err(Errno::EINVAL);
    }
    let region = Region { memory: Arc::clone(&dm.memory) as _, offset };
    let key =
        mr::create_zero_based(opened, call, region, (call.handle(3)?, len, flags & !access::ZERO_BASED))?;
    call.output(6, &key)?;
    call.output(7, &key)
}
