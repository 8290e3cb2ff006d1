//! The memory file of an opened device, from which programs map doorbell pages, clocks and device memory: pages of the
//! system, each with at most one page of the adapter.

use crate::abi;
use crate::errno::Errno;
use crate::memory::{self, Mapping};
use crate::sys;
use rushmem_softnic::{Memory as _, page_size};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

/// Maximum number of pages of an opened device.
const MAX_PAGES: u64 = 1 << 16;

/// Pages with fixed roles. The upper bits of a page number are the mmap command, which selects 256 pages: 5 is the
/// clock, 6 the records of `inventory`, 7 the clock info, 8 device memory.
const FIXED: std::ops::Range<u64> = 5 << 8..9 << 8;
/// First page of device memory.
const DEVICE_MEMORY: u64 = 8 << 8;
/// Number of pages of device memory.
const DEVICE_PAGES: u64 = 256;
/// Index of the page with the adapter's clock register.
const CLOCK: u64 = 5 << 8;
/// Index of the page with [`abi::ClockInfo`].
const CLOCK_INFO: u64 = 7 << 8;

/// Allocator for the pages of an opened device's memory file.
pub(crate) struct Pages {
    file: OwnedFd,
    /// Length of the file, in pages.
    count: u64,
    /// Offsets in the file of pages that are free again, in bytes.
    free: Vec<u64>,
    /// Allocated device memory: first page and number of pages.
    device_memory: BTreeMap<u64, u64>,
}

impl Pages {
    pub(crate) fn new(file: OwnedFd) -> Pages {
        Pages { file, count: 0, free: Vec::new(), device_memory: BTreeMap::new() }
    }

    /// Duplicates the file's descriptor.
    pub(crate) fn file(&self) -> Result<OwnedFd, Errno> {
        sys::duplicate(self.file.as_raw_fd())
    }

    /// Allocates a zeroed page. Returns its offset in the file and the page.
    pub(crate) fn allocate(&mut self) -> Result<(u64, Mapping), Errno> {
        let page = page_size() as u64;
        let offset = match self.free.pop() {
            Some(offset) => offset,
            None if self.count == MAX_PAGES => return Err(Errno::ENOMEM),
            None => {
                if FIXED.contains(&self.count) {
                    self.count = FIXED.end;
                }
                let offset = self.count * page;
                sys::set_len(&self.file, (offset + page).max(FIXED.end * page))?;
                self.count += 1;
                offset
            }
        };
        let mapping =
            memory::map(self.file.as_raw_fd(), offset, page).inspect_err(|_| self.free.push(offset))?;
        Ok((offset, mapping))
    }

    /// Writes the parameters for the conversion of timestamps to the page that programs map.
    pub(crate) fn set_clock_info(&self, info: &abi::ClockInfo) -> Result<(), Errno> {
        self.fixed(CLOCK_INFO)?.write(0, bytemuck::bytes_of(info)).map_err(|_| Errno::EIO)
    }

    /// Maps the page with the adapter's clock register.
    pub(crate) fn clock(&self) -> Result<Mapping, Errno> {
        self.fixed(CLOCK)
    }

    /// Maps a page with a fixed role.
    fn fixed(&self, number: u64) -> Result<Mapping, Errno> {
        let page = page_size() as u64;
        sys::set_len(&self.file, self.count.max(FIXED.end) * page)?;
        memory::map(self.file.as_raw_fd(), number * page, page)
    }

    /// Allocates `pages` pages of device memory. Returns the index of the first page and a mapping of the zeroed pages.
    pub(crate) fn allocate_device_memory(&mut self, pages: u64) -> Result<(u64, Mapping), Errno> {
        let mut first = 0;
        for (start, count) in &self.device_memory {
            if first + pages <= *start {
                break;
            }
            first = start + count;
        }
        if first + pages > DEVICE_PAGES {
            return Err(Errno::ENOMEM);
        }
        let page = page_size() as u64;
        let offset = (DEVICE_MEMORY + first) * page;
        sys::set_len(&self.file, self.count.max(FIXED.end) * page)?;
        sys::erase(&self.file, offset, pages * page)?;
        let memory = memory::map(self.file.as_raw_fd(), offset, pages * page)?;
        self.device_memory.insert(first, pages);
        Ok((first, memory))
    }

    /// Frees the device memory that starts at page `first`.
    pub(crate) fn release_device_memory(&mut self, first: u64) -> Result<(), Errno> {
        self.device_memory.remove(&first).map(drop).ok_or(Errno::EINVAL)
    }

    /// Frees a page and zeroes it.
    pub(crate) fn release(&mut self, offset: u64) -> Result<(), Errno> {
        sys::erase(&self.file, offset, page_size() as u64)?;
        self.free.push(offset);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_memory_is_taken_and_given_back() {
        let mut pages = Pages::new(sys::memory_file(true).unwrap());
        let mut take = |count| pages.allocate_device_memory(count).map(|(first, _)| first);
        assert_eq!((take(2), take(3), take(252)), (Ok(0), Ok(2), Err(Errno::ENOMEM)));
        pages.release_device_memory(0).unwrap();
        assert_eq!(pages.release_device_memory(0), Err(Errno::EINVAL));
        let mut take = |count| pages.allocate_device_memory(count).map(|(first, _)| first);
        assert_eq!((take(3), take(1)), (Ok(5), Ok(0)));
    }

    #[test]
    fn doorbell_pages_leave_the_fixed_places_free() {
        let mut pages = Pages::new(sys::memory_file(true).unwrap());
        let count = FIXED.start + 1;
        let offsets: Vec<u64> =
            (0..count).map(|_| pages.allocate().unwrap().0 / page_size() as u64).collect();
        assert_eq!(offsets.last(), Some(&FIXED.end));
        assert!(offsets.iter().all(|page| !FIXED.contains(page)));
    }

    #[test]
    fn pages_come_back_empty() {
        let mut pages = Pages::new(sys::memory_file(true).unwrap());
        let (first, page) = pages.allocate().unwrap();
        let (second, _other) = pages.allocate().unwrap();
        assert_ne!(first, second);
        page.write(0x800, &[1; 8]).unwrap();
        pages.release(first).unwrap();
        let (again, page) = pages.allocate().unwrap();
        let mut bytes = [7; 8];
        page.read(0x800, &mut bytes).unwrap();
        assert_eq!((again, bytes), (first, [0; 8]));
    }
}
