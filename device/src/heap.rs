//! Handles of memory that kernels use: symmetric objects, identified by their offset in the symmetric heap, and
//! registered buffers of one PE.
#![allow(unsafe_code, reason = "makes handles of raw offsets")]

use core::marker::PhantomData;
use core::ops::Range;

use bytemuck::Pod;

use crate::InvalidRange;

/// A symmetric object: `len` elements in the symmetric heap, at the same offset on every PE.
///
/// It is a handle, not memory. Only the runtime's allocator creates one, so safe code cannot name memory it does not
/// own. A slice that exceeds its object is *invalid*: every call that takes it returns
/// [`Error::OutOfRange`](crate::Error::OutOfRange).
///
/// A handle has no lifetime and may be copied and kept. The host checks it whenever it is passed to a call or a launch,
/// and refuses it if the object has been freed or belongs to another job.
///
/// ```
/// # use rushmem_device::prelude::*;
/// /// Puts the first half of `src` to the second half of `dst` on the next PE.
/// #[kernel]
/// pub fn shift_half(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>) -> Result {
///     let half = src.len() / 2;
///     ctx.put(Block::current(), dst.slice(half..2 * half), src.slice(0..half), ctx.pe_after(1))
/// }
/// # fn main() {}
/// ```
#[repr(C)]
pub struct SymSlice<T> {
    offset: u64,
    len: u64,
    stamp: u64,
    _element: PhantomData<fn() -> T>,
}

/// A symmetric element: one element in the symmetric heap, at the same offset on every PE.
#[repr(C)]
pub struct Sym<T> {
    offset: u64,
    stamp: u64,
    _element: PhantomData<fn() -> T>,
}

/// A registered local buffer: `len` elements of memory of one PE. It can be the local operand of a transfer, but never
/// the remote one.
///
/// Created only by `Pe::register` on the host. As with [`SymSlice`], a slice that exceeds the buffer is invalid.
#[repr(C)]
pub struct Local<T> {
    offset: u64,
    len: u64,
    stamp: u64,
    _element: PhantomData<fn() -> T>,
}

impl<T> Clone for Local<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Local<T> {}

impl<T> core::fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match InvalidRange::of_offset(self.offset) {
            Some(part) => write!(f, "Local({part})"),
            None => write!(f, "Local(+{:#x}, {} elements)", self.offset, self.len),
        }
    }
}

impl<T> Clone for SymSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SymSlice<T> {}
impl<T> Clone for Sym<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Sym<T> {}

impl<T> core::fmt::Debug for SymSlice<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match InvalidRange::of_offset(self.offset) {
            Some(part) => write!(f, "SymSlice({part})"),
            None => write!(f, "SymSlice(+{:#x}, {} elements)", self.offset, self.len),
        }
    }
}
impl<T> core::fmt::Debug for Sym<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match InvalidRange::of_offset(self.offset) {
            Some(part) => write!(f, "Sym({part})"),
            None => write!(f, "Sym(+{:#x})", self.offset),
        }
    }
}

/// Stamp of handles created by `from_raw`, which the host does not check.
const RAW: u64 = 0;

/// Properties of a handle that the host checks: its bytes, and the stamp of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Offset of the first byte, or an [`InvalidRange`] for an invalid handle.
    pub offset: u64,
    /// Length of the memory, in bytes.
    pub bytes: u64,
    /// Stamp of the object, unique among all objects of all jobs; 0 for a handle created by `from_raw`.
    pub stamp: u64,
}

/// Memory that can be the local operand of a transfer: this PE's copy of symmetric memory, or a registered buffer.
///
/// A [`View`](crate::View) of shared or symmetric memory is not, nor is a reference or an array within a kernel: a NIC
/// cannot access registers, stacks or shared memory. Transfers from there do not compile, whichever path they would
/// take. To put a single value, use [`Ctx::p`](crate::Ctx::p).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the local operand of a transfer of `{T}`",
    label = "not memory that a NIC can access",
    note = "use a `SymSlice<{T}>`, or the `Local<{T}>` of a buffer registered by the host"
)]
pub trait LocalBuffer<T: Pod>: Copy + sealed::Sealed {
    /// Returns the properties of the handle that the host checks.
    fn handle(self) -> Handle;
    /// Returns the number of elements to transfer.
    fn elements(self) -> usize;
}

mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for super::SymSlice<T> {}
    impl<T> Sealed for super::Local<T> {}
}

impl<T: Pod> LocalBuffer<T> for SymSlice<T> {
    #[inline(always)]
    fn handle(self) -> Handle {
        Handle { offset: self.offset, bytes: self.bytes(), stamp: self.stamp }
    }
    #[inline(always)]
    fn elements(self) -> usize {
        self.len()
    }
}

impl<T: Pod> LocalBuffer<T> for Local<T> {
    #[inline(always)]
    fn handle(self) -> Handle {
        Handle { offset: self.offset, bytes: self.bytes(), stamp: self.stamp }
    }
    #[inline(always)]
    fn elements(self) -> usize {
        self.len()
    }
}

/// Returns a local operand, of whichever kind, in the form that transfers take.
#[inline(always)]
pub(crate) fn local_operand<T: Pod>(end: impl LocalBuffer<T>) -> SymSlice<T> {
    let Handle { offset, stamp, .. } = end.handle();
    SymSlice { offset, len: end.elements() as u64, stamp, _element: PhantomData }
}

/// Returns offset and length of elements `range` of an object of `len` elements at `offset`, or an [`InvalidRange`] and
/// 0 if the range exceeds the object.
#[inline(always)]
const fn part<T>(offset: u64, len: u64, range: Range<usize>) -> (u64, u64) {
    let (start, end) = (range.start as u64, range.end as u64);
    if start <= end && end <= len {
        (offset + start * size_of::<T>() as u64, end - start)
    } else {
        // The offset encodes what was wrong, for the error record of the call that uses the handle.
        (InvalidRange::elements(offset, start, end, len).offset(), 0)
    }
}

impl<T: Pod> Local<T> {
    /// Creates a handle of `len` elements of a registered buffer at `offset`, with its stamp.
    ///
    /// # Safety
    /// The elements are registered, with this type, on the PE that runs the kernels with the handle.
    pub const unsafe fn from_raw(offset: u64, len: usize, stamp: u64) -> Self {
        Self { offset, len: len as u64, stamp, _element: PhantomData }
    }

    /// Returns the number of elements of the buffer.
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Returns whether the buffer has no elements.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the length of the buffer in bytes.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.len * size_of::<T>() as u64
    }

    /// Returns a handle of elements `range`. It is invalid if they exceed the buffer.
    #[inline(always)]
    pub const fn slice(self, range: Range<usize>) -> Self {
        let (offset, len) = part::<T>(self.offset, self.len, range);
        Self { offset, len, ..self }
    }
}

impl<T: Pod> SymSlice<T> {
    /// Creates a handle of `len` elements, `offset` bytes from the base of the heap. The host does not check it.
    ///
    /// # Safety
    /// The elements are an allocated object of this type in the heap of the context that the handle is used with.
    pub const unsafe fn from_raw(offset: u64, len: usize) -> Self {
        Self { offset, len: len as u64, stamp: RAW, _element: PhantomData }
    }

    /// Creates a handle like [`SymSlice::from_raw`], with the object's stamp, so the host refuses the handle once the
    /// object has been freed.
    ///
    /// # Safety
    /// The rules of [`SymSlice::from_raw`] hold.
    pub const unsafe fn stamped(offset: u64, len: usize, stamp: u64) -> Self {
        Self { offset, len: len as u64, stamp, _element: PhantomData }
    }

    /// Returns the number of elements of the object.
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Returns whether the object has no elements.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the offset of the first element from the base of the heap, in bytes.
    #[inline(always)]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Returns the length of the object in bytes.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.len * size_of::<T>() as u64
    }

    /// Returns a handle of elements `range`. It is invalid if they exceed the object.
    #[inline(always)]
    pub const fn slice(self, range: Range<usize>) -> Self {
        let (offset, len) = part::<T>(self.offset, self.len, range);
        Self { offset, len, ..self }
    }

    /// Returns a handle of element `i`. It is invalid if there is no such element.
    #[inline(always)]
    pub const fn at(self, i: usize) -> Sym<T> {
        let i = i as u64;
        let offset = if i < self.len {
            self.offset + i * size_of::<T>() as u64
        } else {
            InvalidRange::elements(self.offset, i, i.saturating_add(1), self.len).offset()
        };
        Sym { offset, stamp: self.stamp, _element: PhantomData }
    }

    /// Returns a handle of the same bytes as elements of another type. It is invalid if they are not whole elements or
    /// not aligned.
    #[inline(always)]
    pub const fn cast<U: Pod>(self) -> SymSlice<U> {
        const { assert!(align_of::<U>() <= 16, "symmetric memory is aligned to 16 bytes, wherever it is") };
        let (size, align) = (size_of::<U>() as u64, align_of::<U>() as u64);
        // Sizes are constants, so no division remains that could fail.
        if size != 0 && self.bytes().is_multiple_of(size) && self.offset.is_multiple_of(align) {
            SymSlice {
                offset: self.offset,
                len: self.bytes() / size,
                stamp: self.stamp,
                _element: PhantomData,
            }
        } else {
            let offset =
                if InvalidRange::is_bad(self.offset) { self.offset } else { InvalidRange::CAST.offset() };
            SymSlice { offset, len: 0, stamp: self.stamp, _element: PhantomData }
        }
    }
}

impl<T: Pod> Sym<T> {
    /// Creates a handle of the element `offset` bytes from the base of the heap. The host does not check it.
    ///
    /// # Safety
    /// The rules of [`SymSlice::from_raw`] hold.
    pub const unsafe fn from_raw(offset: u64) -> Self {
        Self { offset, stamp: RAW, _element: PhantomData }
    }

    /// Returns the offset of the element from the base of the heap, in bytes.
    #[inline(always)]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Returns the element as a slice of one.
    #[inline(always)]
    pub const fn as_slice(self) -> SymSlice<T> {
        SymSlice { offset: self.offset, len: 1, stamp: self.stamp, _element: PhantomData }
    }

    /// Returns a handle of the field at byte offset `at` of the element. A field of an invalid handle is invalid.
    ///
    /// # Safety
    /// The element has a field of this type there.
    #[inline(always)]
    pub(crate) const unsafe fn field<F>(self, at: u64) -> Sym<F> {
        let offset = if InvalidRange::is_bad(self.offset) { self.offset } else { self.offset + at };
        Sym { offset, stamp: self.stamp, _element: PhantomData }
    }
}

/// Blocks of elements of a symmetric object at equal distances: the operands of `iput` and `iget`.
///
/// Created by [`SymSlice::every`] and [`SymSlice::blocks`]. With a block or stride of 0, or a stride shorter than the
/// block, the call returns [`Error::BadStride`](crate::Error::BadStride).
#[derive(Clone, Copy, Debug)]
pub struct Strided<T> {
    pub(crate) whole: SymSlice<T>,
    /// Number of elements per block.
    pub(crate) block: u64,
    /// Distance between the starts of successive blocks, in elements.
    pub(crate) stride: u64,
    count: u64,
}

impl<T: Pod> SymSlice<T> {
    /// Returns every `stride`-th element, starting with the first.
    #[inline(always)]
    pub fn every(self, stride: usize) -> Strided<T> {
        self.blocks(1, stride)
    }

    /// Returns all blocks of `block` elements that fit into the object, with starts that are `stride` elements apart.
    #[inline(always)]
    pub fn blocks(self, block: usize, stride: usize) -> Strided<T> {
        let (block, stride) = (block as u64, stride as u64);
        // The last block needs its elements only, not a whole stride.
        let after_first = self.len.checked_sub(block).and_then(|left| left.checked_div(stride));
        Strided { whole: self, block, stride, count: after_first.map_or(0, |n| n + 1) }
    }
}

impl<T: Pod> Strided<T> {
    /// Returns the object that contains the blocks, starting with the first.
    #[inline(always)]
    pub fn whole(self) -> SymSlice<T> {
        self.whole
    }

    /// Returns the number of elements in a block.
    #[inline(always)]
    pub fn block(self) -> usize {
        self.block as usize
    }

    /// Returns the distance between the starts of successive blocks, in elements.
    #[inline(always)]
    pub fn stride(self) -> usize {
        self.stride as usize
    }

    /// Returns the number of blocks.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.count as usize
    }

    /// Returns whether the object has no blocks.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Returns the first `n` blocks. The result is invalid if there are fewer.
    #[inline(always)]
    pub fn first(self, n: usize) -> Self {
        if n as u64 <= self.count {
            Self { count: n as u64, ..self }
        } else {
            let offset = InvalidRange::blocks(self.whole.offset, n as u64, self.count).offset();
            Self { whole: SymSlice { offset, len: 0, ..self.whole }, count: 0, ..self }
        }
    }
}

/// A 64-bit signal word: other PEs set it or add to it, and its owner waits for it.
pub type Signal = u64;
