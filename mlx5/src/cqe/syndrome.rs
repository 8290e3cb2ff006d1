//! Error syndromes: why a work-queue entry failed, as error completions report it.

use bytemuck::{Pod, Zeroable};
use core::fmt;

/// The syndrome byte of an error completion.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Syndrome(pub u8);

impl Syndrome {
    /// Returns whether the error concerns the connection rather than the operation: the peer does not answer, or the QP is
    /// in the error state.
    #[inline(always)]
    pub const fn is_connection_failure(self) -> bool {
        matches!(self, Self::TRANSPORT_RETRY_EXC_ERR | Self::WR_FLUSH_ERR)
    }

    /// The message does not fit the buffers, or is longer than the QP allows.
    pub const LOCAL_LENGTH_ERR: Self = Self(0x01);
    /// The work-queue entry is malformed, or its operation is invalid for the QP.
    pub const LOCAL_QP_OP_ERR: Self = Self(0x02);
    /// A local buffer has a bad lkey, lies out of range or lacks permission.
    pub const LOCAL_PROT_ERR: Self = Self(0x04);
    /// The entry was flushed without being executed, because an earlier one failed.
    pub const WR_FLUSH_ERR: Self = Self(0x05);
    /// A memory window could not be bound.
    pub const MW_BIND_ERR: Self = Self(0x06);
    /// The response was malformed or unexpected.
    pub const BAD_RESP_ERR: Self = Self(0x10);
    /// The responder's own memory access failed.
    pub const LOCAL_ACCESS_ERR: Self = Self(0x11);
    /// The target rejected the operation.
    pub const REMOTE_INVAL_REQ_ERR: Self = Self(0x12);
    /// The target address has a bad rkey, lies out of range or lacks permission.
    pub const REMOTE_ACCESS_ERR: Self = Self(0x13);
    /// The target could not execute the operation.
    pub const REMOTE_OP_ERR: Self = Self(0x14);
    /// The peer sent no acknowledgement, even after all retries.
    pub const TRANSPORT_RETRY_EXC_ERR: Self = Self(0x15);
    /// The receiver was not ready (RNR NAK), even after all retries.
    pub const RNR_RETRY_EXC_ERR: Self = Self(0x16);
    /// The target aborted the operation.
    pub const REMOTE_ABORTED_ERR: Self = Self(0x22);

    /// Returns the constant's name, such as `"REMOTE_ACCESS_ERR"`, or `None` for an unknown syndrome.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::LOCAL_LENGTH_ERR => "LOCAL_LENGTH_ERR",
            Self::LOCAL_QP_OP_ERR => "LOCAL_QP_OP_ERR",
            Self::LOCAL_PROT_ERR => "LOCAL_PROT_ERR",
            Self::WR_FLUSH_ERR => "WR_FLUSH_ERR",
            Self::MW_BIND_ERR => "MW_BIND_ERR",
            Self::BAD_RESP_ERR => "BAD_RESP_ERR",
            Self::LOCAL_ACCESS_ERR => "LOCAL_ACCESS_ERR",
            Self::REMOTE_INVAL_REQ_ERR => "REMOTE_INVAL_REQ_ERR",
            Self::REMOTE_ACCESS_ERR => "REMOTE_ACCESS_ERR",
            Self::REMOTE_OP_ERR => "REMOTE_OP_ERR",
            Self::TRANSPORT_RETRY_EXC_ERR => "TRANSPORT_RETRY_EXC_ERR",
            Self::RNR_RETRY_EXC_ERR => "RNR_RETRY_EXC_ERR",
            Self::REMOTE_ABORTED_ERR => "REMOTE_ABORTED_ERR",
            _ => return None,
        })
    }

    /// Describes the likely cause and the remedy in one sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::LOCAL_LENGTH_ERR => {
                "the message is longer than the buffer that receives it or than the QP's message limit (1 GiB): \
                 check the length, or split the transfer"
            }
            Self::LOCAL_QP_OP_ERR => {
                "the NIC found the work-queue entry malformed (opcode, size or operand size): check that the NIC \
                 supports the operation, otherwise this is a bug in the code that built the entry"
            }
            Self::LOCAL_PROT_ERR => {
                "the local buffer is not covered by its lkey: check that it is registered with this NIC, lies within \
                 the region and permits the access"
            }
            Self::WR_FLUSH_ERR => {
                "the entry was flushed because an earlier one on the same QP failed: look for the first error of this QP"
            }
            Self::MW_BIND_ERR => {
                "binding a memory window failed: check that the region permits binding and the range"
            }
            Self::BAD_RESP_ERR => {
                "the peer's answer does not fit the request: check that both ends agree on QP numbers and packet \
                 sequence, and that the fabric does not corrupt packets"
            }
            Self::LOCAL_ACCESS_ERR => {
                "the target's NIC could not access its own memory for this operation: check the target's registration"
            }
            Self::REMOTE_INVAL_REQ_ERR => {
                "the target refused the operation: check that its QP permits remote reads, writes and atomics, that \
                 the operand is aligned and of a supported size, and the number of outstanding reads"
            }
            Self::REMOTE_ACCESS_ERR => {
                "the target address is not covered by its rkey: check that the offset and length lie within the \
                 symmetric heap and that the region permits the access"
            }
            Self::REMOTE_OP_ERR => {
                "the target failed while carrying the operation out: look at the target's own log and QP state"
            }
            Self::TRANSPORT_RETRY_EXC_ERR => {
                "the peer did not acknowledge after all retries: check that it is alive, and the network path, cable \
                 and MTU between the two NICs"
            }
            Self::RNR_RETRY_EXC_ERR => {
                "the peer had no receive buffer posted through all retries: post receives, or raise rnr_retry"
            }
            Self::REMOTE_ABORTED_ERR => {
                "the target aborted the operation: look at the target's own log; vendor syndrome 0x93 is a page fault"
            }
            _ => {
                "the NIC reported a code that this version does not know: look it up with the vendor syndrome"
            }
        }
    }
}

impl fmt::Debug for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "syndrome {:#04x}", self.0),
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
