//! Memory regions.

use super::pd::Pd;
use super::{core_in, core_out};
use crate::abi::{self, access};
use crate::attrs::Call;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::memory::{self, Region};
use crate::open_device::OpenDevice;
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, DestroyMkey, MkeyContext, key};
use rushmem_softnic::PAGE;

/// A memory region.
pub(crate) struct Mr {
    mkey_index: u32,
    umem: u32,
}

/// A request to register a region.
struct MrRequest {
    pd_handle: u32,
    /// Address of the first byte, for the holders of the key.
    iova: u64,
    len: u64,
    access: u32,
}

/// Handles REG_MR.
pub(super) fn register(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::RegMr = core_in(call)?;
    let abi::RegMr { start, length, hca_va, pd_handle, access_flags, .. } = request;
    // The adapter translates whole pages.
    if (start ^ hca_va) & (PAGE as u64 - 1) != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = MrRequest { pd_handle, iova: hca_va, len: length, access: access_flags };
    let region = |opened: &OpenDevice, write| {
        if opened.device.has(Fault::Memlock) {
            return Err(Errno::ENOMEM);
        }
        memory::user(start, length, write)
    };
    let (mr_handle, key) = create(opened, &wanted, region)?;
    core_out(call, &abi::RegMrResponse { mr_handle, lkey: key, rkey: key })
}

/// Handles MR REG_DMABUF.
pub(crate) fn register_dma_buf(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let (offset, len): (u64, u64) = (call.input(2)?, call.input(3)?);
    let wanted = MrRequest { pd_handle: call.handle(1)?, iova: call.input(4)?, len, access: call.input(6)? };
    if (offset ^ wanted.iova) & (PAGE as u64 - 1) != 0 {
        return Err(Errno::EINVAL);
    }
    let fd: i32 = call.input(5)?;
    let region = |opened: &OpenDevice, _| {
        if opened.device.has(Fault::DmaBuf) {
            return Err(Errno::EOPNOTSUPP);
        }
        memory::dma_buf(fd, offset, len)
    };
    let (handle, key) = create(opened, &wanted, region)?;
    call.return_handle(0, handle)?;
    call.output(7, &key)?;
    call.output(8, &key)
}

/// Registers the memory that `region` finds, and returns its handle and its key.
fn create(
    opened: &mut OpenDevice,
    wanted: &MrRequest,
    region: impl FnOnce(&OpenDevice, bool) -> Result<Region, Errno>,
) -> Result<(u32, u32), Errno> {
    let rights = rights(wanted.access)?;
    let pd = opened.handles.get::<Pd>(wanted.pd_handle)?.number;
    let region = region(opened, rights.lw)?;
    let umem_id = opened.umem(region, wanted.len)?;
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
    let handle = opened.handles.insert(Mr { mkey_index, umem: umem_id })?;
    Ok((handle, key(mkey_index, context.mkey_7_0)))
}

/// Returns the rights of a key, `EINVAL` for combinations that the kernel refuses, or `EOPNOTSUPP` for missing features.
fn rights(flags: u32) -> Result<MkeyContext, Errno> {
    let remote_writes = access::REMOTE_WRITE | access::REMOTE_ATOMIC;
    let known =
        remote_writes | access::LOCAL_WRITE | access::REMOTE_READ | access::HUGETLB | access::OPTIONAL;
    if flags & remote_writes != 0 && flags & access::LOCAL_WRITE == 0 {
        return Err(Errno::EINVAL);
    }
    if flags & !known != 0 {
        tracing::debug!(flags, "memory windows and paging on demand are not supported");
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
