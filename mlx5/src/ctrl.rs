//! The control segment: the first 16 bytes of every send work-queue entry.

use crate::{be::Be32, seg::Segment};
use bytemuck::{Pod, Zeroable, must_cast};
use core::fmt;

/// The operation of a send work-queue entry: bits 7:0 of its first word.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Opcode(pub u8);

impl Opcode {
    /// No operation. Completes in order.
    pub const NOP: Self = Self(0x00);
    /// SEND that invalidates an rkey at the receiver.
    pub const SEND_INVAL: Self = Self(0x01);
    /// RDMA WRITE: stores local data in remote memory without involving the receiver.
    pub const RDMA_WRITE: Self = Self(0x08);
    /// RDMA WRITE that also consumes a receive at the target and delivers 32 bits of immediate data with it.
    pub const RDMA_WRITE_IMM: Self = Self(0x09);
    /// SEND into the buffer of the next receive that the peer has posted.
    pub const SEND: Self = Self(0x0a);
    /// SEND with 32 bits of immediate data.
    pub const SEND_IMM: Self = Self(0x0b);
    /// Ethernet segmentation offload.
    pub const TSO: Self = Self(0x0e);
    /// Stalls the send queue until another queue's CQ has advanced to a given count.
    pub const WAIT: Self = Self(0x0f);
    /// RDMA READ: fetches remote memory into local buffers.
    pub const RDMA_READ: Self = Self(0x10);
    /// 64-bit compare and swap on remote memory.
    pub const ATOMIC_CS: Self = Self(0x11);
    /// 64-bit fetch and add on remote memory.
    pub const ATOMIC_FA: Self = Self(0x12);
    /// Masked compare and swap on remote memory. The opmod holds the operand size.
    pub const ATOMIC_MASKED_CS: Self = Self(0x14);
    /// Fetch and add on independent bit fields. The opmod holds the operand size.
    pub const ATOMIC_MASKED_FA: Self = Self(0x15);
    /// Binds a memory window to a part of a memory region.
    pub const BIND_MW: Self = Self(0x18);
    /// Fast memory registration through the send queue (legacy).
    pub const FMR: Self = Self(0x19);
    /// Invalidates a local memory key.
    pub const LOCAL_INVAL: Self = Self(0x1b);
    /// Queue configuration command.
    pub const CONFIG_CMD: Self = Self(0x1f);
    /// Sets a protection signature value (PSV), part of data-integrity offload.
    pub const SET_PSV: Self = Self(0x20);
    /// Reads a protection signature value (PSV).
    pub const GET_PSV: Self = Self(0x21);
    /// Checks data against a protection signature value (PSV).
    pub const CHECK_PSV: Self = Self(0x22);
    /// Reads local memory and discards the bytes. When it completes, earlier writes of this NIC have reached memory.
    pub const DUMP: Self = Self(0x23);
    /// User-mode memory registration: modifies a memory key through the send queue.
    pub const UMR: Self = Self(0x25);
    /// Adds or removes a tag for hardware tag matching.
    pub const TAG_MATCHING: Self = Self(0x28);
    /// Reads or writes flow-table entries through the send queue.
    pub const FLOW_TBL_ACCESS: Self = Self(0x2c);
    /// Memory-to-memory operation; opmod 1 is DMA.
    pub const MMO: Self = Self(0x2f);

    /// Returns the constant's name, such as `"RDMA_WRITE"`, or `None` for an unknown opcode.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NOP => "NOP",
            Self::SEND_INVAL => "SEND_INVAL",
            Self::RDMA_WRITE => "RDMA_WRITE",
            Self::RDMA_WRITE_IMM => "RDMA_WRITE_IMM",
            Self::SEND => "SEND",
            Self::SEND_IMM => "SEND_IMM",
            Self::TSO => "TSO",
            Self::WAIT => "WAIT",
            Self::RDMA_READ => "RDMA_READ",
            Self::ATOMIC_CS => "ATOMIC_CS",
            Self::ATOMIC_FA => "ATOMIC_FA",
            Self::ATOMIC_MASKED_CS => "ATOMIC_MASKED_CS",
            Self::ATOMIC_MASKED_FA => "ATOMIC_MASKED_FA",
            Self::BIND_MW => "BIND_MW",
            Self::FMR => "FMR",
            Self::LOCAL_INVAL => "LOCAL_INVAL",
            Self::CONFIG_CMD => "CONFIG_CMD",
            Self::SET_PSV => "SET_PSV",
            Self::GET_PSV => "GET_PSV",
            Self::CHECK_PSV => "CHECK_PSV",
            Self::DUMP => "DUMP",
            Self::UMR => "UMR",
            Self::TAG_MATCHING => "TAG_MATCHING",
            Self::FLOW_TBL_ACCESS => "FLOW_TBL_ACCESS",
            Self::MMO => "MMO",
            _ => return None,
        })
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The `fm_ce_se` byte of a send entry: fence mode (bits 7:5), completion request (3:2), solicited event (1). Bits 4
/// and 0 are zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// No fence, and a completion-queue entry only if the operation fails.
    pub const NONE: Self = Self(0);
    /// Solicited event: the receiver's CQ raises an event if it is armed for solicited entries.
    pub const SOLICITED: Self = Self(0x02);
    /// A completion-queue entry only for the first error of the queue.
    pub const CQE_ON_FIRST_ERROR: Self = Self(0x04);
    /// A completion-queue entry on success and on failure.
    pub const SIGNALED: Self = Self(0x08);
    /// A completion-queue entry and an event-queue entry, on success and on failure.
    pub const CQE_AND_EQE: Self = Self(0x0c);
    /// Initiator small fence (FM 1): waits for earlier local invalidations and registrations.
    pub const SMALL_FENCE: Self = Self(0x20);
    /// Fence (FM 2): waits for all earlier READs and atomics of this QP.
    pub const FENCE: Self = Self(0x40);
    /// Strong ordering (FM 3): waits for every earlier entry of this QP.
    pub const STRONG_ORDER: Self = Self(0x60);
    /// Fence and small fence (FM 4), which is how libibverbs encodes `IBV_SEND_FENCE`.
    pub const FENCE_AND_SMALL_FENCE: Self = Self(0x80);
    /// Mask of bits 4 and 0, which must be zero.
    pub const RESERVED: u8 = 0x11;

    /// Combines two sets of flags by OR. Different fence modes, or different completion requests, cannot be combined.
    #[inline(always)]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the fence mode, 0 to 7; 5 to 7 are undefined.
    #[inline(always)]
    pub const fn fence_mode(self) -> u8 {
        self.0 >> 5
    }

    /// Returns the completion request (CE), 0 to 3.
    #[inline(always)]
    pub const fn ce(self) -> u8 {
        self.0 >> 2 & 3
    }

    /// Returns whether success yields a completion-queue entry (CE 2 or 3).
    #[inline(always)]
    pub const fn is_signaled(self) -> bool {
        self.ce() >= 2
    }

    /// Returns whether the receiver is asked to raise an event.
    #[inline(always)]
    pub const fn is_solicited(self) -> bool {
        self.0 & Self::SOLICITED.0 != 0
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.ce() {
            0 => "unsignaled",
            1 => "cqe-on-first-error",
            2 => "signaled",
            _ => "signaled+eqe",
        })?;
        if self.is_solicited() {
            f.write_str("+solicited")?;
        }
        match self.fence_mode() {
            0 => {}
            1 => f.write_str("+small-fence")?,
            2 => f.write_str("+fence")?,
            3 => f.write_str("+strong-order")?,
            4 => f.write_str("+fence+small-fence")?,
            fm => write!(f, "+fm{fm}")?,
        }
        match self.0 & Self::RESERVED {
            0 => Ok(()),
            bits => write!(f, "+reserved {bits:#04x}"),
        }
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The control segment of a send entry: operation, index, QP, size, flags and immediate data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CtrlSeg {
    /// Opmod in bits 31:24, WQEBB index in 23:8, opcode in 7:0.
    op: Be32,
    /// QPN in bits 31:8, reserved 7:6, size of the entry in 16-byte segments 5:0.
    qpn_ds: Be32,
    signature: u8,
    dci_stream: [u8; 2],
    fm_ce_se: u8,
    imm: Be32,
}

impl CtrlSeg {
    /// Creates a control segment. `index` is the free-running 16-bit WQEBB index of the entry's first block, `qpn` has
    /// 24 bits, `ds` is the total number of 16-byte segments including this one, at most 63, and `imm` is in host
    /// order. Excess upper bits are dropped.
    #[inline(always)]
    pub const fn new(
        opmod: u8,
        opcode: Opcode,
        index: u16,
        qpn: u32,
        ds: u8,
        flags: Flags,
        imm: u32,
    ) -> Self {
        Self {
            op: Be32::new((opmod as u32) << 24 | (index as u32) << 8 | opcode.0 as u32),
            qpn_ds: Be32::new(qpn << 8 | (ds & 0x3f) as u32),
            signature: 0,
            dci_stream: [0; 2],
            fm_ce_se: flags.0,
            imm: Be32::new(imm),
        }
    }

    /// Sets the DC stream channel. DC initiators without streams ignore it.
    #[inline(always)]
    #[must_use]
    pub const fn with_dci_stream(self, channel: u16) -> Self {
        Self { dci_stream: channel.to_be_bytes(), ..self }
    }

    /// Returns the variant of the opcode. For masked atomics, that is the operand size.
    #[inline(always)]
    pub const fn opmod(self) -> u8 {
        (self.op.get() >> 24) as u8
    }

    /// Returns the index of the entry's first WQEBB, modulo 2^16.
    #[inline(always)]
    pub const fn index(self) -> u16 {
        (self.op.get() >> 8) as u16
    }

    /// Returns the operation that the work-queue entry requests.
    #[inline(always)]
    pub const fn opcode(self) -> Opcode {
        Opcode(self.op.get() as u8)
    }

    /// Returns the QPN of the send queue that holds the entry.
    #[inline(always)]
    pub const fn qpn(self) -> u32 {
        self.qpn_ds.get() >> 8
    }

    /// Returns the size of the entry in 16-byte segments, including this one.
    #[inline(always)]
    pub const fn ds(self) -> u8 {
        (self.qpn_ds.get() & 0x3f) as u8
    }

    /// Returns bits 7:6 of the second word, in place. They must be zero.
    #[inline(always)]
    pub const fn reserved(self) -> u8 {
        (self.qpn_ds.get() & 0xc0) as u8
    }

    /// Returns the XOR signature of the entry; zero unless the QP was created with `wq_signature`.
    #[inline(always)]
    pub const fn signature(self) -> u8 {
        self.signature
    }

    /// Returns the DC stream channel; zero for RC.
    #[inline(always)]
    pub const fn dci_stream(self) -> u16 {
        u16::from_be_bytes(self.dci_stream)
    }

    /// Returns the fence mode, completion request and solicited-event bit.
    #[inline(always)]
    pub const fn flags(self) -> Flags {
        Flags(self.fm_ce_se)
    }

    /// Returns the immediate data, or the rkey to invalidate. Opcodes with neither ignore the field.
    #[inline(always)]
    pub const fn imm(self) -> u32 {
        self.imm.get()
    }

    /// Returns the control segment as 16 raw bytes.
    #[inline(always)]
    pub const fn to_segment(self) -> Segment {
        must_cast(self)
    }

    /// Creates the control segment from 16 raw bytes.
    #[inline(always)]
    pub const fn from_segment(segment: Segment) -> Self {
        must_cast(segment)
    }
}
