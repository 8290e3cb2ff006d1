//! The network path from a queue pair to its peer.

use crate::prm::layout::layout;

layout! {
    /// The network path from a queue pair to its peer: port, addresses and header fields.
    ///
    /// On InfiniBand within a subnet, the fields in use are `rlid`, `sl`, `vhca_port_num` and `pkey_index`. On RoCE,
    /// they are `rmac`, `rgid_rip`, `src_addr_index`, `hop_limit`, `udp_sport`, `dscp` and `eth_prio`; `grh` stays
    /// false.
    pub struct AddressPath[44] {
        /// Forces loopback: packets return to this NIC without entering the network.
        fl: bool = 0x000, 1;
        /// Packets may take any route through the network (adaptive routing).
        free_ar: bool = 0x001, 1;
        /// Index of the partition key.
        pkey_index: u16 = 0x010, 16;
        /// Packets carry a global route header (InfiniBand only).
        grh: bool = 0x028, 1;
        /// Source path bits: the low bits of the local LID (InfiniBand only).
        mlid: u8 = 0x029, 7;
        /// LID of the peer.
        rlid: u16 = 0x030, 16;
        /// Acknowledgement timeout: 4.096 us * 2^value.
        ack_timeout: u8 = 0x040, 5;
        /// Index of the local address in the GID table.
        src_addr_index: u8 = 0x048, 8;
        /// Static rate limit, encoded as in the InfiniBand specification.
        stat_rate: u8 = 0x054, 4;
        /// Hop limit of the global route header or IP header.
        hop_limit: u8 = 0x058, 8;
        /// Traffic class of the global route header.
        tclass: u8 = 0x064, 8;
        /// Flow label of the global route header or IPv6 header.
        flow_label: u32 = 0x06c, 20;
        /// GID of the peer. On RoCE, an IPv6 or IPv4-mapped address.
        rgid_rip: [u8; 16] = 0x080, 128;
        /// Forces the value in `dscp`.
        f_dscp: bool = 0x104, 1;
        /// Forces the value in `ecn`.
        f_ecn: bool = 0x105, 1;
        /// Forces the value in `eth_prio`.
        f_eth_prio: bool = 0x107, 1;
        /// ECN bits of the IP header.
        ecn: u8 = 0x108, 2;
        /// DSCP bits of the IP header: the upper 6 bits of the traffic class.
        dscp: u8 = 0x10a, 6;
        /// UDP source port (RoCE v2).
        udp_sport: u16 = 0x110, 16;
        /// Drop-eligible bit of the VLAN tag.
        dei_cfi: bool = 0x120, 1;
        /// Priority in the VLAN tag.
        eth_prio: u8 = 0x121, 3;
        /// Service level (InfiniBand).
        sl: u8 = 0x124, 4;
        /// Port number, starting at 1.
        vhca_port_num: u8 = 0x128, 8;
        /// Ethernet address of the peer.
        rmac: [u8; 6] = 0x130, 48;
    }
}
