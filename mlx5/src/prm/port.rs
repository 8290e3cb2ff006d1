//! Commands for the port of a function: its InfiniBand state and tables, its access registers, and its
//! management agents.

use super::Bytes;
use super::layout::{command, layout, numbers, response};

numbers! {
    /// State of a port, as defined by the InfiniBand specification.
    pub struct PortState(u8) {
        /// The link is down.
        DOWN = 1;
        /// The port carries data.
        ACTIVE = 4;
    }
}

numbers! {
    /// Physical state of a port, as defined by the InfiniBand specification.
    pub struct PhysState(u8) {
        /// Searching for a peer.
        POLLING = 2;
        /// The link is up.
        LINK_UP = 5;
    }
}

layout! {
    /// The InfiniBand port of a function.
    pub struct HcaVportContext[512] {
        /// Which of the GUIDs and the state policy are changed, as a bit mask.
        field_select: u32 = 0x000, 32;
        /// The function has a QP 0.
        has_smi: bool = 0x101, 1;
        /// Paths need global routing headers.
        grh_required: bool = 0x103, 1;
        /// Physical state of the port.
        port_physical_state: PhysState = 0x110, 4;
        /// State of the physical port.
        port_state: PortState = 0x118, 4;
        /// State of the function's virtual port.
        vport_state: PortState = 0x11c, 4;
        /// GUID of the system that the NIC belongs to.
        system_image_guid: u64 = 0x140, 64;
        /// GUID of the port.
        port_guid: u64 = 0x180, 64;
        /// GUID of the node.
        node_guid: u64 = 0x1c0, 64;
        /// Capability mask of PortInfo.
        cap_mask1: u32 = 0x200, 32;
        /// Bits of `cap_mask1` that can be changed, or that are changed.
        cap_mask1_field_select: u32 = 0x220, 32;
        /// Second capability mask of PortInfo.
        cap_mask2: u32 = 0x240, 32;
        /// LID of the port.
        lid: u16 = 0x300, 16;
        /// LID mask control: log2 of how many LIDs the port has.
        lmc: u8 = 0x318, 3;
        /// Longest response time of the subnet, encoded.
        subnet_timeout: u8 = 0x31b, 5;
        /// LID of the subnet manager.
        sm_lid: u16 = 0x320, 16;
        /// Service level towards the subnet manager.
        sm_sl: u8 = 0x330, 4;
        /// Number of datagrams dropped because of their Q_Key.
        qkey_violation_counter: u16 = 0x340, 16;
        /// Number of packets dropped because of their P_Key.
        pkey_violation_counter: u16 = 0x350, 16;
    }
}

command! { QUERY_HCA_VPORT_CONTEXT -> QueryHcaVportContextOut;
    /// QUERY_HCA_VPORT_CONTEXT: queries an InfiniBand port.
    pub struct QueryHcaVportContext[16] {
        /// The port of another function, `vport_number`, is queried.
        other_vport: bool = 0x40, 1;
        /// Port number, starting at 1.
        port_num: u8 = 0x4c, 4;
        /// Number of the function, if it is another.
        vport_number: u16 = 0x50, 16;
    }
}

response! {
    /// The NIC's reply to [`QueryHcaVportContext`].
    pub struct QueryHcaVportContextOut[528] {
        /// The port.
        context: HcaVportContext = 0x80, 4096;
    }
}

command! { MODIFY_HCA_VPORT_CONTEXT -> ModifyHcaVportContextOut;
    /// MODIFY_HCA_VPORT_CONTEXT: changes an InfiniBand port.
    pub struct ModifyHcaVportContext[528] {
        /// The port of another function, `vport_number`, is changed.
        other_vport: bool = 0x40, 1;
        /// Port number, starting at 1.
        port_num: u8 = 0x4c, 4;
        /// Number of the function, if it is another.
        vport_number: u16 = 0x50, 16;
        /// The new values.
        context: HcaVportContext = 0x80, 4096;
    }
}

response! {
    /// The NIC's reply to [`ModifyHcaVportContext`]. It carries no data beyond its status.
    pub struct ModifyHcaVportContextOut[16] {}
}

command! { QUERY_HCA_VPORT_GID -> QueryHcaVportGidOut;
    /// QUERY_HCA_VPORT_GID: queries an entry of the GID table of an InfiniBand port, or the whole table.
    pub struct QueryHcaVportGid[16] {
        /// The port of another function, `vport_number`, is queried.
        other_vport: bool = 0x40, 1;
        /// Port number, starting at 1.
        port_num: u8 = 0x4c, 4;
        /// Number of the function, if it is another.
        vport_number: u16 = 0x50, 16;
        /// Index of the entry, or [`TABLE`].
        gid_index: u16 = 0x70, 16;
    }
}

/// Index that queries a whole table.
pub const TABLE: u16 = 0xffff;

response! {
    /// The NIC's reply to [`QueryHcaVportGid`] for one entry.
    pub struct QueryHcaVportGidOut[32] {
        /// Number of returned GIDs.
        gids_num: u16 = 0x60, 16;
        /// The GID.
        gid: [u8; 16] = 0x80, 128;
    }
}

command! { QUERY_HCA_VPORT_PKEY -> QueryHcaVportPkeyOut;
    /// QUERY_HCA_VPORT_PKEY: queries an entry of the P_Key table of an InfiniBand port, or the whole table.
    pub struct QueryHcaVportPkey[16] {
        /// The port of another function, `vport_number`, is queried.
        other_vport: bool = 0x40, 1;
        /// Port number, starting at 1.
        port_num: u8 = 0x4c, 4;
        /// Number of the function, if it is another.
        vport_number: u16 = 0x50, 16;
        /// Index of the entry, or [`TABLE`].
        pkey_index: u16 = 0x70, 16;
    }
}

response! {
    /// The NIC's reply to [`QueryHcaVportPkey`] for one entry.
    pub struct QueryHcaVportPkeyOut[20] {
        /// The P_Key.
        pkey: u16 = 0x90, 16;
    }
}

numbers! {
    /// An access register, which ACCESS_REG reads or writes.
    pub struct RegisterId(u16) {
        /// MTU of a port: [`Pmtu`].
        PMTU = 0x5003;
        /// Types and speeds of a port: [`Ptys`].
        PTYS = 0x5004;
        /// State of a port: [`Paos`](super::registers::Paos).
        PAOS = 0x5006;
        /// Flow control of a port: [`Pfcc`](super::registers::Pfcc).
        PFCC = 0x5007;
        /// Counters of a port: [`Ppcnt`](super::registers::Ppcnt).
        PPCNT = 0x5008;
        /// Virtual lanes of a port: [`Pvlc`].
        PVLC = 0x500f;
        /// Description of the node: [`NodeDescription`].
        NODE_DESC = 0x6001;
        /// Byte order of the host: [`HostEndianness`].
        HOST_ENDIANNESS = 0x7004;
    }
}

command! { ACCESS_REG -> AccessRegOut;
    /// ACCESS_REG: reads or writes an access register, whose contents follow the mailbox and the reply.
    pub struct AccessReg[16] {
        /// [`AccessReg::READ`] or [`AccessReg::WRITE`].
        op_mod: u16 = 0x30, 16;
        /// The register.
        register_id: RegisterId = 0x50, 16;
        /// Argument of the register.
        argument: u32 = 0x60, 32;
    }
}

impl AccessReg {
    /// Value of `op_mod` that reads the register.
    pub const READ: u16 = 1;
    /// Value of `op_mod` that writes the register.
    pub const WRITE: u16 = 0;
}

response! {
    /// The NIC's reply to [`AccessReg`]. The contents of the register follow it.
    pub struct AccessRegOut[16] {}
}

layout! {
    /// Register of the types and speeds of a port. Each is a bit mask.
    pub struct Ptys[64] {
        /// Port number, starting at 1.
        local_port: u8 = 0x008, 8;
        /// Which protocol is queried, as a bit mask: [`Ptys::IB`], [`Ptys::ETHERNET`].
        proto_mask: u8 = 0x01d, 3;
        /// Supported speeds of an Ethernet link.
        eth_proto_capability: u32 = 0x060, 32;
        /// Supported widths of an InfiniBand link.
        ib_link_width_capability: u16 = 0x080, 16;
        /// Supported speeds of an InfiniBand link.
        ib_proto_capability: u16 = 0x090, 16;
        /// Enabled speeds of an Ethernet link.
        eth_proto_admin: u32 = 0x0c0, 32;
        /// Enabled widths of an InfiniBand link.
        ib_link_width_admin: u16 = 0x0e0, 16;
        /// Enabled speeds of an InfiniBand link.
        ib_proto_admin: u16 = 0x0f0, 16;
        /// Active speed of an Ethernet link.
        eth_proto_oper: u32 = 0x120, 32;
        /// Active width of an InfiniBand link.
        ib_link_width_oper: u16 = 0x140, 16;
        /// Active speed of an InfiniBand link.
        ib_proto_oper: u16 = 0x150, 16;
    }
}

impl Ptys {
    /// Bit of `proto_mask`: InfiniBand.
    pub const IB: u8 = 1;
    /// Bit of `proto_mask`: Ethernet.
    pub const ETHERNET: u8 = 1 << 2;
    /// Bit of a speed of Ethernet: 100 Gb/s over four copper lanes.
    pub const CR4_100G: u32 = 1 << 20;
    /// Bit of a link width: four lanes.
    pub const WIDTH_4X: u16 = 4;
    /// Bit of a link speed: NDR, 100 Gb/s per lane.
    pub const NDR: u16 = 1 << 7;
}

layout! {
    /// Register of the MTU of a port, in bytes.
    pub struct Pmtu[16] {
        /// Port number, starting at 1.
        local_port: u8 = 0x08, 8;
        /// Largest MTU that the port supports.
        max_mtu: u16 = 0x20, 16;
        /// MTU that the driver has set.
        admin_mtu: u16 = 0x40, 16;
        /// MTU in effect.
        oper_mtu: u16 = 0x60, 16;
    }
}

layout! {
    /// Register of the virtual lanes of a port. Each field is encoded as in PortInfo.
    pub struct Pvlc[16] {
        /// Port number, starting at 1.
        local_port: u8 = 0x08, 8;
        /// Virtual lanes that the port supports.
        vl_hw_cap: u8 = 0x3c, 4;
        /// Virtual lanes that are enabled.
        vl_admin: u8 = 0x5c, 4;
        /// Virtual lanes in use.
        vl_operational: u8 = 0x7c, 4;
    }
}

layout! {
    /// Register of the description of the node.
    pub struct NodeDescription[64] {
        /// The text, padded with zeros.
        text: Bytes<64> = 0x00, 512;
    }
}

layout! {
    /// Register of the byte order of the host.
    pub struct HostEndianness[16] {
        /// The byte order, which Linux sets on hosts of either order.
        he: bool = 0x00, 1;
    }
}

command! { MAD_IFC -> MadIfcOut;
    /// MAD_IFC: passes a management datagram to the agents of the NIC.
    pub struct MadIfc[272] {
        /// Bit mask of the checks of management keys that are disabled.
        op_mod: u16 = 0x30, 16;
        /// LID that the datagram came from.
        remote_lid: u16 = 0x40, 16;
        /// Port at which it arrived.
        port: u8 = 0x58, 8;
        /// The datagram.
        mad: Bytes<256> = 0x80, 2048;
    }
}

response! {
    /// The NIC's reply to [`MadIfc`].
    pub struct MadIfcOut[272] {
        /// The response of the agent.
        mad: Bytes<256> = 0x80, 2048;
    }
}
