//! Memory keys: the address ranges and permissions that an lkey or rkey refers to.

use super::layout::{command, layout, numbers, response};

numbers! {
    /// How a memory key translates addresses.
    pub struct AccessMode(u8) {
        /// The key covers physical addresses, without translation.
        PA = 0;
        /// The key maps pages, listed in a translation table or a umem.
        MTT = 1;
        /// The key is composed of ranges of other keys, of any length.
        KLM = 2;
        /// The key is composed of ranges of other keys, all of the same length.
        KSM = 3;
        /// Device memory of the steering engine.
        SW_ICM = 4;
        /// Memory on the NIC itself.
        MEMIC = 5;
    }
}

layout! {
    /// The context of a memory key: the address range it maps, and who may access it how.
    pub struct MkeyContext[64] {
        /// The key is not in use.
        free: bool = 0x001, 1;
        /// Upper bits of the access mode; see [`MkeyContext::access_mode`].
        access_mode_4_2: u8 = 0x003, 3;
        /// Writes by the NIC may pass each other on the bus.
        relaxed_ordering_write: bool = 0x00d, 1;
        /// A READ response waits for earlier small operations.
        small_fence_on_rdma_read_response: bool = 0x00f, 1;
        /// The key can be modified by a send work-queue entry (UMR).
        umr_en: bool = 0x010, 1;
        /// Remote atomics are allowed.
        a: bool = 0x011, 1;
        /// Remote writes are allowed.
        rw: bool = 0x012, 1;
        /// Remote reads are allowed.
        rr: bool = 0x013, 1;
        /// Local writes are allowed.
        lw: bool = 0x014, 1;
        /// Local reads are allowed.
        lr: bool = 0x015, 1;
        /// Lower bits of the access mode; see [`MkeyContext::access_mode`].
        access_mode_1_0: u8 = 0x016, 2;
        /// The only QP that may use the key, or [`MkeyContext::ANY_QP`].
        qpn: u32 = 0x020, 24;
        /// Low byte of the 32-bit key, chosen by software.
        mkey_7_0: u8 = 0x038, 8;
        /// The key covers all 2^64 bytes, and `len` is ignored.
        length64: bool = 0x060, 1;
        /// The key has block-signature fields (BSF).
        bsf_en: bool = 0x061, 1;
        /// Modifications of the key by work-queue entries (UMR) are synchronous.
        sync_umr: bool = 0x062, 1;
        /// Signature errors expected, modulo 2.
        expected_sigerr_count: bool = 0x065, 1;
        /// A peer may invalidate the key by a SEND with invalidate.
        en_rinval: bool = 0x067, 1;
        /// Protection domain that the key belongs to.
        pd: u32 = 0x068, 24;
        /// First address that the key maps.
        start_addr: u64 = 0x080, 64;
        /// Length of the mapped range, in bytes.
        len: u64 = 0x0c0, 64;
        /// Length of the signature fields, in units of 16 bytes.
        bsf_octword_size: u32 = 0x100, 32;
        /// Length of the translation list, in units of 16 bytes: two pages, or one entry of a KLM or KSM key.
        translations_octword_size: u32 = 0x1a0, 32;
        /// Reads by the NIC may pass each other on the bus.
        relaxed_ordering_read: bool = 0x1d9, 1;
        /// log2 of the page (or KSM entry) size.
        log_page_size: u8 = 0x1db, 5;
        /// Whether data is encrypted, encoded.
        crypto_en: u8 = 0x1e3, 2;
    }
}

layout! {
    /// An entry of an indirect memory key: a range of another key. Entries follow the mailbox.
    pub struct Klm[16] {
        /// Length of the entry, in bytes. Not used with [`AccessMode::KSM`], whose entries have 2^`log_page_size`
        /// bytes.
        byte_count: u32 = 0x00, 32;
        /// The memory key that the entry refers to.
        mkey: u32 = 0x20, 32;
        /// Address of the first byte, as mapped by the referenced key.
        address: u64 = 0x40, 64;
    }
}

impl MkeyContext {
    /// Value of [`MkeyContext::qpn`] if every QP of the protection domain may use the key.
    pub const ANY_QP: u32 = 0xff_ffff;

    /// Assembles the access mode from its two bit fields.
    pub const fn access_mode(&self) -> AccessMode {
        AccessMode(self.access_mode_4_2 << 2 | self.access_mode_1_0)
    }

    /// Stores the access mode (5 bits) in its two bit fields.
    pub const fn with_access_mode(self, mode: AccessMode) -> Self {
        Self { access_mode_4_2: mode.0 >> 2 & 7, access_mode_1_0: mode.0 & 3, ..self }
    }
}

/// Assembles a 32-bit lkey or rkey: the NIC assigned `index` (24 bits), software chose the `low` byte
/// ([`MkeyContext::mkey_7_0`]).
pub const fn key(index: u32, low: u8) -> u32 {
    index << 8 | low as u32
}

command! { CREATE_MKEY -> CreateMkeyOut;
    /// CREATE_MKEY: creates a memory key for a umem, or for the translations that follow the mailbox.
    pub struct CreateMkey[272] {
        /// A translation list follows the mailbox.
        pg_access: bool = 0x60, 1;
        /// The key maps memory of the umem `umem_id`.
        umem_valid: bool = 0x61, 1;
        /// Range and permissions of the new key.
        context: MkeyContext = 0x80, 512;
        /// Length of the translation list after the mailbox, in units of 16 bytes.
        translations_octword_actual_size: u32 = 0x300, 32;
        /// ID of the umem that the key maps.
        umem_id: u32 = 0x320, 32;
        /// Offset in the umem of the first byte that the key maps.
        umem_offset: u64 = 0x340, 64;
    }
}

response! {
    /// The NIC's reply to [`CreateMkey`], with the upper 24 bits of the new key.
    pub struct CreateMkeyOut[16] {
        /// Upper 24 bits of the new memory key; see [`key`].
        mkey_index: u32 = 0x48, 24;
    }
}

command! { DESTROY_MKEY -> DestroyMkeyOut;
    /// DESTROY_MKEY: destroys a memory key.
    pub struct DestroyMkey[16] {
        /// Upper 24 bits of the memory key.
        mkey_index: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyMkey`]. It carries no data beyond its status.
    pub struct DestroyMkeyOut[16] {}
}
