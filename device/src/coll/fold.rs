//! The loops of reductions: what lies on all members is read, combined in their order, and written.
//!
//! Where everything is aligned they go 16 bytes at a time, with several loads on their way: a peer's memory is far away.
#![allow(unsafe_code, reason = "reads sources and writes results at checked addresses")]

use super::element::{ElementKind, Reduce, log_size};
use super::half::{Bf16, F16};
use crate::abi::DevAddr;
use crate::arch;
use crate::group::Group;

/// 16 bytes, the first 8 of them in the first word.
type Unit = (u64, u64);

/// Where something lies on each member.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// On this one.
    pub(super) own: u64,
    /// On the first; or on PE 0, if there is a list of PEs.
    pub(super) first: u64,
    /// From each to the next, wrapping.
    pub(super) step: u64,
}

/// The members whose elements are combined.
#[derive(Clone, Copy)]
pub(super) struct Members {
    /// This one's number.
    pub(super) me: u32,
    /// How many: the first ones.
    pub(super) n: u32,
    /// Their PEs, by which rows go then; or 0.
    pub(super) pes: DevAddr,
}

/// Combines what lies at `from`, element by element in the order of the members, and writes it to `to` of this member, or of
/// all. Each thread of the group does its share.
///
/// One function for all types and reductions: `op` and `kind` are [`Reduce`] and [`ElementKind`], as numbers for which
/// [`is_defined`](super::element::is_defined) holds. Others change nothing.
///
/// # Safety
/// All that the rows name is valid for `bytes` bytes, a whole number of elements, and aligned for them. No part of `to`
/// overlaps one of `from`, unless they are the same.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) unsafe fn fold<G: Group>(
    group: G,
    op: u32,
    kind: u32,
    from: Row,
    to: Row,
    members: Members,
    to_all: bool,
    bytes: u64,
) {
    let (own, first, step) = ((from.own, to.own), (from.first, to.first), (from.step, to.step));
    let (who, threads) = ((members.me, members.n), (group.rank(), group.size()));
    // SAFETY: the caller's promise.
    unsafe { fold_words((op, kind), own, first, step, members.pes, who, to_all, bytes, threads) }
}

/// Where a row is on a member.
#[inline(always)]
pub(super) fn place(own: u64, first: u64, step: u64, pes: DevAddr, me: u32, member: u32) -> u64 {
    if member == me {
        return own;
    }
    // SAFETY: the list has a word for each member.
    let at = if pes.0 == 0 { member } else { unsafe { arch::read(pes.ptr::<u32>().add(member as usize)) } };
    first.wrapping_add(step.wrapping_mul(at as u64))
}

/// [`fold`] in pairs of words, which Rust passes in registers.
///
/// # Safety
/// As there.
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words
unsafe fn fold_words(
    (op, kind): (u32, u32),
    own: (u64, u64),
    first: (u64, u64),
    step: (u64, u64),
    pes: DevAddr,
    (me, n): (u32, u32),
    to_all: bool,
    bytes: u64,
    (rank, threads): (u32, u32),
) {
    let Some(log) = log_size(kind) else { return };
    let source = |member: u32| place(own.0, first.0, step.0, pes, me, member);
    let target = |member: u32| place(own.1, first.1, step.1, pes, me, member);
    let places = own.0 | own.1 | first.0 | step.0 | if to_all { first.1 | step.1 } else { 0 };
    let units = if places & 15 == 0 { bytes / 16 } else { 0 };
    let threads = threads as u64;
    // SAFETY: of all that is read and written below: the caller's promise.
    let load = |from: u64, unit: u64| unsafe { load_unit(from + unit * 16) };
    // SAFETY: as above.
    let store = |to: u64, unit: u64, value: Unit| unsafe { store_unit(to + unit * 16, value) };
    let store_four = |to: u64, first: u64, step: u64, four: Four| {
        store(to, first, four.0);
        store(to, first + step, four.1);
        store(to, first + 2 * step, four.2);
        store(to, first + 3 * step, four.3);
    };
    // The members that are written to.
    let (first_to, end_to) = if to_all { (0, n) } else { (me, me + 1) };
    let mut i = rank as u64;
    while i + 7 * threads < units {
        let at = |k: u64| i + k * threads;
        let eight = |from: u64| {
            let four = |k: u64| {
                Four(load(from, at(k)), load(from, at(k + 1)), load(from, at(k + 2)), load(from, at(k + 3)))
            };
            (four(0), four(4))
        };
        let (mut sum, mut member) = (eight(source(0)), 1);
        while member < n {
            let more = eight(source(member));
            sum = (four_of((op, kind), sum.0, more.0), four_of((op, kind), sum.1, more.1));
            member += 1;
        }
        let mut member = first_to;
        while member < end_to {
            let to = target(member);
            store_four(to, i, threads, sum.0);
            store_four(to, i + 4 * threads, threads, sum.1);
            member += 1;
        }
        i += 8 * threads;
    }
    while i + 3 * threads < units {
        let at = |k: u64| i + k * threads;
        let four =
            |from: u64| Four(load(from, at(0)), load(from, at(1)), load(from, at(2)), load(from, at(3)));
        let (mut sum, mut member) = (four(source(0)), 1);
        while member < n {
            let more = four(source(member));
            sum = four_of((op, kind), sum, more);
            member += 1;
        }
        let mut member = first_to;
        while member < end_to {
            store_four(target(member), i, threads, sum);
            member += 1;
        }
        i += 4 * threads;
    }
    while i < units {
        let (mut sum, mut member) = (load(source(0), i), 1);
        while member < n {
            // Up to four at a time; what is loaded twice is not used.
            let ahead = |k: u32| load(source((member + k).min(n - 1)), i);
            let more = Four(ahead(0), ahead(1), ahead(2), ahead(3));
            sum = combine((op, kind), sum, more.0);
            if member + 1 < n {
                sum = combine((op, kind), sum, more.1);
            }
            if member + 2 < n {
                sum = combine((op, kind), sum, more.2);
            }
            if member + 3 < n {
                sum = combine((op, kind), sum, more.3);
            }
            member += 4;
        }
        let mut member = first_to;
        while member < end_to {
            store(target(member), i, sum);
            member += 1;
        }
        i += threads;
    }
    // What is left, element by element.
    let mut at = units * 16 + ((rank as u64) << log);
    while at < bytes {
        // SAFETY: as above.
        let element = |member: u32| unsafe { load_element(source(member) + at, log) };
        let (mut sum, mut member) = (element(0), 1);
        while member < n {
            sum = combine((op, kind), sum, element(member));
            member += 1;
        }
        let mut member = first_to;
        while member < end_to {
            // SAFETY: as above.
            unsafe { store_element(target(member) + at, log, sum) };
            member += 1;
        }
        at += threads << log;
    }
}

/// # Safety
/// The address is that of 16 readable bytes, and a multiple of 16.
#[inline(always)]
unsafe fn load_unit(at: u64) -> Unit {
    // SAFETY: the caller's promise.
    let [a, b, c, d] = unsafe { arch::load16(DevAddr(at).ptr()) };
    (a as u64 | (b as u64) << 32, c as u64 | (d as u64) << 32)
}

/// # Safety
/// The address is that of 16 writable bytes, and a multiple of 16.
#[inline(always)]
unsafe fn store_unit(at: u64, (a, b): Unit) {
    // SAFETY: the caller's promise.
    unsafe { arch::store16(DevAddr(at).ptr(), [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32]) }
}

/// An element of `2^log` bytes, as the first of a unit.
///
/// # Safety
/// The address is that of a readable element.
#[inline(always)]
unsafe fn load_element(at: u64, log: u32) -> Unit {
    let at = DevAddr(at);
    // SAFETY: the caller's promise; the longest are two words.
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

/// # Safety
/// The address is that of a writable element.
#[inline(always)]
unsafe fn store_element(at: u64, log: u32, (a, b): Unit) {
    let at = DevAddr(at);
    // SAFETY: the caller's promise.
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

/// `a op b` of the elements of units, pair by pair.
#[inline(always)]
fn four_of((op, kind): (u32, u32), a: Four, b: Four) -> Four {
    match wide(op, kind, (a, b)) {
        Some(four) => four,
        None => a.with(b, |a, b| combine((op, kind), a, b)),
    }
}

/// `a op b` of the elements of two units.
#[inline(never)]
fn combine((op, kind): (u32, u32), a: Unit, b: Unit) -> Unit {
    match wide(op, kind, (a, b)) {
        Some(sum) => sum,
        None => narrow(op, kind, a, b),
    }
}

/// What a combination of units is applied to: one pair of them, or several.
trait Pairs {
    type Sum;
    fn by(self, f: impl Fn(Unit, Unit) -> Unit) -> Self::Sum;
}

impl Pairs for (Unit, Unit) {
    type Sum = Unit;
    #[inline(always)]
    fn by(self, f: impl Fn(Unit, Unit) -> Unit) -> Unit {
        f(self.0, self.1)
    }
}

/// Four units: by name, since what is indexed lies in memory.
#[derive(Clone, Copy)]
struct Four(Unit, Unit, Unit, Unit);

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

/// Combines elements of 4 and 8 bytes; none of others.
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

/// Combines elements of 1, 2 and 16 bytes.
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
        (LOCATED, _) => {
            let ((x, i), (y, j)) = (located(a), located(b));
            let better = if op == MIN { y < x } else { y > x };
            let tie = y == x && j < i;
            if better || tie || x.is_nan() && !y.is_nan() { b } else { a }
        }
        _ => a,
    }
}

/// Whether `b` takes the place of `a` as the smallest.
#[inline(always)]
fn is_less(b: f32, a: f32) -> bool {
    b < a || a.is_nan()
}

/// Whether `b` takes the place of `a` as the largest.
#[inline(always)]
fn is_more(b: f32, a: f32) -> bool {
    b > a || a.is_nan()
}

/// A [`Located`](super::Located)'s value and index.
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
const LOCATED: u32 = ElementKind::Located as u32;
