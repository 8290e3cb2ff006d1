//! Memory regions.

use super::pd::Pd;
use super::{core_in, core_out};
use crate::abi::{self, access, dma_buf, driver_data, rereg};
use crate::attrs::Call;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::handles::Object;
use crate::inventory::{Kind, Record};
use crate::memory::{self, Region};
use crate::open_device::OpenDevice;
use crate::user;
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, DestroyMkey, MkeyContext, key};
use rushmem_softnic::page_size;

pub(crate) struct Mr {
    mkey_index: u32,
    umem: u32,
    /// Memory key, which is both lkey and rkey.
    key: u32,
    pd: u32,
    wanted: MrRequest,
    /// Address of the first byte in the program, or `None` for a dma-buf.
    start: Option<u64>,
}

impl Object for Mr {
    fn record(&self) -> Option<Record> {
        Some(Record { pd: self.pd, len: self.wanted.len, ..Record::new(Kind::Mr, self.key) })
    }
}

impl Mr {
    /// Inserts the MR into the table. Returns its handle and key.
    fn insert(self, opened: &mut OpenDevice) -> Result<(u32, u32), Errno> {
        let key = self.key;
        Ok((opened.handles.insert(self)?, key))
    }
}

#[derive(Clone, Copy)]
struct MrRequest {
    pd_handle: u32,
    /// Address of the first byte in the MR's address space.
    iova: u64,
    len: u64,
    access: u32,
}

/// Handles REG_MR.
pub(super) fn register(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::RegMr = core_in(call)?;
    let abi::RegMr { start, length, hca_va, pd_handle, access_flags, .. } = request;
    let wanted = MrRequest { pd_handle, iova: hca_va, len: length, access: access_flags };
    let mr = create_in_program(opened, wanted, start)?;
    let (mr_handle, key) = mr.insert(opened)?;
    core_out(call, &abi::RegMrResponse { mr_handle, lkey: key, rkey: key })
}

/// Registers memory of the program from address `start` as an MR.
fn create_in_program(opened: &OpenDevice, wanted: MrRequest, start: u64) -> Result<Mr, Errno> {
    // The system registers whole pages.
    if (start ^ wanted.iova) & (page_size() as u64 - 1) != 0 {
        return Err(Errno::EINVAL);
    }
    let region = |opened: &OpenDevice, write| {
        if opened.device.has(Fault::Memlock) {
            return Err(Errno::ENOMEM);
        }
        memory::user(start, wanted.len, write)
    };
    Ok(Mr { start: Some(start), ..create(opened, wanted, region)? })
}

/// Registers a zero-based MR, and returns its key. `what` is the PD's handle, the length and the access rights.
pub(super) fn create_zero_based(
    opened: &mut OpenDevice,
    call: &Call,
    region: Region,
    what: (u32, u64, u32),
) -> Result<u32, Errno> {
    let (pd_handle, len, access) = what;
    let mr = create(opened, MrRequest { pd_handle, iova: 0, len, access }, |_, _| Ok(region))?;
    let (handle, key) = mr.insert(opened)?;
    call.return_handle(0, handle)?;
    Ok(key)
}

/// Handles REREG_MR: changes an MR's memory, PD or access rights, but not its key. If that fails, the MR stays as it
/// was.
pub(super) fn reregister(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::ReregMr = core_in(call)?;
    let mr = opened.handles.get::<Mr>(request.mr_handle)?;
    let mut start = mr.start.ok_or(Errno::EOPNOTSUPP)?;
    let mut wanted = mr.wanted;
    let flags = request.flags;
    if flags == 0 || flags & !(rereg::TRANSLATION | rereg::PD | rereg::ACCESS) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & rereg::TRANSLATION != 0 {
        (start, wanted.len, wanted.iova) = (request.start, request.length, request.hca_va);
    }
    if flags & rereg::PD != 0 {
        wanted.pd_handle = request.pd_handle;
    }
    if flags & rereg::ACCESS != 0 {
        wanted.access = request.access_flags;
    }
    let new = create_in_program(opened, wanted, start)?;
    let unused = new.mkey_index;
    let mr = opened.handles.get::<Mr>(request.mr_handle)?;
    let (mkey_index, key, old_umem) = (mr.mkey_index, mr.key, mr.umem);
    opened.session()?.context.swap_keys(mkey_index, unused)?;
    *opened.handles.get_mut::<Mr>(request.mr_handle)? = Mr { mkey_index, key, ..new };
    opened.execute(&DestroyMkey { mkey_index: unused, ..DestroyMkey::default() })?;
    opened.forget_umems(&[old_umem]);
    core_out(call, &abi::ReregMrResponse { lkey: key, rkey: key })
}

/// Handles MR QUERY, for an importing context.
pub(crate) fn query(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let mr = opened.handles.get::<Mr>(call.handle(0)?)?;
    call.output(1, &mr.key)?;
    call.output(2, &mr.key)?;
    call.output(3, &mr.wanted.len)?;
    call.output(4, &mr.wanted.iova)
}

/// Handles MR ADVISE. Nothing needs to be prefetched, since all pages are present.
pub(crate) fn advise(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    /// Length of an entry in the list of ranges, in bytes: address, length and key.
    const ENTRY: usize = 16;
    opened.handles.get::<Pd>(call.handle(0)?)?;
    let list = call.bytes(3)?;
    if list.len() % ENTRY != 0 {
        return Err(Errno::EINVAL);
    }
    let known = |key: u32| opened.handles.all::<Mr>().any(|mr| mr.key == key);
    let keys =
        list.chunks(ENTRY).map(|entry| u32::from_ne_bytes([entry[12], entry[13], entry[14], entry[15]]));
    if keys.into_iter().all(known) { Ok(()) } else { Err(Errno::ENOENT) }
}

/// Handles MR REG_DMABUF.
pub(crate) fn register_dma_buf(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let (offset, len): (u64, u64) = (call.input(2)?, call.input(3)?);
    let wanted = MrRequest { pd_handle: call.handle(1)?, iova: call.input(4)?, len, access: call.input(6)? };
    if (offset ^ wanted.iova) & (page_size() as u64 - 1) != 0 {
        return Err(Errno::EINVAL);
    }
    let fd = user::descriptor(call.input(5)?)?;
    // This method has no other data of the driver.
    let flags = call.optional::<u32>(driver_data::IN)?.unwrap_or(0);
    if flags & !dma_buf::DATA_DIRECT != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & dma_buf::DATA_DIRECT != 0 {
        check_data_direct(opened)?;
    }
    let region = |opened: &OpenDevice, _| {
        if opened.device.has(Fault::DmaBuf) {
            return Err(Errno::EOPNOTSUPP);
        }
        memory::dma_buf(fd, offset, len, Some(wanted.iova))
    };
    let (handle, key) = create(opened, wanted, region)?.insert(opened)?;
    call.return_handle(0, handle)?;
    call.output(7, &key)?;
    call.output(8, &key)
}

/// Checks that a dma-buf can be registered through the data-direct device. Fails with `EINVAL` without one.
fn check_data_direct(opened: &OpenDevice) -> Result<(), Errno> {
    match (opened.device.has(Fault::DataDirect), opened.device.has(Fault::DataDirectMemory)) {
        (false, _) => Err(Errno::EINVAL),
        (true, true) => Err(Errno::EOPNOTSUPP),
        (true, false) => {
            tracing::debug!(device = opened.device.name(), "a dma-buf is registered by data direct");
            Ok(())
        }
    }
}

/// Creates an MR of the memory that `region` returns.
fn create(
    opened: &OpenDevice,
    wanted: MrRequest,
    region: impl FnOnce(&OpenDevice, bool) -> Result<Region, Errno>,
) -> Result<Mr, Errno> {
    let rights = rights(wanted.access)?;
    let pd = opened.handles.get::<Pd>(wanted.pd_handle)?.number;
    let region = region(opened, rights.lw)?;
    // An MR may be empty, but a umem may not.
    let umem_id = opened.umem(region, wanted.len.max(1))?;
    let mkey_7_0 = getrandom::u32().map_err(|_| Errno::EAGAIN)?.to_ne_bytes()[0];
    let context = MkeyContext {
        qpn: MkeyContext::ANY_QP,
        pd,
        start_addr: wanted.iova,
        len: wanted.len,
        mkey_7_0,
        ..rights.with_access_mode(AccessMode::MTT)
    };
    let command = CreateMkey { umem_valid: true, umem_id, context, ..CreateMkey::default() };
    let mkey_index = opened.execute(&command).inspect_err(|_| opened.forget_umems(&[umem_id]))?.mkey_index;
    let key = key(mkey_index, context.mkey_7_0);
    Ok(Mr { mkey_index, umem: umem_id, key, pd, wanted, start: None })
}

/// Returns the access rights of an MR for its mkey context. Fails with `EINVAL` for invalid combinations, or
/// `EOPNOTSUPP` for features that are missing.
fn rights(flags: u32) -> Result<MkeyContext, Errno> {
    let remote_writes = access::REMOTE_WRITE | access::REMOTE_ATOMIC;
    let known = remote_writes
        | access::LOCAL_WRITE
        | access::REMOTE_READ
        | access::ON_DEMAND
        | access::HUGETLB
        | access::OPTIONAL;
    if flags & remote_writes != 0 && flags & access::LOCAL_WRITE == 0 {
        return Err(Errno::EINVAL);
    }
    if flags & !known != 0 {
        tracing::debug!(flags, "memory windows are not supported");
        return Err(Errno::EOPNOTSUPP);
    }
    let has = |flag| flags & flag != 0;
    Ok(MkeyContext {
        lr: true,
        lw: has(access::LOCAL_WRITE),
        rr: has(access::REMOTE_READ),
        rw: has(access::REMOTE_WRITE),
        a: has(access::REMOTE_ATOMIC),
        relaxed_ordering_write: has(access::RELAXED_ORDERING),
        ..MkeyContext::default()
    })
}

/// Handles MR destroy.
pub(crate) fn destroy(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(0)?;
    let mkey_index = opened.handles.get::<Mr>(handle)?.mkey_index;
    opened.execute(&DestroyMkey { mkey_index, ..DestroyMkey::default() })?;
    let mr = opened.handles.remove::<Mr>(handle)?;
    opened.forget_umems(&[mr.umem]);
    Ok(())
}
