//! Memory keys: what an lkey or rkey refers to.

use super::layout::{command, layout, numbers, response};

numbers! {
    /// How a key translates addresses.
    pub struct AccessMode(u8) {
        /// Physical addresses.
        PA = 0;
        /// Pages, by a translation table or a umem.
        MTT = 1;
        /// Other keys, with entries of any length.
        KLM = 2;
        /// Other keys, with entries of equal length.
        KSM = 3;
        /// Device memory of the steering engine.
        SW_ICM = 4;
        /// Device memory.
        MEMIC = 5;
    }
}

layout! {
    /// Memory-key context.
    pub struct MkeyContext[64] {
        /// The key is not in use.
        free: bool = 0x001, 1;
        /// Upper bits of the access mode; see [`MkeyContext::access_mode`].
        access_mode_4_2: u8 = 0x003, 3;
        /// Writes by the NIC may pass each other on the bus.
        relaxed_ordering_write: bool = 0x00d, 1;
        /// A READ response waits for earlier small operations.
        small_fence_on_rdma_read_response: bool = 0x00f, 1;
        /// A work-queue entry may change the key.
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
        /// Low byte of the key, chosen by software.
        mkey_7_0: u8 = 0x038, 8;
        /// The key covers all 2^64 bytes, and `len` is ignored.
        length64: bool = 0x060, 1;
        /// The key has signature fields.
        bsf_en: bool = 0x061, 1;
        /// Registrations by work-queue entry are synchronous.
        sync_umr: bool = 0x062, 1;
        /// Signature errors expected, modulo 2.
        expected_sigerr_count: bool = 0x065, 1;
        /// A peer may invalidate the key.
        en_rinval: bool = 0x067, 1;
        /// Protection domain.
        pd: u32 = 0x068, 24;
        /// First address that the key maps.
        start_addr: u64 = 0x080, 64;
        /// Length of the mapped range, in bytes.
        len: u64 = 0x0c0, 64;
        /// Length of the signature fields, in units of 16 bytes.
        bsf_octword_size: u32 = 0x100, 32;
        /// Length of the translations, in units of 16 bytes: two pages, or one entry of a KLM or KSM key.
        translations_octword_size: u32 = 0x1a0, 32;
        /// Reads by the NIC may pass each other on the bus.
        relaxed_ordering_read: bool = 0x1d9, 1;
        /// log2 of the page (or KSM entry) size.
        log_page_size: u8 = 0x1db, 5;
        /// Encryption.
        crypto_en: u8 = 0x1e3, 2;
    }
}

layout! {
    /// An entry of an indirect key. Entries follow the mailbox.
    pub struct Klm[16] {
        /// Length of the entry, in bytes. Not used with [`AccessMode::KSM`], whose entries have 2^`log_page_size`
        /// bytes.
        byte_count: u32 = 0x00, 32;
        /// The key it refers to.
        mkey: u32 = 0x20, 32;
        /// Address of the first byte under that key.
        address: u64 = 0x40, 64;
    }
}

impl MkeyContext {
    /// Value of [`MkeyContext::qpn`] if every QP of the protection domain may use the key.
    pub const ANY_QP: u32 = 0xff_ffff;

    /// Returns how the key translates addresses.
    pub const fn access_mode(&self) -> AccessMode {
        AccessMode(self.access_mode_4_2 << 2 | self.access_mode_1_0)
    }

    /// Sets the access mode (5 bits).
    pub const fn with_access_mode(self, mode: AccessMode) -> Self {
        Self { access_mode_4_2: mode.0 >> 2 & 7, access_mode_1_0: mode.0 & 3, ..self }
    }
}

/// Combines a 32-bit key: `index` (24 bits) comes from the NIC, the `low` byte ([`MkeyContext::mkey_7_0`]) from
/// software.
pub const fn key(index: u32, low: u8) -> u32 {
    index << 8 | low as u32
}

command! { CREATE_MKEY -> CreateMkeyOut;
    /// CREATE_MKEY: creates a key for a umem, or for the translations that follow the mailbox.
    pub struct CreateMkey[272] {
        /// Translations follow the mailbox.
        pg_access: bool = 0x60, 1;
        /// The key maps a umem.
        umem_valid: bool = 0x61, 1;
        /// Context of the key.
        context: MkeyContext = 0x80, 512;
        /// Length of the translations that follow, in units of 16 bytes.
        translations_octword_actual_size: u32 = 0x300, 32;
        /// ID of the umem.
        umem_id: u32 = 0x320, 32;
        /// Offset of the key's memory in the umem, in bytes.
        umem_offset: u64 = 0x340, 64;
    }
}

response! {
    /// Output of [`CreateMkey`].
    pub struct CreateMkeyOut[16] {
        /// Upper 24 bits of the key; see [`key`].
        mkey_index: u32 = 0x48, 24;
    }
}

command! { DESTROY_MKEY -> DestroyMkeyOut;
    /// DESTROY_MKEY: destroys a key.
    pub struct DestroyMkey[16] {
        /// Upper 24 bits of the key.
        mkey_index: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`DestroyMkey`].
    pub struct DestroyMkeyOut[16] {}
}
