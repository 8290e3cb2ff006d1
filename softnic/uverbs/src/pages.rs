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
    /// Pages that have been handed out, ever. None is used twice: a program may still have it mapped.
    count: u64,
}

impl Pages {
    pub(crate) fn new(file: OwnedFd) -> Pages {
        Pages { file, count: 0 }
    }

    /// A new page of zeroes: where it lies in the file, and the page itself.
    pub(crate) fn allocate(&mut self) -> Result<(u64, Mapping), Errno> {
        if self.count == LIMIT {
            return Err(Errno::ENOMEM);
        }
        let page = PAGE as u64;
        let offset = self.count * page;
        sys::set_len(&self.file, offset + page)?;
        let mapping = Mapping::new(self.file.as_raw_fd(), offset, page)?;
        self.count += 1;
        Ok((offset, mapping))
    }
}
