//! Doorbell pages. On Linux the kernel alone issues these commands; user space asks it for a page.

use super::layout::{command, response};

command! { ALLOC_UAR -> AllocUarOut;
    /// ALLOC_UAR: makes a doorbell page.
    pub struct AllocUar[16] {}
}

response! {
    /// Answer to [`AllocUar`].
    pub struct AllocUarOut[16] {
        /// Number of the page, for QP and CQ contexts.
        uar: u32 = 0x48, 24;
    }
}

command! { DEALLOC_UAR -> DeallocUarOut;
    /// DEALLOC_UAR: destroys a doorbell page.
    pub struct DeallocUar[16] {
        /// Number of the page.
        uar: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`DeallocUar`].
    pub struct DeallocUarOut[16] {}
}
