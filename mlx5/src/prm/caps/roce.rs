//! RoCE: capabilities and the address table.

use crate::prm::layout::{command, layout, numbers, response};

layout! {
    /// RoCE capabilities.
    pub struct RoceCap[256] {
        /// Software may choose the UDP source port.
        sw_r_roce_src_udp_port: bool = 0x004, 1;
        /// Connections may force loopback while RoCE is off.
        fl_rc_qp_when_roce_disabled: bool = 0x005, 1;
        /// Connections may force loopback while RoCE is on.
        fl_rc_qp_when_roce_enabled: bool = 0x006, 1;
        /// Supported formats of timestamps.
        qp_ts_format: u8 = 0x01e, 2;
        /// UDP destination port.
        r_roce_dest_udp_port: u16 = 0x0b0, 16;
        /// Highest UDP source port.
        r_roce_max_src_udp_port: u16 = 0x0c0, 16;
        /// Lowest UDP source port.
        r_roce_min_src_udp_port: u16 = 0x0d0, 16;
        /// Number of entries of the address table.
        roce_address_table_size: u16 = 0x0f0, 16;
    }
}

numbers! {
    /// Version of the RoCE protocol.
    pub struct RoceVersion(u8) {
        /// Over Ethernet.
        V1 = 0;
        /// Over IP.
        V1_5 = 1;
        /// Over UDP.
        V2 = 2;
    }
}

layout! {
    /// An entry of the address table.
    pub struct RoceAddr[32] {
        /// GID: an IPv6 or IPv4-mapped address.
        source_l3_address: [u8; 16] = 0x00, 128;
        /// Packets carry a VLAN tag.
        vlan_valid: bool = 0x83, 1;
        /// VLAN ID.
        vlan_id: u16 = 0x84, 12;
        /// Ethernet address.
        source_mac: [u8; 6] = 0x90, 48;
        /// 0 is IPv4, 1 is IPv6.
        roce_l3_type: u8 = 0xd4, 4;
        /// RoCE version of the address.
        roce_version: RoceVersion = 0xd8, 8;
    }
}

command! { QUERY_ROCE_ADDRESS -> QueryRoceAddressOut;
    /// QUERY_ROCE_ADDRESS: queries an entry of the address table.
    pub struct QueryRoceAddress[16] {
        /// Index of the entry.
        roce_address_index: u16 = 0x40, 16;
        /// Port number.
        vhca_port_num: u8 = 0x5c, 4;
    }
}

response! {
    /// Output of [`QueryRoceAddress`].
    pub struct QueryRoceAddressOut[48] {
        /// The contents of the entry.
        address: RoceAddr = 0x80, 256;
    }
}
