//! Layout and numbers of management datagrams (InfiniBand Architecture Specification, volume 1, chapters 13 to 15).

use super::MAD;

/// Byte offsets of fields.
pub mod at {
    /// Management class.
    pub const CLASS: usize = 1;
    /// Method.
    pub const METHOD: usize = 3;
    /// Status, of two bytes.
    pub const STATUS: usize = 4;
    /// Hop pointer of a directed route.
    pub const HOP_POINTER: usize = 6;
    /// Hop count of a directed route.
    pub const HOP_COUNT: usize = 7;
    /// Attribute, of two bytes.
    pub const ATTRIBUTE: usize = 16;
    /// Attribute modifier, of four bytes.
    pub const MODIFIER: usize = 20;
    /// Data of a datagram of subnet management.
    pub const DATA: usize = 64;
    /// Mask of the components that a datagram of subnet administration names, of eight bytes.
    pub const ADMIN_MASK: usize = 48;
    /// Data of a datagram of subnet administration.
    pub const ADMIN_DATA: usize = 56;
    /// Initial path of a directed route: the egress port at each node. The first byte is unused.
    pub const INITIAL_PATH: usize = 128;
}

/// Management classes.
pub mod class {
    /// Subnet management, routed by LID.
    pub const SUBNET: u8 = 0x01;
    /// Subnet administration.
    pub const ADMINISTRATION: u8 = 0x03;
    /// Performance management.
    pub const PERFORMANCE: u8 = 0x04;
    /// Subnet management, with a directed route.
    pub const SUBNET_DIRECTED: u8 = 0x81;
}

/// Methods.
pub mod method {
    /// Requests an attribute.
    pub const GET: u8 = 0x01;
    /// Sets an attribute.
    pub const SET: u8 = 0x02;
    /// Deletes a record.
    pub const DELETE: u8 = 0x15;
    /// Requests a table of records.
    pub const GET_TABLE: u8 = 0x12;
    /// Answers [`GET`] and [`SET`].
    pub const GET_RESPONSE: u8 = 0x81;

    /// Returns the method that answers another one.
    #[must_use]
    pub fn response(method: u8) -> u8 {
        if method == SET { GET_RESPONSE } else { method | 0x80 }
    }
}

/// Attributes of subnet management.
pub mod subnet_attribute {
    /// Description of the node.
    pub const NODE_DESCRIPTION: u16 = 0x10;
    /// NodeInfo.
    pub const NODE_INFO: u16 = 0x11;
    /// SwitchInfo.
    pub const SWITCH_INFO: u16 = 0x12;
    /// GUIDInfo.
    pub const GUID_INFO: u16 = 0x14;
    /// PortInfo.
    pub const PORT_INFO: u16 = 0x15;
    /// A block of the P_Key table.
    pub const PKEY_TABLE: u16 = 0x16;
    /// SMInfo.
    pub const SM_INFO: u16 = 0x20;
}

/// Attributes of subnet administration: records.
pub mod admin_attribute {
    /// ClassPortInfo.
    pub const CLASS_PORT_INFO: u16 = 0x01;
    /// NodeRecord.
    pub const NODE: u16 = 0x11;
    /// PortInfoRecord.
    pub const PORT_INFO: u16 = 0x12;
    /// SwitchInfoRecord.
    pub const SWITCH_INFO: u16 = 0x14;
    /// LinearForwardingTableRecord.
    pub const FORWARDING: u16 = 0x15;
    /// MulticastForwardingTableRecord.
    pub const MULTICAST_FORWARDING: u16 = 0x17;
    /// SMInfoRecord.
    pub const SM_INFO: u16 = 0x18;
    /// LinkRecord.
    pub const LINK: u16 = 0x20;
    /// GUIDInfoRecord.
    pub const GUID_INFO: u16 = 0x30;
    /// ServiceRecord.
    pub const SERVICE: u16 = 0x31;
    /// P_KeyTableRecord.
    pub const PKEY_TABLE: u16 = 0x33;
    /// PathRecord.
    pub const PATH: u16 = 0x35;
    /// MCMemberRecord.
    pub const MULTICAST_MEMBER: u16 = 0x38;
    /// InformInfoRecord.
    pub const INFORM_INFO: u16 = 0xf3;
}

/// Attributes of performance management.
pub mod performance_attribute {
    /// ClassPortInfo.
    pub const CLASS_PORT_INFO: u16 = 0x01;
    /// PortCounters.
    pub const PORT_COUNTERS: u16 = 0x12;
    /// PortCountersExtended.
    pub const PORT_COUNTERS_EXTENDED: u16 = 0x1d;
}

/// Status codes of responses.
pub mod status {
    /// The agent does not support the class.
    pub const UNSUPPORTED_CLASS: u16 = 0x04;
    /// The agent does not support the method.
    pub const UNSUPPORTED_METHOD: u16 = 0x08;
    /// The agent does not support the attribute with this method.
    pub const UNSUPPORTED_ATTRIBUTE: u16 = 0x0c;
    /// A field of the attribute or its modifier is invalid.
    pub const INVALID_VALUE: u16 = 0x1c;
    /// A request to subnet administration is incomplete or names something invalid.
    pub const INVALID_REQUEST: u16 = 0x0200;
    /// Subnet administration has no such records.
    pub const NO_RECORDS: u16 = 0x0300;
    /// Subnet administration has several records, and one was requested.
    pub const TOO_MANY_RECORDS: u16 = 0x0400;
    /// Direction bit of a directed route: a response.
    pub const RESPONSE: u16 = 1 << 15;
}

/// Returns the mask of the components that a datagram of subnet administration names.
#[must_use]
pub fn component_mask(mad: &[u8; MAD]) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|i| mad[at::ADMIN_MASK + i]))
}

/// Number of P_Keys in a block of the P_Key table.
pub const PKEYS_PER_BLOCK: usize = 32;

/// Bit of PortInfo's capability mask: extended link speeds are supported.
pub const HAS_EXTENDED_SPEEDS: u32 = 1 << 14;
