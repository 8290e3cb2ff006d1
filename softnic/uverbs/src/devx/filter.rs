//! The commands that Linux allows programs to send. Linux checks the opcode and the object's ID, and leaves the rest to the
//! adapter.

use rushmem_mlx5::prm::CmdOpcode;
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey};

/// Kind of the object of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pd,
    Mkey,
    Cq,
    Qp,
    Rmp,
    Dct,
    Xrcd,
    XrcSrq,
    Counters,
}

/// Commands about the device, the port or all objects. The adapter refuses those that it lacks.
const GENERAL: [u16; 16] = [
    0x100, // QUERY_HCA_CAP
    0x101, // QUERY_ADAPTER
    0x10a, // QUERY_ISSI
    0x750, // QUERY_VPORT_STATE
    0x752, // QUERY_ESW_VPORT_CONTEXT
    0x754, // QUERY_NIC_VPORT_CONTEXT
    0x760, // QUERY_ROCE_ADDRESS
    0x762, // QUERY_HCA_VPORT_CONTEXT
    0x76f, // QUERY_VNIC_ENV
    0x770, // QUERY_VPORT_COUNTER
    0x80a, // GET_DROPPED_PACKET_LOG
    0x80d, // NOP
    0x822, // QUERY_CONG_STATUS
    0x824, // QUERY_CONG_PARAMS
    0x826, // QUERY_CONG_STATISTICS
    0x842, // QUERY_LAG
];

/// Opcodes that are general by their number.
const GENERAL_RANGE: std::ops::Range<u16> = 0xb00..0xd00;

/// Commands that create objects which this adapter lacks, so it refuses them.
const CREATES_OTHERS: [u16; 19] = [
    0x600, // CREATE_PSV
    0x700, // CREATE_SRQ
    0x717, // CREATE_XRQ
    0x782, // CREATE_SCHEDULING_ELEMENT
    0x806, // ATTACH_TO_MCG
    0x816, // ALLOC_TRANSPORT_DOMAIN
    0x827, // ADD_VXLAN_UDP_DPORT
    0x829, // SET_L2_TABLE_ENTRY
    0x900, // CREATE_TIR
    0x904, // CREATE_SQ
    0x908, // CREATE_RQ
    0x912, // CREATE_TIS
    0x916, // CREATE_RQT
    0x930, // CREATE_FLOW_TABLE
    0x933, // CREATE_FLOW_GROUP
    0x939, // ALLOC_FLOW_COUNTER
    0x93d, // ALLOC_PACKET_REFORMAT_CONTEXT
    0x940, // ALLOC_MODIFY_HEADER_CONTEXT
    0xa00, // CREATE_GENERAL_OBJECT
];

pub(super) fn is_general(opcode: CmdOpcode) -> bool {
    GENERAL.contains(&opcode.0) || GENERAL_RANGE.contains(&opcode.0)
}

/// Whether a program may send a command that creates an object.
pub(super) fn may_create(opcode: CmdOpcode) -> bool {
    created(opcode).is_some() || CREATES_OTHERS.contains(&opcode.0)
}

/// Returns the kind of the objects that a command creates.
pub(super) fn created(opcode: CmdOpcode) -> Option<Kind> {
    match opcode {
        CmdOpcode::ALLOC_PD => Some(Kind::Pd),
        CmdOpcode::CREATE_MKEY => Some(Kind::Mkey),
        CmdOpcode::CREATE_CQ => Some(Kind::Cq),
        CmdOpcode::CREATE_QP => Some(Kind::Qp),
        CmdOpcode::CREATE_RMP => Some(Kind::Rmp),
        CmdOpcode::CREATE_DCT => Some(Kind::Dct),
        CmdOpcode::ALLOC_XRCD => Some(Kind::Xrcd),
        CmdOpcode::CREATE_XRC_SRQ => Some(Kind::XrcSrq),
        CmdOpcode::ALLOC_Q_COUNTER => Some(Kind::Counters),
        _ => None,
    }
}

/// Returns the kind of the objects that a command modifies. A program cannot drain a DCT: destroying it does.
pub(super) fn modified(opcode: CmdOpcode) -> Option<Kind> {
    match opcode {
        CmdOpcode::RST2INIT_QP
        | CmdOpcode::INIT2INIT_QP
        | CmdOpcode::INIT2RTR_QP
        | CmdOpcode::RTR2RTS_QP
        | CmdOpcode::RTS2RTS_QP
        | CmdOpcode::SQERR2RTS_QP
        | CmdOpcode::MODIFY_2ERR_QP
        | CmdOpcode::MODIFY_2RST_QP => Some(Kind::Qp),
        CmdOpcode::MODIFY_RMP => Some(Kind::Rmp),
        CmdOpcode::ARM_XRC_SRQ => Some(Kind::XrcSrq),
        CmdOpcode::MODIFY_CQ => Some(Kind::Cq),
        _ => None,
    }
}

/// Returns the kind of the objects that a command queries.
pub(super) fn queried(opcode: CmdOpcode) -> Option<Kind> {
    match opcode {
        CmdOpcode::QUERY_QP => Some(Kind::Qp),
        CmdOpcode::QUERY_CQ => Some(Kind::Cq),
        CmdOpcode::QUERY_RMP => Some(Kind::Rmp),
        CmdOpcode::QUERY_XRC_SRQ => Some(Kind::XrcSrq),
        CmdOpcode::QUERY_DCT => Some(Kind::Dct),
        CmdOpcode::QUERY_Q_COUNTER => Some(Kind::Counters),
        _ => None,
    }
}

/// Returns the ID of the object in a command that modifies or queries one of this kind.
pub(super) fn number_in(kind: Kind, input: &[u8]) -> Option<u32> {
    let at = if kind == Kind::Counters { 28 } else { 8 };
    input.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word) & 0xff_ffff)
}

/// Marks the umems of an object as valid, as Linux does: programs have no other memory for queues and keys.
pub(super) fn set_umems_valid(opcode: CmdOpcode, input: &mut [u8]) {
    // Bit offsets in the commands.
    let bits: &[usize] = match opcode {
        CmdOpcode::CREATE_CQ => &[0x86, 0x2e0],
        CmdOpcode::MODIFY_CQ => &[0x2e0],
        CmdOpcode::CREATE_QP => &[0xc0 + 0x683, 0x860],
        CmdOpcode::CREATE_RMP => &[0x280 + 0x120, 0x280 + 0x121],
        CmdOpcode::CREATE_XRC_SRQ => &[0x80 + 0x47, 0x2e0],
        CmdOpcode::CREATE_MKEY => {
            match CreateMkey::decode(input).map(|command| command.context.access_mode()) {
                Ok(AccessMode::KLM | AccessMode::KSM) => &[],
                _ => &[0x61],
            }
        }
        _ => &[],
    };
    for bit in bits {
        if let Some(byte) = input.get_mut(bit / 8) {
            *byte |= 0x80 >> (bit % 8);
        }
    }
}
