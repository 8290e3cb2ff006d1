//! Where the memory of an object lies: in a umem, or at bus addresses.

use super::refuse::{Reason, bad_resource, refuse};
use super::{CmdResult, require};
use crate::bus::Attached;
use crate::dma::Umem;
use crate::memory::Memory;
use crate::objects::Objects;
use crate::queue_memory::{BadQueueMemory, QueueMemory};
use crate::table::Table;
use rushmem_mlx5::prm::umem::Mtt;
use rushmem_mlx5::prm::{CmdStatus, list_entries};
use std::sync::Arc;

/// log2 of the smallest page of a list, in bytes.
const LOG_MIN_PAGE: u32 = 12;

/// log2 of the largest page of a list, in bytes.
const LOG_MAX_PAGE: u32 = 31;

/// Where a command says that memory lies.
#[derive(Clone, Copy)]
pub(super) enum Place<'c> {
    Umem {
        id: u32,
        offset: u64,
    },
    Pages(Pages<'c>),
    /// A bus address.
    Address(u64),
}

/// Pages at bus addresses.
#[derive(Clone, Copy)]
pub(super) struct Pages<'c> {
    /// The bus addresses, 8 bytes each.
    pub(super) list: &'c [u8],
    /// log2 of the page size, minus 12.
    pub(super) log_page_size: u8,
    /// Offset within the first page, in bytes.
    pub(super) offset: u64,
}

impl<'c> Pages<'c> {
    /// Describes the pages of a queue that starts at `offset`, in units of 1/64 page.
    pub(super) fn of_queue(list: &'c [u8], log_page_size: u8, offset: u8) -> Pages<'c> {
        Pages { list, log_page_size, offset: page_bytes(log_page_size) / 64 * u64::from(offset) }
    }

    /// Returns the number of bytes in all pages of the list, from the offset on.
    pub(super) fn len(&self) -> u64 {
        let pages = self.list.len() as u64 / 8;
        pages.saturating_mul(page_bytes(self.log_page_size)).saturating_sub(self.offset)
    }
}

/// Returns the size of a page, or 0 if it is out of range.
fn page_bytes(log_page_size: u8) -> u64 {
    1u64.checked_shl(LOG_MIN_PAGE + u32::from(log_page_size)).unwrap_or(0)
}

/// Memory that a command names.
pub(super) struct Region {
    pub(super) memory: Arc<dyn Memory>,
    /// Offset of the first byte in `memory`.
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl<'c> Place<'c> {
    /// Returns where a queue lies: at an offset in a umem, given with its ID, or otherwise in `pages`.
    pub(super) fn of_queue(umem: Option<(u32, u64)>, pages: Pages<'c>) -> Place<'c> {
        match umem {
            Some((id, offset)) => Place::Umem { id, offset },
            None => Place::Pages(pages),
        }
    }

    /// Returns the umem, or 0 if the memory lies at bus addresses.
    pub(super) fn umem(&self) -> u32 {
        match self {
            Place::Umem { id, .. } => *id,
            Place::Pages(_) | Place::Address(_) => 0,
        }
    }

    /// Returns the memory of an object of `len` bytes. That of a list consists only of the pages that contain them.
    pub(super) fn find(&self, objects: &Objects, context: u32, len: u64) -> CmdResult<Region> {
        match *self {
            Place::Umem { id, offset } => {
                let umem = own_umem(&objects.umems, context, id)?;
                let rest = umem.len.checked_sub(offset);
                let len = rest.ok_or(refuse(CmdStatus::BAD_PARAM, Reason::UmemRange))?;
                Ok(Region { memory: Arc::clone(&umem.memory), offset: umem.offset + offset, len })
            }
            Place::Pages(pages) => pages.find(bus_of(objects, context)?, len),
            Place::Address(offset) => {
                let memory = Arc::clone(&bus_of(objects, context)?.bus.memory);
                Ok(Region { len: memory.len().saturating_sub(offset), memory, offset })
            }
        }
    }
}

pub(super) fn own_umem(umems: &Table<Umem>, context: u32, id: u32) -> CmdResult<&Umem> {
    umems.get(id).filter(|umem| umem.owner == context).ok_or(bad_resource(Reason::NoUmem))
}

fn bus_of(objects: &Objects, context: u32) -> CmdResult<&Attached> {
    objects.buses.get(&context).ok_or(refuse(CmdStatus::BAD_PARAM, Reason::NeedsUmem))
}

impl Pages<'_> {
    /// Returns the memory of the first pages, which contain `needed` bytes.
    fn find(&self, bus: &Attached, needed: u64) -> CmdResult<Region> {
        let shift = LOG_MIN_PAGE + u32::from(self.log_page_size);
        require(shift <= LOG_MAX_PAGE, Reason::PageSize)?;
        require(needed != 0, Reason::PageList)?;
        let count = self.offset.checked_add(needed).map(|end| end.div_ceil(1 << shift));
        let list = count.and_then(|count| first_entries(self.list, count));
        let list = list.ok_or(refuse(CmdStatus::BAD_INP_LEN, Reason::PageList))?;
        let pages: Vec<u64> = list_entries(list, 0).map(|entry| Mtt::decode(entry).address).collect();
        let len = ((pages.len() as u64) << shift) - self.offset;
        let first = pages[0];
        let follows = |(i, page): (u64, &u64)| first.checked_add(i << shift) == Some(*page);
        let contiguous = (0..).zip(&pages).all(follows);
        let fits = pages.iter().all(|page| page.checked_add((1 << shift) - 1).is_some());
        require(fits, Reason::PageList)?;
        Ok(match contiguous {
            true => Region { memory: Arc::clone(&bus.bus.memory), offset: first + self.offset, len },
            false => {
                let memory = bus.translate(pages, shift);
                let memory = memory.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
                Region { memory: Arc::new(memory), offset: self.offset, len }
            }
        })
    }
}

/// Returns the first `count` addresses of a list, if it is that long.
pub(super) fn first_entries(list: &[u8], count: u64) -> Option<&[u8]> {
    list.get(..usize::try_from(count).ok()?.checked_mul(8)?)
}

impl Region {
    /// Returns the memory of a queue or a doorbell record: `len` bytes at `offset`.
    pub(super) fn queue(&self, offset: u64, len: usize, align: usize) -> CmdResult<QueueMemory> {
        let end = offset.checked_add(len as u64);
        require(end.is_some_and(|end| end <= self.len), Reason::UmemRange)?;
        QueueMemory::new(&self.memory, self.offset + offset, len, align).map_err(|bad| {
            let why = match bad {
                BadQueueMemory::Range => Reason::UmemRange,
                BadQueueMemory::Alignment => Reason::UmemAlignment,
            };
            refuse(CmdStatus::BAD_PARAM, why)
        })
    }
}

/// Returns the memory of a queue or a doorbell record: the first `len` bytes at `place`.
pub(super) fn queue_memory(
    objects: &Objects,
    context: u32,
    place: Place<'_>,
    len: usize,
    align: usize,
) -> CmdResult<QueueMemory> {
    place.find(objects, context, len as u64)?.queue(0, len, align)
}

/// Returns where a doorbell record lies: at `address`, which is an offset if there is a umem.
pub(super) fn record(umem_valid: bool, umem: u32, address: u64) -> Place<'static> {
    match umem_valid {
        true => Place::Umem { id: umem, offset: address },
        false => Place::Address(address),
    }
}
