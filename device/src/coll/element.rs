//! Element types of collectives, and reductions on them.

use bytemuck::{Pod, Zeroable};

use crate::half::{Bf16, F16};

/// A type that collective calls can reduce.
pub trait Element: Pod + sealed::Sealed {
    /// ID of the element type, part of the call hash that members compare.
    const KIND: ElementKind;
}

mod sealed {
    pub trait Sealed {}
}

/// ID of an element type, part of the call hash that members compare. Types of equal size and meaning share an ID.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementKind {
    /// Elements of type `u8`.
    U8 = 0,
    /// Elements of type `i8`.
    I8 = 1,
    /// Elements of type `u16`.
    U16 = 2,
    /// Elements of type `i16`.
    I16 = 3,
    /// Elements of type `u32`.
    U32 = 4,
    /// Elements of type `i32`.
    I32 = 5,
    /// Elements of type `u64` or `usize`.
    U64 = 6,
    /// Elements of type `i64` or `isize`.
    I64 = 7,
    /// Elements of type [`F16`].
    F16 = 8,
    /// Elements of type [`Bf16`].
    Bf16 = 9,
    /// Elements of type `f32`.
    F32 = 10,
    /// Elements of type `f64`.
    F64 = 11,
    /// Elements of type [`ValueIndex`].
    ValueIndex = 12,
}

/// A reduction. One member combines each element, in team order, so all members get identical bits.
///
/// Integers wrap. `Min` and `Max` of floating-point numbers ignore NaN unless all values are NaN. Among equal values,
/// such as 0 and -0, they return that of the first member. [`F16`] and [`Bf16`] are rounded after each step.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Sum of the elements: `SHMEM_SUM`.
    Sum = 0,
    /// Product of the elements: `SHMEM_PROD`.
    Prod = 1,
    /// Least element: `SHMEM_MIN`; for [`ValueIndex`], `SHMEM_MINLOC`.
    Min = 2,
    /// Greatest element: `SHMEM_MAX`; for [`ValueIndex`], `SHMEM_MAXLOC`.
    Max = 3,
    /// Bitwise and of integers: `SHMEM_AND`.
    And = 4,
    /// Bitwise or of integers: `SHMEM_OR`.
    Or = 5,
    /// Bitwise exclusive or of integers: `SHMEM_XOR`.
    Xor = 6,
}

/// Which members a prefix sum includes.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The prefix sum of a member includes its own source.
    Inclusive = 0,
    /// The prefix sum of a member only includes the sources of the members before it. The first member gets 0.
    Exclusive = 1,
}

/// A value and its index, for `SHMEM_MINLOC` and `SHMEM_MAXLOC`. Among equal values, the lowest index wins.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct ValueIndex {
    /// Value that is compared by `Min` and `Max`.
    pub value: f64,
    /// Index that accompanies the smallest or largest value.
    pub index: i64,
}

macro_rules! elements {
    ($($t:ty, $kind:ident;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const KIND: ElementKind = ElementKind::$kind;
        }
    )*};
}
elements! {
    u8, U8; i8, I8; u16, U16; i16, I16; u32, U32; i32, I32; u64, U64; i64, I64; usize, U64; isize, I64;
    F16, F16; Bf16, Bf16; f32, F32; f64, F64; ValueIndex, ValueIndex;
}

/// Returns log2 of the element size of an [`ElementKind`] in bytes, or `None` if `kind` is none.
#[inline(always)]
pub(super) fn log_size(kind: u32) -> Option<u32> {
    match kind {
        0 | 1 => Some(0),
        2 | 3 | 8 | 9 => Some(1),
        4 | 5 | 10 => Some(2),
        6 | 7 | 11 => Some(3),
        12 => Some(4),
        _ => None,
    }
}

/// Returns whether the reduction is defined for the element type.
#[inline(always)]
pub(super) fn is_defined(op: u32, kind: u32) -> bool {
    match kind {
        0..=7 => op <= Reduce::Xor as u32,
        8..=11 => op <= Reduce::Max as u32,
        12 => op == Reduce::Min as u32 || op == Reduce::Max as u32,
        _ => false,
    }
}
