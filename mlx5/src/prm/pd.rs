//! Commands that allocate and deallocate protection domains.

use super::layout::{command, response};

command! { ALLOC_PD -> AllocPdOut;
    /// ALLOC_PD: allocates a protection domain, within which queue pairs may use memory keys.
    pub struct AllocPd[16] {}
}

response! {
    /// The NIC's reply to [`AllocPd`], with the ID of the new protection domain.
    pub struct AllocPdOut[16] {
        /// ID of the new protection domain.
        pd: u32 = 0x48, 24;
    }
}

command! { DEALLOC_PD -> DeallocPdOut;
    /// DEALLOC_PD: deallocates a protection domain.
    pub struct DeallocPd[16] {
        /// ID of the protection domain.
        pd: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DeallocPd`]. It carries no data beyond its status.
    pub struct DeallocPdOut[16] {}
}
