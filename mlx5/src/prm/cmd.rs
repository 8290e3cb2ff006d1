//! Common parts of all commands: opcodes, the header, statuses.

use super::{
    DecodeError, Value,
    layout::{layout, numbers},
    mailbox,
};
use core::fmt;

numbers! {
    /// The opcode of a command.
    pub struct CmdOpcode(u16) {
        /// Asks for a page of capabilities.
        QUERY_HCA_CAP = 0x100;
        /// Asks for the interface step.
        QUERY_ISSI = 0x10a;
        /// Makes a memory key.
        CREATE_MKEY = 0x200;
        /// Destroys a memory key.
        DESTROY_MKEY = 0x202;
        /// Makes an event queue.
        CREATE_EQ = 0x301;
        /// Makes a completion queue.
        CREATE_CQ = 0x400;
        /// Destroys a completion queue.
        DESTROY_CQ = 0x401;
        /// Asks for a completion queue's context.
        QUERY_CQ = 0x402;
        /// Changes a completion queue.
        MODIFY_CQ = 0x403;
        /// Makes a queue pair.
        CREATE_QP = 0x500;
        /// Destroys a queue pair.
        DESTROY_QP = 0x501;
        /// Reset to init.
        RST2INIT_QP = 0x502;
        /// Init to ready-to-receive.
        INIT2RTR_QP = 0x503;
        /// Ready-to-receive to ready-to-send.
        RTR2RTS_QP = 0x504;
        /// Changes a ready-to-send QP.
        RTS2RTS_QP = 0x505;
        /// Send-queue error to ready-to-send.
        SQERR2RTS_QP = 0x506;
        /// Any state to error.
        MODIFY_2ERR_QP = 0x507;
        /// Any state to reset.
        MODIFY_2RST_QP = 0x50a;
        /// Asks for a queue pair's context.
        QUERY_QP = 0x50b;
        /// Send-queue drained to ready-to-send.
        SQD_RTS_QP = 0x50c;
        /// Changes an init QP.
        INIT2INIT_QP = 0x50e;
        /// Makes a shared receive queue.
        CREATE_SRQ = 0x700;
        /// Destroys a shared receive queue.
        DESTROY_SRQ = 0x701;
        /// Makes a shared receive queue of an XRC domain.
        CREATE_XRC_SRQ = 0x705;
        /// Destroys a shared receive queue of an XRC domain.
        DESTROY_XRC_SRQ = 0x706;
        /// Asks for the context of a shared receive queue of an XRC domain.
        QUERY_XRC_SRQ = 0x707;
        /// Arms the limit of a shared receive queue of an XRC domain.
        ARM_XRC_SRQ = 0x708;
        /// Makes a dynamically connected target.
        CREATE_DCT = 0x710;
        /// Destroys a dynamically connected target.
        DESTROY_DCT = 0x711;
        /// Ends the acceptance of connections by a dynamically connected target.
        DRAIN_DCT = 0x712;
        /// Asks for a dynamically connected target's context.
        QUERY_DCT = 0x713;
        /// Asks for an entry of the RoCE address table.
        QUERY_ROCE_ADDRESS = 0x760;
        /// Makes a counter set.
        ALLOC_Q_COUNTER = 0x771;
        /// Destroys a counter set.
        DEALLOC_Q_COUNTER = 0x772;
        /// Asks for the counts of a counter set.
        QUERY_Q_COUNTER = 0x773;
        /// Makes a protection domain.
        ALLOC_PD = 0x800;
        /// Destroys a protection domain.
        DEALLOC_PD = 0x801;
        /// Makes a doorbell page.
        ALLOC_UAR = 0x802;
        /// Destroys a doorbell page.
        DEALLOC_UAR = 0x803;
        /// Makes an XRC domain.
        ALLOC_XRCD = 0x80e;
        /// Destroys an XRC domain.
        DEALLOC_XRCD = 0x80f;
        /// Makes a transport domain.
        ALLOC_TRANSPORT_DOMAIN = 0x816;
        /// Asks for the state of a bond of ports.
        QUERY_LAG = 0x842;
        /// Makes a receive memory pool.
        CREATE_RMP = 0x90c;
        /// Changes a receive memory pool.
        MODIFY_RMP = 0x90d;
        /// Destroys a receive memory pool.
        DESTROY_RMP = 0x90e;
        /// Asks for a receive memory pool's context.
        QUERY_RMP = 0x90f;
        /// Makes an object of a type given in the mailbox.
        CREATE_GENERAL_OBJECT = 0xa00;
        /// Registers user memory for queues.
        CREATE_UMEM = 0xa08;
        /// Deregisters user memory.
        DESTROY_UMEM = 0xa0a;
    }
}

numbers! {
    /// The status of a finished command.
    pub struct CmdStatus(u8) {
        /// Done.
        OK = 0x00;
        /// Internal error.
        INT_ERR = 0x01;
        /// Unknown or unsupported command.
        BAD_OP = 0x02;
        /// A parameter is out of range or does not fit the others.
        BAD_PARAM = 0x03;
        /// The system is in the wrong state.
        BAD_SYS_STATE = 0x04;
        /// No such object.
        BAD_RES = 0x05;
        /// The object is in use.
        RES_BUSY = 0x06;
        /// A limit is exceeded.
        LIM = 0x08;
        /// The object is in the wrong state.
        BAD_RES_STATE = 0x09;
        /// Bad index.
        IX = 0x0a;
        /// Out of resources.
        NO_RES = 0x0f;
        /// The QP is in the wrong state.
        BAD_QP_STATE = 0x10;
        /// Bad management packet.
        BAD_PKT = 0x30;
        /// More entries outstanding than the new size holds.
        BAD_SIZE_OUTS_CQES = 0x40;
        /// The input mailbox has the wrong length.
        BAD_INP_LEN = 0x50;
        /// The output mailbox has the wrong length.
        BAD_OUTP_LEN = 0x51;
    }
}

impl CmdStatus {
    /// Returns the cause and the remedy in one sentence.
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
    /// The first bytes of every input mailbox.
    pub struct Header[8] {
        /// The command.
        opcode: CmdOpcode = 0x00, 16;
        /// The user that issues it.
        uid: u16 = 0x10, 16;
        /// The command's variant.
        op_mod: u16 = 0x30, 16;
    }
}

impl Header {
    /// Reads the header of any input mailbox.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        mailbox(bytes).map(Self::read)
    }
}

/// A refusal, as the first bytes of every output mailbox tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CmdError {
    /// The kind of refusal.
    pub status: CmdStatus,
    /// Which check failed, in the firmware's own numbers.
    pub syndrome: u32,
}

impl CmdError {
    /// Fills an output mailbox, whatever its length, with the refusal.
    pub fn write(&self, out: &mut [u8]) {
        out.fill(0);
        let mut head = [0; 8];
        self.status.write_at(&mut head, 0x00, 8);
        self.syndrome.write_at(&mut head, 0x20, 32);
        for (to, from) in out.iter_mut().zip(head) {
            *to = from;
        }
    }

    /// Returns whether an output mailbox reports success.
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
