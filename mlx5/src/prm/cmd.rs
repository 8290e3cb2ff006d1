//! What all PRM commands have in common: opcodes, the mailbox header and the status of the reply.

use super::{
    DecodeError, Value,
    layout::{layout, numbers},
    mailbox,
};
use core::fmt;

numbers! {
    /// The opcode of a PRM command.
    pub struct CmdOpcode(u16) {
        /// Queries a page of NIC capabilities; see [`QueryHcaCap`](super::caps::QueryHcaCap).
        QUERY_HCA_CAP = 0x100;
        /// Asks for the identity of the NIC; see [`QueryAdapter`](super::hca::QueryAdapter).
        QUERY_ADAPTER = 0x101;
        /// Initializes a function; see [`InitHca`](super::hca::InitHca).
        INIT_HCA = 0x102;
        /// Destroys all objects of a function; see [`TeardownHca`](super::hca::TeardownHca).
        TEARDOWN_HCA = 0x103;
        /// Enables a function; see [`EnableHca`](super::hca::EnableHca).
        ENABLE_HCA = 0x104;
        /// Disables a function; see [`DisableHca`](super::hca::DisableHca).
        DISABLE_HCA = 0x105;
        /// Asks how many pages the firmware needs; see [`QueryPages`](super::hca::QueryPages).
        QUERY_PAGES = 0x107;
        /// Gives pages to the firmware or takes them back; see [`ManagePages`](super::hca::ManagePages).
        MANAGE_PAGES = 0x108;
        /// Sets a page of NIC capabilities; see [`SetHcaCap`](super::hca::SetHcaCap).
        SET_HCA_CAP = 0x109;
        /// Queries the supported versions of the command interface (ISSI); see [`QueryIssi`](super::hca::QueryIssi).
        QUERY_ISSI = 0x10a;
        /// Chooses the version of the command interface; see [`SetIssi`](super::hca::SetIssi).
        SET_ISSI = 0x10b;
        /// Reports the driver's name and version to the firmware; see [`SetDriverVersion`](super::hca::SetDriverVersion).
        SET_DRIVER_VERSION = 0x10d;
        /// Creates a memory key; see [`CreateMkey`](super::mkey::CreateMkey).
        CREATE_MKEY = 0x200;
        /// Destroys a memory key; see [`DestroyMkey`](super::mkey::DestroyMkey).
        DESTROY_MKEY = 0x202;
        /// Creates an event queue; see [`CreateEq`](super::eq::CreateEq).
        CREATE_EQ = 0x301;
        /// Destroys an event queue; see [`DestroyEq`](super::eq::DestroyEq).
        DESTROY_EQ = 0x302;
        /// Creates a completion queue; see [`CreateCq`](super::cq::CreateCq).
        CREATE_CQ = 0x400;
        /// Destroys a completion queue; see [`DestroyCq`](super::cq::DestroyCq).
        DESTROY_CQ = 0x401;
        /// Queries the context of a completion queue; see [`QueryCq`](super::cq::QueryCq).
        QUERY_CQ = 0x402;
        /// Modifies a completion queue; see [`ModifyCq`](super::cq::ModifyCq).
        MODIFY_CQ = 0x403;
        /// Creates a queue pair; see [`CreateQp`](super::qp::CreateQp).
        CREATE_QP = 0x500;
        /// Destroys a queue pair; see [`DestroyQp`](super::qp::DestroyQp).
        DESTROY_QP = 0x501;
        /// Moves a queue pair from reset to INIT; see [`Rst2Init`](super::qp::Rst2Init).
        RST2INIT_QP = 0x502;
        /// Moves a queue pair from INIT to ready-to-receive; see [`Init2Rtr`](super::qp::Init2Rtr).
        INIT2RTR_QP = 0x503;
        /// Moves a queue pair from ready-to-receive to ready-to-send; see [`Rtr2Rts`](super::qp::Rtr2Rts).
        RTR2RTS_QP = 0x504;
        /// Modifies a queue pair that is ready to send, without changing its state; see
        /// [`Rts2Rts`](super::qp::Rts2Rts).
        RTS2RTS_QP = 0x505;
        /// Moves a queue pair from send-queue error to ready-to-send; see [`Sqerr2Rts`](super::qp::Sqerr2Rts).
        SQERR2RTS_QP = 0x506;
        /// Moves a queue pair from any state to error; see [`ToErr`](super::qp::ToErr).
        MODIFY_2ERR_QP = 0x507;
        /// Moves a queue pair from any state to reset; see [`ToRst`](super::qp::ToRst).
        MODIFY_2RST_QP = 0x50a;
        /// Queries the context of a queue pair; see [`QueryQp`](super::qp::QueryQp).
        QUERY_QP = 0x50b;
        /// Moves a queue pair from send-queue drained to ready-to-send; see [`Sqd2Rts`](super::qp::Sqd2Rts).
        SQD_RTS_QP = 0x50c;
        /// Passes a management datagram to the agents of the NIC; see [`MadIfc`](super::port::MadIfc).
        MAD_IFC = 0x50d;
        /// Modifies a queue pair in INIT, without changing its state; see [`Init2Init`](super::qp::Init2Init).
        INIT2INIT_QP = 0x50e;
        /// Creates a shared receive queue. This crate has no struct for it.
        CREATE_SRQ = 0x700;
        /// Destroys a shared receive queue. This crate has no struct for it.
        DESTROY_SRQ = 0x701;
        /// Creates a shared receive queue in an XRC domain; see [`CreateXrcSrq`](super::xrc::CreateXrcSrq).
        CREATE_XRC_SRQ = 0x705;
        /// Destroys a shared receive queue in an XRC domain; see [`DestroyXrcSrq`](super::xrc::DestroyXrcSrq).
        DESTROY_XRC_SRQ = 0x706;
        /// Queries the context of a shared receive queue in an XRC domain; see
        /// [`QueryXrcSrq`](super::xrc::QueryXrcSrq).
        QUERY_XRC_SRQ = 0x707;
        /// Arms the low-watermark event of a shared receive queue in an XRC domain; see
        /// [`ArmXrcSrq`](super::xrc::ArmXrcSrq).
        ARM_XRC_SRQ = 0x708;
        /// Creates a dynamically connected target; see [`CreateDct`](super::dct::CreateDct).
        CREATE_DCT = 0x710;
        /// Destroys a dynamically connected target; see [`DestroyDct`](super::dct::DestroyDct).
        DESTROY_DCT = 0x711;
        /// Stops a dynamically connected target from accepting connections; see [`DrainDct`](super::dct::DrainDct).
        DRAIN_DCT = 0x712;
        /// Queries the context of a dynamically connected target; see [`QueryDct`](super::dct::QueryDct).
        QUERY_DCT = 0x713;
        /// Queries whether a virtual port carries frames; see [`QueryVportState`](super::vport::QueryVportState).
        QUERY_VPORT_STATE = 0x750;
        /// Queries a virtual port for Ethernet; see [`QueryNicVportContext`](super::vport::QueryNicVportContext).
        QUERY_NIC_VPORT_CONTEXT = 0x754;
        /// Changes a virtual port for Ethernet; see [`ModifyNicVportContext`](super::vport::ModifyNicVportContext).
        MODIFY_NIC_VPORT_CONTEXT = 0x755;
        /// Queries an entry of the RoCE address table; see [`QueryRoceAddress`](super::caps::QueryRoceAddress).
        QUERY_ROCE_ADDRESS = 0x760;
        /// Sets an entry of the RoCE address table; see [`SetRoceAddress`](super::caps::SetRoceAddress).
        SET_ROCE_ADDRESS = 0x761;
        /// Queries an InfiniBand port; see [`QueryHcaVportContext`](super::port::QueryHcaVportContext).
        QUERY_HCA_VPORT_CONTEXT = 0x762;
        /// Changes an InfiniBand port.
        MODIFY_HCA_VPORT_CONTEXT = 0x763;
        /// Queries the GID table of an InfiniBand port; see [`QueryHcaVportGid`](super::port::QueryHcaVportGid).
        QUERY_HCA_VPORT_GID = 0x764;
        /// Queries the P_Key table of an InfiniBand port; see [`QueryHcaVportPkey`](super::port::QueryHcaVportPkey).
        QUERY_HCA_VPORT_PKEY = 0x765;
        /// Reads the counters of a virtual port; see [`QueryVportCounter`](super::vport::QueryVportCounter).
        QUERY_VPORT_COUNTER = 0x770;
        /// Allocates a set of queue counters; see [`AllocQCounter`](super::counter::AllocQCounter).
        ALLOC_Q_COUNTER = 0x771;
        /// Deallocates a set of queue counters; see [`DeallocQCounter`](super::counter::DeallocQCounter).
        DEALLOC_Q_COUNTER = 0x772;
        /// Reads a set of queue counters; see [`QueryQCounter`](super::counter::QueryQCounter).
        QUERY_Q_COUNTER = 0x773;
        /// Allocates a protection domain; see [`AllocPd`](super::pd::AllocPd).
        ALLOC_PD = 0x800;
        /// Deallocates a protection domain; see [`DeallocPd`](super::pd::DeallocPd).
        DEALLOC_PD = 0x801;
        /// Allocates a doorbell (UAR) page; see [`AllocUar`](super::uar::AllocUar).
        ALLOC_UAR = 0x802;
        /// Deallocates a doorbell (UAR) page; see [`DeallocUar`](super::uar::DeallocUar).
        DEALLOC_UAR = 0x803;
        /// Reads or writes an access register; see [`AccessReg`](super::port::AccessReg).
        ACCESS_REG = 0x805;
        /// Adds a QP to a multicast group; see [`AttachToMcg`](super::mcg::AttachToMcg).
        ATTACH_TO_MCG = 0x806;
        /// Removes a QP from a multicast group; see [`DetachFromMcg`](super::mcg::DetachFromMcg).
        DETACH_FROM_MCG = 0x807;
        /// Allocates an XRC domain; see [`AllocXrcd`](super::xrc::AllocXrcd).
        ALLOC_XRCD = 0x80e;
        /// Deallocates an XRC domain; see [`DeallocXrcd`](super::xrc::DeallocXrcd).
        DEALLOC_XRCD = 0x80f;
        /// Allocates a transport domain; see [`AllocTransportDomain`](super::tir::AllocTransportDomain).
        ALLOC_TRANSPORT_DOMAIN = 0x816;
        /// Deallocates a transport domain; see [`DeallocTransportDomain`](super::tir::DeallocTransportDomain).
        DEALLOC_TRANSPORT_DOMAIN = 0x817;
        /// Queries whether the NIC's ports are bonded; see [`QueryLag`](super::lag::QueryLag).
        QUERY_LAG = 0x842;
        /// Creates a transport interface for receiving; see [`CreateTir`](super::tir::CreateTir).
        CREATE_TIR = 0x900;
        /// Changes a transport interface for receiving; see [`ModifyTir`](super::tir::ModifyTir).
        MODIFY_TIR = 0x901;
        /// Destroys a transport interface for receiving; see [`DestroyTir`](super::tir::DestroyTir).
        DESTROY_TIR = 0x902;
        /// Creates a send queue; see [`CreateSq`](super::sq::CreateSq).
        CREATE_SQ = 0x904;
        /// Changes the state of a send queue; see [`ModifySq`](super::sq::ModifySq).
        MODIFY_SQ = 0x905;
        /// Destroys a send queue; see [`DestroySq`](super::sq::DestroySq).
        DESTROY_SQ = 0x906;
        /// Queries the context of a send queue; see [`QuerySq`](super::sq::QuerySq).
        QUERY_SQ = 0x907;
        /// Creates a receive queue; see [`CreateRq`](super::sq::CreateRq).
        CREATE_RQ = 0x908;
        /// Changes a receive queue; see [`ModifyRq`](super::sq::ModifyRq).
        MODIFY_RQ = 0x909;
        /// Destroys a receive queue; see [`DestroyRq`](super::sq::DestroyRq).
        DESTROY_RQ = 0x90a;
        /// Queries the context of a receive queue; see [`QueryRq`](super::sq::QueryRq).
        QUERY_RQ = 0x90b;
        /// Creates a receive memory pool; see [`CreateRmp`](super::rmp::CreateRmp).
        CREATE_RMP = 0x90c;
        /// Modifies a receive memory pool; see [`ModifyRmp`](super::rmp::ModifyRmp).
        MODIFY_RMP = 0x90d;
        /// Destroys a receive memory pool; see [`DestroyRmp`](super::rmp::DestroyRmp).
        DESTROY_RMP = 0x90e;
        /// Queries the context of a receive memory pool; see [`QueryRmp`](super::rmp::QueryRmp).
        QUERY_RMP = 0x90f;
        /// Creates a transport interface for sending; see [`CreateTis`](super::tir::CreateTis).
        CREATE_TIS = 0x912;
        /// Changes a transport interface for sending; see [`ModifyTis`](super::tir::ModifyTis).
        MODIFY_TIS = 0x913;
        /// Destroys a transport interface for sending; see [`DestroyTis`](super::tir::DestroyTis).
        DESTROY_TIS = 0x914;
        /// Creates a table of receive queues; see [`CreateRqt`](super::tir::CreateRqt).
        CREATE_RQT = 0x916;
        /// Replaces the queues of a table; see [`ModifyRqt`](super::tir::ModifyRqt).
        MODIFY_RQT = 0x917;
        /// Destroys a table of receive queues; see [`DestroyRqt`](super::tir::DestroyRqt).
        DESTROY_RQT = 0x918;
        /// Sets the flow table with which steering starts; see [`SetFlowTableRoot`](super::flow::SetFlowTableRoot).
        SET_FLOW_TABLE_ROOT = 0x92f;
        /// Creates a flow table; see [`CreateFlowTable`](super::flow::CreateFlowTable).
        CREATE_FLOW_TABLE = 0x930;
        /// Destroys a flow table; see [`DestroyFlowTable`](super::flow::DestroyFlowTable).
        DESTROY_FLOW_TABLE = 0x931;
        /// Creates a group of a flow table; see [`CreateFlowGroup`](super::flow::CreateFlowGroup).
        CREATE_FLOW_GROUP = 0x933;
        /// Destroys a group of a flow table; see [`DestroyFlowGroup`](super::flow::DestroyFlowGroup).
        DESTROY_FLOW_GROUP = 0x934;
        /// Writes an entry of a flow table; see [`SetFlowTableEntry`](super::flow::SetFlowTableEntry).
        SET_FLOW_TABLE_ENTRY = 0x936;
        /// Deletes an entry of a flow table; see [`DeleteFlowTableEntry`](super::flow::DeleteFlowTableEntry).
        DELETE_FLOW_TABLE_ENTRY = 0x938;
        /// Allocates a flow counter; see [`AllocFlowCounter`](super::flow::AllocFlowCounter).
        ALLOC_FLOW_COUNTER = 0x939;
        /// Deallocates a flow counter; see [`DeallocFlowCounter`](super::flow::DeallocFlowCounter).
        DEALLOC_FLOW_COUNTER = 0x93a;
        /// Reads a flow counter; see [`QueryFlowCounter`](super::flow::QueryFlowCounter).
        QUERY_FLOW_COUNTER = 0x93b;
        /// Changes a flow table; see [`ModifyFlowTable`](super::flow::ModifyFlowTable).
        MODIFY_FLOW_TABLE = 0x93c;
        /// Creates a general object, whose type is in the mailbox.
        CREATE_GENERAL_OBJECT = 0xa00;
        /// Creates a user context; see [`CreateUctx`](super::uctx::CreateUctx).
        CREATE_UCTX = 0xa04;
        /// Destroys a user context; see [`DestroyUctx`](super::uctx::DestroyUctx).
        DESTROY_UCTX = 0xa06;
        /// Registers user memory (a umem) to hold queues, doorbell records or memory regions; see
        /// [`CreateUmem`](super::umem::CreateUmem).
        CREATE_UMEM = 0xa08;
        /// Deregisters a umem; see [`DestroyUmem`](super::umem::DestroyUmem).
        DESTROY_UMEM = 0xa0a;
    }
}

numbers! {
    /// The status byte of a command's output mailbox.
    pub struct CmdStatus(u8) {
        /// Success.
        OK = 0x00;
        /// Internal error of the firmware.
        INT_ERR = 0x01;
        /// Unknown or unsupported command.
        BAD_OP = 0x02;
        /// A parameter is out of range, or inconsistent with others.
        BAD_PARAM = 0x03;
        /// The NIC is in a state in which it rejects the command.
        BAD_SYS_STATE = 0x04;
        /// The object that the command names does not exist.
        BAD_RES = 0x05;
        /// The object is still in use by other objects.
        RES_BUSY = 0x06;
        /// The request exceeds a limit of the NIC.
        LIM = 0x08;
        /// The object that the command names is in the wrong state.
        BAD_RES_STATE = 0x09;
        /// An index is out of range.
        IX = 0x0a;
        /// The NIC is out of resources, such as memory or object IDs.
        NO_RES = 0x0f;
        /// The QP is in the wrong state.
        BAD_QP_STATE = 0x10;
        /// Bad management packet.
        BAD_PKT = 0x30;
        /// The completion queue holds more entries than its new size allows.
        BAD_SIZE_OUTS_CQES = 0x40;
        /// The input mailbox has the wrong length.
        BAD_INP_LEN = 0x50;
        /// The output mailbox has the wrong length.
        BAD_OUTP_LEN = 0x51;
    }
}

impl CmdStatus {
    /// Describes the likely cause and the remedy in one sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::OK => "the command succeeded",
            Self::INT_ERR => {
                "the firmware failed: look at the kernel log, and update the firmware if it repeats"
            }
            Self::BAD_OP => "the firmware does not know the command: update it, or use another NIC",
            Self::BAD_PARAM => {
                "a parameter is out of range or contradicts another: look up the syndrome, which names the parameter"
            }
            Self::BAD_SYS_STATE => {
                "the device is in the wrong state for this command: look at the kernel log for a reset or a fault"
            }
            Self::BAD_RES => "an object of the command does not exist or belongs to another user",
            Self::RES_BUSY => {
                "another object still uses it: destroy queue pairs before their queues and memory"
            }
            Self::LIM => "a limit of the device is exceeded: ask for less, or free objects",
            Self::BAD_RES_STATE => "an object of the command is in the wrong state",
            Self::IX => "an index in the command is out of range",
            Self::NO_RES => "the device is out of resources: free objects or memory",
            Self::BAD_QP_STATE => "the queue pair is not in the state that the transition starts from",
            Self::BAD_PKT => "the management packet is malformed",
            Self::BAD_SIZE_OUTS_CQES => "the completion queue holds more entries than its new size",
            Self::BAD_INP_LEN | Self::BAD_OUTP_LEN => {
                "the mailbox does not have the length that this firmware expects: this is a bug in the code that built it"
            }
            _ => "the firmware reported a status that this version does not know",
        }
    }
}

layout! {
    /// The header of every input mailbox: what a command does and who sends it.
    pub struct Header[8] {
        /// Selects the command and thereby the layout of the mailbox.
        opcode: CmdOpcode = 0x00, 16;
        /// ID of the DevX user context that sends the command.
        uid: u16 = 0x10, 16;
        /// Opmod: selects a variant of the command.
        op_mod: u16 = 0x30, 16;
    }
}

impl Header {
    /// Parses the header of an input mailbox, whatever its command.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        mailbox(bytes).map(Self::read)
    }
}

/// A command that the NIC rejected, as every output mailbox reports it in its first 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CmdError {
    /// Why the command was rejected.
    pub status: CmdStatus,
    /// Firmware's number for the check that failed; opaque.
    pub syndrome: u32,
}

impl CmdError {
    /// Fills an output mailbox of any length with this error and zeros.
    pub fn write(&self, out: &mut [u8]) {
        out.fill(0);
        let mut head = [0; 8];
        self.status.write_at(&mut head, 0x00, 8);
        self.syndrome.write_at(&mut head, 0x20, 32);
        for (to, from) in out.iter_mut().zip(head) {
            *to = from;
        }
    }

    /// Returns `Ok` if an output mailbox reports success, and the NIC's error otherwise.
    pub fn check(out: &[u8]) -> Result<(), DecodeError> {
        let head: &[u8; 8] = mailbox(out)?;
        match Value::read_at(head, 0x00, 8) {
            CmdStatus::OK => Ok(()),
            status => Err(DecodeError::Refused(Self { status, syndrome: Value::read_at(head, 0x20, 32) })),
        }
    }
}

impl fmt::Display for CmdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, syndrome } = self;
        write!(f, "status {status} ({:#04x}), syndrome {syndrome:#010x}: {}", status.0, status.meaning())
    }
}

impl core::error::Error for CmdError {}
