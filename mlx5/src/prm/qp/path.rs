//! The path to the peer.

use crate::prm::layout::layout;

layout! {
    /// Address path.
    ///
    /// On InfiniBand within a subnet: `rlid`, `sl`, `vhca_port_num`, `pkey_index`. On RoCE: `rmac`, `rgid_rip`,
    /// `src_addr_index`, `hop_limit`, `udp_sport`, `dscp`, `eth_prio`; `grh` stays false.
    pub struct AddressPath[44] {
        /// Force loopback.
        fl: bool = 0x000, 1;
        /// Adaptive routing is allowed.
        free_ar: bool = 0x001, 1;
        /// Index of the partition key.
        pkey_index: u16 = 0x010, 16;
        /// A global route header is sent (InfiniBand).
        grh: bool = 0x028, 1;
        /// Source path bits.
        mlid: u8 = 0x029, 7;
        /// LID of the peer.
        rlid: u16 = 0x030, 16;
        /// Acknowledgement timeout: 4.096 us * 2^value.
        ack_timeout: u8 = 0x040, 5;
        /// Index of the local address (GID).
        src_addr_index: u8 = 0x048, 8;
        /// Static rate.
        stat_rate: u8 = 0x054, 4;
        /// Hop limit.
        hop_limit: u8 = 0x058, 8;
        /// Traffic class.
        tclass: u8 = 0x064, 8;
        /// Flow label.
        flow_label: u32 = 0x06c, 20;
        /// GID of the peer. On RoCE, an IPv6 or IPv4-mapped address.
        rgid_rip: [u8; 16] = 0x080, 128;
        /// Force `dscp`.
        f_dscp: bool = 0x104, 1;
        /// Force `ecn`.
        f_ecn: bool = 0x105, 1;
        /// Force `eth_prio`.
        f_eth_prio: bool = 0x107, 1;
        /// Congestion bits of the IP header.
        ecn: u8 = 0x108, 2;
        /// Service bits of the IP header: traffic class / 4.
        dscp: u8 = 0x10a, 6;
        /// UDP source port (RoCE v2).
        udp_sport: u16 = 0x110, 16;
        /// VLAN drop eligibility.
        dei_cfi: bool = 0x120, 1;
        /// VLAN priority.
        eth_prio: u8 = 0x121, 3;
        /// Service level (InfiniBand).
        sl: u8 = 0x124, 4;
        /// Port number, starting at 1.
        vhca_port_num: u8 = 0x128, 8;
        /// Ethernet address of the peer.
        rmac: [u8; 6] = 0x130, 48;
    }
}
