//! Targets of dynamic connections. The initiators are queue pairs with service type
//! [`DCI`](super::qp::ServiceType::DCI).

use super::layout::{command, layout, numbers, response};
use super::qp::{AtomicMode, Mtu};

numbers! {
    /// State of a target.
    pub struct DctState(u8) {
        /// Accepts connections.
        ACTIVE = 0;
        /// Accepts no new connections; some are left.
        DRAINING = 1;
        /// Accepts no new connections; none are left.
        DRAINED = 2;
    }
}

layout! {
    /// Context of a target.
    pub struct DctContext[64] {
        /// Read back: state of the target.
        state: DctState = 0x004, 4;
        /// Firmware obeys the ordering bit instead of choosing itself.
        dp_ordering_force: bool = 0x027, 1;
        /// Software's own ID, carried in completions.
        user_index: u32 = 0x028, 24;
        /// CQN of the receive completion queue.
        cqn: u32 = 0x048, 24;
        /// ID of the counter set.
        counter_set_id: u8 = 0x060, 8;
        /// Which atomics the target executes.
        atomic_mode: AtomicMode = 0x068, 4;
        /// Remote read enable.
        rre: bool = 0x06c, 1;
        /// Remote write enable.
        rwe: bool = 0x06d, 1;
        /// Remote atomic enable.
        rae: bool = 0x06e, 1;
        /// Atomics are ordered like WRITEs.
        atomic_like_write_en: bool = 0x06f, 1;
        /// Latency matters more than throughput.
        latency_sensitive: bool = 0x070, 1;
        /// The reserved lkey may be used.
        rlky: bool = 0x071, 1;
        /// Adaptive routing.
        free_ar: bool = 0x072, 1;
        /// Packets of all messages may take any path.
        dp_ordering_1: bool = 0x074, 1;
        /// Received messages scattered into completions: 0 for none, 0x11 for up to 32 bytes, 0x22 for up to 64.
        cs_res: u8 = 0x088, 8;
        /// Minimum RNR timer, encoded.
        min_rnr_nak: u8 = 0x093, 5;
        /// Shared receive queue.
        srqn_xrqn: u32 = 0x0a8, 24;
        /// Protection domain.
        pd: u32 = 0x0c8, 24;
        /// Traffic class of responses.
        tclass: u8 = 0x0e0, 8;
        /// Flow label of responses.
        flow_label: u32 = 0x0ec, 20;
        /// Key that initiators must present.
        dc_access_key: u64 = 0x100, 64;
        /// Largest payload of a packet.
        mtu: Mtu = 0x145, 3;
        /// Port number, starting at 1.
        port: u8 = 0x148, 8;
        /// Index of the partition key.
        pkey_index: u16 = 0x150, 16;
        /// Index of the local address (GID).
        my_addr_index: u8 = 0x168, 8;
        /// Hop limit of responses.
        hop_limit: u8 = 0x178, 8;
        /// Read back: number of connections refused because of their key.
        dc_access_key_violation_count: u32 = 0x180, 32;
        /// VLAN drop eligibility.
        dei_cfi: bool = 0x1b4, 1;
        /// VLAN priority.
        eth_prio: u8 = 0x1b5, 3;
        /// Congestion bits of the IP header.
        ecn: u8 = 0x1b8, 2;
        /// Service bits of the IP header: traffic class / 4.
        dscp: u8 = 0x1ba, 6;
        /// Enhanced connection establishment options.
        ece: u32 = 0x1e0, 32;
    }
}

command! { CREATE_DCT -> CreateDctOut;
    /// CREATE_DCT: creates a target, ready for connections.
    pub struct CreateDct[128] {
        /// Context of the target.
        context: DctContext = 0x80, 512;
    }
}

response! {
    /// Output of [`CreateDct`].
    pub struct CreateDctOut[16] {
        /// DCTN of the new target, which initiators put into [`AvSeg::dqpn`](crate::av::AvSeg::dqpn).
        dctn: u32 = 0x48, 24;
        /// Enhanced connection establishment options in effect.
        ece: u32 = 0x60, 32;
    }
}

command! { DRAIN_DCT -> DrainDctOut;
    /// DRAIN_DCT: stops the target from accepting connections. An event reports when none are left.
    pub struct DrainDct[16] {
        /// DCTN of the target.
        dctn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`DrainDct`].
    pub struct DrainDctOut[16] {}
}

command! { QUERY_DCT -> QueryDctOut;
    /// QUERY_DCT: queries the context of a target.
    pub struct QueryDct[16] {
        /// DCTN of the target.
        dctn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`QueryDct`].
    pub struct QueryDctOut[128] {
        /// Context of the target.
        context: DctContext = 0x80, 512;
    }
}

command! { DESTROY_DCT -> DestroyDctOut;
    /// DESTROY_DCT: destroys a target and its connections.
    pub struct DestroyDct[16] {
        /// DCTN of the target.
        dctn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`DestroyDct`].
    pub struct DestroyDctOut[16] {}
}
