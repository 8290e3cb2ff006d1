//! Access registers of an Ethernet port.

use super::Bytes;
use super::layout::{layout, numbers};

numbers! {
    /// Whether a port is up.
    pub struct PortStatus(u8) {
        /// The port is up.
        UP = 1;
        /// The port is down.
        DOWN = 2;
    }
}

layout! {
    /// Register of the state of a port (PAOS).
    pub struct Paos[16] {
        /// Port number, starting at 1.
        local_port: u8 = 0x08, 8;
        /// State that the driver has set.
        admin_status: PortStatus = 0x14, 4;
        /// State of the port.
        oper_status: PortStatus = 0x1c, 4;
    }
}

layout! {
    /// Register of the flow control of a port (PFCC).
    pub struct Pfcc[32] {
        /// Port number, starting at 1.
        local_port: u8 = 0x08, 8;
        /// The port sends pause frames.
        pptx: bool = 0x40, 1;
        /// The port obeys pause frames.
        pprx: bool = 0x60, 1;
    }
}

numbers! {
    /// A group of counters of a port.
    pub struct CounterGroup(u8) {
        /// Those of IEEE 802.3: [`Ieee8023Counters`].
        IEEE_802_3 = 0x00;
        /// Those of RFC 2863: [`Rfc2863Counters`].
        RFC_2863 = 0x01;
    }
}

layout! {
    /// Register of the counters of a port (PPCNT).
    pub struct Ppcnt[256] {
        /// Port number, starting at 1.
        local_port: u8 = 0x08, 8;
        /// Group of counters.
        grp: CounterGroup = 0x1a, 6;
        /// Whether to reset the counters.
        clr: bool = 0x20, 1;
        /// Priority or traffic class that is counted.
        prio_tc: u8 = 0x3d, 3;
        /// The counters of the group.
        counters: Bytes<248> = 0x40, 1984;
    }
}

layout! {
    /// Counters of IEEE 802.3.
    pub struct Ieee8023Counters[248] {
        /// Number of frames sent.
        a_frames_transmitted_ok: u64 = 0x000, 64;
        /// Number of frames received.
        a_frames_received_ok: u64 = 0x040, 64;
        /// Number of bytes sent.
        a_octets_transmitted_ok: u64 = 0x100, 64;
        /// Number of bytes received.
        a_octets_received_ok: u64 = 0x140, 64;
        /// Number of multicast frames sent.
        a_multicast_frames_xmitted_ok: u64 = 0x180, 64;
        /// Number of broadcast frames sent.
        a_broadcast_frames_xmitted_ok: u64 = 0x1c0, 64;
        /// Number of multicast frames received.
        a_multicast_frames_received_ok: u64 = 0x200, 64;
        /// Number of broadcast frames received.
        a_broadcast_frames_received_ok: u64 = 0x240, 64;
    }
}

layout! {
    /// Counters of RFC 2863.
    pub struct Rfc2863Counters[248] {
        /// Number of bytes received.
        if_in_octets: u64 = 0x000, 64;
        /// Number of unicast frames received.
        if_in_ucast_pkts: u64 = 0x040, 64;
        /// Number of bytes sent.
        if_out_octets: u64 = 0x140, 64;
        /// Number of unicast frames sent.
        if_out_ucast_pkts: u64 = 0x180, 64;
        /// Number of frames that could not be sent.
        if_out_errors: u64 = 0x200, 64;
        /// Number of multicast frames received.
        if_in_multicast_pkts: u64 = 0x240, 64;
        /// Number of broadcast frames received.
        if_in_broadcast_pkts: u64 = 0x280, 64;
        /// Number of multicast frames sent.
        if_out_multicast_pkts: u64 = 0x2c0, 64;
        /// Number of broadcast frames sent.
        if_out_broadcast_pkts: u64 = 0x300, 64;
    }
}
