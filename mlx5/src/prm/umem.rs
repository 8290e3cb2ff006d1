//! User memory for queues and doorbell records. On Linux the kernel alone issues these commands.

use super::layout::{command, layout, response};

layout! {
    /// The layout of a umem. Its translations follow.
    pub struct Umem[32] {
        /// log2 of the page size, less 12.
        log_page_size: u8 = 0x9b, 5;
        /// Where the memory starts within the first page, bytes.
        page_offset: u32 = 0xa0, 32;
        /// Translations that follow.
        num_of_mtt: u64 = 0xc0, 64;
    }
}

command! { CREATE_UMEM -> CreateUmemOut;
    /// CREATE_UMEM: registers memory. [`Umem::num_of_mtt`] entries of 8 bytes ([`Mtt`]) follow the mailbox; read them
    /// with [`list_entries`](super::list_entries).
    pub struct CreateUmem[48] {
        /// The umem.
        umem: Umem = 0x80, 256;
    }
}

response! {
    /// Answer to [`CreateUmem`].
    pub struct CreateUmemOut[16] {
        /// Number of the umem, for queue contexts and memory keys.
        umem_id: u32 = 0x48, 24;
    }
}

command! { DESTROY_UMEM -> DestroyUmemOut;
    /// DESTROY_UMEM: deregisters memory.
    pub struct DestroyUmem[16] {
        /// Number of the umem.
        umem_id: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`DestroyUmem`].
    pub struct DestroyUmemOut[16] {}
}

/// One translation: a page's bus address and what the NIC may do there.
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

    /// Returns the entry's bytes.
    pub const fn encode(self) -> [u8; 8] {
        let read = if self.read { Self::READ } else { 0 };
        let write = if self.write { Self::WRITE } else { 0 };
        (self.address & !0xfff | read | write).to_be_bytes()
    }

    /// Returns the entry that [`list_entries`](super::list_entries) gave.
    pub const fn decode(entry: u64) -> Self {
        Self { address: entry & !0xfff, read: entry & Self::READ != 0, write: entry & Self::WRITE != 0 }
    }
}
