//! Targets of dynamic connections (DC): the context of a target and the commands on it. The initiators are queue pairs
//! with service type [`DCI`](super::qp::ServiceType::DCI).

use super::layout::{command, layout, numbers, response};
use super::qp::{AtomicMode, Mtu};

numbers! {
    /// Whether a DC target accepts connections.
    pub struct DctState(u8) {
        /// The target accepts connections.
        ACTIVE = 0;
        /// Draining: accepts no new connections, but some are still open.
        DRAINING = 1;
        /// Drained: accepts no new connections, and none are open.
        DRAINED = 2;
    }
}

layout! {
    /// The context of a DC target: who may connect, what they may do, and how it replies.
    pub struct DctContext[64] {
        /// Whether the target accepts connections. Only set in query results.
        state: DctState = 0x004, 4;
        /// Firmware obeys the bit `dp_ordering_1` instead of choosing the packet ordering itself.
        dp_ordering_force: bool = 0x027, 1;
        /// ID chosen by software, carried in the target's completions.
        user_index: u32 = 0x028, 24;
        /// CQN of the queue for receive completions.
        cqn: u32 = 0x048, 24;
        /// ID of the set of queue counters to update.
        counter_set_id: u8 = 0x060, 8;
        /// Which remote atomics the target executes.
        atomic_mode: AtomicMode = 0x068, 4;
        /// Allows initiators to read the target's memory.
        rre: bool = 0x06c, 1;
        /// Allows initiators to write the target's memory.
        rwe: bool = 0x06d, 1;
        /// Allows initiators to execute atomics on the target's memory.
        rae: bool = 0x06e, 1;
        /// Atomics are ordered like WRITEs.
        atomic_like_write_en: bool = 0x06f, 1;
        /// Optimises the target for latency rather than throughput.
        latency_sensitive: bool = 0x070, 1;
        /// Receive entries may use the reserved lkey.
        rlky: bool = 0x071, 1;
        /// Enables adaptive routing of packets.
        free_ar: bool = 0x072, 1;
        /// Packets of all messages may take any path.
        dp_ordering_1: bool = 0x074, 1;
        /// How much payload is scattered into completions: 0x11 for up to 32 bytes, 0x22 for up to 64, 0 for none.
        cs_res: u8 = 0x088, 8;
        /// Time that a sender must wait after a receiver-not-ready NAK, encoded.
        min_rnr_nak: u8 = 0x093, 5;
        /// Number of the shared receive queue that SENDs consume.
        srqn_xrqn: u32 = 0x0a8, 24;
        /// Protection domain of the target.
        pd: u32 = 0x0c8, 24;
        /// Traffic class of response packets.
        tclass: u8 = 0x0e0, 8;
        /// Flow label of response packets.
        flow_label: u32 = 0x0ec, 20;
        /// 64-bit key that initiators must present to connect.
        dc_access_key: u64 = 0x100, 64;
        /// Largest payload of a packet.
        mtu: Mtu = 0x145, 3;
        /// Port number, starting at 1.
        port: u8 = 0x148, 8;
        /// Index of the partition key.
        pkey_index: u16 = 0x150, 16;
        /// Index of the local address in the GID table.
        my_addr_index: u8 = 0x168, 8;
        /// Hop limit of response packets.
        hop_limit: u8 = 0x178, 8;
        /// Number of connections refused for a wrong access key. Only set in query results.
        dc_access_key_violation_count: u32 = 0x180, 32;
        /// Drop-eligible bit of the VLAN tag.
        dei_cfi: bool = 0x1b4, 1;
        /// Priority in the VLAN tag.
        eth_prio: u8 = 0x1b5, 3;
        /// ECN bits of the IP header.
        ecn: u8 = 0x1b8, 2;
        /// DSCP bits of the IP header: the upper 6 bits of the traffic class.
        dscp: u8 = 0x1ba, 6;
        /// Requested options of enhanced connection establishment (ECE).
        ece: u32 = 0x1e0, 32;
    }
}

command! { CREATE_DCT -> CreateDctOut;
    /// CREATE_DCT: creates a DC target that immediately accepts connections.
    pub struct CreateDct[128] {
        /// Settings of the new target.
        context: DctContext = 0x80, 512;
    }
}

response! {
    /// The NIC's reply to [`CreateDct`], with the new target's number (DCTN).
    pub struct CreateDctOut[16] {
        /// DC target number (DCTN) of the new target, which initiators put into [`AvSeg::dqpn`](crate::av::AvSeg::dqpn).
        dctn: u32 = 0x48, 24;
        /// Options of enhanced connection establishment (ECE) that the NIC accepted.
        ece: u32 = 0x60, 32;
    }
}

command! { DRAIN_DCT -> DrainDctOut;
    /// DRAIN_DCT: stops the target from accepting connections. The NIC raises an event when none are left.
    pub struct DrainDct[16] {
        /// DC target number (DCTN).
        dctn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DrainDct`]. It carries no data beyond its status.
    pub struct DrainDctOut[16] {}
}

command! { QUERY_DCT -> QueryDctOut;
    /// QUERY_DCT: queries the context of a DC target.
    pub struct QueryDct[16] {
        /// DC target number (DCTN).
        dctn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`QueryDct`], with the target's settings and state.
    pub struct QueryDctOut[128] {
        /// Settings and state of the target.
        context: DctContext = 0x80, 512;
    }
}

command! { DESTROY_DCT -> DestroyDctOut;
    /// DESTROY_DCT: destroys a DC target and its connections.
    pub struct DestroyDct[16] {
        /// DC target number (DCTN).
        dctn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyDct`]. It carries no data beyond its status.
    pub struct DestroyDctOut[16] {}
}
