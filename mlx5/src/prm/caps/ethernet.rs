//! Capabilities of Ethernet ports: offloads, and flow tables.

use crate::prm::layout::{layout, numbers};

numbers! {
    /// Which headers of a sent frame must be inline.
    pub struct InlineMode(u8) {
        /// That of layer 2.
        L2 = 0;
        /// Those that the context of the virtual port names.
        VPORT_CONTEXT = 1;
        /// None.
        NOT_REQUIRED = 2;
    }
}

layout! {
    /// Offloads for Ethernet frames, [`CapType::ETHERNET_OFFLOADS`](super::CapType::ETHERNET_OFFLOADS).
    pub struct EthernetCaps[256] {
        /// Checksums are computed and checked.
        csum_cap: bool = 0x000, 1;
        /// VLAN tags of received frames are removed.
        vlan_cap: bool = 0x001, 1;
        /// Received segments are merged.
        lro_cap: bool = 0x002, 1;
        /// VLAN tags are inserted into sent frames.
        wqe_vlan_insert: bool = 0x007, 1;
        /// The self-loopback setting of a TIR can be modified.
        self_lb_en_modifiable: bool = 0x008, 1;
        /// log2 of the maximum length of data that is sent as several segments.
        max_lso_cap: u8 = 0x00b, 5;
        /// Which headers must be inline.
        wqe_inline_mode: InlineMode = 0x012, 2;
        /// log2 of the maximum number of receive queues in a table.
        rss_ind_tbl_cap: u8 = 0x014, 4;
        /// The checksum in a completion includes padding.
        cqe_checksum_full: bool = 0x023, 1;
    }
}

layout! {
    /// Fields that entries of a flow table can match.
    pub struct MatchFields[16] {
        /// Destination MAC address.
        outer_dmac: bool = 0x00, 1;
        /// Source MAC address.
        outer_smac: bool = 0x01, 1;
        /// EtherType.
        outer_ether_type: bool = 0x02, 1;
        /// Version of IP.
        outer_ip_version: bool = 0x03, 1;
        /// Priority of a VLAN tag.
        outer_first_prio: bool = 0x04, 1;
        /// Drop-eligible indicator of a VLAN tag.
        outer_first_cfi: bool = 0x05, 1;
        /// VLAN ID.
        outer_first_vid: bool = 0x06, 1;
        /// Time to live.
        outer_ipv4_ttl: bool = 0x07, 1;
        /// Source IP address.
        outer_sip: bool = 0x0c, 1;
        /// Destination IP address.
        outer_dip: bool = 0x0d, 1;
        /// Fragments.
        outer_frag: bool = 0x0e, 1;
        /// Protocol above IP.
        outer_ip_protocol: bool = 0x0f, 1;
        /// Explicit congestion notification.
        outer_ip_ecn: bool = 0x10, 1;
        /// Differentiated services code point.
        outer_ip_dscp: bool = 0x11, 1;
        /// Source port of UDP.
        outer_udp_sport: bool = 0x12, 1;
        /// Destination port of UDP.
        outer_udp_dport: bool = 0x13, 1;
        /// Source port of TCP.
        outer_tcp_sport: bool = 0x14, 1;
        /// Destination port of TCP.
        outer_tcp_dport: bool = 0x15, 1;
        /// Flags of TCP.
        outer_tcp_flags: bool = 0x16, 1;
    }
}

impl MatchFields {
    /// All fields of the outer headers.
    pub const OUTER: Self = Self {
        outer_dmac: true,
        outer_smac: true,
        outer_ether_type: true,
        outer_ip_version: true,
        outer_first_prio: true,
        outer_first_cfi: true,
        outer_first_vid: true,
        outer_ipv4_ttl: true,
        outer_sip: true,
        outer_dip: true,
        outer_frag: true,
        outer_ip_protocol: true,
        outer_ip_ecn: true,
        outer_ip_dscp: true,
        outer_udp_sport: true,
        outer_udp_dport: true,
        outer_tcp_sport: true,
        outer_tcp_dport: true,
        outer_tcp_flags: true,
    };
}

layout! {
    /// What flow tables of one type can do.
    pub struct FlowTableProperties[64] {
        /// Flow tables are supported.
        ft_support: bool = 0x000, 1;
        /// Entries can count frames.
        flow_counter: bool = 0x002, 1;
        /// Entries can be modified.
        flow_modify_en: bool = 0x003, 1;
        /// The root table can be replaced.
        modify_root: bool = 0x004, 1;
        /// A table can name where frames go that no entry matches.
        identified_miss_table_mode: bool = 0x005, 1;
        /// Tables can be modified.
        flow_table_modify: bool = 0x006, 1;
        /// log2 of the maximum number of entries of a table.
        log_max_ft_size: u8 = 0x022, 6;
        /// Number of levels.
        max_ft_level: u8 = 0x038, 8;
        /// log2 of the maximum number of tables.
        log_max_ft_num: u8 = 0x078, 8;
        /// log2 of the maximum number of counters.
        log_max_flow_counter: u8 = 0x090, 8;
        /// log2 of the maximum number of destinations of an entry.
        log_max_destination: u8 = 0x098, 8;
        /// log2 of the maximum number of entries of all tables.
        log_max_flow: u8 = 0x0b8, 8;
        /// Fields that can be matched.
        ft_field_support: MatchFields = 0x100, 128;
        /// Fields that can be matched under a mask.
        ft_field_bitmask_support: MatchFields = 0x180, 128;
    }
}

layout! {
    /// Flow tables of a function, [`CapType::NIC_FLOW_TABLE`](super::CapType::NIC_FLOW_TABLE).
    pub struct FlowTableCaps[512] {
        /// Tables for received frames.
        receive: FlowTableProperties = 0x200, 512;
    }
}
