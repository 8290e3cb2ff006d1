//! Errors of device calls: a code for the kernel, a record for the host.
//!
//! A call that fails writes one [`ErrorRecord`] to the control page and returns an [`Error`]; the host prints
//! the record. Nothing here ends a kernel: the GPU context survives, and so does the traffic to other peers.

use core::panic::Location;

use crate::abi::{ControlPage, DevAddr, DeviceState, ErrorRecord, RECORDS};
use crate::arch::{self, Gpu, Scope, SysWord};

/// What a device call returns.
pub type Result<T = ()> = core::result::Result<T, Error>;

/// Why a device call failed. The host-side record has the details.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Error {
    /// The kernel and the runtime were built from different layouts.
    Layout = 1,
    /// The deadline of a blocking call passed.
    Timeout = 2,
    /// The host ended the job: a PE died, or the user asked for it.
    Aborted = 3,
    /// The NIC completed a work request with an error; its QP is in the error state.
    Completion = 4,
    /// The QP was already in the error state.
    Poisoned = 5,
    /// No such PE.
    BadPe = 6,
    /// An address or an index outside of its object, or of the heap.
    OutOfRange = 7,
    /// Two lengths that must be equal are not.
    LengthMismatch = 8,
    /// No QP of the wanted sharing was set up for this block or index.
    NoQp = 9,
    /// The exclusive QP set is in use.
    Busy = 10,
    /// A signal or word was waited for past the deadline.
    WaitTimeout = 11,
    /// Another thread of the calling group met the error, and knows which.
    InGroup = 12,
}

impl Error {
    /// The error with this code.
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
            _ => return None,
        })
    }
}

/// Where records go.
#[derive(Clone, Copy)]
pub(crate) struct Sink {
    pub(crate) control: DevAddr,
    /// `None` when the context cannot be trusted: the record then takes the first place.
    pub(crate) state: Option<DevAddr>,
    pub(crate) pe: u32,
}

/// The details of an error, apart from where and when.
#[derive(Clone, Copy)]
pub(crate) struct Detail {
    pub(crate) peer: u32,
    pub(crate) qpn: u32,
    pub(crate) wqe: u32,
    pub(crate) opcode: u32,
    pub(crate) syndrome: u32,
    pub(crate) vendor: u32,
    pub(crate) found: u64,
    pub(crate) wanted: u64,
    pub(crate) offset: u64,
}

impl Detail {
    pub(crate) const NONE: Self = Self {
        peer: u32::MAX,
        qpn: 0,
        wqe: 0,
        opcode: 0,
        syndrome: 0,
        vendor: 0,
        found: 0,
        wanted: 0,
        offset: u64::MAX,
    };
}

/// Writes the record of `error`, and returns it.
#[cold]
#[inline(never)]
pub(crate) fn record(sink: Sink, error: Error, d: Detail, site: &'static Location<'static>) -> Error {
    let place = match sink.state {
        // SAFETY: the host made the state, and only atomics touch its words.
        Some(state) => unsafe {
            let claimed = core::ptr::addr_of_mut!((*state.ptr::<DeviceState>()).records.word);
            Gpu::fetch_add_relaxed(claimed, 1)
        },
        None => 0,
    };
    if place >= RECORDS as u64 {
        return error;
    }
    let (file, file_len) = tail_of(site.file());
    let r = ErrorRecord {
        code: 0,
        pe: sink.pe,
        peer: d.peer,
        qpn: d.qpn,
        wqe: d.wqe,
        opcode: d.opcode,
        syndrome: d.syndrome,
        vendor: d.vendor,
        block: arch::block(),
        thread: arch::thread(),
        line: site.line(),
        file_len,
        found: d.found,
        wanted: d.wanted,
        offset: d.offset,
        time_ns: arch::now_ns(),
        file,
    };
    // SAFETY: the control page has RECORDS records; this thread alone claimed `place`.
    unsafe {
        let to = core::ptr::addr_of_mut!((*sink.control.ptr::<ControlPage>()).records)
            .cast::<ErrorRecord>()
            .add(place as usize);
        to.write(r);
        <u32 as SysWord>::store_release(core::ptr::addr_of_mut!((*to).code), error as u32);
    }
    error
}

fn tail_of(name: &str) -> ([u8; 32], u32) {
    let bytes = name.as_bytes();
    let len = bytes.len().min(32);
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(bytes.iter().skip(bytes.len() - len)) {
        *to = *from;
    }
    (out, len as u32)
}
