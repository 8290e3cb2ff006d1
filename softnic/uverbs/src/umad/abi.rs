//! Structures and numbers of `/dev/infiniband/umad0`, as `<rdma/ib_user_mad.h>` has them.

use crate::abi::structs;
use bytemuck::{Pod, Zeroable};

pub(super) use rushmem_softnic::MAD;
use rushmem_softnic::mad::class;

/// Length of the header common to all classes, in bytes.
pub(super) const MAD_HEADER: usize = 24;
/// Length of the header without its last two members, which programs that do not use P_Keys lack.
pub(super) const OLD_HEADER: usize = size_of::<Header>() - 8;

/// Request codes of `ioctl`.
pub(super) mod ioctl {
    pub(crate) const REGISTER_AGENT: u32 = 0xc01c_1b01;
    pub(crate) const UNREGISTER_AGENT: u32 = 0x4004_1b02;
    pub(crate) const ENABLE_PKEY: u32 = 0x1b03;
    pub(crate) const REGISTER_AGENT2: u32 = 0xc028_1b04;
    pub(crate) const ALL: [u32; 4] = [REGISTER_AGENT, UNREGISTER_AGENT, ENABLE_PKEY, REGISTER_AGENT2];
}

structs! {
    /// Header that precedes each MAD in reads and writes: C's `ib_user_mad_hdr`.
    Header[64] {
        id: u32,
        status: u32,
        timeout_ms: u32,
        retries: u32,
        length: u32,
        qpn: u32,
        qkey: u32,
        lid: u16,
        sl: u8,
        path_bits: u8,
        grh_present: u8,
        gid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        gid: [u8; 16],
        flow_label: u32,
        pkey_index: u16,
        reserved: [u8; 6],
    }

    /// Argument of REGISTER_AGENT: C's `ib_user_mad_reg_req`.
    Register[28] {
        id: u32,
        method_mask: [u32; 4],
        qpn: u8,
        mgmt_class: u8,
        mgmt_class_version: u8,
        oui: [u8; 3],
        rmpp_version: u8,
        reserved: u8,
    }

    /// Argument of REGISTER_AGENT2: C's `ib_user_mad_reg_req2`.
    Register2[40] {
        id: u32,
        qpn: u32,
        mgmt_class: u8,
        mgmt_class_version: u8,
        res: u16,
        flags: u32,
        method_mask: [u64; 2],
        oui: u32,
        rmpp_version: u8,
        reserved: [u8; 3],
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) qpn: u8,
    pub(super) class: u8,
}

impl Agent {
    /// Whether the agent is for subnet management, which uses QP0.
    pub(super) fn is_of_subnet(self) -> bool {
        matches!(self.class, class::SUBNET | class::SUBNET_DIRECTED)
    }
}
