//! Inner loops of reductions: read the sources of all members, combine them in team order, write the result.
//!
//! Aligned data moves 16 bytes at a time with several loads in flight, because P2P loads have a long latency.

#![allow(unsafe_code, reason = "reads sources and writes results at checked addresses")]

use super::args::Reduction;
use super::element::{ElementKind, Reduce, log_size};
use crate::abi::DevAddr;
use crate::arch;
use crate::half::{Bf16, F16};
use crate::outlined::outlined;

/// 16 bytes of data, as two words. The first word holds the first 8 bytes.
pub(super) type Unit = (u64, u64);

/// Addresses at which this PE reaches one symmetric object on all members.
#[derive(Clone, Copy)]
pub(super) struct MemberAddrs {
    /// Address of the object on this PE.
    pub(super) own: u64,
    /// Address of the object on member 0. With a list of the members' PEs: on PE 0.
    pub(super) first: u64,
    /// Wrapping distance between the object's addresses on successive members. With a list of the members' PEs: on
    /// successive PEs.
    pub(super) step: u64,
}

/// A reduction of the sources of all members. A pair of addresses belongs to source and destination.
#[derive(Clone, Copy)]
pub(super) struct Fold {
    /// Operation and element type. An undefined combination changes nothing: see
    /// [`is_defined`](super::element::is_defined).
    pub(super) reduction: Reduction,
    /// Addresses of source and destination on this PE.
    pub(super) own: (u64, u64),
    /// Addresses of source and destination on member 0. With a list of the members' PEs: on PE 0.
    pub(super) first: (u64, u64),
    /// Wrapping distances between the addresses of successive members, for source and destination. With a list of the
    /// members' PEs: of successive PEs.
    pub(super) step: (u64, u64),
    /// Address of the list of the members' PEs, or 0 if addresses are computed from member ranks.
    pub(super) pes: DevAddr,
    /// Rank of this member, and number of members to combine, starting with member 0.
    pub(super) members: (u32, u32),
    /// Whether the result is written to all members, or only to this one.
    pub(super) to_all: bool,
    pub(super) bytes: u64,
}

impl Fold {
    /// Returns the reduction of what follows the first `done` bytes.
    #[inline(always)]
    pub(super) fn after(self, done: u64) -> Self {
        let skip = |(src, dst): (u64, u64)| (src.wrapping_add(done), dst.wrapping_add(done));
        Self { own: skip(self.own), first: skip(self.first), bytes: self.bytes - done, ..self }
    }
}

/// Returns the address at which this PE reaches an object on `member`. See [`Fold`] for the arguments.
#[inline(always)]
pub(super) fn member_addr(own: u64, first: u64, step: u64, pes: DevAddr, me: u32, member: u32) -> u64 {
    if member == me {
        return own;
    }
    // SAFETY: the list has a word for each member.
    let at = if pes.0 == 0 { member } else { unsafe { arch::read(pes.ptr::<u32>().add(member as usize)) } };
    first.wrapping_add(step.wrapping_mul(at as u64))
}

outlined! {
    /// Runs a reduction, as one of `(rank, size)` threads of a group. Each thread does its share.
    ///
    /// One function handles all types and reductions, so kernels hold no copies of it.
    ///
    /// # Safety
    /// - For each of the `members`, the source is valid for reads of `bytes` bytes, a whole number of elements, and aligned
    ///   for them.
    /// - The destination, on this member or `to_all`, is valid for writes until the kernel returns and aligned alike. It
    ///   overlaps the source nowhere, unless they are equal.
    /// - The threads have different ranks below `size`. `pes` is 0 or has a word for each member.
    pub(super) unsafe fn run(
        thread: (u32, u32);
        fold: Fold {
            reduction: Reduction,
            own: (u64, u64),
            first: (u64, u64),
            step: (u64, u64),
            pes: DevAddr,
            members: (u32, u32),
            to_all: bool,
            bytes: u64,
        }
    ) {
        let Fold { reduction, own, first, step, pes, members: (me, n), to_all, bytes } = fold;
        let (rank, threads) = (thread.0, thread.1 as u64);
        let Some(log) = log_size(reduction.kind) else { return };
        let all = own.0 | own.1 | first.0 | step.0 | if to_all { first.1 | step.1 } else { 0 };
        let units = if all & 15 == 0 { bytes / 16 } else { 0 };
        let loops = Loops {
            what: (reduction.op, reduction.kind),
            n,
            targets: if to_all { (0, n) } else { (me, me + 1) },
            source: |member: u32| member_addr(own.0, first.0, step.0, pes, me, member),
            target: |member: u32| member_addr(own.1, first.1, step.1, pes, me, member),
        };
        let mut i = rank as u64;
        // SAFETY: the units below `units` and the elements after them lie within the `bytes` bytes of each object,
        // which are valid by this function's contract. Units are used only if all addresses are multiples of 16, and
        // each thread has its own.
        unsafe {
            while i + 7 * threads < units {
                loops.eight_units(i, threads);
                i += 8 * threads;
            }
            while i + 3 * threads < units {
                loops.four_units(i, threads);
                i += 4 * threads;
            }
            while i < units {
                loops.two_units(i, threads, units);
                i += 2 * threads;
            }
            let mut at = units * 16 + ((rank as u64) << log);
            while at < bytes {
                loops.one_element(at, log);
                at += threads << log;
            }
        }
    }
}

outlined! {
    /// Runs whole rounds of a reduction like [`run`], with loads from several members in flight, as long reductions of
    /// more than two members want. Returns the number of bytes that it has combined. A function by itself, since it needs
    /// most registers of a thread.
    ///
    /// # Safety
    /// The same as for [`run`].
    pub(super) unsafe fn run_long(
        thread: (u32, u32);
        fold: Fold {
            reduction: Reduction,
            own: (u64, u64),
            first: (u64, u64),
            step: (u64, u64),
            pes: DevAddr,
            members: (u32, u32),
            to_all: bool,
            bytes: u64,
        }
    ) -> u64 {
        let Fold { reduction, own, first, step, pes, members: (me, n), to_all, bytes } = fold;
        let (rank, threads) = (thread.0, thread.1 as u64);
        let all = own.0 | own.1 | first.0 | step.0 | if to_all { first.1 | step.1 } else { 0 };
        if all & 15 != 0 || log_size(reduction.kind).is_none() {
            return 0;
        }
        let loops = Loops {
            what: (reduction.op, reduction.kind),
            n,
            targets: if to_all { (0, n) } else { (me, me + 1) },
            source: |member: u32| member_addr(own.0, first.0, step.0, pes, me, member),
            target: |member: u32| member_addr(own.1, first.1, step.1, pes, me, member),
        };
        let (mut i, round) = (rank as u64, 4 * threads);
        let mut units = bytes / 16;
        units -= units % round;
        while i < units {
            // SAFETY: the rounds lie within the `bytes` bytes of each object, which are valid by this function's contract.
            // All addresses are multiples of 16, and each thread has its own units.
            unsafe { loops.four_units_at_once(i, threads) }
            i += round;
        }
        units * 16
    }
}

/// Operation, members and addresses, for the loops of [`run`] and [`run_long`].
struct Loops<S, T> {
    what: (u32, u32),
    n: u32,
    /// Range of member ranks to which the result is written.
    targets: (u32, u32),
    /// Function from a member's rank to the address of its source.
    source: S,
    /// Function from a member's rank to the address of its destination.
    target: T,
}

impl<S: Fn(u32) -> u64, T: Fn(u32) -> u64> Loops<S, T> {
    /// Combines eight 16-byte units, `threads` units apart, from unit `i` on.
    ///
    /// # Safety
    /// In the source of each member and the destination of each target, these units are valid, as [`run`] demands, and
    /// multiples of 16.
    #[inline(always)]
    unsafe fn eight_units(&self, i: u64, threads: u64) {
        // SAFETY: these eight units are valid in each member's source and destination, and aligned, by this
        // function's contract.
        unsafe {
            let load = |from: u64| (load_four(from, i, threads), load_four(from, i + 4 * threads, threads));
            let (mut sum, mut member) = (load((self.source)(0)), 1);
            while member < self.n {
                let more = load((self.source)(member));
                sum = (combine_four(self.what, sum.0, more.0), combine_four(self.what, sum.1, more.1));
                member += 1;
            }
            let (mut member, end) = self.targets;
            while member < end {
                let to = (self.target)(member);
                store_four(to, i, threads, sum.0);
                store_four(to, i + 4 * threads, threads, sum.1);
                member += 1;
            }
        }
    }

    /// Combines four 16-byte units, `threads` units apart, from unit `i` on.
    ///
    /// # Safety
    /// The same as for [`Loops::eight_units`], for these units.
    #[inline(always)]
    unsafe fn four_units(&self, i: u64, threads: u64) {
        // SAFETY: these four units are valid in each member's source and destination, and aligned, by this function's
        // contract.
        unsafe {
            let (mut sum, mut member) = (load_four((self.source)(0), i, threads), 1);
            while member < self.n {
                let more = load_four((self.source)(member), i, threads);
                sum = combine_four(self.what, sum, more);
                member += 1;
            }
            let (mut member, end) = self.targets;
            while member < end {
                store_four((self.target)(member), i, threads, sum);
                member += 1;
            }
        }
    }

    /// Combines four units like [`Loops::four_units`], with loads from up to four members in flight. Loads from one member after the
    /// other would all wait for the link of the same member.
    ///
    /// # Safety
    /// The same as for [`Loops::eight_units`], for these units.
    #[inline(always)]
    unsafe fn four_units_at_once(&self, i: u64, threads: u64) {
        let n = self.n;
        let zero = Four((0, 0), (0, 0), (0, 0), (0, 0));
        let load = |member: u32| {
            // SAFETY: these four units are readable in each member's source, and aligned, by this function's contract.
            if member < n { unsafe { load_four((self.source)(member), i, threads) } } else { zero }
        };
        let (mut sum, mut member) = (load(0), 1);
        while member < n {
            let (a, b, c) = (load(member), load(member + 1), load(member + 2));
            sum = combine_four(self.what, sum, a);
            if member + 1 < n {
                sum = combine_four(self.what, sum, b);
            }
            if member + 2 < n {
                sum = combine_four(self.what, sum, c);
            }
            member += 3;
        }
        let (mut member, end) = self.targets;
        while member < end {
            // SAFETY: these four units are writable in each target's destination, and aligned, by this function's
            // contract.
            unsafe { store_four((self.target)(member), i, threads, sum) };
            member += 1;
        }
    }

    /// Combines the 16-byte unit `i` and, if it is below `units`, the one `threads` units later, with loads from up to four
    /// members in flight. Loads nothing that it does not need: a link would carry it.
    ///
    /// # Safety
    /// The same as for [`Loops::eight_units`], for those of these units that are below `units`. Unit `i` is.
    #[inline(always)]
    unsafe fn two_units(&self, i: u64, threads: u64, units: u64) {
        let (n, both) = (self.n, i + threads < units);
        let load = |member: u32| {
            let from = (self.source)(member.min(n - 1));
            // SAFETY: unit `i`, and the second one if `both`, is readable in each member's source, and aligned, by this
            // function's contract.
            unsafe {
                let first = if member < n { load_unit(from + i * 16) } else { (0, 0) };
                let second = if member < n && both { load_unit(from + (i + threads) * 16) } else { (0, 0) };
                (first, second)
            }
        };
        let add = |sum: (Unit, Unit), more: (Unit, Unit)| {
            (combine(self.what, sum.0, more.0), combine(self.what, sum.1, more.1))
        };
        let (mut sum, mut member) = (load(0), 1);
        while member < n {
            let (a, b, c, d) = (load(member), load(member + 1), load(member + 2), load(member + 3));
            sum = add(sum, a);
            if member + 1 < n {
                sum = add(sum, b);
            }
            if member + 2 < n {
                sum = add(sum, c);
            }
            if member + 3 < n {
                sum = add(sum, d);
            }
            member += 4;
        }
        let (mut member, end) = self.targets;
        while member < end {
            let to = (self.target)(member);
            // SAFETY: these units are writable in each target's destination, and aligned, by this function's contract.
            unsafe {
                store_unit(to + i * 16, sum.0);
                if both {
                    store_unit(to + (i + threads) * 16, sum.1);
                }
            }
            member += 1;
        }
    }

    /// Combines the element of `2^log` bytes at byte offset `at`.
    ///
    /// # Safety
    /// In the source of each member and the destination of each target, the element is valid and aligned, as [`run`]
    /// demands.
    #[inline(always)]
    unsafe fn one_element(&self, at: u64, log: u32) {
        // SAFETY: the element at `at` is valid in each member's source and destination, and aligned, by this
        // function's contract.
        unsafe {
            let element = |member: u32| load_element((self.source)(member) + at, log);
            let (mut sum, mut member) = (element(0), 1);
            while member < self.n {
                sum = combine(self.what, sum, element(member));
                member += 1;
            }
            let (mut member, end) = self.targets;
            while member < end {
                store_element((self.target)(member) + at, log, sum);
                member += 1;
            }
        }
    }
}

/// Loads four 16-byte units, `step` units apart, from unit `i` on.
///
/// # Safety
/// `from` is a multiple of 16, and the units there are valid for reads.
#[inline(always)]
pub(super) unsafe fn load_four(from: u64, i: u64, step: u64) -> Four {
    // SAFETY: the four units are readable and aligned, by this function's contract.
    let unit = |k: u64| unsafe { load_unit(from + (i + k * step) * 16) };
    Four(unit(0), unit(1), unit(2), unit(3))
}

/// Stores four 16-byte units, `step` units apart, from unit `i` on.
///
/// # Safety
/// `to` is a multiple of 16, and the units there are valid for writes until the kernel returns.
#[inline(always)]
pub(super) unsafe fn store_four(to: u64, i: u64, step: u64, four: Four) {
    // SAFETY: the four units are writable and aligned, by this function's contract.
    unsafe {
        store_unit(to + i * 16, four.0);
        store_unit(to + (i + step) * 16, four.1);
        store_unit(to + (i + 2 * step) * 16, four.2);
        store_unit(to + (i + 3 * step) * 16, four.3);
    }
}

/// Loads 16 bytes.
///
/// # Safety
/// `at` is a multiple of 16, valid for reads of 16 bytes.
#[inline(always)]
pub(super) unsafe fn load_unit(at: u64) -> Unit {
    // SAFETY: the 16 bytes at `at` are readable and aligned, by this function's contract.
    let [a, b, c, d] = unsafe { arch::load16(DevAddr(at).ptr()) };
    (a as u64 | (b as u64) << 32, c as u64 | (d as u64) << 32)
}

/// Stores 16 bytes.
///
/// # Safety
/// `at` is a multiple of 16, valid for writes of 16 bytes until the kernel returns.
#[inline(always)]
pub(super) unsafe fn store_unit(at: u64, (a, b): Unit) {
    // SAFETY: the 16 bytes at `at` are writable and aligned, by this function's contract.
    unsafe { arch::store16(DevAddr(at).ptr(), [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32]) }
}

/// Loads an element of `2^log` bytes into the first bytes of a unit.
///
/// # Safety
/// `at` is aligned for the element and valid for reads of it.
#[inline(always)]
unsafe fn load_element(at: u64, log: u32) -> Unit {
    let at = DevAddr(at);
    // SAFETY: `at` is an aligned, readable element of the size in each arm, by this function's contract. The longest
    // elements have two words.
    unsafe {
        match log {
            0 => (arch::read(at.ptr::<u8>()) as u64, 0),
            1 => (arch::read(at.ptr::<u16>()) as u64, 0),
            2 => (arch::read(at.ptr::<u32>()) as u64, 0),
            3 => (arch::read(at.ptr::<u64>()), 0),
            _ => (arch::read(at.ptr::<u64>()), arch::read(at.add(8).ptr::<u64>())),
        }
    }
}

/// Stores an element of `2^log` bytes.
///
/// # Safety
/// `at` is aligned for the element and valid for writes of it until the kernel returns.
#[inline(always)]
unsafe fn store_element(at: u64, log: u32, (a, b): Unit) {
    let at = DevAddr(at);
    // SAFETY: `at` is an aligned, writable element of the size in each arm, by this function's contract. The longest
    // elements have two words.
    unsafe {
        match log {
            0 => arch::write(at.ptr(), a as u8),
            1 => arch::write(at.ptr(), a as u16),
            2 => arch::write(at.ptr(), a as u32),
            3 => arch::write(at.ptr(), a),
            _ => {
                arch::write(at.ptr(), a);
                arch::write(at.add(8).ptr(), b);
            }
        }
    }
}

/// Combines four 16-byte units with four others, element by element.
#[inline(always)]
fn combine_four((op, kind): (u32, u32), a: Four, b: Four) -> Four {
    match wide(op, kind, (a, b)) {
        Some(four) => four,
        None => a.with(b, |a, b| combine((op, kind), a, b)),
    }
}

/// Combines two 16-byte units, element by element.
#[inline(never)]
fn combine((op, kind): (u32, u32), a: Unit, b: Unit) -> Unit {
    match wide(op, kind, (a, b)) {
        Some(sum) => sum,
        None => narrow(op, kind, a, b),
    }
}

/// Returns whether elements of this kind have at most 8 bytes, so that [`combine_words`] combines them.
#[inline(always)]
pub(super) fn has_words(kind: u32) -> bool {
    kind != VALUE_INDEX
}

/// Combines two words of whole elements with two others, element by element. The two words need not be adjacent in
/// memory.
#[inline(always)]
pub(super) fn combine_words(reduction: Reduction, a: Unit, b: Unit) -> Unit {
    combine((reduction.op, reduction.kind), a, b)
}

/// One pair, or four pairs, of 16-byte units to combine.
trait Pairs {
    type Sum;
    /// Applies `f` to each pair of units.
    fn by(self, f: impl Fn(Unit, Unit) -> Unit) -> Self::Sum;
}

impl Pairs for (Unit, Unit) {
    type Sum = Unit;
    #[inline(always)]
    fn by(self, f: impl Fn(Unit, Unit) -> Unit) -> Unit {
        f(self.0, self.1)
    }
}

/// Four 16-byte units. Separate fields rather than an array, which would have to be in memory to be indexed.
#[derive(Clone, Copy)]
pub(super) struct Four(pub(super) Unit, pub(super) Unit, pub(super) Unit, pub(super) Unit);

impl Four {
    #[inline(always)]
    fn with(self, b: Self, f: impl Fn(Unit, Unit) -> Unit) -> Self {
        Self(f(self.0, b.0), f(self.1, b.1), f(self.2, b.2), f(self.3, b.3))
    }
}

impl Pairs for (Four, Four) {
    type Sum = Four;
    #[inline(always)]
    fn by(self, f: impl Fn(Unit, Unit) -> Unit) -> Four {
        self.0.with(self.1, f)
    }
}

/// Combines pairs of 16-byte units, for elements of 4 and 8 bytes. Returns `None` for other element sizes.
#[inline(always)]
fn wide<P: Pairs>(op: u32, kind: u32, pairs: P) -> Option<P::Sum> {
    Some(match (kind, op) {
        (U32 | I32, SUM) => pairs.by(|a, b| by_32(a, b, u32::wrapping_add)),
        (U32 | I32, PROD) => pairs.by(|a, b| by_32(a, b, u32::wrapping_mul)),
        (U64 | I64, SUM) => pairs.by(|a, b| by_64(a, b, u64::wrapping_add)),
        (U64 | I64, PROD) => pairs.by(|a, b| by_64(a, b, u64::wrapping_mul)),
        (U32 | I32 | U64 | I64, AND) => pairs.by(|a, b| by_64(a, b, |a, b| a & b)),
        (U32 | I32 | U64 | I64, OR) => pairs.by(|a, b| by_64(a, b, |a, b| a | b)),
        (U32 | I32 | U64 | I64, XOR) => pairs.by(|a, b| by_64(a, b, |a, b| a ^ b)),
        (U32, MIN) => pairs.by(|a, b| by_32(a, b, u32::min)),
        (U32, MAX) => pairs.by(|a, b| by_32(a, b, u32::max)),
        (U64, MIN) => pairs.by(|a, b| by_64(a, b, u64::min)),
        (U64, MAX) => pairs.by(|a, b| by_64(a, b, u64::max)),
        (I32, MIN) => pairs.by(|a, b| by_32(a, b, |a, b| (a as i32).min(b as i32) as u32)),
        (I32, MAX) => pairs.by(|a, b| by_32(a, b, |a, b| (a as i32).max(b as i32) as u32)),
        (I64, MIN) => pairs.by(|a, b| by_64(a, b, |a, b| (a as i64).min(b as i64) as u64)),
        (I64, MAX) => pairs.by(|a, b| by_64(a, b, |a, b| (a as i64).max(b as i64) as u64)),
        (F32, SUM) => pairs.by(|a, b| by_f32(a, b, |a, b| a + b)),
        (F32, PROD) => pairs.by(|a, b| by_f32(a, b, |a, b| a * b)),
        (F32, MIN) => pairs.by(|a, b| by_f32(a, b, |a, b| if b < a || a.is_nan() { b } else { a })),
        (F32, MAX) => pairs.by(|a, b| by_f32(a, b, |a, b| if b > a || a.is_nan() { b } else { a })),
        (F64, SUM) => pairs.by(|a, b| by_f64(a, b, |a, b| a + b)),
        (F64, PROD) => pairs.by(|a, b| by_f64(a, b, |a, b| a * b)),
        (F64, MIN) => pairs.by(|a, b| by_f64(a, b, |a, b| if b < a || a.is_nan() { b } else { a })),
        (F64, MAX) => pairs.by(|a, b| by_f64(a, b, |a, b| if b > a || a.is_nan() { b } else { a })),
        _ => return None,
    })
}

/// Combines two 16-byte units, for elements of 1, 2 and 16 bytes.
#[inline(always)]
fn narrow(op: u32, kind: u32, a: Unit, b: Unit) -> Unit {
    match (kind, op) {
        (U8 | I8, SUM) => by_8(a, b, u8::wrapping_add),
        (U8 | I8, PROD) => by_8(a, b, u8::wrapping_mul),
        (U16 | I16, SUM) => by_16(a, b, u16::wrapping_add),
        (U16 | I16, PROD) => by_16(a, b, u16::wrapping_mul),
        (U8 | I8 | U16 | I16, AND) => by_64(a, b, |a, b| a & b),
        (U8 | I8 | U16 | I16, OR) => by_64(a, b, |a, b| a | b),
        (U8 | I8 | U16 | I16, XOR) => by_64(a, b, |a, b| a ^ b),
        (U8, MIN) => by_8(a, b, u8::min),
        (U8, MAX) => by_8(a, b, u8::max),
        (U16, MIN) => by_16(a, b, u16::min),
        (U16, MAX) => by_16(a, b, u16::max),
        (I8, MIN) => by_8(a, b, |a, b| (a as i8).min(b as i8) as u8),
        (I8, MAX) => by_8(a, b, |a, b| (a as i8).max(b as i8) as u8),
        (I16, MIN) => by_16(a, b, |a, b| (a as i16).min(b as i16) as u16),
        (I16, MAX) => by_16(a, b, |a, b| (a as i16).max(b as i16) as u16),
        (HALF, SUM) => by_16(a, b, |a, b| F16::from_f32(F16(a).to_f32() + F16(b).to_f32()).0),
        (HALF, PROD) => by_16(a, b, |a, b| F16::from_f32(F16(a).to_f32() * F16(b).to_f32()).0),
        (HALF, MIN) => by_16(a, b, |a, b| if is_less(F16(b).to_f32(), F16(a).to_f32()) { b } else { a }),
        (HALF, MAX) => by_16(a, b, |a, b| if is_more(F16(b).to_f32(), F16(a).to_f32()) { b } else { a }),
        (BRAIN, SUM) => by_16(a, b, |a, b| Bf16::from_f32(Bf16(a).to_f32() + Bf16(b).to_f32()).0),
        (BRAIN, PROD) => by_16(a, b, |a, b| Bf16::from_f32(Bf16(a).to_f32() * Bf16(b).to_f32()).0),
        (BRAIN, MIN) => by_16(a, b, |a, b| if is_less(Bf16(b).to_f32(), Bf16(a).to_f32()) { b } else { a }),
        (BRAIN, MAX) => by_16(a, b, |a, b| if is_more(Bf16(b).to_f32(), Bf16(a).to_f32()) { b } else { a }),
        (VALUE_INDEX, _) => {
            let ((x, i), (y, j)) = (located(a), located(b));
            let better = if op == MIN { y < x } else { y > x };
            let tie = y == x && j < i;
            if better || tie || x.is_nan() && !y.is_nan() { b } else { a }
        }
        _ => a,
    }
}

/// Returns whether `b` replaces `a` as the minimum.
#[inline(always)]
fn is_less(b: f32, a: f32) -> bool {
    b < a || a.is_nan()
}

/// Returns whether `b` replaces `a` as the maximum.
#[inline(always)]
fn is_more(b: f32, a: f32) -> bool {
    b > a || a.is_nan()
}

/// Splits the 16 bytes of a [`ValueIndex`](super::ValueIndex) into value and index.
#[inline(always)]
fn located((value, index): Unit) -> (f64, i64) {
    (f64::from_bits(value), index as i64)
}

#[inline(always)]
fn by_64(a: Unit, b: Unit, f: impl Fn(u64, u64) -> u64) -> Unit {
    (f(a.0, b.0), f(a.1, b.1))
}

#[inline(always)]
fn by_f64(a: Unit, b: Unit, f: impl Fn(f64, f64) -> f64) -> Unit {
    by_64(a, b, |a, b| f(f64::from_bits(a), f64::from_bits(b)).to_bits())
}

#[inline(always)]
fn by_f32(a: Unit, b: Unit, f: impl Fn(f32, f32) -> f32) -> Unit {
    by_32(a, b, |a, b| f(f32::from_bits(a), f32::from_bits(b)).to_bits())
}

#[inline(always)]
fn by_32(a: Unit, b: Unit, f: impl Fn(u32, u32) -> u32) -> Unit {
    by_64(a, b, |a, b| f(a as u32, b as u32) as u64 | (f((a >> 32) as u32, (b >> 32) as u32) as u64) << 32)
}

#[inline(always)]
fn by_16(a: Unit, b: Unit, f: impl Fn(u16, u16) -> u16) -> Unit {
    by_32(a, b, |a, b| f(a as u16, b as u16) as u32 | (f((a >> 16) as u16, (b >> 16) as u16) as u32) << 16)
}

#[inline(always)]
fn by_8(a: Unit, b: Unit, f: impl Fn(u8, u8) -> u8) -> Unit {
    by_16(a, b, |a, b| f(a as u8, b as u8) as u16 | (f((a >> 8) as u8, (b >> 8) as u8) as u16) << 8)
}

const SUM: u32 = Reduce::Sum as u32;
const PROD: u32 = Reduce::Prod as u32;
const MIN: u32 = Reduce::Min as u32;
const MAX: u32 = Reduce::Max as u32;
const AND: u32 = Reduce::And as u32;
const OR: u32 = Reduce::Or as u32;
const XOR: u32 = Reduce::Xor as u32;

const U8: u32 = ElementKind::U8 as u32;
const I8: u32 = ElementKind::I8 as u32;
const U16: u32 = ElementKind::U16 as u32;
const I16: u32 = ElementKind::I16 as u32;
const U32: u32 = ElementKind::U32 as u32;
const I32: u32 = ElementKind::I32 as u32;
const U64: u32 = ElementKind::U64 as u32;
const I64: u32 = ElementKind::I64 as u32;
const HALF: u32 = ElementKind::F16 as u32;
const BRAIN: u32 = ElementKind::Bf16 as u32;
const F32: u32 = ElementKind::F32 as u32;
const F64: u32 = ElementKind::F64 as u32;
const VALUE_INDEX: u32 = ElementKind::ValueIndex as u32;
