//! The state of a PE's QPs, as reported by its NICs.

use std::time::Duration;

use rushmem_device::abi::qp_flags;
use rushmem_mlx5::prm::qp::QpContext;

/// A connected QP of a PE, as reported by its NIC (QUERY_QP).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpInfo {
    /// The PE that the QP is connected to. For a DC initiator, the first PE it serves.
    pub peer: u32,
    /// Name of the NIC.
    pub nic: String,
    /// QP number (QPN) on that NIC, 24 bits.
    pub qpn: u32,
    /// State of the QP: `RTS` in normal operation, `ERR` after an error.
    pub state: String,
    /// Depth of the send queue, in basic blocks of 64 bytes.
    pub depth: u32,
    /// Number of basic blocks executed by the NIC, modulo 2^16.
    pub executed: u16,
    /// Path MTU: the largest payload of a packet, in bytes.
    pub mtu: u32,
    /// Index of the QP's source GID in the port's GID table.
    pub gid_index: u8,
    /// Traffic class. On Ethernet, its upper 6 bits are the DSCP and its lower 2 bits are the ECN.
    pub traffic_class: u8,
    /// Service level of the QP. On Ethernet, the VLAN priority.
    pub service_level: u8,
    /// Index of the QP's partition key in the port's table.
    pub pkey_index: u16,
    /// How often the NIC resends an unacknowledged packet before the QP fails.
    pub retries: u8,
    /// Port of a bond (LAG) through which the QP sends, starting at 1, or 0 without a bond.
    pub bond_port: u8,
    /// How long the NIC waits for an acknowledgement before it resends.
    pub ack_timeout: Duration,
    /// Whether WRITEs may land out of order, as with adaptive routing. Depends on the setting `ordering`.
    pub unordered: bool,
    /// Whether puts and gets use relaxed keys (setting `relaxed_ordering`), which let the PCIe bus reorder their data.
    pub relaxed: bool,
}

impl QpInfo {
    pub(super) fn new(peer: u32, nic: String, qpn: u32, context: &QpContext, flags: u32) -> QpInfo {
        let path = &context.primary_address_path;
        // RoCE has these in the IP and VLAN headers, InfiniBand in its own.
        let ethernet = (path.dscp << 2 | path.ecn, path.eth_prio);
        let (traffic_class, service_level) = if path.f_dscp || path.f_eth_prio || ethernet != (0, 0) {
            ethernet
        } else {
            (path.tclass, path.sl)
        };
        QpInfo {
            peer,
            nic,
            qpn,
            state: context.state.name().unwrap_or("unknown").into(),
            depth: 1 << context.log_sq_size,
            executed: context.hw_sq_wqebb_counter,
            mtu: context.mtu.bytes().unwrap_or(0),
            gid_index: path.src_addr_index,
            traffic_class,
            service_level,
            pkey_index: path.pkey_index,
            retries: context.retry_count,
            bond_port: context.lag_tx_port_affinity,
            ack_timeout: Duration::from_nanos(4096 << path.ack_timeout),
            unordered: flags & qp_flags::UNORDERED != 0,
            relaxed: flags & qp_flags::RELAXED != 0,
        }
    }
}
