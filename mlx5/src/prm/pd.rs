//! Protection domains.

use super::layout::{command, response};

command! { ALLOC_PD -> AllocPdOut;
    /// ALLOC_PD: makes a protection domain.
    pub struct AllocPd[16] {}
}

response! {
    /// Answer to [`AllocPd`].
    pub struct AllocPdOut[16] {
        /// Number of the protection domain.
        pd: u32 = 0x48, 24;
    }
}

command! { DEALLOC_PD -> DeallocPdOut;
    /// DEALLOC_PD: destroys a protection domain.
    pub struct DeallocPd[16] {
        /// Number of the protection domain.
        pd: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`DeallocPd`].
    pub struct DeallocPdOut[16] {}
}
