//! Commands for user contexts. On Linux, only the kernel issues them: it puts the ID of a program's context into the
//! header of each command that it passes through DevX, so the NIC keeps programs apart.

use super::layout::{command, response};

command! { CREATE_UCTX -> CreateUctxOut;
    /// CREATE_UCTX: creates a user context.
    pub struct CreateUctx[64] {
        /// Bit mask of the rights that the context has beyond those of any program.
        cap: u32 = 0x80, 32;
    }
}

response! {
    /// The NIC's reply to [`CreateUctx`], with the ID of the new context.
    pub struct CreateUctxOut[16] {
        /// ID of the new context, for [`Header::uid`](super::Header::uid).
        uid: u16 = 0x50, 16;
    }
}

command! { DESTROY_UCTX -> DestroyUctxOut;
    /// DESTROY_UCTX: destroys a user context.
    pub struct DestroyUctx[16] {
        /// ID of the context.
        destroyed: u16 = 0x50, 16;
    }
}

response! {
    /// The NIC's reply to [`DestroyUctx`]. It carries no data beyond its status.
    pub struct DestroyUctxOut[16] {}
}
