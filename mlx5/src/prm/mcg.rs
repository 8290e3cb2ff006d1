//! Commands that attach datagram QPs to multicast groups.

use super::layout::{command, response};

command! { ATTACH_TO_MCG -> AttachToMcgOut;
    /// ATTACH_TO_MCG: adds a QP to a multicast group, so that it receives what is sent to the group.
    pub struct AttachToMcg[32] {
        /// Number of the QP.
        qpn: u32 = 0x48, 24;
        /// GID of the group.
        multicast_gid: [u8; 16] = 0x80, 128;
    }
}

response! {
    /// The NIC's reply to [`AttachToMcg`]. It carries no data beyond its status.
    pub struct AttachToMcgOut[16] {}
}

command! { DETACH_FROM_MCG -> DetachFromMcgOut;
    /// DETACH_FROM_MCG: removes a QP from a multicast group.
    pub struct DetachFromMcg[32] {
        /// Number of the QP.
        qpn: u32 = 0x48, 24;
        /// GID of the group.
        multicast_gid: [u8; 16] = 0x80, 128;
    }
}

response! {
    /// The NIC's reply to [`DetachFromMcg`]. It carries no data beyond its status.
    pub struct DetachFromMcgOut[16] {}
}
