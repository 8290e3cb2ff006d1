//! The bus to which a PCI function is attached: the memory that it accesses by DMA, and its doorbell pages.

use crate::management::mad::HAS_EXTENDED_SPEEDS;
use crate::memory::{Memory, MemoryError};
use rushmem_mlx5::{AtomicOp, Width};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// What a PCI function shares with its driver.
///
/// The commands of a context with a bus may name memory by bus addresses, as those of a kernel driver do.
#[derive(Clone)]
pub struct Bus {
    /// The memory at all bus addresses: an offset is a bus address. Accesses to addresses without memory fail.
    pub memory: Arc<dyn Memory>,
    /// The pages that ALLOC_UAR hands out. The number of a UAR page is its index here, in units of 4096 bytes.
    pub doorbells: Arc<dyn Memory>,
}

/// Maximum number of translations that the objects of a function may have. They take 8 bytes each.
pub(crate) const MAX_TRANSLATIONS: usize = 1 << 24;

/// Maximum number of objects of a function, of all kinds together.
const MAX_OBJECTS: u32 = 1 << 16;

/// The bus of a context, and what the objects of its function take.
pub(crate) struct Attached {
    pub(crate) bus: Bus,
    /// The function's own context, through which its driver may use the objects of this one.
    pub(crate) function: u32,
    /// Number of objects that commands of this context have created.
    objects: u32,
    /// Number of objects of the function.
    of_function: Arc<AtomicU32>,
    translations: Arc<AtomicUsize>,
    /// Capability mask of the function's port, in which its driver can set some bits.
    pub(crate) capabilities: u32,
}

impl Attached {
    /// Attaches a context, which is that of a function.
    pub(crate) fn new(bus: Bus, function: u32) -> Attached {
        let (of_function, translations) = Default::default();
        Attached { bus, function, objects: 0, of_function, translations, capabilities: HAS_EXTENDED_SPEEDS }
    }

    /// Attaches a user context of the function.
    pub(crate) fn user(&self) -> Attached {
        Attached {
            bus: self.bus.clone(),
            function: self.function,
            objects: 0,
            of_function: Arc::clone(&self.of_function),
            translations: Arc::clone(&self.translations),
            capabilities: self.capabilities,
        }
    }

    /// Whether the function has as many objects as it may have.
    pub(crate) fn is_full(&self) -> bool {
        self.of_function.load(Ordering::Relaxed) >= MAX_OBJECTS
    }

    /// Whether this context has no objects.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects == 0
    }

    /// Counts the objects that a command has created or destroyed.
    pub(crate) fn count_objects(&mut self, change: i32) {
        self.objects = self.objects.saturating_add_signed(change);
        // Commands are executed one after the other.
        let all = self.of_function.load(Ordering::Relaxed).saturating_add_signed(change);
        self.of_function.store(all, Ordering::Relaxed);
    }

    /// Returns the memory that consists of the pages at these bus addresses, each of 2^`shift` bytes. Returns `None` if
    /// the function has too many translations.
    pub(crate) fn translate(&self, pages: Vec<u64>, shift: u32) -> Option<PagedMemory> {
        let count = pages.len();
        let translations = Arc::clone(&self.translations);
        if translations.fetch_add(count, Ordering::Relaxed).saturating_add(count) > MAX_TRANSLATIONS {
            translations.fetch_sub(count, Ordering::Relaxed);
            return None;
        }
        Some(PagedMemory { bus: Arc::clone(&self.bus.memory), pages, shift, counted: Some(translations) })
    }
}

/// A contiguous range of memory that consists of pages of another memory.
pub struct PagedMemory {
    bus: Arc<dyn Memory>,
    /// Bus address of each page.
    pages: Vec<u64>,
    /// log2 of the page size.
    shift: u32,
    /// Number of translations of the function, if those of this memory count.
    counted: Option<Arc<AtomicUsize>>,
}

impl Drop for PagedMemory {
    fn drop(&mut self) {
        if let Some(translations) = &self.counted {
            translations.fetch_sub(self.pages.len(), Ordering::Relaxed);
        }
    }
}

impl PagedMemory {
    /// Creates the range of the pages at these bus addresses, each of 2^`shift` bytes, of which `shift` is less than 64.
    #[must_use]
    pub fn new(bus: Arc<dyn Memory>, pages: Vec<u64>, shift: u32) -> PagedMemory {
        PagedMemory { bus, pages, shift, counted: None }
    }

    /// Returns the bus address of each page.
    pub(crate) fn pages(&self) -> &[u64] {
        &self.pages
    }

    /// Calls `access` with the bus address of each piece of the `len` bytes at `offset`, and the piece's range in
    /// those bytes.
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        mut access: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        let outside = MemoryError::OutOfRange { offset, len: len as u64 };
        let page_bytes = 1u64 << self.shift;
        let mut done = 0;
        while done < len {
            let at = offset.checked_add(done as u64).ok_or(outside)?;
            let page = self.pages.get((at >> self.shift) as usize).ok_or(outside)?;
            let within = at & (page_bytes - 1);
            let piece = (len - done).min((page_bytes - within) as usize);
            access(page.checked_add(within).ok_or(outside)?, done..done + piece)?;
            done += piece;
        }
        Ok(())
    }
}

#[allow(unsafe_code, reason = "the trait is unsafe because of `host_ptr`")]
// SAFETY: `host_ptr` returns `None`.
unsafe impl Memory for PagedMemory {
    fn len(&self) -> u64 {
        (self.pages.len() as u64) << self.shift
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.pieces(offset, buf.len(), |address, range| self.bus.read(address, &mut buf[range]))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.pieces(offset, data.len(), |address, range| self.bus.write(address, &data[range]))
    }

    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        if !offset.is_multiple_of(width.bytes()) {
            return Err(MemoryError::Misaligned { offset });
        }
        let mut old = 0;
        // An aligned operand lies in one page.
        self.pieces(offset, width.bytes() as usize, |address, _| {
            old = self.bus.atomic(address, width, op)?;
            Ok(())
        })?;
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HostBuffer, PAGE};

    fn scattered() -> (Arc<dyn Memory>, PagedMemory) {
        let bus: Arc<dyn Memory> = Arc::new(HostBuffer::new(4 * PAGE));
        let attached = Attached::new(Bus { memory: Arc::clone(&bus), doorbells: Arc::clone(&bus) }, 1);
        let memory = attached.translate(vec![3 * PAGE as u64, PAGE as u64], 12).unwrap();
        (bus, memory)
    }

    #[test]
    fn an_access_crosses_pages() {
        let (bus, memory) = scattered();
        memory.write(PAGE as u64 - 2, &[1, 2, 3, 4]).unwrap();
        let (mut first, mut second, mut all) = ([0; 2], [0; 2], [0; 4]);
        bus.read(4 * PAGE as u64 - 2, &mut first).unwrap();
        bus.read(PAGE as u64, &mut second).unwrap();
        memory.read(PAGE as u64 - 2, &mut all).unwrap();
        assert_eq!((first, second, all), ([1, 2], [3, 4], [1, 2, 3, 4]));
    }

    #[test]
    fn an_access_past_the_end_fails() {
        let (_, memory) = scattered();
        let end = 2 * PAGE as u64;
        assert_eq!(memory.len(), end);
        for offset in [end - 1, end, u64::MAX] {
            let mut buf = [0; 2];
            assert!(matches!(memory.read(offset, &mut buf), Err(MemoryError::OutOfRange { .. })));
        }
    }

    #[test]
    fn translations_are_limited_until_they_are_dropped() {
        let bus: Arc<dyn Memory> = Arc::new(HostBuffer::new(PAGE));
        let attached = Attached::new(Bus { memory: Arc::clone(&bus), doorbells: bus }, 1);
        let most = attached.translate(vec![0; MAX_TRANSLATIONS], 12);
        assert!(most.is_some() && attached.translate(vec![0], 12).is_none());
        drop(most);
        assert!(attached.translate(vec![0], 12).is_some());
    }

    #[test]
    fn atomics_are_aligned() {
        let (_, memory) = scattered();
        let add = AtomicOp::Add { add: 5, boundary: 0 };
        let at = PAGE as u64;
        assert_eq!(memory.atomic(at, Width::Eight, add), Ok(0));
        assert_eq!(memory.atomic(at, Width::Eight, add), Ok(5));
        let misaligned = Err(MemoryError::Misaligned { offset: at - 4 });
        assert_eq!(memory.atomic(at - 4, Width::Eight, add), misaligned);
    }
}
