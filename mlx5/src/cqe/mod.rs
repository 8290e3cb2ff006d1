//! Completion-queue entries: 64 bytes, written by the NIC and polled by a consumer.
//!
//! A NIC model builds complete entries ([`Cqe::requester`], [`Cqe::responder`], [`Cqe::error`]). A consumer polls the
//! last eight bytes with a single load ([`CqeWord`]). Once [`OpOwn::is_ready`] holds, it reads the rest after an
//! acquire barrier.

mod op_own;
mod syndrome;

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

/// Size of an entry, in bytes.
pub const CQE_BYTES: usize = 64;

/// The last eight bytes of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CqeTail {
    /// Opcode of the work-queue entry 31:24, QPN 23:0.
    pub sop_drop_qpn: Be32,
    /// Index of the first WQEBB of the work-queue entry.
    pub wqe_counter: Be16,
    /// Unused.
    pub signature: u8,
    /// Kind and owner.
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

/// The last eight bytes of an entry (offset [`CqeWord::OFFSET`]), as returned by one little-endian load. GPUs poll in
/// this form, which does not refer to the memory of the entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CqeWord(pub u64);

impl CqeWord {
    /// Offset of the word within the entry.
    pub const OFFSET: usize = 0x38;

    /// Returns the opcode of the work-queue entry that completed.
    #[inline(always)]
    pub const fn opcode(self) -> Opcode {
        Opcode(self.0 as u8)
    }

    /// Returns the QPN.
    #[inline(always)]
    pub const fn qpn(self) -> u32 {
        (self.0 as u32).swap_bytes() & 0xff_ffff
    }

    /// Returns the index of the first WQEBB of that work-queue entry.
    #[inline(always)]
    pub const fn wqe_counter(self) -> u16 {
        ((self.0 >> 32) as u16).swap_bytes()
    }

    /// Returns kind and owner.
    #[inline(always)]
    pub const fn op_own(self) -> OpOwn {
        OpOwn((self.0 >> 56) as u8)
    }

    /// Returns the word as the tail of an entry.
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

/// A 64-byte entry, requester or responder. For an error entry see [`Cqe::as_error`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Cqe {
    /// Zero.
    pub reserved0: [u8; 2],
    /// Striding receive queues only.
    pub wqe_id: Be16,
    /// Zero.
    pub reserved1: [u8; 13],
    /// Datagram receive only.
    pub ml_path: u8,
    /// Zero.
    pub reserved2: [u8; 4],
    /// Sender's LID, receive only.
    pub slid: Be16,
    /// Global route header 29:28, service level 27:24, remote QPN 23:0; receive only. On Ethernet, 27:24 are the packet
    /// type instead ([`Reception::sl`]).
    pub flags_rqpn: Be32,
    /// Ethernet only.
    pub hds_ip_ext: u8,
    /// Ethernet only.
    pub l4_hdr_type: u8,
    /// Ethernet only.
    pub vlan_info: Be16,
    /// The QP's user index (CQE version 1), or the SRQN.
    pub srqn_uidx: Be32,
    /// Immediate data, or the invalidated rkey; receive only.
    pub imm_inval_pkey: Be32,
    /// Signature and tag matching only.
    pub app: u8,
    /// Signature and tag matching only.
    pub app_op: u8,
    /// Signature and tag matching only.
    pub app_info: Be16,
    /// Bytes received, or read by an RDMA READ or atomic.
    pub byte_cnt: Be32,
    /// The NIC's free-running clock.
    pub timestamp: Be64,
    /// Opcode, QPN, index, kind, owner.
    pub tail: CqeTail,
}

/// The contents of a requester entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Opcode of the work-queue entry that completed.
    pub opcode: Opcode,
    /// QPN, 24 bits.
    pub qpn: u32,
    /// Index of the first WQEBB of that work-queue entry.
    pub wqe_counter: u16,
    /// The QP's user index, 24 bits.
    pub user_index: u32,
    /// Bytes read by an RDMA READ, or the operand size of an atomic.
    pub byte_cnt: u32,
    /// The NIC's clock.
    pub timestamp: u64,
}

/// The contents of a responder entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    /// One of the `RESP_*` kinds.
    pub kind: CqeOpcode,
    /// QPN of the receiver, 24 bits.
    pub qpn: u32,
    /// Index of the receive entry that was consumed.
    pub wqe_counter: u16,
    /// The QP's user index, or the SRQN, 24 bits.
    pub srqn_uidx: u32,
    /// QPN of the sender, 24 bits; zero on a connection.
    pub remote_qpn: u32,
    /// The sender's LID; zero on a connection.
    pub slid: u16,
    /// Whether the receive buffer starts with 40 bytes for a global route header (or an IPv4 header in the last 20 of
    /// them).
    pub grh: bool,
    /// The service level, 4 bits. For a datagram on Ethernet, the packet type: [`Reception::ROCE_V2_IPV4`].
    pub sl: u8,
    /// Immediate data, or the invalidated rkey.
    pub imm: u32,
    /// Length of the payload, in bytes.
    pub byte_cnt: u32,
    /// The NIC's clock.
    pub timestamp: u64,
    /// Whether the sender requested an event.
    pub solicited: bool,
}

impl Reception {
    /// [`Reception::sl`] of a datagram received as RoCEv2 over IPv4: bit 3 for UDP, and 2 for IPv4.
    pub const ROCE_V2_IPV4: u8 = 0b1010;
}

/// The contents of an error entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// [`CqeOpcode::REQ_ERR`] or [`CqeOpcode::RESP_ERR`].
    pub kind: CqeOpcode,
    /// Opcode of the work-queue entry that failed.
    pub opcode: Opcode,
    /// QPN, 24 bits.
    pub qpn: u32,
    /// Index of the first WQEBB of that work-queue entry.
    pub wqe_counter: u16,
    /// The QP's user index, or the SRQN, 24 bits.
    pub srqn_uidx: u32,
    /// Why the entry failed.
    pub syndrome: Syndrome,
    /// The vendor's syndrome.
    pub vendor_syndrome: u8,
}

impl Cqe {
    /// Returns an empty slot: all zero except for `op_own`, which is [`OpOwn::EMPTY`] or [`OpOwn::EMPTY_OWNED_BY_NIC`].
    pub const fn empty(op_own: OpOwn) -> Self {
        let mut bytes = [0; CQE_BYTES];
        bytes[CQE_BYTES - 1] = op_own.0;
        must_cast(bytes)
    }

    /// Returns the entry for a send work-queue entry that succeeded.
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

    /// Returns the last entry of a queue that continues in other memory after a resize.
    pub fn resized(owner: bool) -> Self {
        let op_own = OpOwn::new(CqeOpcode::RESIZE_CQ, false, owner);
        Self { tail: CqeTail::new(Opcode(0), 0, 0, op_own), ..Self::default() }
    }

    /// Returns the entry for a message received.
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

    /// Returns the entry for a work-queue entry that failed.
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

    /// Returns the opcode of the work-queue entry. Meaningful for requester and error entries.
    pub const fn opcode(&self) -> Opcode {
        Opcode((self.tail.sop_drop_qpn.get() >> 24) as u8)
    }

    /// Returns the QPN.
    pub const fn qpn(&self) -> u32 {
        self.tail.sop_drop_qpn.get() & 0xff_ffff
    }

    /// Returns the index of the first WQEBB of the work-queue entry.
    pub const fn wqe_counter(&self) -> u16 {
        self.tail.wqe_counter.get()
    }

    /// Returns the QP's user index, or the SRQN.
    pub const fn user_index(&self) -> u32 {
        self.srqn_uidx.get() & 0xff_ffff
    }

    /// Returns the number of bytes received or read.
    pub const fn byte_cnt(&self) -> u32 {
        self.byte_cnt.get()
    }

    /// Returns the NIC's clock at completion.
    pub const fn timestamp(&self) -> u64 {
        self.timestamp.get()
    }

    /// Returns the immediate data, or the invalidated rkey.
    pub const fn imm(&self) -> u32 {
        self.imm_inval_pkey.get()
    }

    /// Returns kind and owner.
    pub const fn op_own(&self) -> OpOwn {
        self.tail.op_own
    }

    /// Returns the word that consumers poll.
    pub fn word(&self) -> CqeWord {
        self.tail.into()
    }

    /// Returns the entry as an error entry, if it is one.
    pub fn as_error(&self) -> Option<&ErrCqe> {
        self.op_own().opcode().is_error().then(|| must_cast_ref(self))
    }

    /// Returns the entry with these bytes.
    pub const fn from_bytes(bytes: [u8; CQE_BYTES]) -> Self {
        must_cast(bytes)
    }

    /// Returns the bytes, in memory order.
    pub const fn to_bytes(self) -> [u8; CQE_BYTES] {
        must_cast(self)
    }
}

/// A 64-byte error entry (kind [`CqeOpcode::REQ_ERR`] or [`CqeOpcode::RESP_ERR`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct ErrCqe {
    /// Zero.
    pub reserved0: [u8; 32],
    /// The QP's user index, or the SRQN.
    pub srqn_uidx: Be32,
    /// Zero.
    pub reserved1: [u8; 16],
    /// The hardware's own error code.
    pub hw_err_synd: u8,
    /// Type of the hardware's own error code.
    pub hw_synd_type: u8,
    /// The vendor's error code, for support tickets.
    pub vendor_err_synd: u8,
    /// Why the entry failed.
    pub syndrome: Syndrome,
    /// Opcode, QPN, index, kind, owner.
    pub tail: CqeTail,
}

impl ErrCqe {
    /// Returns the contents of the entry.
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
