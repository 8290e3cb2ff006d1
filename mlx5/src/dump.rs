//! One-line `Display` output for wire structures: [`Wqe`], [`View`], [`Cqe`], [`ErrCqe`], [`Doorbell`].
//!
//! ```
//! use rushmem_mlx5::{Flags, View, Wqe};
//!
//! let entry = Wqe::Read { raddr: 0x1000, rkey: 0x1800, laddr: 0x2000, lkey: 0x2000, len: 256 };
//! let entry = entry.emit(0x13, 0x1a7, Flags::SIGNALED);
//! assert_eq!(
//!     View::parse(entry.segments()).unwrap().to_string(),
//!     "qp 0x1a7 [0x13] RDMA_READ ds 3 signaled remote 0x1000 rkey 0x1800 data 256 B at 0x2000 lkey 0x2000",
//! );
//! ```

use crate::{
    Cqe, Doorbell, ErrCqe, Flags, View, Wqe,
    wqe::{Atomic, Data},
};
use core::fmt::{self, Display, Formatter};

use crate::hex::hex;

impl Display for View<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ctrl = self.ctrl();
        write!(
            f,
            "qp {:#x} [{:#x}] {} ds {} {}",
            ctrl.qpn(),
            ctrl.index(),
            ctrl.opcode(),
            ctrl.ds(),
            ctrl.flags()
        )?;
        body(self, f)
    }
}

/// Prints the operation and its operands. A `Wqe` does not know its QP and index.
impl Display for Wqe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.opcode())?;
        match View::parse(self.emit(0, 0, Flags::NONE).segments()) {
            Ok(view) => body(&view, f),
            Err(malformed) => write!(f, " ({malformed})"),
        }
    }
}

fn body(view: &View<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    if let Some(av) = view.av() {
        if view.is_dc() {
            write!(f, " to dct {:#x} key {:#x}", av.qpn(), av.dc_key())?;
        } else {
            write!(f, " to qp {:#x} qkey {:#x}", av.qpn(), av.qkey.get())?;
        }
        write!(f, " lid {:#x}", av.rlid.get())?;
        if av.is_extended() {
            write!(f, " gid ")?;
            hex(&av.rgid, f)?;
            write!(f, " mac ")?;
            hex(&av.rmac, f)?;
        }
    }
    if let Some(srqn) = view.xrc_srqn() {
        write!(f, " to xrc srq {srqn:#x}")?;
    }
    if let Some(imm) = view.imm() {
        write!(f, " imm {imm:#x}")?;
    }
    if let Some(remote) = view.remote() {
        write!(f, " remote {:#x} rkey {:#x}", remote.addr.get(), remote.rkey.get())?;
    }
    if let Some(atomic) = view.atomic() {
        write!(f, " {atomic}")?;
    }
    if let Some(wait) = view.wait() {
        write!(f, " for index {:#x} of cq {:#x}", wait.index.get(), wait.cqn.get())?;
    }
    view.data().try_for_each(|data| write!(f, " {data}"))
}

impl Display for Data<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(segment) => {
                let (len, addr, lkey) = (segment.len.get(), segment.addr.get(), segment.lkey.get());
                write!(f, "data {len} B at {addr:#x} lkey {lkey:#x}")
            }
            Self::Inline(bytes) => {
                write!(f, "inline {} B ", bytes.len())?;
                hex(bytes, f)
            }
        }
    }
}

impl Display for Atomic {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::FetchAdd { add } => write!(f, "add {add:#x}"),
            Self::CompareSwap { compare, swap } => write!(f, "compare {compare:#x} swap {swap:#x}"),
            Self::MaskedFetchAdd32 { add, boundary } => {
                write!(f, "32-bit add {add:#x} boundary {boundary:#x}")
            }
            Self::MaskedFetchAdd64 { add, boundary } => {
                write!(f, "64-bit add {add:#x} boundary {boundary:#x}")
            }
            Self::MaskedCompareSwap32 { compare, swap, compare_mask, swap_mask } => {
                write!(f, "32-bit compare {compare:#x}/{compare_mask:#x} swap {swap:#x}/{swap_mask:#x}")
            }
            Self::MaskedCompareSwap64 { compare, swap, compare_mask, swap_mask } => {
                write!(f, "64-bit compare {compare:#x}/{compare_mask:#x} swap {swap:#x}/{swap_mask:#x}")
            }
        }
    }
}

impl Display for Cqe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(error) = self.as_error() {
            return error.fmt(f);
        }
        let op_own = self.op_own();
        write!(f, "qp {:#x} [{:#x}] {:?}", self.qpn(), self.wqe_counter(), op_own)?;
        if op_own.opcode() == crate::CqeOpcode::REQ {
            write!(f, " {}", self.opcode())?;
        } else {
            write!(f, " imm {:#x}", self.imm())?;
        }
        write!(f, " uidx {:#x} {} B at time {:#x}", self.user_index(), self.byte_cnt(), self.timestamp())
    }
}

impl Display for ErrCqe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let failure = self.failure();
        write!(
            f,
            "qp {:#x} [{:#x}] {:?} {} uidx {:#x} {} (vendor {:#04x}): {}",
            failure.qpn,
            failure.wqe_counter,
            self.tail.op_own,
            failure.opcode,
            failure.srqn_uidx,
            failure.syndrome,
            failure.vendor_syndrome,
            failure.syndrome.meaning(),
        )
    }
}

impl Display for Doorbell {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "qp {:#x} posted up to [{:#x}]", self.qpn(), self.producer_index())
    }
}
