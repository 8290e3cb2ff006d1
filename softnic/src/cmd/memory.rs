//! Commands for protection domains, umems, UAR pages and memory keys.

use super::place::{Pages, Place, Region, first_entries, own_umem};
use super::refuse::{Reason, bad_resource, refuse};
use super::{CmdResult, require};
use crate::changeable::{self, Changeable};
use crate::dma::{HostPtr, Mkey, Rights, Umem};
use crate::engine::core::Core;
use crate::memory::Memory;
use crate::objects::{Objects, Pd, UarPage};
use crate::transport::datapath::Datapath;
use rushmem_mlx5::doorbell::uar;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::mkey::{
    AccessMode, CreateMkey, CreateMkeyOut, DestroyMkey, DestroyMkeyOut, Klm, MkeyContext, key,
};
use rushmem_mlx5::prm::pd::{AllocPd, AllocPdOut, DeallocPd, DeallocPdOut};
use rushmem_mlx5::prm::uar::{AllocUar, AllocUarOut, DeallocUar, DeallocUarOut};
use rushmem_mlx5::prm::umem::{CreateUmem, CreateUmemOut, DestroyUmem, DestroyUmemOut};
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

/// Returns protection domain `pd` if `context` may use it.
pub(super) fn own_pd(objects: &Objects, context: u32, pd: u32) -> CmdResult<&Pd> {
    objects.pds.get(pd).filter(|pd| objects.may_use(context, pd.owner)).ok_or(bad_resource(Reason::NoPd))
}

/// Executes ALLOC_UAR, which hands out a doorbell page of the context's bus.
pub(super) fn alloc_uar(objects: &mut Objects, context: u32, _: AllocUar) -> CmdResult<AllocUarOut> {
    let bus = objects.buses.get(&context).ok_or(bad_resource(Reason::NoBus))?;
    let full = refuse(CmdStatus::NO_RES, Reason::Full);
    let number = objects.uars.next_number().ok_or(full)?;
    let offset = u64::from(number) * uar::PAGE_BYTES as u64;
    let page = UarPage::new(context, &bus.bus.doorbells, offset).map_err(|_| full)?;
    // Earlier contents of the page are not doorbells.
    page.take(&mut Vec::new());
    Ok(AllocUarOut { uar: objects.uars.insert(page).ok_or(full)? })
}

/// Executes DEALLOC_UAR. The page's remaining QPs and CQs keep their registers, since a kernel driver may deallocate the
/// page of a program before the program's queues.
pub(super) fn dealloc_uar(
    objects: &mut Objects,
    context: u32,
    command: DeallocUar,
) -> CmdResult<DeallocUarOut> {
    own_uar(objects, context, command.uar)?;
    objects.release_uar(command.uar);
    Ok(DeallocUarOut {})
}

/// Executes CREATE_UMEM. `list` has the addresses of the pages.
pub(super) fn create_umem(
    objects: &mut Objects,
    context: u32,
    command: CreateUmem,
    list: &[u8],
) -> CmdResult<CreateUmemOut> {
    let umem = command.umem;
    let list = first_entries(list, umem.num_of_mtt);
    let list = list.ok_or(refuse(CmdStatus::BAD_INP_LEN, Reason::PageList))?;
    let pages = Pages { list, log_page_size: umem.log_page_size, offset: umem.page_offset.into() };
    let Region { memory, offset, len } = Place::Pages(pages).find(objects, context, pages.len())?;
    let umem = objects.umems.insert(Umem { owner: context, memory, offset, len, users: 0 });
    Ok(CreateUmemOut { umem_id: umem.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))? })
}

pub(super) fn destroy_umem(
    objects: &mut Objects,
    context: u32,
    command: DestroyUmem,
) -> CmdResult<DestroyUmemOut> {
    if own_umem(&objects.umems, context, command.umem_id)?.users != 0 {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::UmemUsed));
    }
    objects.umems.remove(command.umem_id);
    Ok(DestroyUmemOut {})
}

/// Executes CREATE_MKEY. `list` is the data after the mailbox, which contains the entries of an indirect key.
pub(super) fn create_mkey(
    path: &mut Datapath,
    context: u32,
    command: CreateMkey,
    list: &[u8],
) -> CmdResult<CreateMkeyOut> {
    let mut mkc = command.context;
    if mkc.length64 {
        require(mkc.access_mode() == AccessMode::PA, Reason::AccessMode)?;
        (mkc.start_addr, mkc.len) = (0, u64::MAX);
    }
    let bus = path.objects.buses.get(&context);
    let changes = bus.is_some() && mkc.umr_en && mkc.access_mode() == AccessMode::MTT && !command.umem_valid;
    require((!mkc.free || changes) && !mkc.bsf_en && mkc.crypto_en == 0, Reason::KeyFree)?;
    require(mkc.len == 0 || mkc.start_addr.checked_add(mkc.len - 1).is_some(), Reason::KeyRange)?;
    own_pd(&path.objects, context, mkc.pd)?;
    // A program must not reach memory by bus addresses.
    let by_address =
        mkc.access_mode() == AccessMode::PA || mkc.access_mode() == AccessMode::MTT && !command.umem_valid;
    let may_address = !path.objects.buses.contains_key(&context) || path.objects.is_function(context);
    require(may_address || !by_address, Reason::NeedsUmem)?;
    match mkc.access_mode() {
        AccessMode::PA => create_direct(path, context, &mkc, Place::Address(mkc.start_addr)),
        AccessMode::MTT if changes => create_changeable(path, context, &command, list),
        AccessMode::MTT => create_direct(path, context, &mkc, translation(&command, list)?),
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

/// Returns the memory of a direct key: part of a umem, or pages whose addresses are in `list`.
fn translation<'c>(command: &CreateMkey, list: &'c [u8]) -> CmdResult<Place<'c>> {
    let mkc = &command.context;
    if command.umem_valid {
        return Ok(Place::Umem { id: command.umem_id, offset: command.umem_offset });
    }
    // An entry of 16 bytes has two addresses.
    let list = first_entries(list, 2 * u64::from(command.translations_octword_actual_size));
    let page = 1u64 << mkc.log_page_size;
    Ok(Place::Pages(Pages {
        list: list.ok_or(refuse(CmdStatus::BAD_INP_LEN, Reason::PageList))?,
        log_page_size: mkc.log_page_size.saturating_sub(12),
        offset: mkc.start_addr & (page - 1),
    }))
}

/// Creates a direct memory key, which maps the memory at `place`.
fn create_direct(
    path: &mut Datapath,
    context: u32,
    mkc: &MkeyContext,
    place: Place<'_>,
) -> CmdResult<CreateMkeyOut> {
    let Region { memory, offset: base, len } = place.find(&path.objects, context, mkc.len)?;
    require(mkc.len <= len, Reason::UmemRange)?;
    let relaxed = mkc.relaxed_ordering_write || path.report.draw_force_relaxed();
    let index = path.objects.add_mkey(|index| Mkey {
        owner: context,
        key: key(index, mkc.mkey_7_0),
        pd: mkc.pd,
        qpn: (mkc.qpn != MkeyContext::ANY_QP).then_some(mkc.qpn),
        rights: rights(mkc),
        relaxed,
        start: mkc.start_addr,
        len: mkc.len,
        umem: place.umem(),
        host: HostPtr::of(&*memory, base),
        memory,
        base,
        changeable: None,
    });
    let mkey_index = index.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(CreateMkeyOut { mkey_index })
}

/// Creates a memory key that work requests can change. It maps the pages whose addresses are in `list`, or none yet.
fn create_changeable(
    path: &mut Datapath,
    context: u32,
    command: &CreateMkey,
    list: &[u8],
) -> CmdResult<CreateMkeyOut> {
    let mkc = command.context;
    require(mkc.free || changeable::LOG_PAGE.contains(&mkc.log_page_size), Reason::PageSize)?;
    let page = 1u64 << mkc.log_page_size;
    let within = mkc.start_addr & (page - 1);
    let count = if mkc.free { Some(0) } else { within.checked_add(mkc.len).map(|end| end.div_ceil(page)) };
    let list = count.and_then(|count| first_entries(list, count));
    let list = list.ok_or(refuse(CmdStatus::BAD_INP_LEN, Reason::PageList))?;
    let bus = path.objects.buses.get(&context).ok_or(bad_resource(Reason::NoBus))?;
    let own = Changeable::new(bus, &mkc, list).ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    let relaxed = mkc.relaxed_ordering_write || path.report.draw_force_relaxed();
    let memory: Arc<dyn Memory> = Arc::clone(&own.pages) as _;
    let index = path.objects.add_mkey(|index| Mkey {
        owner: context,
        key: if mkc.free { changeable::FREE } else { key(index, mkc.mkey_7_0) },
        pd: mkc.pd,
        qpn: (mkc.qpn != MkeyContext::ANY_QP).then_some(mkc.qpn),
        rights: rights(&mkc),
        relaxed,
        start: mkc.start_addr,
        len: mkc.len,
        umem: 0,
        host: None,
        memory,
        base: within,
        changeable: Some(own),
    });
    Ok(CreateMkeyOut { mkey_index: index.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))? })
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
        changeable: None,
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

pub(crate) fn own_uar(objects: &Objects, context: u32, page: u32) -> CmdResult<&UarPage> {
    let own = |uar: &&UarPage| objects.may_use(context, uar.owner) && !uar.is_released;
    objects.uars.get(page).filter(own).ok_or(bad_resource(Reason::NoUar))
}
