//! Formats the errors that kernels have recorded, for people.

use std::borrow::Cow;
use std::fmt;

use rushmem_device::abi::{ControlPage, ErrorRecord, LOST_TEAMS, RECORDS, call_kind};
use rushmem_device::{ElementKind, Error as Code, InvalidRange, Reduce};
use rushmem_mlx5::{Opcode, Syndrome};
use rushmem_softnic::PACKET_TOO_LONG;
use rushmem_trace::{Site, Until, Waiting};

use crate::call_site::CallSite;
use crate::names::{InObject, ObjectNames};

/// An error recorded by a call in a kernel.
///
/// Its message says what failed on which PE, at which source line, and the remedy.
#[derive(Clone, Copy, Debug)]
pub struct DeviceError {
    record: ErrorRecord,
    /// Name of the kernel, if the error was found by waiting for a single launch.
    kernel: Option<&'static str>,
    /// Peer and QPN of a failed QP of which this error may be a consequence.
    failed_qp: Option<(u32, u32)>,
    /// Objects at the offsets in the record: the one that the call used, and the one that overlaps it.
    objects: [Option<InObject>; 2],
    /// Line of the application that requested an operation. The record only has a line of the runtime's own kernel.
    asked: CallSite,
}

/// Names of the reductions, indexed by the code of a [`Reduce`].
const REDUCTIONS: [&str; 7] = ["Sum", "Prod", "Min", "Max", "And", "Or", "Xor"];
const _: () = assert!(Reduce::Xor as usize == REDUCTIONS.len() - 1);

/// Names of the element types, indexed by the code of an [`ElementKind`].
const ELEMENTS: [&str; 13] =
    ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "F16", "Bf16", "f32", "f64", "ValueIndex"];
const _: () = assert!(ElementKind::ValueIndex as usize == ELEMENTS.len() - 1);

impl DeviceError {
    /// Returns the error that the call returned to the kernel. `None` if the kernel was built from another version of
    /// this crate.
    pub fn code(&self) -> Option<Code> {
        Code::from_code(self.record.code)
    }

    /// Returns the record of the error as the kernel wrote it.
    pub fn record(&self) -> &ErrorRecord {
        &self.record
    }

    /// Returns the name of the kernel, if the error was found by waiting for a single launch. For an error of a stream,
    /// the name is in [`Error::Operation`](crate::Error::Operation).
    pub fn kernel(&self) -> Option<&'static str> {
        self.kernel
    }

    pub(crate) fn set_kernel(&mut self, name: &'static str) {
        self.kernel = Some(name);
    }

    /// Sets the line of the application that requested the operation.
    pub(crate) fn set_call_site(&mut self, asked: CallSite) {
        self.asked = asked;
    }

    /// Looks up the objects that contain the heap offsets in the record, to name them in the message.
    #[doc(hidden)]
    pub fn set_objects(&mut self, names: &ObjectNames) {
        let r = &self.record;
        let offsets = match self.code() {
            Some(Code::WaitTimeout) if !self.names_peer() => [Some(r.offset), None],
            Some(Code::OutOfRange | Code::BadLock) => [Some(r.offset), None],
            Some(Code::Overlap) => [Some(r.offset), Some(r.found)],
            _ => [None; 2],
        };
        self.objects = offsets.map(|offset| names.at(offset?));
    }

    /// Sets peer and QPN of a failed QP of which this error may be a consequence.
    #[doc(hidden)]
    pub fn set_failed_qp(&mut self, failed: Option<(u32, u32)>) {
        self.failed_qp = failed;
    }

    /// Returns the QPN of the QP that failed or was late, and the index of the failed WQE's first building block. If
    /// that is unknown, the culprit is the oldest WQE not known to be complete.
    #[doc(hidden)]
    pub fn failed_wqe(&self) -> Option<(u32, Option<u16>)> {
        let r = &self.record;
        match self.code()? {
            Code::Completion if !self.is_flush() => Some((r.qpn, Some(r.wqe as u16))),
            Code::Completion | Code::Timeout if r.qpn != 0 => Some((r.qpn, None)),
            _ => None,
        }
    }

    /// Sets the peer, where the kernel could not know it.
    #[doc(hidden)]
    pub fn set_peer(&mut self, pe: u32) {
        self.record.peer = pe;
    }

    /// Returns whether the peer, or a member of the team, was lost.
    #[doc(hidden)]
    pub fn is_loss(&self) -> bool {
        self.code() == Some(Code::PeerLost)
    }

    /// Returns whether a kernel may continue after this error: no QP has failed.
    #[doc(hidden)]
    pub fn is_survivable(&self) -> bool {
        self.is_loss() || self.code() == Some(Code::ResultLost)
    }

    /// Returns the peer's PE number, if the record has one.
    #[doc(hidden)]
    pub fn peer(&self) -> Option<u32> {
        self.names_peer().then_some(self.record.peer)
    }

    /// Returns the slot of the team of which a member was lost, if the record does not have the member.
    #[doc(hidden)]
    pub fn lost_team(&self) -> Option<u32> {
        let is_team = self.is_loss() && !self.names_peer();
        let needs = u32::try_from(self.record.found).ok().filter(|_| is_team)?;
        needs.checked_sub(LOST_TEAMS)
    }

    /// Returns whether the deadline of a call passed.
    #[doc(hidden)]
    pub fn is_deadline(&self) -> bool {
        matches!(self.code(), Some(Code::Timeout | Code::WaitTimeout))
    }

    /// Returns how far this error is from the root cause. Of several errors, the one with the smallest distance is
    /// reported.
    ///
    /// - 0: a failed QP, or a wrong argument.
    /// - 1: a QP that does not answer, or a lost PE.
    /// - 2: a QP that was flushed because another one failed.
    /// - 3: a wait for something that did not happen.
    /// - 4: an abort, because the job had failed.
    #[doc(hidden)]
    pub fn distance(&self) -> u8 {
        match self.code() {
            Some(Code::Aborted) => 4,
            Some(Code::WaitTimeout | Code::TeamFailed | Code::InGroup) => 3,
            Some(Code::Timeout) if self.is_grid_barrier() => 3,
            Some(Code::Poisoned) => 2,
            Some(Code::Timeout | Code::Unconnected | Code::PeerLost) => 1,
            _ if self.is_flush() => 2,
            _ => 0,
        }
    }

    /// Returns whether the call was aborted because the job or the PE had failed.
    pub(crate) fn is_aborted(&self) -> bool {
        self.code() == Some(Code::Aborted)
    }

    /// Returns whether a kernel used the queues of its block without the attribute `#[kernel(per_block)]`, although the
    /// job has enough queues.
    fn lacks_per_block(&self) -> bool {
        self.code() == Some(Code::NoQp) && self.record.found >= self.record.wanted
    }

    /// Returns the syndrome of the completion that put the QP into the error state, if one did.
    pub fn syndrome(&self) -> Option<Syndrome> {
        (self.code() == Some(Code::Completion)).then_some(Syndrome(self.record.syndrome as u8))
    }

    /// Returns whether the QP was flushed because the remote QP had failed.
    pub(crate) fn is_flush(&self) -> bool {
        self.syndrome() == Some(Syndrome::WR_FLUSH_ERR)
    }

    /// Returns whether the software ConnectX failed to send a packet that was too long for the link.
    fn is_too_long(&self) -> bool {
        self.syndrome() == Some(Syndrome::TRANSPORT_RETRY_EXC_ERR)
            && self.record.vendor == u32::from(PACKET_TOO_LONG)
    }

    /// Returns whether the death of a peer can cause this error.
    #[doc(hidden)]
    pub fn is_explained_by_loss(&self) -> bool {
        match self.code() {
            Some(Code::Aborted | Code::Timeout | Code::WaitTimeout | Code::Unconnected) => true,
            _ if self.is_too_long() => false,
            _ => self.is_flush() || self.syndrome() == Some(Syndrome::TRANSPORT_RETRY_EXC_ERR),
        }
    }

    /// Returns what the call waited for, if the error is that its deadline has passed.
    #[doc(hidden)]
    pub fn waiting(&self) -> Option<Waiting> {
        let r = &self.record;
        let (call, until) = match self.code()? {
            Code::Timeout if self.is_grid_barrier() => {
                ("a grid barrier", Until::Other(format!("all blocks: {} of {} came", r.found, r.wanted)))
            }
            Code::Timeout => ("a call that completes operations", Until::Peer(r.peer)),
            Code::WaitTimeout if self.names_peer() => ("a collective call", Until::Peer(r.peer)),
            Code::WaitTimeout => {
                let note = format!("was {}, wanted {}", r.found, r.wanted);
                ("a wait", Until::Word { pe: r.pe, offset: r.offset, object: None, note })
            }
            _ => return None,
        };
        Some(Waiting {
            place: format!("block {} thread {}", r.block, r.thread),
            others: 0,
            call: call.into(),
            site: Some(Site { file: self.file().into_owned().into(), line: r.line }),
            ns: None,
            until,
            has_ended: true,
        })
    }

    /// Returns the name of the source file that contains the failed call. Of a long name, only the tail is recorded.
    fn file(&self) -> Cow<'_, str> {
        let r = &self.record;
        String::from_utf8_lossy(r.file.get(..r.file_len as usize).unwrap_or_default())
    }

    /// Formats the source line and the thread of the call.
    fn site(&self) -> String {
        let (r, file) = (&self.record, self.file());
        let kernel = self.kernel.map(|name| format!("kernel {name}, ")).unwrap_or_default();
        let line = if r.line == 0 { String::new() } else { format!(":{}", r.line) };
        format!("{file}{line} ({kernel}block {}, thread {})", r.block, r.thread)
    }

    /// Returns the advice that concludes the message, or an empty text if there is none.
    fn remedy(&self) -> &'static str {
        match self.code() {
            Some(Code::WaitTimeout) if self.names_peer() => {
                "check that every member makes the same calls and still runs, or raise RUSHMEM_TIMEOUT"
            }
            Some(Code::WaitTimeout) => {
                "check that the PE that should signal still runs, or raise RUSHMEM_TIMEOUT"
            }
            Some(Code::Timeout) if self.is_grid_barrier() => {
                "every block of the grid must call the barrier the same number of times"
            }
            Some(Code::Timeout) => "check that the peer still runs, or raise RUSHMEM_TIMEOUT",
            Some(Code::Completion) if self.is_too_long() => {
                "packets are too long for the network: its MTU has shrunk since the QP was connected; raise the MTU \
                 of the interface, or start the job again"
            }
            Some(Code::Completion) if self.is_flush() => {
                "the completion with the cause was overwritten; run with RUSHMEM_CQ=ring to see it"
            }
            Some(Code::Unconnected) => {
                "check that the process of that PE still runs and answers its launcher, or raise RUSHMEM_CONNECT_TIMEOUT"
            }
            Some(Code::TeamBusy) => {
                "only one thread, warp or block of each PE may use a team at a time; make a team for each"
            }
            Some(Code::TeamMismatch) => {
                "compare the calls of both PEs: their kind, objects, lengths, root and reduction"
            }
            Some(Code::TeamFailed) => "see the error of that call",
            Some(Code::NoQp) if self.lacks_per_block() => {
                "write #[kernel(per_block)] above each kernel that calls per_block, also in a function"
            }
            Some(Code::NoQp) => {
                "raise RUSHMEM_BLOCK_QPS, _EXCLUSIVE_QPS, _CONTEXT_QPS or _QPS_PER_PEER to the number that the kernel \
                 uses"
            }
            Some(Code::BadStride) => {
                "a block has at least one element, and a stride is at least as long as its block"
            }
            Some(Code::BadLock) => "set and clear a lock in turn, from one thread of a PE at a time",
            Some(Code::OutOfRange) if self.invalid_range().is_some_and(InvalidRange::is_address) => {
                "pass the address that the allocation or the registration returned on this PE"
            }
            Some(Code::OutOfRange) if self.invalid_range().is_some() => {
                "compare the ranges of `slice`, `at`, `cast` and `first` before the call with `len` of their objects"
            }
            Some(Code::Busy) => {
                "take an exclusive context from one thread, and a context of a block from one kernel at a time, and release it"
            }
            Some(Code::Layout) | None => "rebuild the kernels with the version of rushmem that the host uses",
            _ => "",
        }
    }

    /// Returns whether the record contains the number of a PE.
    fn names_peer(&self) -> bool {
        self.record.peer != u32::MAX
    }

    /// Returns whether a timeout was in a barrier of a grid. Other timeouts have the QP in their records.
    fn is_grid_barrier(&self) -> bool {
        self.record.qpn == 0
    }

    /// Returns the range that the failed call used, if it is not inside its object.
    fn invalid_range(&self) -> Option<InvalidRange> {
        InvalidRange::of_offset(self.record.offset)
    }

    /// Formats a heap offset, with its object if known.
    fn offset(&self, offset: u64, object: usize) -> String {
        match self.objects[object] {
            Some(object) => format!("heap offset {offset:#x} ({object})"),
            None => format!("heap offset {offset:#x}"),
        }
    }

    /// Formats an error of a QP, or of the set of QPs that the kernel chose.
    fn fmt_queue(&self, code: Code, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.record;
        match code {
            Code::Completion => {
                let syndrome = Syndrome(r.syndrome as u8);
                write!(
                    f,
                    "{} towards PE {} failed on QP {:#x}: {} (syndrome {:#04x}, vendor {:#04x}, WQE {:#x}): {}",
                    Opcode(r.opcode as u8),
                    r.peer,
                    r.qpn,
                    syndrome.name().unwrap_or("unknown syndrome"),
                    r.syndrome,
                    r.vendor,
                    r.wqe,
                    syndrome.meaning(),
                )
            }
            Code::NoQp if self.lacks_per_block() => {
                f.write_str("the kernel is not declared to use the queues of its blocks")
            }
            Code::NoQp => {
                write!(
                    f,
                    "the kernel uses context {} of its kind, but the job has QPs for {}",
                    r.wanted, r.found
                )
            }
            Code::Busy => f.write_str("another thread, block or kernel has the context"),
            Code::Unconnected => write!(f, "no QP towards PE {} was connected before the deadline", r.peer),
            _ => f.write_str("a QP was ended by an earlier error"),
        }
    }

    fn fmt_wait(&self, code: Code, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.record;
        match code {
            Code::Timeout if self.is_grid_barrier() => {
                write!(f, "{} of {} blocks came to the grid barrier before the deadline", r.found, r.wanted)
            }
            Code::Timeout => write!(
                f,
                "QP {:#x} towards PE {} completed {} of {} basic blocks before the deadline",
                r.qpn, r.peer, r.found, r.wanted
            ),
            Code::WaitTimeout if self.names_peer() => {
                write!(f, "PE {} did not come to a collective call of its team before the deadline", r.peer)
            }
            Code::WaitTimeout => write!(
                f,
                "the word at {} was {} at the deadline, wanted {}",
                self.offset(r.offset, 0),
                r.found,
                r.wanted
            ),
            _ => f.write_str("the job was aborted"),
        }
    }

    /// Formats an error about an argument.
    fn fmt_argument(&self, code: Code, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.record;
        match code {
            Code::BadPe => write!(f, "there is no PE {}: the job has {}", r.found, r.wanted),
            Code::LengthMismatch if self.names_peer() => write!(
                f,
                "a transfer with PE {} has {} elements here and {} there",
                r.peer, r.found, r.wanted
            ),
            Code::LengthMismatch => write!(f, "a length is {}, but must be {}", r.found, r.wanted),
            Code::Overlap => write!(
                f,
                "the source at {} overlaps the destination at {}",
                self.offset(r.offset, 0),
                self.offset(r.found, 1)
            ),
            Code::BadReduction => {
                let name = |names: &[&'static str], i: u64| names.get(i as usize).copied().unwrap_or("?");
                let (reduction, element) = (name(&REDUCTIONS, r.found), name(&ELEMENTS, r.wanted));
                write!(f, "there is no reduction `{reduction}` of elements of type {element}")
            }
            Code::BadStride => write!(f, "blocks of {} elements have a stride of {}", r.wanted, r.found),
            Code::BadLock => {
                let holder = if r.found == 0 { "does not hold" } else { "already holds" };
                write!(f, "this PE {holder} the lock at {}", self.offset(r.offset, 0))
            }
            Code::BadConstant => {
                write!(f, "{} is not a constant for the comparison or signal operation of the call", r.found)
            }
            _ => self.fmt_range(f),
        }
    }

    /// Formats an access outside an object or outside the heap. The kernel encodes the kind of access in values that no
    /// valid access has, so the order of the checks matters.
    fn fmt_range(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.record;
        if let Some(part) = self.invalid_range() {
            write!(f, "the call used {part}")
        } else if r.offset == u64::MAX {
            write!(f, "index {} is outside an object of {} elements", r.found, r.wanted)
        } else if r.offset > r.wanted {
            write!(
                f,
                "the call used {} bytes at {}, where no buffer is registered now",
                r.found,
                self.offset(r.offset, 0)
            )
        } else {
            write!(
                f,
                "the call used {} bytes at {}, but the heap has {} bytes",
                r.found,
                self.offset(r.offset, 0),
                r.wanted
            )
        }
    }

    /// Formats how the collective calls of two PEs differ, given their call hashes.
    fn fmt_mismatch(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, other) = (self.record.peer, self.record.found);
        let [their_kind, my_kind] = [self.record.wanted as u32, (self.record.wanted >> 32) as u32]
            .map(|hash| hash >> call_kind::SHIFT);
        match (call_name(their_kind), call_name(my_kind)) {
            (_, Some(mine)) if their_kind == call_kind::WRONG => write!(
                f,
                "PE {one} gave wrong arguments to its collective call of the team, and PE {other} called {mine}"
            ),
            (Some(theirs), Some(mine)) if theirs != mine => write!(
                f,
                "PE {one} and PE {other} made different collective calls of the team: {theirs} and {mine}"
            ),
            (Some(call), Some(_)) => {
                write!(f, "PE {one} and PE {other} gave different arguments to {call} of the team")
            }
            _ => write!(
                f,
                "PE {one} and PE {other} made different collective calls of the team, or gave different arguments"
            ),
        }
    }

    fn fmt_team(&self, code: Code, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.record;
        match code {
            Code::BadTeam => f.write_str("the handle names no team, or a destroyed one"),
            Code::TeamMismatch => self.fmt_mismatch(f),
            Code::TeamFailed => write!(
                f,
                "an earlier collective call of the team failed half way (code {}), and left its members out of step",
                r.found
            ),
            _ => f.write_str("another group of this PE is in a collective call of the team"),
        }
    }
}

/// Returns the name of a kind of collective call.
fn call_name(kind: u32) -> Option<&'static str> {
    Some(match kind {
        call_kind::SYNC => "a barrier or sync",
        call_kind::BROADCAST => "broadcast",
        call_kind::FCOLLECT => "fcollect",
        call_kind::COLLECT => "collect",
        call_kind::ALLTOALL => "alltoall",
        call_kind::ALLTOALLS => "alltoalls",
        call_kind::ALLTOALLV => "alltoallv",
        call_kind::REDUCE => "reduce",
        call_kind::REDUCE_SCATTER => "reduce_scatter",
        call_kind::SCAN => "scan",
        call_kind::STEP => "a later step of a call",
        _ => return None,
    })
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.record;
        let code = match self.code() {
            None => return write!(f, "a kernel recorded the unknown error {}: {}", r.code, self.remedy()),
            Some(Code::Layout) => {
                return write!(
                    f,
                    "kernel and host were built from different layouts (kernel {:#018x}, host {:#018x}): {}",
                    r.wanted,
                    r.found,
                    self.remedy()
                );
            }
            Some(code) => code,
        };
        write!(f, "PE {}: ", r.pe)?;
        match code {
            Code::Completion
            | Code::NoQp
            | Code::Busy
            | Code::Unconnected
            | Code::Poisoned
            | Code::InGroup
            | Code::Layout => self.fmt_queue(code, f)?,
            Code::Timeout | Code::WaitTimeout | Code::Aborted => self.fmt_wait(code, f)?,
            Code::BadPe
            | Code::OutOfRange
            | Code::LengthMismatch
            | Code::Overlap
            | Code::BadReduction
            | Code::BadStride
            | Code::BadLock
            | Code::BadConstant => self.fmt_argument(code, f)?,
            Code::BadTeam | Code::TeamMismatch | Code::TeamBusy | Code::TeamFailed => {
                self.fmt_team(code, f)?
            }
            Code::PeerLost => write!(f, "PE {} was lost", r.peer)?,
            Code::ResultLost => write!(
                f,
                "PE {} has executed an atomic whose result was lost with the connection, QP {:#x}",
                r.peer, r.qpn
            )?,
        }
        match self.asked.location() {
            Some(_) => write!(f, "{}", self.asked)?,
            None => write!(f, ", at {}", self.site())?,
        }
        if let Some((peer, qpn)) = self.failed_qp {
            return write!(
                f,
                "; QP {qpn:#x} of this PE has failed, which may be the cause: check the network to PE {peer}"
            );
        }
        match self.remedy() {
            "" => Ok(()),
            remedy => write!(f, "; {remedy}"),
        }
    }
}

/// Returns the errors recorded in a control page, in slot order.
pub fn recorded(page: &ControlPage) -> Vec<DeviceError> {
    let records: &[ErrorRecord; RECORDS] = &page.records;
    let written = records.iter().filter(|r| r.code != 0);
    written
        .map(|&record| DeviceError {
            record,
            kernel: None,
            failed_qp: None,
            objects: [None; 2],
            asked: CallSite::default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;

    use super::*;

    /// Creates an error with these fields in its record.
    fn error(code: Code, qpn: u32, syndrome: Syndrome) -> DeviceError {
        let syndrome = syndrome.0.into();
        let record = ErrorRecord { code: code as u32, qpn, syndrome, peer: u32::MAX, ..Zeroable::zeroed() };
        DeviceError { record, kernel: None, failed_qp: None, objects: [None; 2], asked: CallSite::default() }
    }

    #[test]
    fn causes_come_before_consequences() {
        let none = Syndrome(0);
        let order = [
            [error(Code::Completion, 7, Syndrome::TRANSPORT_RETRY_EXC_ERR), error(Code::BadPe, 0, none)],
            [error(Code::Timeout, 7, none), error(Code::Unconnected, 7, none)],
            [error(Code::Completion, 7, Syndrome::WR_FLUSH_ERR), error(Code::Poisoned, 7, none)],
            [error(Code::Timeout, 0, none), error(Code::WaitTimeout, 0, none)],
            [error(Code::Aborted, 0, none); 2],
        ];
        for (distance, errors) in (0..).zip(order) {
            assert_eq!(errors.map(|error| error.distance()), [distance; 2]);
        }
    }

    #[test]
    fn oversized_packet_is_reported_instead_of_a_lost_pe() {
        let mut lost = error(Code::Completion, 7, Syndrome::TRANSPORT_RETRY_EXC_ERR);
        assert!(lost.is_explained_by_loss());
        lost.record.vendor = PACKET_TOO_LONG.into();
        assert!(!lost.is_explained_by_loss() && lost.to_string().contains("raise the MTU"), "{lost}");
    }

    #[test]
    fn range_outside_its_object_comes_with_a_remedy() {
        let mut outside = error(Code::OutOfRange, 0, Syndrome(0));
        outside.record.offset = 3 << 62 | 6 << 40 | 9 << 20 | 8;
        let text = outside.to_string();
        assert!(text.contains("the call used elements 6..9 of an object of 8 elements, at "), "{text}");
        assert!(
            text.ends_with(
                "; compare the ranges of `slice`, `at`, `cast` and `first` before the call with `len` of \
                                their objects"
            ),
            "{text}"
        );
    }

    #[test]
    fn deadlines_are_reported_as_waits() {
        let mut late = error(Code::WaitTimeout, 0, Syndrome(0));
        (late.record.found, late.record.wanted, late.record.offset) = (3, 4, 64);
        let until = |error: &DeviceError| error.waiting().map(|wait| wait.until);
        assert_eq!(
            until(&late),
            Some(Until::Word { pe: 0, offset: 64, object: None, note: "was 3, wanted 4".into() })
        );
        late.record.peer = 2;
        assert_eq!(until(&late), Some(Until::Peer(2)));
        assert_eq!(late.waiting().unwrap().place, "block 0 thread 0");
        assert_eq!(until(&error(Code::Aborted, 0, Syndrome(0))), None);
    }

    #[test]
    fn deadline_names_the_kernel_and_the_failed_qp() {
        let mut late = error(Code::Timeout, 0, Syndrome(0));
        assert!(late.to_string().ends_with(
            "(block 0, thread 0); every block of the grid must call the barrier the same \
                                            number of times"
        ));
        late.set_kernel("ring");
        late.set_failed_qp(Some((3, 0x17)));
        assert!(late.to_string().ends_with(
            "(kernel ring, block 0, thread 0); QP 0x17 of this PE has failed, which may be the cause: check the \
             network to PE 3"
        ));
    }
}
