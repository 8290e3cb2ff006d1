//! Completion-queue entries: 64 bytes, written by the NIC and polled by a consumer.
//!
//! A NIC model builds complete entries ([`Cqe::requester`], [`Cqe::responder`], [`Cqe::error`]). A consumer polls the
//! last eight bytes with a single load ([`CqeWord`]). Once [`OpOwn::is_ready`] holds, it reads the rest after an
//! acquire barrier.

mod frame;
mod op_own;
mod syndrome;

pub use frame::FrameReception;
pub use op_own::{CqeOpcode, OpOwn, owner_bit};
pub use syndrome::Syndrome;

use crate::{
    be::{Be16, Be32, Be64},
    ctrl::Opcode,
};
use bytemuck::{Pod, Zeroable, must_cast, must_cast_ref};
use core::{
    fmt,
    mem::{offset_of, size_of},
};

/// Size of a completion-queue entry, in bytes.
pub const CQE_BYTES: usize = 64;

/// The last eight bytes of a completion-queue entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CqeTail {
    /// Bits 31:24: opcode of the completed work-queue entry. Bits 23:0: QPN.
    pub sop_drop_qpn: Be32,
    /// Index of the first 64-byte block (WQEBB) of the completed work-queue entry.
    pub wqe_counter: Be16,
    /// XOR signature of the entry. Unused, so zero.
    pub signature: u8,
    /// Kind of the entry and its owner bit.
    pub op_own: OpOwn,
}

impl CqeTail {
    #[inline(always)]
    const fn new(opcode: Opcode, qpn: u32, wqe_counter: u16, op_own: OpOwn) -> Self {
        Self {
            sop_drop_qpn: Be32::new((opcode.0 as u32) << 24 | qpn & 0xff_ffff),
            wqe_counter: Be16::new(wqe_counter),
            signature: 0,
            op_own,
        }
    }
}

/// The last eight bytes of a completion-queue entry (offset [`CqeWord::OFFSET`]), as returned by one little-endian
/// load. GPU code polls this word because it is a value and borrows no memory of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CqeWord(pub u64);

impl CqeWord {
    /// Offset of the word within the 64-byte completion-queue entry.
    pub const OFFSET: usize = 0x38;

    /// Returns the opcode of the work-queue entry that completed.
    #[inline(always)]
    pub const fn opcode(self) -> Opcode {
        Opcode(self.0 as u8)
    }

    /// Returns the QPN of the QP whose work completed, 24 bits.
    #[inline(always)]
    pub const fn qpn(self) -> u32 {
        (self.0 as u32).swap_bytes() & 0xff_ffff
    }

    /// Returns the index of the completed work-queue entry's first 64-byte block (WQEBB).
    #[inline(always)]
    pub const fn wqe_counter(self) -> u16 {
        ((self.0 >> 32) as u16).swap_bytes()
    }

    /// Returns the last byte of the entry: its kind and owner bit.
    #[inline(always)]
    pub const fn op_own(self) -> OpOwn {
        OpOwn((self.0 >> 56) as u8)
    }

    /// Returns the word's eight bytes as a struct of big-endian fields.
    pub const fn tail(self) -> CqeTail {
        must_cast(self.0.to_le_bytes())
    }
}

impl From<CqeTail> for CqeWord {
    fn from(tail: CqeTail) -> Self {
        Self(u64::from_le_bytes(must_cast(tail)))
    }
}

impl fmt::Debug for CqeWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.tail(), f)
    }
}

/// A 64-byte completion-queue entry of the requester or responder. For an error entry see [`Cqe::as_error`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Cqe {
    /// Reserved, zero.
    pub reserved0: [u8; 2],
    /// Work-queue entry that was consumed; only with a striding receive queue.
    pub wqe_id: Be16,
    /// Reserved, zero.
    pub reserved1: [u8; 8],
    /// Hash by which the receive queue was chosen; only for received frames.
    pub rss_hash_result: Be32,
    /// What `rss_hash_result` covers: [`FrameReception::HASH_IP`], [`FrameReception::HASH_L4`].
    pub rss_hash_type: u8,
    /// Path bits of the destination LID; only for received datagrams.
    pub ml_path: u8,
    /// Reserved, zero.
    pub reserved2: [u8; 2],
    /// Ones' complement sum of a received frame after its Ethernet header.
    pub check_sum: Be16,
    /// LID of the sender. Only set in received messages.
    pub slid: Be16,
    /// Global route header 29:28, service level 27:24, remote QPN 23:0; receive only. On Ethernet, 27:24 are the packet
    /// type instead ([`Reception::sl`]).
    pub flags_rqpn: Be32,
    /// Which layers of a received frame are correct; not used by RDMA.
    pub hds_ip_ext: u8,
    /// Header types of a received frame, and whether its VLAN tag was removed; not used by RDMA.
    pub l4_hdr_type: u8,
    /// VLAN tag removed from a received frame; not used by RDMA.
    pub vlan_info: Be16,
    /// User index of the QP (CQE version 1), or the shared receive queue number (SRQN).
    pub srqn_uidx: Be32,
    /// Immediate data, or the rkey that a SEND with invalidate named. Only set in received messages.
    pub imm_inval_pkey: Be32,
    /// Application that produced the entry (signature or tag matching only).
    pub app: u8,
    /// Operation of the application in `app` (signature or tag matching only).
    pub app_op: u8,
    /// Details of the operation in `app_op` (signature or tag matching only).
    pub app_info: Be16,
    /// Number of bytes received, or returned by an RDMA READ or atomic.
    pub byte_cnt: Be32,
    /// Time of the completion, in ticks of the NIC's free-running clock.
    pub timestamp: Be64,
    /// The last eight bytes: opcode, QPN, WQE index, kind and owner bit.
    pub tail: CqeTail,
}

/// The decoded contents of a requester's completion: a send work-queue entry that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Opcode of the work-queue entry that completed.
    pub opcode: Opcode,
    /// QPN of the send queue, 24 bits.
    pub qpn: u32,
    /// Index of the completed work-queue entry's first 64-byte block (WQEBB).
    pub wqe_counter: u16,
    /// User index of the QP, 24 bits: an ID that software chose.
    pub user_index: u32,
    /// Bytes read by an RDMA READ, or the operand size of an atomic.
    pub byte_cnt: u32,
    /// Time of the completion, in ticks of the NIC's free-running clock.
    pub timestamp: u64,
}

/// The decoded contents of a responder's completion: a message that arrived and consumed a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    /// Kind of message: one of the [`CqeOpcode`] constants `RESP_*`.
    pub kind: CqeOpcode,
    /// QPN of the receiver, 24 bits.
    pub qpn: u32,
    /// Index of the receive entry that was consumed.
    pub wqe_counter: u16,
    /// User index of the QP, or the shared receive queue number (SRQN); 24 bits.
    pub srqn_uidx: u32,
    /// QPN of the sender, 24 bits; zero on a connection.
    pub remote_qpn: u32,
    /// LID of the sender; zero on a connection.
    pub slid: u16,
    /// Whether the receive buffer starts with 40 bytes for a global route header (or an IPv4 header in the last 20 of
    /// them).
    pub grh: bool,
    /// Service level, 4 bits. For a datagram on Ethernet, the packet type: [`Reception::ROCE_V2_IPV4`].
    pub sl: u8,
    /// Immediate data, or the rkey that a SEND with invalidate named.
    pub imm: u32,
    /// Length of the payload, in bytes.
    pub byte_cnt: u32,
    /// Time of the completion, in ticks of the NIC's free-running clock.
    pub timestamp: u64,
    /// Whether the sender set the solicited-event bit.
    pub solicited: bool,
}

impl Reception {
    /// [`Reception::sl`] of a datagram received as RoCEv2 over IPv4: bit 3 for UDP, and 2 for IPv4.
    pub const ROCE_V2_IPV4: u8 = 0b1010;
    /// [`Reception::sl`] of a datagram received as RoCEv2 over IPv6.
    pub const ROCE_V2_IPV6: u8 = 0b1001;
}

/// The decoded contents of an error completion: a send or receive entry that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which side failed: [`CqeOpcode::REQ_ERR`] for a send entry, [`CqeOpcode::RESP_ERR`] for a receive entry.
    pub kind: CqeOpcode,
    /// Opcode of the work-queue entry that failed.
    pub opcode: Opcode,
    /// QPN of the QP that failed, 24 bits.
    pub qpn: u32,
    /// Index of the failed work-queue entry's first 64-byte block (WQEBB).
    pub wqe_counter: u16,
    /// User index of the QP, or the shared receive queue number (SRQN); 24 bits.
    pub srqn_uidx: u32,
    /// Why the work-queue entry failed, as an InfiniBand error class.
    pub syndrome: Syndrome,
    /// Vendor-specific error code of the firmware.
    pub vendor_syndrome: u8,
}

impl Cqe {
    /// Returns an unused completion-queue slot: all zero except for `op_own`, which is [`OpOwn::EMPTY`] or
    /// [`OpOwn::EMPTY_OWNED_BY_NIC`].
    pub const fn empty(op_own: OpOwn) -> Self {
        let mut bytes = [0; CQE_BYTES];
        bytes[CQE_BYTES - 1] = op_own.0;
        must_cast(bytes)
    }

    /// Encodes the completion of a send work-queue entry that succeeded. `owner` is the bit from [`owner_bit`].
    pub fn requester(done: &Completion, owner: bool) -> Self {
        Self {
            srqn_uidx: Be32::new(done.user_index & 0xff_ffff),
            byte_cnt: Be32::new(done.byte_cnt),
            timestamp: Be64::new(done.timestamp),
            tail: CqeTail::new(
                done.opcode,
                done.qpn,
                done.wqe_counter,
                OpOwn::new(CqeOpcode::REQ, false, owner),
            ),
            ..Self::default()
        }
    }

    /// Creates the entry that a NIC writes last to the old buffer of a completion queue when the queue is resized.
    pub fn resized(owner: bool) -> Self {
        let op_own = OpOwn::new(CqeOpcode::RESIZE_CQ, false, owner);
        Self { tail: CqeTail::new(Opcode(0), 0, 0, op_own), ..Self::default() }
    }

    /// Encodes the completion of a received message. `owner` is the bit from [`owner_bit`].
    pub fn responder(got: &Reception, owner: bool) -> Self {
        Self {
            slid: Be16::new(got.slid),
            flags_rqpn: Be32::new(
                (got.grh as u32) << 28 | (got.sl as u32 & 0xf) << 24 | got.remote_qpn & 0xff_ffff,
            ),
            srqn_uidx: Be32::new(got.srqn_uidx & 0xff_ffff),
            imm_inval_pkey: Be32::new(got.imm),
            byte_cnt: Be32::new(got.byte_cnt),
            timestamp: Be64::new(got.timestamp),
            tail: CqeTail::new(
                Opcode(0),
                got.qpn,
                got.wqe_counter,
                OpOwn::new(got.kind, got.solicited, owner),
            ),
            ..Self::default()
        }
    }

    /// Encodes the completion of a work-queue entry that failed. `owner` is the bit from [`owner_bit`].
    pub fn error(failure: &Failure, owner: bool) -> Self {
        let cqe = ErrCqe {
            srqn_uidx: Be32::new(failure.srqn_uidx & 0xff_ffff),
            vendor_err_synd: failure.vendor_syndrome,
            syndrome: failure.syndrome,
            tail: CqeTail::new(
                failure.opcode,
                failure.qpn,
                failure.wqe_counter,
                OpOwn::new(failure.kind, false, owner),
            ),
            ..ErrCqe::default()
        };
        must_cast(cqe)
    }

    /// Returns the opcode of the completed work-queue entry. Meaningful for requester and error entries.
    pub const fn opcode(&self) -> Opcode {
        Opcode((self.tail.sop_drop_qpn.get() >> 24) as u8)
    }

    /// Returns the QPN of the QP whose work completed, 24 bits.
    pub const fn qpn(&self) -> u32 {
        self.tail.sop_drop_qpn.get() & 0xff_ffff
    }

    /// Returns the index of the completed work-queue entry's first 64-byte block (WQEBB).
    pub const fn wqe_counter(&self) -> u16 {
        self.tail.wqe_counter.get()
    }

    /// Returns the QP's user index, or the shared receive queue number (SRQN); 24 bits.
    pub const fn user_index(&self) -> u32 {
        self.srqn_uidx.get() & 0xff_ffff
    }

    /// Returns the number of bytes received, or returned by an RDMA READ or atomic.
    pub const fn byte_cnt(&self) -> u32 {
        self.byte_cnt.get()
    }

    /// Returns the time of the completion, in ticks of the NIC's free-running clock.
    pub const fn timestamp(&self) -> u64 {
        self.timestamp.get()
    }

    /// Returns the immediate data, or the rkey that a SEND with invalidate named.
    pub const fn imm(&self) -> u32 {
        self.imm_inval_pkey.get()
    }

    /// Returns the last byte of the entry: its kind and owner bit.
    pub const fn op_own(&self) -> OpOwn {
        self.tail.op_own
    }

    /// Returns the last eight bytes, which consumers poll.
    pub fn word(&self) -> CqeWord {
        self.tail.into()
    }

    /// Reinterprets the bytes as an error entry, or returns `None` if the kind is not an error.
    pub fn as_error(&self) -> Option<&ErrCqe> {
        self.op_own().opcode().is_error().then(|| must_cast_ref(self))
    }

    /// Reinterprets 64 bytes of a completion queue as an entry. All bit patterns are valid.
    pub const fn from_bytes(bytes: [u8; CQE_BYTES]) -> Self {
        must_cast(bytes)
    }

    /// Returns the 64 bytes of the entry in memory order.
    pub const fn to_bytes(self) -> [u8; CQE_BYTES] {
        must_cast(self)
    }
}

/// A 64-byte completion-queue entry of kind [`CqeOpcode::REQ_ERR`] or [`CqeOpcode::RESP_ERR`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct ErrCqe {
    /// Reserved, zero.
    pub reserved0: [u8; 32],
    /// User index of the QP, or the shared receive queue number (SRQN); 24 bits.
    pub srqn_uidx: Be32,
    /// Reserved, zero.
    pub reserved1: [u8; 16],
    /// The hardware's own error code.
    pub hw_err_synd: u8,
    /// Type of the hardware's error code in `hw_err_synd`.
    pub hw_synd_type: u8,
    /// Vendor-specific error code of the firmware.
    pub vendor_err_synd: u8,
    /// Why the work-queue entry failed, as an InfiniBand error class.
    pub syndrome: Syndrome,
    /// The last eight bytes: opcode, QPN, WQE index, kind and owner bit.
    pub tail: CqeTail,
}

impl ErrCqe {
    /// Decodes the error entry into host-order fields.
    pub const fn failure(&self) -> Failure {
        Failure {
            kind: self.tail.op_own.opcode(),
            opcode: Opcode((self.tail.sop_drop_qpn.get() >> 24) as u8),
            qpn: self.tail.sop_drop_qpn.get() & 0xff_ffff,
            wqe_counter: self.tail.wqe_counter.get(),
            srqn_uidx: self.srqn_uidx.get() & 0xff_ffff,
            syndrome: self.syndrome,
            vendor_syndrome: self.vendor_err_synd,
        }
    }
}

const _: () = {
    assert!(size_of::<Cqe>() == CQE_BYTES && size_of::<ErrCqe>() == CQE_BYTES);
    assert!(offset_of!(Cqe, ml_path) == 0x11);
    assert!(offset_of!(Cqe, slid) == 0x16);
    assert!(offset_of!(Cqe, srqn_uidx) == 0x20 && offset_of!(ErrCqe, srqn_uidx) == 0x20);
    assert!(offset_of!(Cqe, byte_cnt) == 0x2c);
    assert!(offset_of!(Cqe, timestamp) == 0x30);
    assert!(offset_of!(Cqe, tail) == CqeWord::OFFSET && offset_of!(ErrCqe, tail) == CqeWord::OFFSET);
    assert!(offset_of!(ErrCqe, vendor_err_synd) == 0x36 && offset_of!(ErrCqe, syndrome) == 0x37);
    assert!(offset_of!(CqeTail, op_own) == 7 && size_of::<CqeTail>() == 8);
};

#[cfg(test)]
mod tests;
