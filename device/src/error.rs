//! Errors of device calls: a code that the call returns, and a record for the host.
//!
//! A failed call writes one [`ErrorRecord`] to the control page and returns an [`Error`]; the host prints the record.
//! An error does not terminate the kernel: the GPU context survives, and so does traffic to other peers.
#![allow(unsafe_code, reason = "writes error records to the control page")]

use core::panic::Location;

use crate::abi::{ControlPage, DevAddr, DeviceState, ErrorRecord, RECORDS};
use crate::arch::{self, Gpu, Scope, SysWord};
use crate::outlined::outlined;

/// Result of a device call, which usually returns nothing but success.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

pub(crate) type Site = &'static Location<'static>;

/// Reason why a device call failed. The error record on the host has the details.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Error {
    /// Kernel and runtime were built with different layouts.
    Layout = 1,
    /// A blocking call reached its deadline.
    Timeout = 2,
    /// The job is being aborted: a PE died, or the user asked for it.
    Aborted = 3,
    /// The NIC completed a work request with an error. Its QP is now in the error state.
    Completion = 4,
    /// The QP was already in the error state, because of an earlier error.
    Poisoned = 5,
    /// The job has no PE with this number.
    BadPe = 6,
    /// An offset or index is outside of its object, or outside of the heap.
    OutOfRange = 7,
    /// Two lengths that a call requires to be equal differ.
    LengthMismatch = 8,
    /// There is no QP of the requested sharing for this block or index.
    NoQp = 9,
    /// The context or exclusive QP set is in use by another thread or block.
    Busy = 10,
    /// A signal or word did not get the expected value before the deadline.
    WaitTimeout = 11,
    /// Another thread of the group failed, and its call returned the cause.
    InGroup = 12,
    /// The host did not connect the QP before the deadline.
    Unconnected = 13,
    /// The handle refers to no team, or to a destroyed one.
    BadTeam = 14,
    /// Another member of the team is making a different collective call, or the same one with other arguments.
    TeamMismatch = 15,
    /// Another group of this PE is making a collective call on the team.
    TeamBusy = 16,
    /// An earlier collective call on the team failed midway and left its members out of step.
    TeamFailed = 17,
    /// Operands of a call overlap in a way that it does not allow.
    Overlap = 18,
    /// The reduction does not exist, or not for this element type.
    BadReduction = 19,
    /// A stride is 0, or is shorter than its blocks.
    BadStride = 20,
    /// A PE cleared a lock that it does not hold, or set one that it holds already.
    BadLock = 21,
    /// A number that selects a comparison or a signal operation is none of the call's constants.
    BadConstant = 22,
    /// The peer, or a member of the team, was lost. Only in jobs with live membership.
    PeerLost = 23,
    /// A fetching atomic was executed, but its result was lost with the connection. Only in jobs with failover.
    ResultLost = 24,
}

/// Converts an error code, or 0 for success, to a result. Outlined functions return codes, because a `Result` would
/// require stack memory.
#[inline(always)]
pub(crate) fn outcome(code: u32) -> Result {
    Error::from_code(code).map_or(Ok(()), Err)
}

/// Combines the results of two steps. Any other error takes precedence over a loss, which programs may survive.
#[inline(always)]
pub(crate) fn both(one: Result, other: Result) -> Result {
    match one {
        Ok(()) | Err(Error::PeerLost) if other.is_err() => other,
        _ => one,
    }
}

impl Error {
    /// Returns the error with this code, or `None` if there is none.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            1 => Self::Layout,
            2 => Self::Timeout,
            3 => Self::Aborted,
            4 => Self::Completion,
            5 => Self::Poisoned,
            6 => Self::BadPe,
            7 => Self::OutOfRange,
            8 => Self::LengthMismatch,
            9 => Self::NoQp,
            10 => Self::Busy,
            11 => Self::WaitTimeout,
            12 => Self::InGroup,
            13 => Self::Unconnected,
            14 => Self::BadTeam,
            15 => Self::TeamMismatch,
            16 => Self::TeamBusy,
            17 => Self::TeamFailed,
            18 => Self::Overlap,
            19 => Self::BadReduction,
            20 => Self::BadStride,
            21 => Self::BadLock,
            22 => Self::BadConstant,
            23 => Self::PeerLost,
            24 => Self::ResultLost,
            _ => return None,
        })
    }
}

/// Details of an error for its record, apart from location and time.
#[derive(Clone, Copy)]
pub(crate) struct Detail {
    /// The peer's PE number, or `u32::MAX` if no peer is involved.
    pub(crate) peer: u32,
    /// 24-bit QP number, or 0 if no QP is involved.
    pub(crate) qpn: u32,
    /// Contents of the error CQE, as returned by [`Completion::packed`].
    pub(crate) completion: u64,
    pub(crate) found: u64,
    pub(crate) wanted: u64,
    pub(crate) offset: u64,
}

impl Detail {
    pub(crate) const NONE: Self =
        Self { peer: u32::MAX, qpn: 0, completion: 0, found: 0, wanted: 0, offset: u64::MAX };
}

/// Fields of an error CQE that its record reports.
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) wqe: u16,
    pub(crate) opcode: u8,
    pub(crate) syndrome: u8,
    pub(crate) vendor: u8,
}

impl Completion {
    /// Packs the fields into one word. Functions that write error records take only plain words: any other argument
    /// type would require stack memory in every kernel.
    pub(crate) const fn packed(self) -> u64 {
        u64::from_le_bytes([
            self.wqe as u8,
            (self.wqe >> 8) as u8,
            self.opcode,
            self.syndrome,
            self.vendor,
            0,
            0,
            0,
        ])
    }
}

/// Writes an error record of `error` for the PE with this [`DeviceState`], and returns the error.
#[cold]
#[inline(always)]
pub(crate) fn record(state: DevAddr, error: Error, d: Detail, site: Site) -> Error {
    record_detail(state, error as u32, site, d);
    error
}

/// Records that the job has no PE `pe`. Outlined like [`out_of_range`], because nearly every call in a kernel may
/// record one of these errors.
#[cold]
#[inline(never)]
pub(crate) fn bad_pe(state: DevAddr, pe: u32, n_pes: u32, site: Site) -> Error {
    let d = Detail { peer: pe, found: pe as u64, wanted: n_pes as u64, ..Detail::NONE };
    record(state, Error::BadPe, d, site)
}

/// Records that `found` exceeds `wanted`. Both are lengths in bytes at a heap offset, or element indices if `offset` is
/// `u64::MAX`.
#[cold]
#[inline(never)]
pub(crate) fn out_of_range(state: DevAddr, found: u64, wanted: u64, offset: u64, site: Site) -> Error {
    record(state, Error::OutOfRange, Detail { found, wanted, offset, ..Detail::NONE }, site)
}

#[cold]
#[inline(never)]
pub(crate) fn length_mismatch(state: DevAddr, peer: u32, found: u64, wanted: u64, site: Site) -> Error {
    record(state, Error::LengthMismatch, Detail { peer, found, wanted, ..Detail::NONE }, site)
}

outlined! {
    /// Claims the next free error record and writes it. Does nothing if all [`RECORDS`] are in use.
    #[cold]
    fn record_detail(
        state: DevAddr,
        code: u32,
        site: Site;
        detail: Detail { peer: u32, qpn: u32, completion: u64, found: u64, wanted: u64, offset: u64 }
    ) {
        // SAFETY: the host made the state; the words that kernels update are only touched by atomics.
        let (control, pe, place) = unsafe {
            let state = state.ptr::<DeviceState>();
            ((*state).control, (*state).pe, Gpu::fetch_add_relaxed(&raw mut (*state).records.word, 1))
        };
        // Errors past the last record are only counted.
        if place < RECORDS as u64 {
            write_record(control, place, pe, code, detail, site);
        }
    }
}

/// Writes error record `place`, which is below [`RECORDS`] and has been claimed by this thread.
#[inline(always)]
pub(crate) fn write_record(control: DevAddr, place: u64, pe: u32, code: u32, detail: Detail, site: Site) {
    // SAFETY: the control page has RECORDS records; this thread alone has `place`.
    unsafe {
        let to = (&raw mut (*control.ptr::<ControlPage>()).records).cast::<ErrorRecord>().add(place as usize);
        (*to).pe = pe;
        (*to).peer = detail.peer;
        (*to).qpn = detail.qpn;
        let completion = detail.completion;
        (*to).wqe = completion as u32 & 0xffff;
        (*to).opcode = (completion >> 16) as u32 & 0xff;
        (*to).syndrome = (completion >> 24) as u32 & 0xff;
        (*to).vendor = (completion >> 32) as u32 & 0xff;
        (*to).block = arch::block();
        (*to).thread = arch::thread();
        (*to).line = site.line();
        (*to).found = detail.found;
        (*to).wanted = detail.wanted;
        (*to).offset = detail.offset;
        (*to).time_ns = arch::now_ns();
        (*to).file_len = write_tail((&raw mut (*to).file).cast(), site.file());
        // The code comes last: the host takes a nonzero code to mean that the record is complete.
        <u32 as SysWord>::store_release(&raw mut (*to).code, code);
    }
}

/// Replaces the place in the calling thread's last error record, if it is one of `error`, by `name`, the name of a
/// function.
#[cold]
#[inline(never)]
pub(crate) fn name_call(state: DevAddr, name: &str, error: Error) {
    // SAFETY: the host made the state and its control page; a thread writes only to its own records.
    unsafe {
        let state = state.ptr::<DeviceState>();
        let records = (&raw mut (*(*state).control.ptr::<ControlPage>()).records).cast::<ErrorRecord>();
        let mut place = Gpu::load_relaxed(&raw mut (*state).records.word).min(RECORDS as u64);
        while place > 0 {
            place -= 1;
            let record = records.add(place as usize);
            if (*record).block == arch::block() && (*record).thread == arch::thread() {
                // A record without a line is that of an earlier call: not all errors have a record.
                if (*record).code == error as u32 && (*record).line != 0 {
                    (*record).line = 0;
                    (*record).file_len = write_tail((&raw mut (*record).file).cast(), name);
                }
                return;
            }
        }
    }
}

/// Writes the last bytes of a file name to an [`ErrorRecord`], as many as fit. Returns their number.
///
/// # Safety
/// `to` has room for 32 bytes.
unsafe fn write_tail(to: *mut u8, name: &str) -> u32 {
    let bytes = name.as_bytes();
    let len = bytes.len().min(32);
    for (i, byte) in bytes.iter().skip(bytes.len() - len).enumerate() {
        // SAFETY: `i` is below 32.
        unsafe { to.add(i).write(*byte) };
    }
    len as u32
}
