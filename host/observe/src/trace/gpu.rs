//! Collects the device calls that kernels on a GPU have recorded for the timeline.
//!
//! Kernels built with a timeline write their calls to rings in GPU memory, which the host reads when the PE finishes.
//! The GPU's clock has a different origin than the host's. The host runs short kernels that read it, each of which
//! bounds the difference between the clocks. So do the launches of the program: a kernel starts after its launch and
//! finishes before a wait for it returns.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::mem::size_of;
use std::sync::Mutex;

use bytemuck::Zeroable;
use rushmem_base::lock;
use rushmem_device::abi::{CacheLine, DevAddr, TRACE_RINGS, TraceArea, TracedCall, traced};
use rushmem_error::Result;
use rushmem_trace::{Category, Detail, Site, Span, Track, Word};

/// GPU memory for the rings to which kernels write their device calls.
pub trait RingMemory: Send + Sync {
    /// Returns the index of the GPU that holds the memory.
    fn gpu(&self) -> u32;
    /// Returns the GPU address of the rings, for kernels.
    fn addr(&self) -> DevAddr;
    /// Copies `bytes` to GPU memory, `offset` bytes after the start of the rings.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Copies GPU memory at `offset` bytes after the start of the rings to `bytes`. Kernels may be running.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;
    /// Reads a string constant of a kernel, such as the name of a call, at a GPU address. `None` if it cannot be read.
    fn text(&self, address: u64, len: u8) -> Option<String>;
}

/// Capacity of the rings to which a PE's kernels write their device calls.
#[derive(Clone, Copy, Debug)]
pub struct RingSize {
    calls: u64,
    /// Size of all rings together, in bytes.
    pub(crate) bytes: u64,
}

impl RingSize {
    /// Returns the largest capacity for which all rings together take at most `bytes` bytes.
    pub fn within(bytes: u64) -> Self {
        let room = bytes.saturating_sub(size_of::<TraceArea>() as u64);
        let room = room / size_of::<TracedCall>() as u64 / TRACE_RINGS as u64;
        let calls = 1 << room.max(1).ilog2();
        let all = calls * TRACE_RINGS as u64 * size_of::<TracedCall>() as u64;
        Self { calls, bytes: size_of::<TraceArea>() as u64 + all }
    }
}

pub(super) struct Rings {
    memory: Box<dyn RingMemory>,
    calls: u64,
    launches: Mutex<HashMap<u64, HostTimes>>,
    clock: Mutex<Difference>,
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rings({:#x})", self.addr().0)
    }
}

/// When a kernel launch was made and when it was known to have finished, in host time.
#[derive(Clone, Copy, Debug)]
struct HostTimes {
    before: u64,
    after: Option<u64>,
}

/// Maximum number of launches used to bound the difference between the clocks of GPU and host.
const BOUNDS: usize = 4096;

impl Rings {
    /// Prepares rings in `memory`, which must be zeroed.
    ///
    /// # Errors
    /// - Errors of the memory.
    pub(super) fn new(memory: Box<dyn RingMemory>, size: RingSize) -> Result<Self> {
        memory.write(0, bytemuck::bytes_of(&size.calls))?;
        let (launches, clock) = (Mutex::default(), Mutex::new(Difference::UNKNOWN));
        Ok(Self { memory, calls: size.calls, launches, clock })
    }

    pub(super) fn addr(&self) -> DevAddr {
        self.memory.addr()
    }

    /// Records that a kernel read `device_ns` from the GPU's clock between the host times `before` and `after`.
    pub(super) fn bound_clock(&self, before: u64, device_ns: u64, after: u64) {
        lock(&self.clock).bound(before, (device_ns, device_ns), Some(after));
    }

    /// Records the host time `before` a launch on the PE's own stream. `mark` is the ID of the launch.
    pub(super) fn launched(&self, mark: u64, before: u64) {
        let mut launches = lock(&self.launches);
        if launches.len() < BOUNDS {
            launches.insert(mark, HostTimes { before, after: None });
        }
    }

    /// Records that the launch with ID `mark`, on the PE's own stream, had finished by the host time `after`.
    pub(super) fn ended(&self, mark: u64, after: u64) {
        if let Some(times) = lock(&self.launches).get_mut(&mark) {
            times.after = Some(after);
        }
    }

    /// Returns the device calls in progress, in host time. Kernels may be running.
    ///
    /// Considers only the last [`LAST_CALLS`] calls of each ring.
    ///
    /// # Errors
    /// - Errors of the memory.
    pub(super) fn open(&self, pe: u32) -> Result<Vec<Span>> {
        let calls = self.read(pe, LAST_CALLS, |_| "a kernel")?;
        let is_open =
            |span: &Span| span.end.is_none() && !matches!(span.category, Category::Kernel | Category::Launch);
        Ok(spans(&[calls]).into_iter().filter(is_open).collect())
    }

    /// Reads all recorded device calls. `name` maps the ID of a launch to the name of its kernel.
    ///
    /// # Errors
    /// - Errors of the memory.
    pub(super) fn read_all(&self, pe: u32, name: impl Fn(u64) -> &'static str) -> Result<GpuCalls> {
        self.read(pe, self.calls, name)
    }

    /// Reads the last `most` device calls of each ring.
    fn read(&self, pe: u32, most: u64, name: impl Fn(u64) -> &'static str) -> Result<GpuCalls> {
        let mut counts = vec![CacheLine::zeroed(); TRACE_RINGS];
        let at = std::mem::offset_of!(TraceArea, counts) as u64;
        self.memory.read(at, bytemuck::cast_slice_mut(&mut counts))?;
        let mut strings = Strings { memory: &*self.memory, known: HashMap::new() };
        let mut all = GpuCalls { pe, gpu: self.memory.gpu(), ..GpuCalls::default() };
        for (ring, count) in (0..).zip(counts.iter().map(|line| line.word)) {
            all.dropped += count.saturating_sub(self.calls);
            let calls = self.last_of(ring, count, most)?;
            all.calls.extend(calls.into_iter().map(|call| NamedCall {
                name: match call.kind {
                    traced::KERNEL => Cow::Borrowed(name(mark_of(call.launch))),
                    _ => strings.at(call.name, call.name_len).into(),
                },
                file: strings.at(call.file, call.file_len),
                call,
            }));
        }
        all.launches = lock(&self.launches).clone();
        all.clock = *lock(&self.clock);
        Ok(all)
    }

    /// Reads the last `most` calls of a ring to which `count` calls have been written so far.
    fn last_of(&self, ring: u64, count: u64, most: u64) -> Result<Vec<TracedCall>> {
        let kept = count.min(self.calls).min(most);
        let begin = (count - kept) % self.calls;
        let to_end = kept.min(self.calls - begin) as usize;
        let mut calls = vec![TracedCall::zeroed(); kept as usize];
        let (older, newer) = calls.split_at_mut(to_end);
        for (first, calls) in [(begin, older), (0, newer)] {
            let entry = ring * self.calls + first;
            let at = size_of::<TraceArea>() as u64 + entry * size_of::<TracedCall>() as u64;
            if !calls.is_empty() {
                self.memory.read(at, bytemuck::cast_slice_mut(calls))?;
            }
        }
        Ok(calls)
    }
}

/// Number of calls per ring that are read while kernels are running.
const LAST_CALLS: u64 = 128;

/// Returns the launch ID contained in [`TracedCall::launch`], without the queue index.
fn mark_of(launch: u64) -> u64 {
    launch & !QUEUE_BITS
}

/// Mask of the queue index in [`TracedCall::launch`].
const QUEUE_BITS: u64 = rushmem_device::abi::TRACED_QUEUE;

/// Cache of the kernels' string constants, by GPU address and length.
struct Strings<'a> {
    memory: &'a dyn RingMemory,
    known: HashMap<(u64, u8), String>,
}

impl Strings<'_> {
    fn at(&mut self, address: u64, len: u8) -> String {
        let read = || self.memory.text(address, len).unwrap_or_else(|| "?".into());
        self.known.entry((address, len)).or_insert_with(read).clone()
    }
}

/// Device calls recorded by a PE's kernels on a GPU, in GPU time.
#[derive(Debug, Default)]
pub(super) struct GpuCalls {
    clock: Difference,
    pe: u32,
    gpu: u32,
    calls: Vec<NamedCall>,
    pub(super) dropped: u64,
    launches: HashMap<u64, HostTimes>,
}

#[derive(Debug)]
struct NamedCall {
    name: Cow<'static, str>,
    file: String,
    call: TracedCall,
}

/// Lower and upper bound of the host's clock minus the GPU's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Difference {
    low: i64,
    high: i64,
}

impl Difference {
    const UNKNOWN: Self = Self { low: i64::MIN / 4, high: i64::MAX / 4 };

    /// Narrows the bounds: the host's clock was past `before` at device time `first`, and not past `after` at device
    /// time `second`.
    fn bound(&mut self, before: u64, (first, second): (u64, u64), after: Option<u64>) {
        self.low = self.low.max(before as i64 - first as i64);
        if let Some(after) = after {
            self.high = self.high.min(after as i64 - second as i64);
        }
    }

    fn and(self, other: Self) -> Self {
        Self { low: self.low.max(other.low), high: self.high.min(other.high) }
    }

    fn middle(self) -> i64 {
        self.low + (self.high - self.low) / 2
    }
}

impl Default for Difference {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// Converts the recorded device calls of all PEs to timeline spans, in host time.
pub(super) fn spans(all: &[GpuCalls]) -> Vec<Span> {
    let mut clocks: BTreeMap<u32, Difference> = BTreeMap::new();
    for calls in all {
        let clock = clocks.entry(calls.gpu).or_default();
        *clock = clock.and(calls.clock);
        for NamedCall { call, .. } in calls.kernels() {
            let Some(times) = calls.launches.get(&call.launch) else { continue };
            let after = times.after.filter(|_| call.end_ns != 0);
            clock.bound(times.before, (call.begin_ns, call.end_ns), after);
        }
    }
    for (gpu, clock) in &clocks {
        tracing::debug!(gpu, error_ns = (clock.high - clock.low) / 2, "the clock of the timeline");
    }
    all.iter()
        .flat_map(|calls| {
            let shift = clocks.get(&calls.gpu).map_or(0, |clock| clock.middle());
            calls.lanes(shift).into_iter().chain(calls.streams(shift))
        })
        .collect()
}

impl GpuCalls {
    fn kernels(&self) -> impl Iterator<Item = &NamedCall> {
        self.calls.iter().filter(|named| named.call.kind == traced::KERNEL)
    }

    /// Returns the spans of device calls, on one track per GPU thread. `shift` converts GPU time to host time.
    fn lanes(&self, shift: i64) -> Vec<Span> {
        let mut by_lane: BTreeMap<(u32, u16), Vec<&NamedCall>> = BTreeMap::new();
        for named in &self.calls {
            by_lane.entry((named.call.block, named.call.thread)).or_default().push(named);
        }
        by_lane.into_values().flat_map(outer).map(|named| self.lane(named, shift)).collect()
    }

    fn lane(&self, NamedCall { name, file, call }: &NamedCall, shift: i64) -> Span {
        let (category, detail) = describe(self.pe, call);
        let site = Site { file: Cow::Owned(file.clone()), line: call.line };
        Span {
            pe: self.pe,
            track: Track::Lane { block: call.block, thread: call.thread.into() },
            name: name.clone(),
            category,
            site: (call.kind != traced::KERNEL).then_some(site),
            begin: host_time(call.begin_ns, shift),
            end: (call.end_ns != 0).then(|| host_time(call.end_ns, shift)),
            detail,
        }
    }

    /// Returns the spans of kernel launches, each from the start of its first block to the end of its last one. `shift`
    /// converts GPU time to host time.
    fn streams(&self, shift: i64) -> Vec<Span> {
        let mut kernels: Vec<&NamedCall> = self.kernels().collect();
        kernels.sort_by_key(|named| named.call.begin_ns);
        // A graph launches a kernel several times with the same ID. Each launch has each block once.
        let mut seen: HashMap<(u64, u32), u32> = HashMap::new();
        let mut launches: BTreeMap<(u64, u32), Span> = BTreeMap::new();
        for NamedCall { name, call, .. } in kernels {
            let number = seen.entry((call.launch, call.block)).or_default();
            let end = (call.end_ns != 0).then(|| host_time(call.end_ns, shift));
            let span = launches.entry((call.launch, *number)).or_insert_with(|| Span {
                pe: self.pe,
                track: Track::Stream { number: queue_of(call.launch) },
                name: name.clone(),
                category: Category::Launch,
                site: None,
                begin: host_time(call.begin_ns, shift),
                end,
                detail: Detail::default(),
            });
            span.end = span.end.zip(end).map(|(one, other)| one.max(other));
            *number += 1;
        }
        launches.into_values().collect()
    }
}

/// Returns the calls of a thread without nested ones: operations within an operation, and waits within a wait.
fn outer(mut calls: Vec<&NamedCall>) -> Vec<&NamedCall> {
    // A call that has not returned has the end 0, and contains all calls that start later in its launch.
    let end = |call: &TracedCall| if call.end_ns == 0 { u64::MAX } else { call.end_ns };
    calls.sort_by_key(|named| (named.call.begin_ns, std::cmp::Reverse(end(&named.call))));
    let (mut operation, mut wait) = ((0, 0), (0, 0));
    calls.retain(|NamedCall { call, .. }| {
        let outermost = match call.kind {
            traced::PUT..=traced::CHANGE => &mut operation,
            traced::COMPLETION | traced::WAIT | traced::COLLECTIVE | traced::GRID => &mut wait,
            _ => return true,
        };
        let (launch, until) = *outermost;
        let is_inner = call.launch == launch && call.begin_ns < until;
        if !is_inner {
            *outermost = (call.launch, end(call));
        }
        !is_inner
    });
    calls
}

fn queue_of(launch: u64) -> u32 {
    ((launch & QUEUE_BITS) >> QUEUE_BITS.trailing_zeros()) as u32
}

fn host_time(gpu_ns: u64, shift: i64) -> u64 {
    gpu_ns.saturating_add_signed(shift)
}

/// Returns the timeline category and the details of a device call by `pe`.
fn describe(pe: u32, call: &TracedCall) -> (Category, Detail) {
    let peer = (call.peer != u32::MAX).then_some(call.peer);
    let bytes = Some(call.bytes);
    let word = |pe| Some(Word { pe, offset: call.word });
    let to_peer = Detail { peer, bytes, ..Detail::default() };
    match call.kind {
        traced::KERNEL => (Category::Kernel, Detail::default()),
        traced::PUT => (Category::Call, Detail { remote: Some(call.remote), ..to_peer }),
        traced::PUT_SIGNAL | traced::CHANGE => {
            (Category::Call, Detail { remote: Some(call.remote), changes: peer.and_then(word), ..to_peer })
        }
        traced::GET => (Category::Call, to_peer),
        traced::FENCE => (Category::Call, Detail { peer, ..Detail::default() }),
        traced::COMPLETION => (Category::Wait, Detail { peer, ..Detail::default() }),
        traced::WAIT => {
            let note = Some(format!("value {}", call.remote).into());
            (Category::Wait, Detail { awaits: word(pe), note, ..Detail::default() })
        }
        traced::COLLECTIVE => {
            let team = Some(((call.word >> 32) as u32, call.word as u32));
            let bytes = bytes.filter(|&bytes| bytes > 0);
            (Category::Collective, Detail { team, bytes, ..Detail::default() })
        }
        traced::GRID => (Category::Wait, Detail { note: Some("all blocks".into()), ..Detail::default() }),
        other => (Category::Call, Detail { note: Some(format!("kind {other}").into()), ..Detail::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: u32, launch: u64, (begin_ns, end_ns): (u64, u64)) -> NamedCall {
        let call = TracedCall { kind, launch, begin_ns, end_ns, peer: 1, ..TracedCall::zeroed() };
        NamedCall { name: "name".into(), file: "src/lib.rs".into(), call }
    }

    #[test]
    fn launches_bound_the_clock_of_the_gpu() {
        // The host's clock is 1,000,000 ahead.
        let times = |before, after| HostTimes { before, after: Some(after) };
        let first = GpuCalls {
            calls: vec![call(traced::KERNEL, 1, (100, 200)), call(traced::PUT, 1, (120, 130))],
            launches: HashMap::from([(1, times(1_000_090, 1_000_300))]),
            ..GpuCalls::default()
        };
        let second = GpuCalls {
            pe: 1,
            calls: vec![call(traced::KERNEL, 2, (150, 400)), call(traced::WAIT, 2, (160, 0))],
            launches: HashMap::from([(2, times(1_000_020, 1_000_410))]),
            ..GpuCalls::default()
        };
        let spans = spans(&[first, second]);
        let times: Vec<_> = spans.iter().map(|span| (span.pe, span.category, span.begin, span.end)).collect();
        assert_eq!(
            times,
            [
                (0, Category::Kernel, 1_000_100, Some(1_000_200)),
                (0, Category::Call, 1_000_120, Some(1_000_130)),
                (0, Category::Launch, 1_000_100, Some(1_000_200)),
                (1, Category::Kernel, 1_000_150, Some(1_000_400)),
                (1, Category::Wait, 1_000_160, None),
                (1, Category::Launch, 1_000_150, Some(1_000_400)),
            ]
        );
    }

    struct HostRings(Mutex<Vec<u8>>);

    impl RingMemory for HostRings {
        fn gpu(&self) -> u32 {
            0
        }
        fn addr(&self) -> DevAddr {
            DevAddr(0)
        }
        fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            lock(&self.0)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
            bytes.copy_from_slice(&lock(&self.0)[offset as usize..][..bytes.len()]);
            Ok(())
        }
        fn text(&self, _: u64, _: u8) -> Option<String> {
            Some("text".into())
        }
    }

    #[test]
    fn the_last_calls_of_a_ring_may_go_past_its_end() {
        let size = RingSize::within(
            size_of::<TraceArea>() as u64 + 4 * (size_of::<TracedCall>() * TRACE_RINGS) as u64,
        );
        assert_eq!(size.calls, 4);
        let memory = HostRings(Mutex::new(vec![0; size.bytes as usize]));
        let rings = Rings::new(Box::new(memory), size).unwrap();
        // Ring 2 has taken six entries, so calls 4 and 5 are in entries 0 and 1.
        let count = std::mem::offset_of!(TraceArea, counts) + 2 * size_of::<CacheLine>();
        rings.memory.write(count as u64, &6u64.to_ne_bytes()).unwrap();
        for (entry, line) in [(0, 4), (1, 5), (2, 2), (3, 3)] {
            let call = TracedCall { line, kind: traced::WAIT, thread: line as u16, ..TracedCall::zeroed() };
            let at = size_of::<TraceArea>() + (2 * 4 + entry) * size_of::<TracedCall>();
            rings.memory.write(at as u64, bytemuck::bytes_of(&call)).unwrap();
        }
        let lines =
            |most| rings.last_of(2, 6, most).unwrap().iter().map(|call| call.line).collect::<Vec<_>>();
        assert_eq!((lines(3), lines(9)), (vec![3, 4, 5], vec![2, 3, 4, 5]));
        let all = rings.read_all(0, |_| "kernel").unwrap();
        assert_eq!((all.calls.len(), all.dropped), (4, 2));
        assert_eq!(rings.open(0).unwrap().len(), 4);
    }

    #[test]
    fn calls_inside_of_a_call_of_their_kind_are_left_out() {
        let calls = vec![
            call(traced::PUT_SIGNAL, 1, (10, 20)),
            call(traced::CHANGE, 1, (12, 14)),
            call(traced::COLLECTIVE, 1, (30, 60)),
            call(traced::PUT, 1, (40, 50)),
            call(traced::COLLECTIVE, 1, (45, 60)),
            call(traced::COLLECTIVE, 1, (70, 0)),
            call(traced::WAIT, 1, (80, 0)),
            call(traced::WAIT, 2, (90, 95)),
        ];
        let lanes = GpuCalls { calls, ..GpuCalls::default() }.lanes(0);
        assert_eq!(lanes.iter().map(|span| span.begin).collect::<Vec<_>>(), [10, 30, 40, 70, 90]);
    }

    #[test]
    fn a_launch_contains_its_blocks_and_each_replay_is_one() {
        let queue = 3 << QUEUE_BITS.trailing_zeros();
        let of_block = |block, times| {
            let mut named = call(traced::KERNEL, queue | 7, times);
            named.call.block = block;
            named
        };
        let calls =
            vec![of_block(0, (10, 20)), of_block(1, (12, 30)), of_block(0, (50, 60)), of_block(1, (52, 0))];
        let launches = GpuCalls { calls, ..GpuCalls::default() }.streams(0);
        let times: Vec<_> = launches.iter().map(|span| (span.begin, span.end)).collect();
        assert_eq!(times, [(10, Some(30)), (50, None)]);
        assert_eq!(launches[0].track, Track::Stream { number: 3 });
    }
}
