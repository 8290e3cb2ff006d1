//! The file behind an opened device: its pages are what programs map.

use crate::abi;
use crate::errno::Errno;
use crate::memory::Mapping;
use crate::sys;
use rushmem_softnic::{Memory as _, PAGE};
use std::os::fd::{AsRawFd, OwnedFd};

/// Most pages of an opened device.
const LIMIT: u64 = 1 << 16;

/// Pages that programs find at fixed places: the clock (5), and its conversion (7). Both are commands, and a command has
/// 256 pages.
const FIXED: std::ops::Range<u64> = 5 << 8..8 << 8;
/// The page of the conversion.
const CLOCK_INFO: u64 = 7 << 8;

/// The pages of an opened device.
pub(crate) struct Pages {
    file: OwnedFd,
    /// Pages that the file has.
    count: u64,
    /// Offsets of the free pages.
    free: Vec<u64>,
}

impl Pages {
    pub(crate) fn new(file: OwnedFd) -> Pages {
        Pages { file, count: 0, free: Vec::new() }
    }

    /// Creates a page of zeroes, and returns its offset in the file and the page.
    pub(crate) fn allocate(&mut self) -> Result<(u64, Mapping), Errno> {
        let page = PAGE as u64;
        let offset = match self.free.pop() {
            Some(offset) => offset,
            None if self.count == LIMIT => return Err(Errno::ENOMEM),
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
            Mapping::new(self.file.as_raw_fd(), offset, page).inspect_err(|_| self.free.push(offset))?;
        Ok((offset, mapping))
    }

    /// Writes the page from which programs convert the clock.
    pub(crate) fn set_clock_info(&self, info: &abi::ClockInfo) -> Result<(), Errno> {
        let page = PAGE as u64;
        let len = self.count.max(CLOCK_INFO + 1) * page;
        sys::set_len(&self.file, len)?;
        let mapping = Mapping::new(self.file.as_raw_fd(), CLOCK_INFO * page, page)?;
        mapping.write(0, bytemuck::bytes_of(info)).map_err(|_| Errno::EIO)
    }

    /// Takes a page back. It reads zero again.
    pub(crate) fn release(&mut self, offset: u64) -> Result<(), Errno> {
        sys::erase(&self.file, offset, PAGE as u64)?;
        self.free.push(offset);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
