//! Hooks that record calls in the ring of the block, for the timeline of a GPU.
//!
//! A call claims an entry of the ring when it starts, and adds its time of return to it. The host reads the rings when
//! the job is over. If a ring is full, later calls overwrite its oldest entries.
#![allow(unsafe_code, reason = "writes to the rings")]

use core::mem::{ManuallyDrop, offset_of};
use core::panic::Location;

use crate::abi::{
    CacheLine, CtxParts, DevAddr, LAUNCH_QUEUES, TRACE_RINGS, TRACED_QUEUE, TraceArea, TracedCall, traced,
};
use crate::arch::{self, Gpu, Scope};
use crate::event::{Blocks, Collective, Event, Operation, Order, Ordering, PeRange, Posting};
use crate::group::Group;

pub use super::off::ENABLED;
pub(crate) use super::off::{Ticket, each, load, sees, store, ticket, waits};

/// Guard of a call in the timeline. Dropping it records the time of return.
pub(crate) struct Call {
    /// Address of the call's entry in the ring, or 0 if it has none.
    entry: DevAddr,
}

impl Call {
    const NONE: Self = Self { entry: DevAddr(0) };
}

impl Drop for Call {
    #[inline(always)]
    fn drop(&mut self) {
        end(self.entry);
    }
}

/// Saves the timeline's address for the block, and records the start of the kernel. Called at the start in each thread.
#[inline(always)]
pub(crate) fn kernel_begins(parts: &CtxParts) {
    // The status words of all launch queues are in one page, so the address identifies the queue.
    let queue = parts.status.0 / size_of::<u64>() as u64 % LAUNCH_QUEUES;
    arch::set_trace(parts.trace.0, parts.mark | queue << TRACED_QUEUE.trailing_zeros());
    // The kernel itself is an entry. It outlives this function, so the call must not be dropped.
    if arch::thread() == 0 {
        let call = ManuallyDrop::new(begin("", Fields::new(traced::KERNEL), Location::caller()));
        arch::set_traced_kernel(call.entry.0);
    }
}

/// Records the return of the kernel for the block, in its first thread. Called when the kernel returns in a thread.
#[inline(always)]
pub(crate) fn kernel_ends() {
    if arch::thread() == 0 {
        end(DevAddr(arch::traced_kernel()));
    }
}

/// Records a call and its return, without nested calls.
#[inline(always)]
#[track_caller]
pub(crate) fn note(name: &'static str, event: Event) {
    // An instantaneous call: its start and its return coincide.
    drop(call(name, event));
}

/// Records the start of a call. Dropping the guard records its return.
#[inline(always)]
#[track_caller]
pub(crate) fn call(name: &'static str, event: Event) -> Call {
    match describe(&event) {
        Some(fields) => begin(name, fields, Location::caller()),
        None => Call::NONE,
    }
}

/// Records the start of a call that the leader makes for the group. Other threads record nothing.
#[inline(always)]
#[track_caller]
pub(crate) fn lead<G: Group>(group: G, name: &'static str, event: Event) -> Call {
    if group.leader() { call(name, event) } else { Call::NONE }
}

/// Records the start of a call of the whole group.
#[inline(always)]
#[track_caller]
pub(crate) fn lead_own<G: Group>(group: G, name: &'static str, event: Event) -> Call {
    lead(group, name, event)
}

/// Records the start of a collective call.
#[inline(always)]
#[track_caller]
pub(crate) fn collective<G: Group>(group: G, name: &'static str, collective: Collective) -> Call {
    lead(group, name, Event::Collective(collective))
}

/// Records the start of a barrier of the grid.
#[inline(always)]
#[track_caller]
pub(crate) fn grid<G: Group>(block: G) -> Call {
    lead(block, "sync_grid", Event::Grid)
}

/// Fields of a call's entry, as in [`TracedCall`].
#[derive(Clone, Copy)]
struct Fields {
    kind: u32,
    peer: u32,
    bytes: u64,
    remote: u64,
    word: u64,
}

impl Fields {
    #[inline(always)]
    fn new(kind: u32) -> Self {
        Self { kind, peer: u32::MAX, bytes: 0, remote: 0, word: 0 }
    }

    #[inline(always)]
    fn to(kind: u32, range: &PeRange, bytes: u64) -> Self {
        Self { kind, peer: range.pe, bytes, remote: range.offset, word: 0 }
    }
}

/// Returns the fields of an event's entry, or `None` if the timeline does not show the event.
#[inline(always)]
fn describe(event: &Event) -> Option<Fields> {
    Some(match event {
        Event::Post(Posting { operation, .. }) => of_operation(operation),
        Event::Order(Order { ordering, pe, .. }) => {
            let kind = if *ordering == Ordering::Fence { traced::FENCE } else { traced::COMPLETION };
            Fields { peer: pe.unwrap_or(u32::MAX), ..Fields::new(kind) }
        }
        Event::Collective(Collective { team, writes, .. }) => {
            let team = u64::from(team.0) << 32 | u64::from(team.1);
            Fields { word: team, bytes: writes.1, ..Fields::new(traced::COLLECTIVE) }
        }
        Event::Grid => Fields::new(traced::GRID),
        Event::Wait { word, value, .. } => {
            Fields { word: word.offset, remote: *value, ..Fields::to(traced::WAIT, word, word.bytes) }
        }
        _ => return None,
    })
}

#[inline(always)]
fn of_operation(operation: &Operation) -> Fields {
    match operation {
        Operation::Put { src: None, dst, .. } => changes(dst),
        Operation::Put { dst, signal: None, .. } => Fields::to(traced::PUT, dst, dst.bytes),
        Operation::Put { dst, signal: Some((word, _)), .. } => {
            Fields { word: word.offset, ..Fields::to(traced::PUT_SIGNAL, dst, dst.bytes) }
        }
        Operation::PutBlocks { dst: Blocks { first, .. }, count, .. } => {
            Fields::to(traced::PUT, first, first.bytes.wrapping_mul(*count))
        }
        Operation::Get { src, .. } => Fields::to(traced::GET, src, src.bytes),
        Operation::GetBlocks { src: Blocks { first, .. }, count, .. } => {
            Fields::to(traced::GET, first, first.bytes.wrapping_mul(*count))
        }
        Operation::Change { word, .. } | Operation::Fetch { word, is_read: false, .. } => changes(word),
        Operation::Fetch { word, .. } => Fields::to(traced::GET, word, word.bytes),
    }
}

#[inline(always)]
fn changes(word: &PeRange) -> Fields {
    Fields { word: word.offset, ..Fields::to(traced::CHANGE, word, word.bytes) }
}

/// Records the start of a call, if the launch has a timeline.
#[inline(always)]
fn begin(name: &'static str, fields: Fields, site: &'static Location<'static>) -> Call {
    let (area, launch) = arch::trace();
    if area == 0 {
        return Call::NONE;
    }
    let Fields { kind, peer, bytes, remote, word } = fields;
    let file = site.file();
    let lens = (name.len() as u32).min(255) | (file.len() as u32).min(255) << 8 | kind << 16;
    let (name, file) = (name.as_ptr().addr() as u64, file.as_ptr().addr() as u64);
    let entry =
        write((DevAddr(area), launch), (name, file, lens), site.line(), (peer, bytes), (remote, word));
    Call { entry }
}

/// Claims an entry of the ring for a call that has started, and fills it. Returns the entry's address.
#[inline(never)]
fn write(
    (area, launch): (DevAddr, u64),
    (name, file, lens): (u64, u64, u32),
    line: u32,
    (peer, bytes): (u32, u64),
    (remote, word): (u64, u64),
) -> DevAddr {
    let block = arch::block();
    let head = area.ptr::<TraceArea>();
    // SAFETY: the host has made the area, which lives as long as the launch. An entry belongs to the thread that took it.
    unsafe {
        let ring = block as usize % TRACE_RINGS;
        let count = (&raw mut (*head).counts).cast::<CacheLine>().add(ring).cast::<u64>();
        let number = Gpu::fetch_add_relaxed(count, 1);
        let calls = (*head).calls;
        let index = (ring as u64).wrapping_mul(calls).wrapping_add(number & calls.wrapping_sub(1));
        let bytes_before = size_of::<TraceArea>() as u64 + index.wrapping_mul(size_of::<TracedCall>() as u64);
        let entry = area.add(bytes_before);
        let call = TracedCall {
            begin_ns: arch::now_ns(),
            end_ns: 0,
            name,
            file,
            launch,
            remote,
            word,
            bytes,
            peer,
            line,
            block,
            thread: arch::thread() as u16,
            name_len: lens as u8,
            file_len: (lens >> 8) as u8,
            kind: lens >> 16,
            reserved: 0,
        };
        entry.ptr::<TracedCall>().write_volatile(call);
        entry
    }
}

/// Records the time of return in the entry of a call.
#[inline(always)]
fn end(entry: DevAddr) {
    if entry.0 != 0 {
        let end = entry.add(offset_of!(TracedCall, end_ns) as u64).ptr::<u64>();
        // SAFETY: the entry was taken by this thread. It may have been overwritten, and then an end is wrong.
        unsafe { end.write_volatile(arch::now_ns()) };
    }
}
