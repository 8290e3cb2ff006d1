//! What a memory key has in addition if work requests can change it.

use crate::bus::{Attached, MAX_TRANSLATIONS, PagedMemory};
use rushmem_mlx5::prm::list_entries;
use rushmem_mlx5::prm::mkey::MkeyContext;
use rushmem_mlx5::prm::umem::Mtt;
use std::sync::Arc;

/// log2 of the smallest and the largest page, in bytes.
pub(crate) const LOG_PAGE: std::ops::RangeInclusive<u8> = 12..=31;

/// Number of translations of 8 bytes in a unit of 16.
pub(crate) const PER_OCTOWORD: u64 = 2;

/// Drivers write translations in units of this many.
const GRANULE: u64 = 8;

/// Value of a key while it is free. No key has index 0.
pub(crate) const FREE: u32 = 0;

/// What a key has in addition if work requests can change it.
pub(crate) struct Changeable {
    /// Maximum number of translations.
    pub(crate) capacity: u64,
    /// log2 of the page size.
    pub(crate) shift: u8,
    pub(crate) pages: Arc<PagedMemory>,
    /// Low byte of the key.
    pub(crate) low: u8,
}

impl Changeable {
    /// Creates the pages of a key from its translations. Returns `None` if it or the function has too many.
    pub(crate) fn new(bus: &Attached, mkc: &MkeyContext, list: &[u8]) -> Option<Changeable> {
        let capacity = u64::from(mkc.translations_octword_size) * PER_OCTOWORD;
        let capacity = capacity.max(list.len() as u64 / 8).next_multiple_of(GRANULE);
        if capacity > MAX_TRANSLATIONS as u64 {
            return None;
        }
        let shift = if mkc.free { *LOG_PAGE.start() } else { mkc.log_page_size };
        let pages = list_entries(list, 0).map(|entry| Mtt::decode(entry).address).collect();
        let pages = Arc::new(bus.translate(pages, shift.into())?);
        Some(Changeable { capacity, shift, pages, low: mkc.mkey_7_0 })
    }
}
