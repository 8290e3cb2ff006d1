//! Errors that kernels recorded, as one line for a person.

use std::fmt;

use rushmem_device::Error as Code;
use rushmem_device::abi::{ControlPage, ErrorRecord, RECORDS};
use rushmem_mlx5::{Opcode, Syndrome};

/// An error that a kernel met, with its circumstances.
#[derive(Clone, Copy, Debug)]
pub struct DeviceError {
    record: ErrorRecord,
}

impl DeviceError {
    /// What the call returned to the kernel; `None` if the kernel was built from another version of this crate.
    pub fn code(&self) -> Option<Code> {
        Code::from_code(self.record.code)
    }

    /// The record as the kernel wrote it.
    pub fn record(&self) -> &ErrorRecord {
        &self.record
    }

    /// Syndrome of the completion that ended the QP, if that is what happened.
    pub fn syndrome(&self) -> Option<Syndrome> {
        (self.code() == Some(Code::Completion)).then_some(Syndrome(self.record.syndrome as u8))
    }

    /// True if the QP ended because its other end did.
    pub(crate) fn is_flush(&self) -> bool {
        self.syndrome() == Some(Syndrome::WR_FLUSH_ERR)
    }

    /// True for what happens to a kernel whose peer has died.
    pub(crate) fn is_explained_by_loss(&self) -> bool {
        match self.code() {
            Some(Code::Aborted | Code::Timeout | Code::WaitTimeout | Code::Unconnected) => true,
            _ => self.is_flush() || self.syndrome() == Some(Syndrome::TRANSPORT_RETRY_EXC_ERR),
        }
    }

    fn site(&self) -> String {
        let r = &self.record;
        let file = String::from_utf8_lossy(r.file.get(..r.file_len as usize).unwrap_or_default());
        format!("{file}:{} (block {}, thread {})", r.line, r.block, r.thread)
    }

    fn remedy(&self) -> &'static str {
        match self.code() {
            Some(Code::WaitTimeout) if self.record.peer != u32::MAX => {
                "every member must make the same calls; see whether it still runs, or raise RUSHMEM_TIMEOUT"
            }
            Some(Code::WaitTimeout) => {
                "see whether the PE that should signal still runs, or raise RUSHMEM_TIMEOUT"
            }
            Some(Code::Timeout) if self.record.qpn == 0 => {
                "every block of the grid must call it, the same number of times"
            }
            Some(Code::Timeout) => {
                "the NIC did not complete in time: see whether the peer still runs, or raise RUSHMEM_TIMEOUT"
            }
            Some(Code::Completion) if self.syndrome() == Some(Syndrome::WR_FLUSH_ERR) => {
                "the completion that told the cause was overwritten: run with RUSHMEM_CQ=ring to see it"
            }
            Some(Code::Unconnected) => {
                "see whether that PE's process still runs and answers its launcher, or raise RUSHMEM_TIMEOUT"
            }
            Some(Code::TeamBusy) => {
                "one thread, warp or block of each PE uses a team at a time: make a team for each"
            }
            Some(Code::TeamFailed) => "see the error of that call",
            Some(Code::NoQp) => {
                "raise RUSHMEM_BLOCK_QPS, _EXCLUSIVE_QPS, _CONTEXT_QPS or _QPS_PER_PEER to what the kernel uses"
            }
            Some(Code::BadStride) => "a block has at least one element, a stride at least those of its block",
            Some(Code::BadLock) => "set and clear a lock in turn, from one thread of a PE at a time",
            Some(Code::Busy) => "take each exclusive context from one thread only, and release it",
            Some(Code::Layout) | None => "rebuild the kernels with the version of rushmem that the host uses",
            _ => "",
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.record;
        match self.code() {
            Some(Code::Layout) => {
                return write!(
                    f,
                    "kernel and host were built from different layouts (kernel {:#018x}, host {:#018x}): {}",
                    r.wanted,
                    r.found,
                    self.remedy()
                );
            }
            None => return write!(f, "a kernel recorded the unknown error {}: {}", r.code, self.remedy()),
            Some(Code::Completion) => {
                let syndrome = Syndrome(r.syndrome as u8);
                write!(
                    f,
                    "PE {}: {} towards PE {} failed on QP {:#x}: {} (syndrome {:#04x}, vendor {:#04x}, WQE {:#x}): {}",
                    r.pe,
                    Opcode(r.opcode as u8),
                    r.peer,
                    r.qpn,
                    syndrome.name().unwrap_or("unknown syndrome"),
                    r.syndrome,
                    r.vendor,
                    r.wqe,
                    syndrome.meaning(),
                )?;
            }
            Some(Code::Timeout) if r.qpn == 0 => write!(
                f,
                "PE {}: {} of {} blocks came to the grid barrier before the deadline",
                r.pe, r.found, r.wanted
            )?,
            Some(Code::Timeout) => write!(
                f,
                "PE {}: QP {:#x} towards PE {} completed {} of {} WQE blocks before the deadline",
                r.pe, r.qpn, r.peer, r.found, r.wanted
            )?,
            Some(Code::WaitTimeout) if r.peer != u32::MAX => write!(
                f,
                "PE {}: PE {} did not come to a collective call of its team before the deadline",
                r.pe, r.peer
            )?,
            Some(Code::WaitTimeout) => write!(
                f,
                "PE {}: the word at heap offset {:#x} was {} at the deadline, wanted {}",
                r.pe, r.offset, r.found, r.wanted
            )?,
            Some(Code::Aborted) => write!(f, "PE {}: the job was aborted", r.pe)?,
            Some(Code::BadPe) => {
                write!(f, "PE {}: there is no PE {}: the job has {}", r.pe, r.found, r.wanted)?
            }
            Some(Code::OutOfRange) if r.wanted == u64::MAX => {
                write!(f, "PE {}: a part that is not inside of its object was used", r.pe)?
            }
            Some(Code::OutOfRange) if r.offset == u64::MAX => {
                write!(f, "PE {}: index {} of an object of {} elements", r.pe, r.found, r.wanted)?
            }
            Some(Code::OutOfRange) if r.offset > r.wanted => write!(
                f,
                "PE {}: {} bytes at heap offset {:#x} were used, where nothing is registered, or not any more",
                r.pe, r.found, r.offset
            )?,
            Some(Code::OutOfRange) => write!(
                f,
                "PE {}: {} bytes at heap offset {:#x} were used, the heap has {}",
                r.pe, r.found, r.offset, r.wanted
            )?,
            Some(Code::LengthMismatch) if r.peer == u32::MAX => write!(
                f,
                "PE {}: lengths that do not go together: {} where {} is wanted",
                r.pe, r.found, r.wanted
            )?,
            Some(Code::LengthMismatch) => write!(
                f,
                "PE {}: a transfer with PE {} of {} elements here and {} there",
                r.pe, r.peer, r.found, r.wanted
            )?,
            Some(Code::NoQp) => write!(
                f,
                "PE {}: context {} of its kind was asked for, the job has QPs for {}",
                r.pe, r.wanted, r.found
            )?,
            Some(Code::Busy) => write!(f, "PE {}: the exclusive context is in use", r.pe)?,
            Some(Code::Unconnected) => {
                write!(f, "PE {}: no QP towards PE {} was connected before the deadline", r.pe, r.peer)?
            }
            Some(Code::BadTeam) => {
                write!(f, "PE {}: a handle that is of no team, or of one that was destroyed", r.pe)?
            }
            Some(Code::TeamMismatch) => write!(
                f,
                "PE {}: PE {} is in another collective call of the team than PE {}, or gave other arguments",
                r.pe, r.peer, r.found
            )?,
            Some(Code::TeamBusy) => {
                write!(f, "PE {}: another group of the PE is in a collective call of the team", r.pe)?
            }
            Some(Code::TeamFailed) => write!(
                f,
                "PE {}: an earlier collective call of the team failed half way (code {}), and left its members out of step",
                r.pe, r.found
            )?,
            Some(Code::Overlap) => write!(
                f,
                "PE {}: what the call reads at heap offset {:#x} overlaps what it writes at {:#x}",
                r.pe, r.offset, r.found
            )?,
            Some(Code::BadReduction) => {
                write!(f, "PE {}: there is no reduction {} of elements of type {}", r.pe, r.found, r.wanted)?
            }
            Some(Code::BadStride) => {
                write!(f, "PE {}: blocks of {} elements with a stride of {}", r.pe, r.wanted, r.found)?
            }
            Some(Code::BadLock) => {
                let holder = if r.found == 0 { "does not hold" } else { "already holds" };
                write!(f, "PE {}: this PE {holder} the lock at heap offset {:#x}", r.pe, r.offset)?
            }
            Some(Code::Poisoned | Code::InGroup) => write!(f, "PE {}: a QP failed before", r.pe)?,
        }
        write!(f, ", at {}", self.site())?;
        match self.remedy() {
            "" => Ok(()),
            remedy => write!(f, "; {remedy}"),
        }
    }
}

/// The errors recorded in a control page, in order.
pub(crate) fn recorded(page: &ControlPage) -> Vec<DeviceError> {
    let records: &[ErrorRecord; RECORDS] = &page.records;
    let written = records.iter().filter(|r| r.code != 0);
    written.map(|&record| DeviceError { record }).collect()
}
