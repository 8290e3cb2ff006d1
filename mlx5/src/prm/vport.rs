//! The virtual port by which a function sends and receives Ethernet frames.

use super::flow::TrafficCounter;
use super::layout::{command, layout, numbers, response};

numbers! {
    /// State of a virtual port.
    pub struct VportState(u8) {
        /// The link is down.
        DOWN = 0;
        /// The port carries frames.
        UP = 1;
        /// The port follows the physical port. Only as administrative state.
        FOLLOW = 2;
    }
}

command! { QUERY_VPORT_STATE -> QueryVportStateOut;
    /// QUERY_VPORT_STATE: queries whether the port carries frames.
    pub struct QueryVportState[16] {
        /// Kind of the port: 0 for that of a function.
        op_mod: u16 = 0x30, 16;
        /// The port is that of another function.
        other_vport: bool = 0x40, 1;
    }
}

response! {
    /// The NIC's reply to [`QueryVportState`].
    pub struct QueryVportStateOut[16] {
        /// State that an administrator has set.
        admin_state: VportState = 0x78, 4;
        /// State of the link.
        state: VportState = 0x7c, 4;
    }
}

numbers! {
    /// Kind of a list of addresses.
    pub struct ListType(u8) {
        /// Unicast MAC addresses.
        UNICAST = 0;
        /// Multicast MAC addresses.
        MULTICAST = 1;
        /// VLAN IDs.
        VLAN = 2;
    }
}

layout! {
    /// The port of a function. A list of addresses, 8 bytes each, follows it.
    pub struct NicVportContext[256] {
        /// How many headers of each sent frame must be inline, encoded.
        min_wqe_inline_mode: u8 = 0x005, 3;
        /// Multicast frames are not looped back.
        disable_mc_local_lb: bool = 0x01d, 1;
        /// Unicast frames are not looped back.
        disable_uc_local_lb: bool = 0x01e, 1;
        /// RoCE is on.
        roce_en: bool = 0x01f, 1;
        /// The NIC reports changes by an event.
        arm_change_event: bool = 0x020, 1;
        /// Maximum length of a frame, in bytes.
        mtu: u16 = 0x130, 16;
        /// GUID of the system that the NIC belongs to.
        system_image_guid: u64 = 0x140, 64;
        /// GUID of the port.
        port_guid: u64 = 0x180, 64;
        /// GUID of the node.
        node_guid: u64 = 0x1c0, 64;
        /// Number of datagrams dropped because of their Q_Key.
        qkey_violation_counter: u16 = 0x340, 16;
        /// The port receives all unicast frames.
        promisc_uc: bool = 0x780, 1;
        /// The port receives all multicast frames.
        promisc_mc: bool = 0x781, 1;
        /// The port receives all frames.
        promisc_all: bool = 0x782, 1;
        /// Kind of the list.
        allowed_list_type: ListType = 0x785, 3;
        /// Number of addresses in the list.
        allowed_list_size: u16 = 0x794, 12;
        /// MAC address of the port.
        permanent_address: [u8; 6] = 0x7b0, 48;
    }
}

command! { QUERY_NIC_VPORT_CONTEXT -> QueryNicVportContextOut;
    /// QUERY_NIC_VPORT_CONTEXT: queries the port of a function.
    pub struct QueryNicVportContext[16] {
        /// The port is that of another function.
        other_vport: bool = 0x40, 1;
        /// List of addresses that the answer includes.
        allowed_list_type: ListType = 0x65, 3;
    }
}

response! {
    /// The NIC's reply to [`QueryNicVportContext`]. The list of addresses follows it.
    pub struct QueryNicVportContextOut[272] {
        /// The port.
        context: NicVportContext = 0x80, 2048;
    }
}

command! { MODIFY_NIC_VPORT_CONTEXT -> ModifyNicVportContextOut;
    /// MODIFY_NIC_VPORT_CONTEXT: changes the port of a function. A list of addresses follows the mailbox.
    pub struct ModifyNicVportContext[512] {
        /// The port is that of another function.
        other_vport: bool = 0x40, 1;
        /// Whether to set which unicast frames are looped back.
        sets_uc_local_lb: bool = 0x74, 1;
        /// Whether to set which multicast frames are looped back.
        sets_mc_local_lb: bool = 0x75, 1;
        /// Whether to set the GUID of the node.
        sets_node_guid: bool = 0x76, 1;
        /// Whether to set the GUID of the port.
        sets_port_guid: bool = 0x77, 1;
        /// Whether to set which headers are inline.
        sets_min_inline: bool = 0x78, 1;
        /// Whether to set the MTU.
        sets_mtu: bool = 0x79, 1;
        /// Whether to set which changes are reported.
        sets_change_event: bool = 0x7a, 1;
        /// Whether to set which frames are received.
        sets_promisc: bool = 0x7b, 1;
        /// Whether to set the MAC address.
        sets_permanent_address: bool = 0x7c, 1;
        /// Whether to replace a list of addresses.
        sets_addresses: bool = 0x7d, 1;
        /// Whether to turn RoCE on or off.
        sets_roce: bool = 0x7e, 1;
        /// New settings.
        context: NicVportContext = 0x800, 2048;
    }
}

response! {
    /// The NIC's reply to [`ModifyNicVportContext`].
    pub struct ModifyNicVportContextOut[16] {}
}

command! { QUERY_VPORT_COUNTER -> QueryVportCounterOut;
    /// QUERY_VPORT_COUNTER: reads the counters of a port.
    pub struct QueryVportCounter[32] {
        /// The port is that of another function.
        other_vport: bool = 0x40, 1;
        /// Port number, from 1.
        port_num: u8 = 0x4c, 4;
        /// Whether to reset the counters.
        clear: bool = 0xc0, 1;
    }
}

response! {
    /// The NIC's reply to [`QueryVportCounter`].
    pub struct QueryVportCounterOut[528] {
        /// Frames received with an error.
        received_errors: TrafficCounter = 0x080, 128;
        /// Frames that could not be sent.
        transmit_errors: TrafficCounter = 0x100, 128;
        /// Unicast packets of RDMA received.
        received_ib_unicast: TrafficCounter = 0x180, 128;
        /// Unicast packets of RDMA sent.
        transmitted_ib_unicast: TrafficCounter = 0x200, 128;
        /// Multicast packets of RDMA received.
        received_ib_multicast: TrafficCounter = 0x280, 128;
        /// Multicast packets of RDMA sent.
        transmitted_ib_multicast: TrafficCounter = 0x300, 128;
        /// Broadcast frames received.
        received_eth_broadcast: TrafficCounter = 0x380, 128;
        /// Broadcast frames sent.
        transmitted_eth_broadcast: TrafficCounter = 0x400, 128;
        /// Unicast frames received.
        received_eth_unicast: TrafficCounter = 0x480, 128;
        /// Unicast frames sent.
        transmitted_eth_unicast: TrafficCounter = 0x500, 128;
        /// Multicast frames received.
        received_eth_multicast: TrafficCounter = 0x580, 128;
        /// Multicast frames sent.
        transmitted_eth_multicast: TrafficCounter = 0x600, 128;
    }
}
