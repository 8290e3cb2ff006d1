//! The file behind an opened device: its pages are what programs map.

use crate::errno::Errno;
use crate::memory::Mapping;
use crate::sys;
use rushmem_softnic::PAGE;
use std::os::fd::{AsRawFd, OwnedFd};

/// Most pages of an opened device.
const LIMIT: u64 = 1 << 16;

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
                let offset = self.count * page;
                sys::set_len(&self.file, offset + page)?;
                self.count += 1;
                offset
            }
        };
        let mapping =
            Mapping::new(self.file.as_raw_fd(), offset, page).inspect_err(|_| self.free.push(offset))?;
        Ok((offset, mapping))
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
    use rushmem_softnic::Memory;

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
