//! Commands that allocate and deallocate protection domains.

use super::layout::{command, response};

command! { ALLOC_PD -> AllocPdOut;
    /// ALLOC_PD: allocates a protection domain.
    pub struct AllocPd[16] {}
}

response! {
    /// Output of [`AllocPd`].
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
    /// Output of [`DeallocPd`].
    pub struct DeallocPdOut[16] {}
}
