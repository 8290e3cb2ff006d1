//! Commands on doorbell (UAR) pages. On Linux, only the kernel issues them; user space requests pages from it.

use super::layout::{command, response};

command! { ALLOC_UAR -> AllocUarOut;
    /// ALLOC_UAR: allocates a doorbell (UAR) page.
    pub struct AllocUar[16] {}
}

response! {
    /// The NIC's reply to [`AllocUar`], with the index of the new page.
    pub struct AllocUarOut[16] {
        /// Index of the new UAR page, for QP and CQ contexts.
        uar: u32 = 0x48, 24;
    }
}

command! { DEALLOC_UAR -> DeallocUarOut;
    /// DEALLOC_UAR: deallocates a doorbell (UAR) page.
    pub struct DeallocUar[16] {
        /// Index of the UAR page.
        uar: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DeallocUar`]. It carries no data beyond its status.
    pub struct DeallocUarOut[16] {}
}
