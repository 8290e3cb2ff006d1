//! Lines that kernels print.
//!
//! A kernel writes the format string and the raw values of a line to a ring in host memory ([`rushmem_device::print`]).
//! The service thread drains the ring while kernels run. Every wait for a launch drains it too, so the lines of a
//! kernel precede whatever the host prints after the wait.

use std::fmt;
use std::mem::offset_of;
use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_device::abi::{DevAddr, PRINT_WORDS, PrintRing, PrintSlot};
use rushmem_device::print::kind;
use rushmem_error::Result;

use crate::machine::{Machine, Region};

/// A line printed by a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelLine {
    /// The PE that ran the kernel.
    pub pe: u32,
    /// The block's index in its grid.
    pub block: u32,
    /// The thread's index in its block.
    pub thread: u32,
    /// The text, without a line break.
    pub text: String,
}

impl fmt::Display for KernelLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pe, block, thread, text } = self;
        write!(f, "PE {pe} block {block} thread {thread}: {text}")
    }
}

/// The receiver of kernel lines. The default prints them to standard output.
#[derive(Clone)]
pub struct Output(Arc<dyn Fn(KernelLine) + Send + Sync>);

impl Output {
    /// Creates an output that passes each line to `receive`, in the order in which kernels reserved their slots.
    pub fn new(receive: impl Fn(KernelLine) + Send + Sync + 'static) -> Self {
        Self(Arc::new(receive))
    }
}

impl Default for Output {
    fn default() -> Self {
        Self::new(|line| println!("{line}"))
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

/// The print ring of a PE, and the receiver of its lines.
pub struct Printer {
    pe: u32,
    ring: Region,
    slots: u64,
    /// Position of the first slot that has not been read. Positions count up forever; a slot's index is its position
    /// modulo `slots`.
    next: Mutex<u64>,
    output: Output,
}

impl Printer {
    /// Creates a ring of about `bytes` bytes. Returns `None` if `bytes` is 0, which disables printing.
    ///
    /// # Errors
    /// The errors of the machine.
    pub fn new(machine: &dyn Machine, pe: u32, bytes: u64, output: Output) -> Result<Option<Self>> {
        if bytes == 0 {
            return Ok(None);
        }
        // Kernels mask positions to find a slot, so the number of slots must be a power of two.
        let slots = (bytes / size_of::<PrintSlot>() as u64).max(16).next_power_of_two();
        let ring =
            machine.shared((size_of::<PrintRing>() + slots as usize * size_of::<PrintSlot>()) as u64)?;
        ring.write(offset_of!(PrintRing, slots) as u64, bytemuck::bytes_of(&slots))?;
        Ok(Some(Self { pe, ring, slots, next: Mutex::new(0), output }))
    }

    /// Address of the ring for kernels.
    pub fn addr(&self) -> DevAddr {
        self.ring.addr
    }

    /// Passes on all lines that kernels have completed. Stops at the first incomplete line, even if later ones are
    /// complete, to keep their order.
    ///
    /// # Errors
    /// An error if the ring cannot be read.
    pub fn drain(&self) -> Result<()> {
        let mut next = lock(&self.next);
        while let Some(slots) = self.read_line(*next)? {
            *next += slots.len() as u64;
            // Free the slots before the callback, which may be slow: kernels discard lines while the ring is full.
            self.ring.write(offset_of!(PrintRing, taken) as u64, bytemuck::bytes_of(&*next))?;
            if let Some(line) = decode(self.pe, &slots) {
                (self.output.0)(line);
            }
        }
        Ok(())
    }

    /// Returns the slots of the line that starts at position `first`, or `None` while any of them is incomplete.
    fn read_line(&self, first: u64) -> Result<Option<Vec<PrintSlot>>> {
        let Some(slot) = self.read_slot(first)? else { return Ok(None) };
        let mut slots = vec![slot];
        // A kernel with a wild pointer may have written anything here, so bound the count.
        for i in 1..slot.left.min(self.slots) {
            let Some(slot) = self.read_slot(first + i)? else { return Ok(None) };
            slots.push(slot);
        }
        Ok(Some(slots))
    }

    fn read_slot(&self, number: u64) -> Result<Option<PrintSlot>> {
        let at = size_of::<PrintRing>() as u64 + number % self.slots * size_of::<PrintSlot>() as u64;
        let mut ready = 0u64;
        self.ring.read(at + offset_of!(PrintSlot, ready) as u64, bytemuck::bytes_of_mut(&mut ready))?;
        if ready != number + 1 {
            return Ok(None);
        }
        // Pairs with the kernel's release store to `ready`.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        let mut slot: PrintSlot = bytemuck::Zeroable::zeroed();
        self.ring.read(at, bytemuck::bytes_of_mut(&mut slot))?;
        Ok(Some(slot))
    }
}

/// Decodes the line in these slots. Returns `None` for contents that no kernel can have written.
fn decode(pe: u32, slots: &[PrintSlot]) -> Option<KernelLine> {
    let place = slots.first()?.place;
    let words: Vec<u64> = slots.iter().flat_map(|slot| slot.words).collect();
    debug_assert_eq!(words.len(), slots.len() * PRINT_WORDS);
    let (len, count) = (*words.first()? as u32 as usize, (*words.first()? >> 32) as usize);
    let text = words.get(1..1 + len.div_ceil(8))?;
    let values = words.get(1 + len.div_ceil(8)..)?.get(..2 * count)?;
    let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).take(len).collect();
    let (values, _) = values.as_chunks();
    let text = format(std::str::from_utf8(&bytes).ok()?, values);
    Some(KernelLine { pe, block: place as u32, thread: (place >> 32) as u32, text })
}

/// Formats values, given as kind and bits, by a format string that [`rushmem_device::kprintln!`] accepted at compile
/// time. Unlike the macro, it tolerates any string, since it may be corrupt.
pub(crate) fn format(mut format: &str, values: &[[u64; 2]]) -> String {
    let (mut text, mut values) = (String::new(), values.iter());
    while let Some(at) = format.find(['{', '}']) {
        text.push_str(&format[..at]);
        let rest = &format[at + 1..];
        if rest.starts_with(['{', '}']) && rest.as_bytes()[0] == format.as_bytes()[at] {
            text.push_str(&rest[..1]);
            format = &rest[1..];
            continue;
        }
        let end = rest.find('}').unwrap_or(rest.len());
        let spec = Spec::parse(rest[..end].strip_prefix(':').unwrap_or(""));
        if let Some(&[kind, bits]) = values.next() {
            spec.write(&mut text, kind, bits);
        }
        format = rest.get(end + 1..).unwrap_or("");
    }
    text + format
}

/// Format specification of a placeholder: the part after the colon, as in `{:>8.2}`.
#[derive(Debug, Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    plus: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    /// `x`, `X`, `b`, `o`, `e`, `E`, `?`, or empty.
    style: String,
}

impl Spec {
    fn parse(spec: &str) -> Self {
        let mut chars = spec.chars().peekable();
        let mut this = Self::default();
        let is_align = |c: Option<char>| matches!(c, Some('<' | '^' | '>'));
        if is_align(spec.chars().nth(1)) {
            this.fill = chars.next();
        }
        this.align = chars.next_if(|&c| is_align(Some(c)));
        this.plus = chars.next_if_eq(&'+').is_some();
        this.alternate = chars.next_if_eq(&'#').is_some();
        this.zero = chars.next_if_eq(&'0').is_some();
        let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut value = None;
            while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                value = Some(value.unwrap_or(0usize).saturating_mul(10).saturating_add(digit as usize));
                chars.next();
            }
            value
        };
        this.width = number(&mut chars).unwrap_or(0).min(1024);
        if chars.next_if_eq(&'.').is_some() {
            this.precision = number(&mut chars).map(|digits| digits.min(1024));
        }
        this.style = chars.collect();
        this
    }

    fn write(&self, to: &mut String, kind: u64, bits: u64) {
        // Widths are in characters, as in `std`.
        let (sign, prefix, digits) = self.digits(kind, bits);
        let is_number = kind <= kind::SINGLE;
        let len = sign.len() + prefix.len() + digits.chars().count();
        let missing = self.width.saturating_sub(len);
        if self.zero && is_number {
            let zeros = "0".repeat(missing);
            to.extend([sign, prefix, &zeros, &digits]);
            return;
        }
        let before = match self.align {
            Some('<') => 0,
            Some('^') => missing / 2,
            Some(_) => missing,
            None if is_number => missing,
            None => 0,
        };
        let fill = self.fill.unwrap_or(' ');
        to.extend(std::iter::repeat_n(fill, before));
        to.extend([sign, prefix, &digits]);
        to.extend(std::iter::repeat_n(fill, missing - before));
    }

    /// Returns the sign, prefix and digits of a value.
    fn digits(&self, kind: u64, bits: u64) -> (&'static str, &'static str, String) {
        let sign = |negative: bool| {
            if negative {
                "-"
            } else if self.plus {
                "+"
            } else {
                ""
            }
        };
        let prefix = |prefix| if self.alternate { prefix } else { "" };
        match (kind, self.style.as_str()) {
            (kind::FLOAT | kind::SINGLE, style) => {
                let value = f64::from_bits(bits);
                let magnitude = value.abs();
                let is_debug = style == "?";
                let text = match (style, self.precision, kind) {
                    ("e", None, _) => format!("{magnitude:e}"),
                    ("e", Some(digits), _) => format!("{magnitude:.digits$e}"),
                    ("E", None, _) => format!("{magnitude:E}"),
                    ("E", Some(digits), _) => format!("{magnitude:.digits$E}"),
                    (_, Some(digits), _) => format!("{magnitude:.digits$}"),
                    (_, None, kind::SINGLE) if is_debug => format!("{:?}", magnitude as f32),
                    (_, None, kind::SINGLE) => format!("{}", magnitude as f32),
                    (_, None, _) if is_debug => format!("{magnitude:?}"),
                    (_, None, _) => format!("{magnitude}"),
                };
                (sign(value.is_sign_negative() && !value.is_nan()), "", text)
            }
            (_, "x") => ("", prefix("0x"), format!("{bits:x}")),
            (_, "X") => ("", prefix("0x"), format!("{bits:X}")),
            (_, "b") => ("", prefix("0b"), format!("{bits:b}")),
            (_, "o") => ("", prefix("0o"), format!("{bits:o}")),
            (kind::SIGNED, _) => (sign((bits as i64) < 0), "", (bits as i64).unsigned_abs().to_string()),
            (kind::BOOL, _) => ("", "", (bits != 0).to_string()),
            (kind::CHAR, style) => {
                let c = char::from_u32(bits as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                ("", "", if style == "?" { format!("{c:?}") } else { c.to_string() })
            }
            _ => (sign(false), "", bits.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rushmem_device::print::Value;

    use super::*;

    fn show<const N: usize>(text: &str, values: [Value; N]) -> String {
        format(text, &values.map(|value| [value.kind, value.bits]))
    }

    #[test]
    fn formats_like_std() {
        macro_rules! same {
            ($($format:literal $(, $value:expr)*;)*) => {$(
                assert_eq!(show($format, [$(Value::from($value)),*]), std::format!($format $(, $value)*), "{}", $format);
            )*};
        }
        same! {
            "no arguments, {{braces}}"; "{}", 7u32; "{} and {}", -7i64, true; "{:?} {}", 'x', 'y';
            "{:5}|{:<5}|{:^5}|{:>5}", 1, 2, 3, 4; "{:*^9}", 12u8; "{:05}|{:+}|{:+05}", -42, 42, 42;
            "{:x} {:#x} {:#X} {:#b} {:o} {:#010x}", 255u32, 255u32, 255u64, 5u8, 8u16, 48879u32;
            "{} {:?} {:.3} {:8.2}|{:<8.1}|{:08.3}", 1.5f64, 2.0f64, 1.0f64 / 3.0, 2.345, 9.99, -3.25;
            "{} {:?} {:e} {:.2e}", 0.1f32, 1.0f32, 1234.5f64, 1234.5f64; "{} {}", f64::NAN, -f64::INFINITY;
            "{:6}|{:<6}|{:>6}", true, false, 'c';
        }
    }

    proptest! {
        #[test]
        fn formats_random_numbers_like_std(a: i64, b: f64, c: f32, d: u16) {
            let line = show("{:+12} {:.4} {} {:#06x}", [a.into(), b.into(), c.into(), d.into()]);
            prop_assert_eq!(line, std::format!("{a:+12} {b:.4} {c} {d:#06x}"));
        }

        /// A kernel with a wild pointer may write anything into the ring.
        #[test]
        fn decode_never_panics(words: [u64; 29], place: u64, small in 0u64..40) {
            let mut slot = PrintSlot { ready: 1, left: 1, place, words };
            let _ = decode(0, &[slot]);
            slot.words[0] = small | (small & 3) << 32;
            let _ = decode(0, &[slot]);
        }

        #[test]
        fn format_never_panics(text in "[{}:<^>#0-9.x? é]{0,24}", bits: u64, kind in 0u64..8) {
            let _ = format(&text, &[[kind, bits]; 4]);
        }
    }

    #[test]
    fn negative_narrow_integers_print_as_64_bit_hexadecimal() {
        assert_eq!(show("{:x}", [Value::from(-1i8)]), "ffffffffffffffff");
    }
}
