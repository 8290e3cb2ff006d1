//! Work requests that change memory keys (UMR): the pages that a key maps, its range, rights and protection domain, and
//! whether it is free.

use crate::bus::PagedMemory;
use crate::changeable::{FREE, LOG_PAGE, PER_OCTOWORD};
use crate::dma::{Mkeys, Rights, User};
use crate::objects::Objects;
use crate::report::Report;
use crate::wqe::{LocalError, read_data};
use rushmem_mlx5::prm::list_entries;
use rushmem_mlx5::prm::mkey::{MkeyContext, key};
use rushmem_mlx5::prm::umem::Mtt;
use rushmem_mlx5::umr::{Umr, UmrSeg, mask};
use rushmem_mlx5::wqe::{Data, View};
use std::sync::Arc;

/// Fields of a key that can be changed. `EN_RINVAL`, `SMALL_FENCE` and `RELAXED_READ` have no effect: a SEND that
/// invalidates a key is refused, and READs are executed in order.
const CHANGEABLE: u64 = mask::LEN
    | mask::PAGE_SIZE
    | mask::START_ADDR
    | mask::PD
    | mask::EN_RINVAL
    | mask::KEY
    | mask::QPN
    | mask::LR
    | mask::LW
    | mask::RR
    | mask::RW
    | mask::A
    | mask::SMALL_FENCE
    | mask::RELAXED_WRITE
    | mask::FREE
    | mask::RELAXED_READ;

/// The QP whose work request changes a key.
#[derive(Clone, Copy)]
pub(crate) struct Changer {
    pub(crate) owner: u32,
    pub(crate) user: User,
    /// Whether the QP can change keys of all protection domains of its function.
    pub(crate) is_umr_qp: bool,
}

impl Changer {
    /// Returns the user of the memory that holds the translations. A QP that can change all keys has no protection domain:
    /// it reads through any key of its function.
    fn reader(&self, view: &View<'_>, mkeys: &Mkeys) -> User {
        let Some(Data::Pointer(segment)) = view.data().next().filter(|_| self.is_umr_qp) else {
            return self.user;
        };
        let mkey = mkeys.get(segment.lkey.get() >> 8).filter(|mkey| mkey.owner == self.owner);
        mkey.map_or(self.user, |mkey| User { pd: mkey.pd, ..self.user })
    }
}

/// Executes a UMR WQE. If it fails, the key stays as it is.
pub(crate) fn execute(
    view: &View<'_>,
    by: Changer,
    objects: &mut Objects,
    report: &mut Report,
) -> Result<(), LocalError> {
    let umr = view.umr().ok_or(LocalError::Operation)?;
    check(&umr, by, objects)?;
    let list = translations(view, &umr, by, objects)?;
    let change = plan(&umr, &list, objects)?;
    objects.settle(report);
    apply(&umr, change, objects);
    Ok(())
}

/// Checks that the QP can change the key, and that the key is in the expected state.
fn check(umr: &Umr<'_>, by: Changer, objects: &Objects) -> Result<(), LocalError> {
    const FLAGS: u8 = UmrSeg::OFFSET | UmrSeg::CHECK_NOT_FREE | UmrSeg::CHECK_FREE | UmrSeg::INLINE;
    let control = &umr.control;
    let (flags, bits) = (control.flags, control.mask.get());
    let mkey = objects.mkeys.get(umr.key >> 8).filter(|mkey| objects.may_use(by.owner, mkey.owner));
    let mkey = mkey.filter(|mkey| mkey.changeable.is_some()).ok_or(LocalError::Bind)?;
    let is_free = mkey.key == FREE;
    let is_own = if by.is_umr_qp { true } else { mkey.pd == by.user.pd && bits & mask::PD == 0 };
    let expected = flags & UmrSeg::CHECK_FREE == 0 || !is_free;
    let expected = expected && (flags & UmrSeg::CHECK_NOT_FREE == 0 || is_free);
    let known = flags & !FLAGS == 0 && bits & !CHANGEABLE == 0 && !umr.context.length64;
    let new_pd = objects.pds.get(umr.context.pd).is_some_and(|pd| objects.may_use(by.owner, pd.owner));
    let has_pd = bits & mask::PD == 0 || new_pd;
    if is_own && expected && known && has_pd { Ok(()) } else { Err(LocalError::Bind) }
}

/// Returns the translations in the WQE or in the memory that it names.
fn translations(
    view: &View<'_>,
    umr: &Umr<'_>,
    by: Changer,
    objects: &mut Objects,
) -> Result<Vec<u8>, LocalError> {
    let len = usize::from(umr.control.octowords.get()) * 16;
    match umr.inline {
        Some(bytes) => bytes.get(..len).map(<[u8]>::to_vec).ok_or(LocalError::Length),
        None if view.data_len() < len as u64 => Err(LocalError::Length),
        None => {
            let mut list = vec![0; len];
            let user = by.reader(view, &objects.mkeys);
            read_data(view, &objects.mkeys, &mut objects.dma, user, 0, &mut list)?;
            Ok(list)
        }
    }
}

/// The new values of a key that do not come from the context alone.
struct Change {
    shift: u8,
    /// The new pages, if they change.
    pages: Option<Arc<PagedMemory>>,
    start: u64,
    len: u64,
}

/// Computes the new pages and range of the key.
fn plan(umr: &Umr<'_>, list: &[u8], objects: &Objects) -> Result<Change, LocalError> {
    let (control, context) = (&umr.control, &umr.context);
    let has = |bit| control.mask.get() & bit != 0;
    let mkey = objects.mkeys.get(umr.key >> 8).ok_or(LocalError::Bind)?;
    let old = mkey.changeable.as_ref().ok_or(LocalError::Bind)?;
    let shift = if has(mask::PAGE_SIZE) { context.log_page_size } else { old.shift };
    let offset = if control.flags & UmrSeg::OFFSET != 0 { control.offset() * PER_OCTOWORD } else { 0 };
    let end = offset + list.len() as u64 / 8;
    if !LOG_PAGE.contains(&shift) || (!list.is_empty() && end > old.capacity) {
        return Err(LocalError::Bind);
    }
    let pages = match list.is_empty() && shift == old.shift {
        true => None,
        false => {
            let bus = objects.buses.get(&mkey.owner).ok_or(LocalError::Bind)?;
            let pages = replaced(old.pages.pages(), (offset, list), shift);
            Some(Arc::new(bus.translate(pages, shift.into()).ok_or(LocalError::Bind)?))
        }
    };
    let start = if has(mask::START_ADDR) { context.start_addr } else { mkey.start };
    let len = if has(mask::LEN) { context.len } else { mkey.len };
    let count = pages.as_ref().unwrap_or(&old.pages).pages().len() as u64;
    let within = start & ((1 << shift) - 1);
    let fits = within.checked_add(len).is_some_and(|end| end <= count << shift);
    let is_free = if has(mask::FREE) { context.free } else { mkey.key == FREE };
    // A free key may have a part of its translations.
    let valid = is_free || (fits && start.checked_add(len.saturating_sub(1)).is_some());
    if valid { Ok(Change { shift, pages, start, len }) } else { Err(LocalError::Bind) }
}

/// Returns bus addresses of pages, after a list of translations has replaced those from `offset` on.
fn replaced(old: &[u64], (offset, list): (u64, &[u8]), shift: u8) -> Vec<u64> {
    // The last page of the bus, which has no memory.
    let absent = u64::MAX << shift;
    let mut pages = old.to_vec();
    let offset = offset as usize;
    pages.resize(pages.len().max(offset + list.len() / 8), absent);
    for (page, entry) in pages.iter_mut().skip(offset).zip(list_entries(list, 0)) {
        let Mtt { address, read, write } = Mtt::decode(entry);
        *page = if read || write { address } else { absent };
    }
    pages
}

fn apply(umr: &Umr<'_>, change: Change, objects: &mut Objects) {
    let (context, bits) = (&umr.context, umr.control.mask.get());
    let has = |bit| bits & bit != 0;
    let index = umr.key >> 8;
    if has(mask::PD) {
        objects.move_mkey(index, context.pd);
    }
    let Some(mkey) = objects.mkeys.get_mut(index) else { return };
    let Some(own) = mkey.changeable.as_mut() else { return };
    own.shift = change.shift;
    if let Some(pages) = change.pages {
        mkey.memory = Arc::clone(&pages) as _;
        own.pages = pages;
    }
    (mkey.start, mkey.len) = (change.start, change.len);
    mkey.base = change.start & ((1 << change.shift) - 1);
    if has(mask::KEY) {
        own.low = context.mkey_7_0;
    }
    let is_free = if has(mask::FREE) { context.free } else { mkey.key == FREE };
    mkey.key = if is_free { FREE } else { key(index, own.low) };
    if has(mask::QPN) {
        mkey.qpn = (context.qpn != MkeyContext::ANY_QP).then_some(context.qpn);
    }
    if has(mask::RELAXED_WRITE) {
        mkey.relaxed = context.relaxed_ordering_write;
    }
    let rights = [
        (mask::LR, Rights::LOCAL_READ, context.lr),
        (mask::LW, Rights::LOCAL_WRITE, context.lw),
        (mask::RR, Rights::REMOTE_READ, context.rr),
        (mask::RW, Rights::REMOTE_WRITE, context.rw),
        (mask::A, Rights::REMOTE_ATOMIC, context.a),
    ];
    for (_, right, on) in rights.into_iter().filter(|(bit, ..)| has(*bit)) {
        mkey.rights = mkey.rights.set(right, on);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translations_replace_those_at_their_place() {
        let list =
            |entries: &[u64]| -> Vec<u8> { entries.iter().flat_map(|entry| entry.to_be_bytes()).collect() };
        let absent = u64::MAX << 12;
        assert_eq!(replaced(&[], (0, &list(&[0x1003, 0x2001])), 12), [0x1000, 0x2000]);
        assert_eq!(replaced(&[0x1000, 0x2000], (1, &list(&[0x5002, 0])), 12), [0x1000, 0x5000, absent]);
        assert_eq!(replaced(&[0x1000], (2, &list(&[0x3003])), 12), [0x1000, absent, 0x3000]);
        assert_eq!(replaced(&[0x1000, 0x2000], (0, &[]), 12), [0x1000, 0x2000]);
    }
}
