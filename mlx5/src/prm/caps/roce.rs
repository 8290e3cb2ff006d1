//! RoCE capabilities, and the table of a NIC's local RoCE addresses.

use crate::prm::layout::{command, layout, numbers, response};

layout! {
    /// Support for RoCE, [`CapType::ROCE`](super::CapType::ROCE).
    pub struct RoceCap[256] {
        /// Software may choose the UDP source port of RoCE v2 packets.
        sw_r_roce_src_udp_port: bool = 0x004, 1;
        /// Connections may force loopback while RoCE is off.
        fl_rc_qp_when_roce_disabled: bool = 0x005, 1;
        /// Connections may force loopback while RoCE is on.
        fl_rc_qp_when_roce_enabled: bool = 0x006, 1;
        /// Supported timestamp formats of QPs: 0 is free-running, 1 is real time, 2 is both.
        qp_ts_format: u8 = 0x01e, 2;
        /// Network layers of RoCE addresses, as a bit mask.
        l3_type: u8 = 0x08c, 4;
        /// Versions of RoCE, as a bit mask: bit 0 is version 1, bit 2 is version 2.
        roce_version: u8 = 0x098, 8;
        /// UDP destination port of RoCE v2 packets.
        r_roce_dest_udp_port: u16 = 0x0b0, 16;
        /// Highest UDP source port that RoCE v2 packets may use.
        r_roce_max_src_udp_port: u16 = 0x0c0, 16;
        /// Lowest UDP source port that RoCE v2 packets may use.
        r_roce_min_src_udp_port: u16 = 0x0d0, 16;
        /// Number of entries in the table of local RoCE addresses (GIDs).
        roce_address_table_size: u16 = 0x0f0, 16;
    }
}

numbers! {
    /// Version of RoCE, which determines what encapsulates the InfiniBand transport header.
    pub struct RoceVersion(u8) {
        /// RoCE v1: directly over Ethernet.
        V1 = 0;
        /// RoCE v1.5: over IP.
        V1_5 = 1;
        /// RoCE v2: over UDP.
        V2 = 2;
    }
}

layout! {
    /// A local RoCE address: an entry of the NIC's GID table.
    pub struct RoceAddr[32] {
        /// GID: an IPv6 or IPv4-mapped address.
        source_l3_address: [u8; 16] = 0x00, 128;
        /// Packets from this address carry a VLAN tag.
        vlan_valid: bool = 0x83, 1;
        /// VLAN ID, meaningful if `vlan_valid` is set.
        vlan_id: u16 = 0x84, 12;
        /// Ethernet address that packets are sent from.
        source_mac: [u8; 6] = 0x90, 48;
        /// Network layer of the address: 0 is IPv4, 1 is IPv6.
        roce_l3_type: u8 = 0xd4, 4;
        /// RoCE version of packets from this address.
        roce_version: RoceVersion = 0xd8, 8;
    }
}

command! { QUERY_ROCE_ADDRESS -> QueryRoceAddressOut;
    /// QUERY_ROCE_ADDRESS: queries an entry of the NIC's table of local RoCE addresses.
    pub struct QueryRoceAddress[16] {
        /// Index of the table entry to query.
        roce_address_index: u16 = 0x40, 16;
        /// Port whose table is queried, from 1.
        vhca_port_num: u8 = 0x5c, 4;
    }
}

response! {
    /// The NIC's reply to [`QueryRoceAddress`], with the queried RoCE address.
    pub struct QueryRoceAddressOut[48] {
        /// The RoCE address in the queried entry.
        address: RoceAddr = 0x80, 256;
    }
}

command! { SET_ROCE_ADDRESS -> SetRoceAddressOut;
    /// SET_ROCE_ADDRESS: sets or clears an entry of the NIC's table of local RoCE addresses.
    pub struct SetRoceAddress[48] {
        /// Index of the table entry.
        roce_address_index: u16 = 0x40, 16;
        /// Port whose table is changed, from 1.
        vhca_port_num: u8 = 0x5c, 4;
        /// The new entry; zero clears it.
        address: RoceAddr = 0x80, 256;
    }
}

response! {
    /// The NIC's reply to [`SetRoceAddress`].
    pub struct SetRoceAddressOut[16] {}
}
