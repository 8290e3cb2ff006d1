//! Printing lines of text from kernels.
//!
//! [`kprintln!`](crate::kprintln) checks its format string at compile time. A call writes the string and the raw values
//! of its arguments to a ring in host memory, and the host formats them. Kernels thus contain no formatting code, and
//! lines appear while the kernel runs, even if it never returns.
//!
//! The ring is bounded. A call never waits: if there is no room, the line counts as lost, and the host reports how many
//! were lost.
#![allow(unsafe_code, reason = "writes the words of a ring that the host has made")]

use core::mem::{offset_of, size_of};

use crate::abi::{DevAddr, DeviceState, PRINT_WORDS, PrintRing, PrintSlot};
use crate::arch::{self, Gpu, Scope, SysWord};
use crate::ctx::Ctx;
use crate::half::{Bf16, F16};

/// Maximum length of a format string, in bytes.
pub const MAX_FORMAT: usize = 1024;

/// Maximum number of arguments per line.
pub const MAX_VALUES: usize = 32;

/// An argument of [`kprintln!`](crate::kprintln), by kind and bits. Integers, floats, `bool` and `char` convert by
/// `From`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Type of the argument: one of the constants of [`kind`].
    pub kind: u64,
    /// Bits of the argument, from the lowest on. Signed integers are sign-extended, floats are converted to 64 bits.
    pub bits: u64,
}

/// Types of arguments of [`kprintln!`](crate::kprintln), for [`Value::kind`].
pub mod kind {
    /// An unsigned integer, zero-extended to 64 bits.
    pub const UNSIGNED: u64 = 0;
    /// A signed integer, sign-extended to 64 bits.
    pub const SIGNED: u64 = 1;
    /// An `f64`, by its bits.
    pub const FLOAT: u64 = 2;
    /// An `f32` or a 16-bit float, stored as the bits of an `f64` but printed with the precision of an `f32`.
    pub const SINGLE: u64 = 3;
    /// A `bool`: 0 or 1.
    pub const BOOL: u64 = 4;
    /// A `char`: its Unicode scalar value.
    pub const CHAR: u64 = 5;
}

macro_rules! values {
    ($($t:ty, $kind:ident, $v:ident => $bits:expr;)*) => {$(
        impl From<$t> for Value {
            #[inline(always)]
            fn from($v: $t) -> Self {
                Self { kind: kind::$kind, bits: $bits }
            }
        }
    )*};
}
values! {
    u8, UNSIGNED, v => v as u64; u16, UNSIGNED, v => v as u64; u32, UNSIGNED, v => v as u64;
    u64, UNSIGNED, v => v; usize, UNSIGNED, v => v as u64;
    i8, SIGNED, v => v as i64 as u64; i16, SIGNED, v => v as i64 as u64; i32, SIGNED, v => v as i64 as u64;
    i64, SIGNED, v => v as u64; isize, SIGNED, v => v as i64 as u64;
    f32, SINGLE, v => (v as f64).to_bits(); f64, FLOAT, v => v.to_bits();
    F16, SINGLE, v => (v.to_f32() as f64).to_bits(); Bf16, SINGLE, v => (v.to_f32() as f64).to_bits();
    bool, BOOL, v => v as u64; char, CHAR, v => v as u64;
}

impl<T: Copy + Into<Value>> From<&T> for Value {
    #[inline(always)]
    fn from(v: &T) -> Self {
        (*v).into()
    }
}

/// Returns how many arguments a format string takes.
///
/// # Panics
/// At compile time, if the string is too long, or contains a name, a position, or a width taken from an argument.
#[allow(clippy::indexing_slicing, reason = "a bad index is an error of the compilation")]
pub const fn arguments_of(format: &str) -> usize {
    let (bytes, mut i, mut count) = (format.as_bytes(), 0, 0);
    assert!(bytes.len() <= MAX_FORMAT, "the format string is longer than 1024 bytes");
    while i < bytes.len() {
        if bytes[i] == b'{' && i + 1 < bytes.len() && bytes[i + 1] != b'{' {
            assert!(
                matches!(bytes[i + 1], b'}' | b':'),
                "kprintln! takes its arguments in order: write {{}}, not a name or a position"
            );
            while bytes[i] != b'}' {
                assert!(!matches!(bytes[i], b'$' | b'*'), "kprintln! takes widths as numbers only");
                i += 1;
            }
            count += 1;
        } else if bytes[i] == b'{' || bytes[i] == b'}' {
            i += 1;
        }
        i += 1;
    }
    assert!(count <= MAX_VALUES, "kprintln! takes 32 arguments at most");
    count
}

/// Prints a line of text from a kernel: `kprintln!(ctx, "block {} has {:.3}", Block::current().id(), sum)`.
///
/// The host writes `PE 1 block 0 thread 3: ...` to standard output, or passes the line to
/// [`Job::kernel_output`](https://docs.rs/rushmem/latest/rushmem/struct.Job.html#method.kernel_output). Lines of one
/// thread stay in order. The macro accepts the placeholders of `std::println!` with positional arguments: integers,
/// floats, `bool` and `char`. Every thread that executes it prints, so select one.
///
/// A call writes a few words to host memory, which takes microseconds on a GPU. If the setting `print_buffer` is
/// `none`, it only reads one word. If the host cannot keep up, lines are lost, and the host reports how many.
///
/// ```
/// # use rushmem_device::prelude::*;
/// #[kernel]
/// pub fn show(ctx: &Ctx, data: SymSlice<f32>) -> Result {
///     if Thread::index() == 0 {
///         kprintln!(ctx, "PE {} of {}: {:8.3}", ctx.my_pe(), ctx.n_pes(), ctx.local(data).load(0));
///     }
///     Ok(())
/// }
/// # fn main() {}
/// ```
///
/// ```compile_fail
/// # use rushmem_device::prelude::*;
/// fn show(ctx: &Ctx) {
///     kprintln!(ctx, "{} {}", 1); // an argument is missing
/// }
/// ```
#[macro_export]
macro_rules! kprintln {
    ($ctx:expr, $format:literal $(, $value:expr)* $(,)?) => {{
        const VALUES: usize = $crate::print::arguments_of($format);
        if false {
            // Type-checks the placeholders against the arguments. The compiler removes the code.
            let _ = ::core::format_args!($format $(, $value)*);
        }
        let values: [$crate::print::Value; VALUES] = [$($crate::print::Value::from($value)),*];
        $ctx.print_line($format, &values);
    }};
}

impl<S> Ctx<'_, S> {
    /// Prints a line on behalf of [`kprintln!`](crate::kprintln), which has checked that `format` and `values` match.
    #[doc(hidden)]
    #[inline(always)]
    pub fn print_line(&self, format: &'static str, values: &[Value]) {
        let state = self.parts_ref().state;
        // SAFETY: the host made the state. The word never changes while a kernel runs.
        let ring = unsafe { (*state.ptr::<DeviceState>()).print };
        if ring.0 != 0 {
            write_line(state, ring, format, values);
        }
    }
}

/// Writes a line to slots of the print ring that it reserves.
#[cold]
#[inline(never)]
fn write_line(state: DevAddr, ring: DevAddr, format: &'static str, values: &[Value]) {
    let words = 1 + format.len().div_ceil(8) + 2 * values.len();
    let slots = words.div_ceil(PRINT_WORDS) as u64;
    // SAFETY: the host made the ring and its slots, and changes neither number while a kernel runs.
    let capacity = unsafe { (*ring.ptr::<PrintRing>()).slots };
    let Some(first) = reserve(state, ring, slots, capacity) else { return };
    let mut line = Line { ring, mask: capacity - 1, slot: first, word: 0, slots };
    line.push(format.len() as u64 | (values.len() as u64) << 32);
    let (mut text, mut filled) = (0u64, 0);
    for byte in format.bytes() {
        text |= (byte as u64) << (8 * filled);
        filled += 1;
        if filled == 8 {
            line.push(text);
            (text, filled) = (0, 0);
        }
    }
    if filled != 0 {
        line.push(text);
    }
    for value in values {
        line.push(value.kind);
        line.push(value.bits);
    }
    line.publish();
}

/// Reserves consecutive slots of the print ring and returns the index of the first. If there is no room, counts a lost
/// line.
#[inline(always)]
fn reserve(state: DevAddr, ring: DevAddr, slots: u64, capacity: u64) -> Option<u64> {
    let state = state.ptr::<DeviceState>();
    // SAFETY: words of the state and of the ring, which are accessed atomically only.
    unsafe {
        let (head, lost) = (&raw mut (*state).printed.word, &raw mut (*state).lost_lines.word);
        let taken = <u64 as SysWord>::load_acquire(&raw const (*ring.ptr::<PrintRing>()).taken);
        let mut first = Gpu::load_relaxed(head);
        loop {
            // If the ring is full, a lost line is better than a kernel that waits for the host.
            if first + slots > taken + capacity {
                Gpu::fetch_add_relaxed(lost, 1);
                return None;
            }
            let found = Gpu::compare_swap_release(head, first, first + slots);
            if found == first {
                return Some(first);
            }
            first = found;
        }
    }
}

/// Writer of one line to reserved slots of the print ring.
struct Line {
    ring: DevAddr,
    /// Number of slots of the ring, minus 1.
    mask: u64,
    /// Index of the slot into which the next word is written.
    slot: u64,
    /// Index, within its slot, of the next word.
    word: usize,
    /// Number of slots left in the line, including `slot`. The host uses it to find the end of the line.
    slots: u64,
}

impl Line {
    #[inline(always)]
    fn slot_at(&self, slot: u64) -> *mut PrintSlot {
        let at = size_of::<PrintRing>() as u64 + (slot & self.mask) * size_of::<PrintSlot>() as u64;
        self.ring.add(at).ptr()
    }

    /// Writes a word. Publishes the current slot first if it is full.
    #[inline(always)]
    fn push(&mut self, value: u64) {
        // A longer line continues in the next slot.
        if self.word == PRINT_WORDS {
            self.publish();
            self.slot += 1;
            self.slots -= 1;
            self.word = 0;
        }
        let slot = self.slot_at(self.slot);
        let at = offset_of!(PrintSlot, words) + 8 * self.word;
        // SAFETY: this thread has reserved the slot, and `word` is below its number of words.
        unsafe { <u64 as SysWord>::store_relaxed(slot.cast::<u8>().add(at).cast(), value) };
        self.word += 1;
    }

    /// Publishes the current slot to the host, labelled with the block and thread of the writer.
    #[inline(always)]
    fn publish(&mut self) {
        let slot = self.slot_at(self.slot);
        let place = arch::block() as u64 | (arch::thread() as u64) << 32;
        // SAFETY: this thread has reserved the slot.
        unsafe {
            <u64 as SysWord>::store_relaxed(&raw mut (*slot).place, place);
            <u64 as SysWord>::store_relaxed(&raw mut (*slot).left, self.slots);
            // Release: the host reads the slot only after it has seen `ready`. The lap is part of the value, so slots
            // need no reset.
            <u64 as SysWord>::store_release(&raw mut (*slot).ready, self.slot + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_counted() {
        for (format, count) in
            [("", 0), ("{}", 1), ("{{}}", 0), ("{{{}}}", 1), ("{:>8.3} {:#x}{:?}", 3), ("a}}b{{", 0)]
        {
            assert_eq!(arguments_of(format), count, "{format}");
        }
    }

    #[test]
    #[should_panic(expected = "in order")]
    fn named_placeholders_are_rejected() {
        arguments_of("{x}");
    }

    #[test]
    fn values_keep_their_bits() {
        assert_eq!(Value::from(-1i8), Value { kind: kind::SIGNED, bits: u64::MAX });
        assert_eq!(Value::from(&1.5f32), Value { kind: kind::SINGLE, bits: 1.5f64.to_bits() });
        assert_eq!(Value::from('a'), Value { kind: kind::CHAR, bits: 97 });
    }
}
