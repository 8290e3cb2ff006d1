//! Commands that register user memory (umems) for queues and doorbell records. On Linux, only the kernel issues them.

use super::layout::{command, layout, response};

layout! {
    /// Page size and length of a umem, which is registered user memory. Its page addresses follow the mailbox.
    pub struct Umem[32] {
        /// log2 of the page size, minus 12.
        log_page_size: u8 = 0x9b, 5;
        /// Offset of the memory within the first page, in bytes.
        page_offset: u32 = 0xa0, 32;
        /// Number of page translations ([`Mtt`]) that follow the mailbox.
        num_of_mtt: u64 = 0xc0, 64;
    }
}

command! { CREATE_UMEM -> CreateUmemOut;
    /// CREATE_UMEM: registers user memory. [`Umem::num_of_mtt`] entries of 8 bytes ([`Mtt`]) follow the mailbox;
    /// [`list_entries`](super::list_entries) reads them.
    pub struct CreateUmem[48] {
        /// Page size and length of the registered memory.
        umem: Umem = 0x80, 256;
    }
}

response! {
    /// The NIC's reply to [`CreateUmem`], with the ID of the new umem.
    pub struct CreateUmemOut[16] {
        /// ID of the new umem, for queue contexts and memory keys.
        umem_id: u32 = 0x48, 24;
    }
}

command! { DESTROY_UMEM -> DestroyUmemOut;
    /// DESTROY_UMEM: deregisters user memory.
    pub struct DestroyUmem[16] {
        /// ID of the umem.
        umem_id: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyUmem`]. It carries no data beyond its status.
    pub struct DestroyUmemOut[16] {}
}

/// A memory translation table entry: the bus address of a page, and whether the NIC may read and write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mtt {
    /// Bus address of the page, a multiple of 4096.
    pub address: u64,
    /// The NIC may read the page.
    pub read: bool,
    /// The NIC may write the page.
    pub write: bool,
}

impl Mtt {
    const READ: u64 = 1;
    const WRITE: u64 = 2;

    /// Encodes the translation as a big-endian word: permissions in the low bits of the address.
    pub const fn encode(self) -> [u8; 8] {
        let read = if self.read { Self::READ } else { 0 };
        let write = if self.write { Self::WRITE } else { 0 };
        (self.address & !0xfff | read | write).to_be_bytes()
    }

    /// Decodes a translation returned by [`list_entries`](super::list_entries).
    pub const fn decode(entry: u64) -> Self {
        Self { address: entry & !0xfff, read: entry & Self::READ != 0, write: entry & Self::WRITE != 0 }
    }
}
