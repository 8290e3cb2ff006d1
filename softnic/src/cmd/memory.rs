//! Commands for protection domains and memory keys, and the lookup of a queue's memory in a umem.

use super::refuse::{Reason, bad_resource, refuse};
use super::{CmdResult, require};
use crate::dma::{HostPtr, Mkey, Rights, Umem};
use crate::engine::core::Core;
use crate::objects::{Objects, Pd, UarPage};
use crate::queue_memory::{BadQueueMemory, QueueMemory};
use crate::table::Table;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::mkey::{
    AccessMode, CreateMkey, CreateMkeyOut, DestroyMkey, DestroyMkeyOut, Klm, MkeyContext, key,
};
use rushmem_mlx5::prm::pd::{AllocPd, AllocPdOut, DeallocPd, DeallocPdOut};
use std::sync::Arc;

pub(super) fn alloc_pd(objects: &mut Objects, context: u32, _: AllocPd) -> CmdResult<AllocPdOut> {
    let pd = objects.pds.insert(Pd { owner: context, users: 0 });
    Ok(AllocPdOut { pd: pd.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))? })
}

pub(super) fn dealloc_pd(objects: &mut Objects, context: u32, command: DeallocPd) -> CmdResult<DeallocPdOut> {
    if own_pd(objects, context, command.pd)?.users != 0 {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::PdUsed));
    }
    objects.pds.remove(command.pd);
    Ok(DeallocPdOut {})
}

/// Returns protection domain `pd` if it belongs to `context`.
pub(super) fn own_pd(objects: &Objects, context: u32, pd: u32) -> CmdResult<&Pd> {
    objects.pds.get(pd).filter(|pd| pd.owner == context).ok_or(bad_resource(Reason::NoPd))
}

/// Executes CREATE_MKEY. `list` is the data after the mailbox, which contains the entries of an indirect key.
pub(super) fn create_mkey(
    path: &mut Datapath,
    context: u32,
    command: CreateMkey,
    list: &[u8],
) -> CmdResult<CreateMkeyOut> {
    let mkc = command.context;
    require(!mkc.length64, Reason::AccessMode)?;
    require(!mkc.free && !mkc.umr_en && !mkc.bsf_en && mkc.crypto_en == 0, Reason::KeyFree)?;
    require(mkc.len == 0 || mkc.start_addr.checked_add(mkc.len - 1).is_some(), Reason::KeyRange)?;
    own_pd(&path.objects, context, mkc.pd)?;
    match mkc.access_mode() {
        AccessMode::MTT => create_direct(path, context, command),
        AccessMode::KLM | AccessMode::KSM => create_indirect(&mut path.objects, context, &command, list),
        _ => Err(refuse(CmdStatus::BAD_PARAM, Reason::AccessMode)),
    }
}

fn rights(mkc: &MkeyContext) -> Rights {
    Rights::default()
        .with(Rights::LOCAL_READ, mkc.lr)
        .with(Rights::LOCAL_WRITE, mkc.lw)
        .with(Rights::REMOTE_READ, mkc.rr)
        .with(Rights::REMOTE_WRITE, mkc.rw)
        .with(Rights::REMOTE_ATOMIC, mkc.a)
}

/// Creates a direct memory key, which maps a range of a umem.
fn create_direct(path: &mut Datapath, context: u32, command: CreateMkey) -> CmdResult<CreateMkeyOut> {
    let mkc = command.context;
    require(command.umem_valid, Reason::NeedsUmem)?;
    let umem = own_umem(&path.objects.umems, context, command.umem_id)?;
    let end = command.umem_offset.checked_add(mkc.len);
    require(end.is_some_and(|end| end <= umem.len), Reason::UmemRange)?;

    let base = umem.offset + command.umem_offset;
    let memory = Arc::clone(&umem.memory);
    let relaxed = mkc.relaxed_ordering_write || path.report.draw_force_relaxed();
    let index = path.objects.add_mkey(|index| Mkey {
        owner: context,
        key: key(index, mkc.mkey_7_0),
        pd: mkc.pd,
        qpn: (mkc.qpn != MkeyContext::ANY_QP).then_some(mkc.qpn),
        rights: rights(&mkc),
        relaxed,
        start: mkc.start_addr,
        len: mkc.len,
        umem: command.umem_id,
        host: HostPtr::of(&*memory, base),
        memory,
        base,
    });
    let mkey_index = index.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(CreateMkeyOut { mkey_index })
}

/// Creates an indirect memory key, which maps a range of another key at different addresses.
///
/// All of its entries must describe a single contiguous range of one key. The indirect key stays valid after that key
/// is destroyed.
fn create_indirect(
    objects: &mut Objects,
    context: u32,
    command: &CreateMkey,
    list: &[u8],
) -> CmdResult<CreateMkeyOut> {
    let mkc = command.context;
    let count = command.translations_octword_actual_size as usize;
    let entries: Vec<Klm> = list.as_chunks::<{ Klm::LEN }>().0.iter().take(count).map(Klm::read).collect();
    require(count != 0 && entries.len() == count, Reason::KeyList)?;
    let fixed = (mkc.access_mode() == AccessMode::KSM).then(|| 1u64 << mkc.log_page_size);
    let first = entries[0];
    let mut end = first.address;
    for entry in &entries {
        require(entry.mkey == first.mkey && entry.address == end, Reason::KeyList)?;
        end = end.saturating_add(fixed.unwrap_or_else(|| entry.byte_count.into()));
    }
    require(end - first.address >= mkc.len, Reason::KeyList)?;
    let below =
        objects.mkeys.get(first.mkey >> 8).filter(|key| key.owner == context && key.key == first.mkey);
    let below = below.ok_or(bad_resource(Reason::NoMkey))?;
    // The intersection of both keys, in addresses of the other one.
    let from = first.address.max(below.start);
    let to = first.address.saturating_add(mkc.len).min(below.start.saturating_add(below.len));
    require(from < to, Reason::KeyRange)?;
    let base = below.base + (from - below.start);
    let umem = below.umem;
    let alias = Mkey {
        owner: context,
        key: 0,
        pd: mkc.pd,
        qpn: (mkc.qpn != MkeyContext::ANY_QP).then_some(mkc.qpn),
        rights: rights(&mkc).and(below.rights),
        relaxed: below.relaxed,
        start: mkc.start_addr.wrapping_add(from - first.address),
        len: to - from,
        umem,
        host: HostPtr::of(&*below.memory, base),
        memory: Arc::clone(&below.memory),
        base,
    };
    let index = objects.add_mkey(|index| Mkey { key: key(index, mkc.mkey_7_0), ..alias });
    let mkey_index = index.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(CreateMkeyOut { mkey_index })
}

pub(super) fn destroy_mkey(core: &mut Core, context: u32, command: DestroyMkey) -> CmdResult<DestroyMkeyOut> {
    let index = command.mkey_index;
    let mkey = core.path.objects.mkeys.get(index).filter(|mkey| mkey.owner == context);
    mkey.ok_or(bad_resource(Reason::NoMkey))?;
    core.catch_up();
    let Datapath { objects, report, .. } = &mut core.path;
    objects.remove_mkey(index, report);
    Ok(DestroyMkeyOut {})
}

pub(super) fn own_umem(umems: &Table<Umem>, context: u32, id: u32) -> CmdResult<&Umem> {
    umems.get(id).filter(|umem| umem.owner == context).ok_or(bad_resource(Reason::NoUmem))
}

pub(super) fn own_uar(objects: &Objects, context: u32, page: u32) -> CmdResult<&UarPage> {
    objects.uars.get(page).filter(|uar| uar.owner == context).ok_or(bad_resource(Reason::NoUar))
}

/// Returns the memory of a queue or a doorbell record: `len` bytes at `offset` in the umem with this `id`.
pub(super) fn queue_memory(
    objects: &Objects,
    context: u32,
    id: u32,
    offset: u64,
    len: usize,
    align: usize,
) -> CmdResult<QueueMemory> {
    let umem = own_umem(&objects.umems, context, id)?;
    let end = offset.checked_add(len as u64);
    require(end.is_some_and(|end| end <= umem.len), Reason::UmemRange)?;
    QueueMemory::new(&umem.memory, umem.offset + offset, len, align).map_err(|bad| {
        let why = match bad {
            BadQueueMemory::Range => Reason::UmemRange,
            BadQueueMemory::Alignment => Reason::UmemAlignment,
        };
        refuse(CmdStatus::BAD_PARAM, why)
    })
}
