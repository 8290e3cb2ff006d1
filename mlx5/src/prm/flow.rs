//! Flow tables, which steer received frames: tables of groups, whose entries match the same fields.

use super::Bytes;
use super::layout::{command, layout, numbers, response};

numbers! {
    /// Which frames a flow table steers.
    pub struct TableType(u8) {
        /// Frames that a function receives.
        NIC_RX = 0;
        /// Frames that a function sends.
        NIC_TX = 1;
    }
}

numbers! {
    /// What a table does with frames that no entry matches.
    pub struct MissAction(u8) {
        /// The default: frames are dropped.
        DEFAULT = 0;
        /// Frames go to another table.
        FORWARD = 1;
    }
}

layout! {
    /// The context of a flow table.
    pub struct FlowTableContext[40] {
        /// Entries may change the encapsulation of frames.
        reformat_en: bool = 0x000, 1;
        /// Entries may remove an encapsulation.
        decap_en: bool = 0x001, 1;
        /// Software, rather than firmware, writes the table.
        sw_owner: bool = 0x002, 1;
        /// What happens to frames that no entry matches.
        table_miss_action: MissAction = 0x004, 4;
        /// Level of the table. Entries forward to tables of higher levels.
        level: u8 = 0x008, 8;
        /// log2 of the number of entries.
        log_size: u8 = 0x018, 8;
        /// The table to which other frames go.
        table_miss_id: u32 = 0x028, 24;
    }
}

command! { CREATE_FLOW_TABLE -> CreateFlowTableOut;
    /// CREATE_FLOW_TABLE: creates a flow table without groups.
    pub struct CreateFlowTable[64] {
        /// The table is of another function, `vport_number`.
        other_vport: bool = 0x040, 1;
        /// Which frames the table steers.
        table_type: TableType = 0x080, 8;
        /// Settings.
        context: FlowTableContext = 0x0c0, 320;
    }
}

response! {
    /// The NIC's reply to [`CreateFlowTable`].
    pub struct CreateFlowTableOut[16] {
        /// ID of the new table.
        table_id: u32 = 0x48, 24;
    }
}

command! { DESTROY_FLOW_TABLE -> DestroyFlowTableOut;
    /// DESTROY_FLOW_TABLE: destroys a flow table.
    pub struct DestroyFlowTable[64] {
        /// The table is of another function.
        other_vport: bool = 0x040, 1;
        /// Which frames the table steers.
        table_type: TableType = 0x080, 8;
        /// ID of the table.
        table_id: u32 = 0x0a8, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyFlowTable`].
    pub struct DestroyFlowTableOut[16] {}
}

command! { MODIFY_FLOW_TABLE -> ModifyFlowTableOut;
    /// MODIFY_FLOW_TABLE: changes where frames go that no entry matches.
    pub struct ModifyFlowTable[64] {
        /// The table is of another function.
        other_vport: bool = 0x040, 1;
        /// What to change: [`ModifyFlowTable::MISS`].
        modify_field_select: u16 = 0x070, 16;
        /// Which frames the table steers.
        table_type: TableType = 0x080, 8;
        /// ID of the table.
        table_id: u32 = 0x0a8, 24;
        /// New settings.
        context: FlowTableContext = 0x0c0, 320;
    }
}

impl ModifyFlowTable {
    /// Bit of `modify_field_select`: `table_miss_action` and `table_miss_id`.
    pub const MISS: u16 = 1;
}

response! {
    /// The NIC's reply to [`ModifyFlowTable`].
    pub struct ModifyFlowTableOut[16] {}
}

command! { SET_FLOW_TABLE_ROOT -> SetFlowTableRootOut;
    /// SET_FLOW_TABLE_ROOT: sets the table with which steering starts.
    pub struct SetFlowTableRoot[64] {
        /// [`SetFlowTableRoot::DISCONNECT`], or 0.
        op_mod: u16 = 0x030, 16;
        /// The table is of another function.
        other_vport: bool = 0x040, 1;
        /// Which frames the table steers.
        table_type: TableType = 0x080, 8;
        /// ID of the table.
        table_id: u32 = 0x0a8, 24;
        /// QP whose frames are steered, on InfiniBand.
        underlay_qpn: u32 = 0x0c8, 24;
    }
}

impl SetFlowTableRoot {
    /// Value of `op_mod`: no table is the root any more.
    pub const DISCONNECT: u16 = 1;
}

response! {
    /// The NIC's reply to [`SetFlowTableRoot`].
    pub struct SetFlowTableRootOut[16] {}
}

/// The parts of `match_criteria`, as bits of `match_criteria_enable`.
pub mod criteria {
    /// The outer headers of a frame: [`Headers`](super::Headers).
    pub const OUTER_HEADERS: u8 = 1;
}

layout! {
    /// Fields of the headers of a frame, as flow tables match them. A mask has the same layout.
    pub struct Headers[64] {
        /// Source MAC address.
        smac: [u8; 6] = 0x000, 48;
        /// EtherType after VLAN tags.
        ethertype: u16 = 0x030, 16;
        /// Destination MAC address.
        dmac: [u8; 6] = 0x040, 48;
        /// Priority in the outermost VLAN tag.
        first_prio: u8 = 0x070, 3;
        /// Drop-eligible indicator in the outermost VLAN tag.
        first_cfi: bool = 0x073, 1;
        /// VLAN ID in the outermost VLAN tag.
        first_vid: u16 = 0x074, 12;
        /// Protocol above IP.
        ip_protocol: u8 = 0x080, 8;
        /// Differentiated services code point.
        ip_dscp: u8 = 0x088, 6;
        /// Explicit congestion notification.
        ip_ecn: u8 = 0x08e, 2;
        /// The outermost VLAN tag is a customer tag.
        cvlan_tag: bool = 0x090, 1;
        /// The outermost VLAN tag is a service tag.
        svlan_tag: bool = 0x091, 1;
        /// The frame has a fragment of an IP packet.
        frag: bool = 0x092, 1;
        /// Version of IP.
        ip_version: u8 = 0x093, 4;
        /// Flags of TCP.
        tcp_flags: u16 = 0x097, 9;
        /// Source port of TCP.
        tcp_sport: u16 = 0x0a0, 16;
        /// Destination port of TCP.
        tcp_dport: u16 = 0x0b0, 16;
        /// Time to live, or hop limit.
        ttl_hoplimit: u8 = 0x0d8, 8;
        /// Source port of UDP.
        udp_sport: u16 = 0x0e0, 16;
        /// Destination port of UDP.
        udp_dport: u16 = 0x0f0, 16;
        /// Source IP address. That of IPv4 is in the last 4 bytes.
        source_ip: [u8; 16] = 0x100, 128;
        /// Destination IP address. That of IPv4 is in the last 4 bytes.
        destination_ip: [u8; 16] = 0x180, 128;
    }
}

command! { CREATE_FLOW_GROUP -> CreateFlowGroupOut;
    /// CREATE_FLOW_GROUP: creates a group of entries of a table.
    pub struct CreateFlowGroup[1024] {
        /// The table is of another function.
        other_vport: bool = 0x040, 1;
        /// Which frames the table steers.
        table_type: TableType = 0x080, 8;
        /// Type of the group: 0 for a mask of the same size in each group.
        group_type: u8 = 0x08c, 4;
        /// ID of the table.
        table_id: u32 = 0x0a8, 24;
        /// First entry of the group.
        start_flow_index: u32 = 0x0e0, 32;
        /// Last entry of the group.
        end_flow_index: u32 = 0x120, 32;
        /// Which parts of `outer` and the other criteria are used, as bits of [`criteria`].
        match_criteria_enable: u8 = 0x1f8, 8;
        /// Mask of the outer headers.
        outer: Bytes<64> = 0x200, 512;
    }
}

response! {
    /// The NIC's reply to [`CreateFlowGroup`].
    pub struct CreateFlowGroupOut[16] {
        /// ID of the new group.
        group_id: u32 = 0x48, 24;
    }
}

command! { DESTROY_FLOW_GROUP -> DestroyFlowGroupOut;
    /// DESTROY_FLOW_GROUP: destroys a group and its entries.
    pub struct DestroyFlowGroup[64] {
        /// The table is of another function.
        other_vport: bool = 0x040, 1;
        /// Which frames the table steers.
        table_type: TableType = 0x080, 8;
        /// ID of the table.
        table_id: u32 = 0x0a8, 24;
        /// ID of the group.
        group_id: u32 = 0x0c0, 32;
    }
}

response! {
    /// The NIC's reply to [`DestroyFlowGroup`].
    pub struct DestroyFlowGroupOut[16] {}
}

layout! {
    /// What an entry matches, and what it does. The list of destinations follows it, then that of counters.
    pub struct FlowContext[768] {
        /// ID of the group.
        group_id: u32 = 0x020, 32;
        /// Number that completions of matching frames contain.
        flow_tag: u32 = 0x048, 24;
        /// What the entry does, as a union of [`FlowContext::ALLOW`] and the other constants.
        action: u16 = 0x070, 16;
        /// Destinations have 16 bytes.
        extended_destination: bool = 0x080, 1;
        /// Number of destinations.
        destination_list_size: u32 = 0x088, 24;
        /// Number of counters.
        flow_counter_list_size: u32 = 0x0a8, 24;
        /// Values of the outer headers.
        outer: Bytes<64> = 0x200, 512;
    }
}

impl FlowContext {
    /// Bit of `action`: the frame passes.
    pub const ALLOW: u16 = 1;
    /// Bit of `action`: the frame is dropped.
    pub const DROP: u16 = 1 << 1;
    /// Bit of `action`: the frame goes to the destinations.
    pub const FORWARD: u16 = 1 << 2;
    /// Bit of `action`: the frame is counted.
    pub const COUNT: u16 = 1 << 3;
}

numbers! {
    /// Kind of a destination.
    pub struct DestinationType(u8) {
        /// A function of the embedded switch.
        VPORT = 0;
        /// A flow table.
        FLOW_TABLE = 1;
        /// A TIR.
        TIR = 2;
    }
}

layout! {
    /// A destination of an entry.
    pub struct Destination[8] {
        /// Kind of the destination.
        destination_type: DestinationType = 0x00, 8;
        /// Number of the destination.
        destination_id: u32 = 0x08, 24;
    }
}

layout! {
    /// A counter of an entry.
    pub struct FlowCounter[8] {
        /// ID of the counter.
        flow_counter_id: u32 = 0x00, 32;
    }
}

command! { SET_FLOW_TABLE_ENTRY -> SetFlowTableEntryOut;
    /// SET_FLOW_TABLE_ENTRY: writes an entry of a table. Its destinations and counters follow the mailbox.
    pub struct SetFlowTableEntry[832] {
        /// [`SetFlowTableEntry::MODIFY`], or 0 for a new entry.
        op_mod: u16 = 0x030, 16;
        /// The table is of another function.
        other_vport: bool = 0x040, 1;
        /// Which frames the table steers.
        table_type: TableType = 0x080, 8;
        /// ID of the table.
        table_id: u32 = 0x0a8, 24;
        /// Entries may forward to tables of any level.
        ignore_flow_level: bool = 0x0c0, 1;
        /// What to change of an existing entry, as a union of [`SetFlowTableEntry::ACTION`] and the other constants.
        modify_enable_mask: u8 = 0x0d8, 8;
        /// Index of the entry.
        flow_index: u32 = 0x100, 32;
        /// The entry.
        context: FlowContext = 0x200, 6144;
    }
}

impl SetFlowTableEntry {
    /// Value of `op_mod`: the entry exists.
    pub const MODIFY: u16 = 1;
    /// Bit of `modify_enable_mask`: what the entry does.
    pub const ACTION: u8 = 1;
    /// Bit of `modify_enable_mask`: the flow tag.
    pub const FLOW_TAG: u8 = 1 << 1;
    /// Bit of `modify_enable_mask`: the destinations.
    pub const DESTINATIONS: u8 = 1 << 2;
    /// Bit of `modify_enable_mask`: the counters.
    pub const COUNTERS: u8 = 1 << 3;
}

response! {
    /// The NIC's reply to [`SetFlowTableEntry`].
    pub struct SetFlowTableEntryOut[16] {}
}

command! { DELETE_FLOW_TABLE_ENTRY -> DeleteFlowTableEntryOut;
    /// DELETE_FLOW_TABLE_ENTRY: deletes an entry of a table.
    pub struct DeleteFlowTableEntry[64] {
        /// The table is of another function.
        other_vport: bool = 0x040, 1;
        /// Which frames the table steers.
        table_type: TableType = 0x080, 8;
        /// ID of the table.
        table_id: u32 = 0x0a8, 24;
        /// Index of the entry.
        flow_index: u32 = 0x100, 32;
    }
}

response! {
    /// The NIC's reply to [`DeleteFlowTableEntry`].
    pub struct DeleteFlowTableEntryOut[16] {}
}

command! { ALLOC_FLOW_COUNTER -> AllocFlowCounterOut;
    /// ALLOC_FLOW_COUNTER: allocates a counter, or several in a row.
    pub struct AllocFlowCounter[16] {
        /// How many, in units of 128; 0 for one.
        flow_counter_bulk: u8 = 0x078, 8;
    }
}

response! {
    /// The NIC's reply to [`AllocFlowCounter`].
    pub struct AllocFlowCounterOut[16] {
        /// ID of the first new counter.
        flow_counter_id: u32 = 0x40, 32;
    }
}

command! { DEALLOC_FLOW_COUNTER -> DeallocFlowCounterOut;
    /// DEALLOC_FLOW_COUNTER: deallocates a counter.
    pub struct DeallocFlowCounter[16] {
        /// ID of the counter.
        flow_counter_id: u32 = 0x40, 32;
    }
}

response! {
    /// The NIC's reply to [`DeallocFlowCounter`].
    pub struct DeallocFlowCounterOut[16] {}
}

layout! {
    /// Number of frames, and of their bytes.
    pub struct TrafficCounter[16] {
        /// Number of frames.
        packets: u64 = 0x00, 64;
        /// Number of bytes.
        octets: u64 = 0x40, 64;
    }
}

command! { QUERY_FLOW_COUNTER -> QueryFlowCounterOut;
    /// QUERY_FLOW_COUNTER: reads a counter.
    pub struct QueryFlowCounter[32] {
        /// Whether to reset the counter.
        clear: bool = 0x0c0, 1;
        /// Number of counters, if they are several in a row.
        num_of_counters: u16 = 0x0d0, 16;
        /// ID of the counter.
        flow_counter_id: u32 = 0x0e0, 32;
    }
}

response! {
    /// The NIC's reply to [`QueryFlowCounter`] for one counter.
    pub struct QueryFlowCounterOut[32] {
        /// The counter.
        counter: TrafficCounter = 0x080, 128;
    }
}
