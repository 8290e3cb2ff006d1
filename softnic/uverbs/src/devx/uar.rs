//! Allocation of doorbell pages (UARs), which programs map to notify the adapter of new work.

use super::FIRST_ID;
use crate::attrs::Call;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::handles::Object;
use crate::open_device::OpenDevice;
use rushmem_softnic::page_size;
use std::sync::Arc;

/// A doorbell page (UAR) that a program has allocated.
pub(crate) struct Uar {
    page_id: u32,
    /// Offset in the device file.
    offset: u64,
}

impl Object for Uar {}

/// UAR type for doorbells with BlueFlame. The adapter treats it like [`NON_CACHED`].
const BLUE_FLAME: u64 = 0;
const NON_CACHED: u64 = 1;

/// Offset that cannot be mapped.
const UNMAPPABLE: u64 = 1;

/// Handles UAR alloc.
pub(super) fn allocate(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    const HANDLE: u16 = FIRST_ID;
    const TYPE: u16 = FIRST_ID + 1;
    const OFFSET_OUT: u16 = FIRST_ID + 2;
    const LENGTH_OUT: u16 = FIRST_ID + 3;
    const PAGE_ID_OUT: u16 = FIRST_ID + 4;

    opened.session()?;
    let kind: u64 = call.input(TYPE)?;
    if kind > NON_CACHED {
        return Err(Errno::EOPNOTSUPP);
    }
    if opened.device.has(Fault::Uar) || kind == BLUE_FLAME && opened.device.has(Fault::UarBf) {
        return Err(Errno::ENOMEM);
    }
    let unmappable = opened.device.has(Fault::UarMmap);
    let (offset, page) = opened.pages.allocate()?;
    let page_id = opened.session()?.context.alloc_uar_in(Arc::new(page), 0)?;
    let handle = opened.handles.insert(Uar { page_id, offset })?;
    call.return_handle(HANDLE, handle)?;
    call.output(OFFSET_OUT, &(if unmappable { UNMAPPABLE } else { offset }))?;
    call.output(LENGTH_OUT, &(page_size() as u32))?;
    call.output(PAGE_ID_OUT, &page_id)
}

/// Handles UAR destroy.
pub(super) fn destroy(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(FIRST_ID)?;
    let page_id = opened.handles.get::<Uar>(handle)?.page_id;
    opened.session()?.context.free_uar(page_id)?;
    let uar = opened.handles.remove::<Uar>(handle)?;
    opened.pages.release(uar.offset)
}
