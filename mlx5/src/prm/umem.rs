//! User memory for queues and doorbell records. On Linux, only the kernel issues these commands.

use super::layout::{command, layout, response};

layout! {
    /// The layout of a umem. Translations follow the mailbox.
    pub struct Umem[32] {
        /// log2 of the page size, minus 12.
        log_page_size: u8 = 0x9b, 5;
        /// Offset of the memory within the first page, in bytes.
        page_offset: u32 = 0xa0, 32;
        /// Number of translations that follow.
        num_of_mtt: u64 = 0xc0, 64;
    }
}

command! { CREATE_UMEM -> CreateUmemOut;
    /// CREATE_UMEM: registers memory. [`Umem::num_of_mtt`] entries of 8 bytes ([`Mtt`]) follow the mailbox;
    /// [`list_entries`](super::list_entries) reads them.
    pub struct CreateUmem[48] {
        /// Layout of the umem.
        umem: Umem = 0x80, 256;
    }
}

response! {
    /// Output of [`CreateUmem`].
    pub struct CreateUmemOut[16] {
        /// ID of the new umem, for queue contexts and memory keys.
        umem_id: u32 = 0x48, 24;
    }
}

command! { DESTROY_UMEM -> DestroyUmemOut;
    /// DESTROY_UMEM: deregisters memory.
    pub struct DestroyUmem[16] {
        /// ID of the umem.
        umem_id: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`DestroyUmem`].
    pub struct DestroyUmemOut[16] {}
}

/// A translation: the bus address of a page, and what the NIC may do there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mtt {
    /// Bus address of the page, a multiple of 4096.
    pub address: u64,
    /// The NIC may read.
    pub read: bool,
    /// The NIC may write.
    pub write: bool,
}

impl Mtt {
    const READ: u64 = 1;
    const WRITE: u64 = 2;

    /// Returns the bytes of the entry.
    pub const fn encode(self) -> [u8; 8] {
        let read = if self.read { Self::READ } else { 0 };
        let write = if self.write { Self::WRITE } else { 0 };
        (self.address & !0xfff | read | write).to_be_bytes()
    }

    /// Decodes an entry returned by [`list_entries`](super::list_entries).
    pub const fn decode(entry: u64) -> Self {
        Self { address: entry & !0xfff, read: entry & Self::READ != 0, write: entry & Self::WRITE != 0 }
    }
}
