//! Symmetric addresses: the same object on every PE, told by its offset in the symmetric heap; and buffers of one PE's.
#![allow(unsafe_code, reason = "makes handles of raw offsets")]

use core::marker::PhantomData;
use core::ops::Range;

use bytemuck::Pod;

/// `len` elements in the symmetric heap, the same on every PE.
///
/// A handle, not memory: only the runtime's allocator makes one, so that safe code cannot name an address that it
/// does not own. A part that is not inside of the whole is *invalid*, and every call that gets it returns
/// [`Error::OutOfRange`](crate::Error::OutOfRange).
///
/// It is not tied to the life of its object by a lifetime: it may be copied and kept. The host looks at it whenever it is
/// given to a call or to a kernel, and refuses one whose object has been freed, or belongs to another job.
#[repr(C)]
pub struct SymSlice<T> {
    offset: u64,
    len: u64,
    stamp: u64,
    _element: PhantomData<fn() -> T>,
}

/// One element in the symmetric heap, the same on every PE.
#[repr(C)]
pub struct Sym<T> {
    offset: u64,
    stamp: u64,
    _element: PhantomData<fn() -> T>,
}

/// `len` elements of a buffer that is registered with this PE only: the near end of a transfer, never the far one.
///
/// Only the host's `Pe::register` makes one. A part that is not inside of the whole is invalid, as of a [`SymSlice`].
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
        write!(f, "Local(+{:#x}, {} elements)", self.offset, self.len)
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
        write!(f, "SymSlice(+{:#x}, {} elements)", self.offset, self.len)
    }
}
impl<T> core::fmt::Debug for Sym<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Sym(+{:#x})", self.offset)
    }
}

/// The offset that no object has.
const INVALID: u64 = u64::MAX;

impl<T> SymSlice<T> {
    /// No part of anything.
    const NOWHERE: Self = Self { offset: INVALID, len: 0, stamp: RAW, _element: PhantomData };
}

/// The stamp of handles that nobody checks.
const RAW: u64 = 0;

/// What the host can tell of a handle: which bytes it names, and when and by whom it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// First byte; `u64::MAX` for a part that is not inside of its object.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Another one for each object, of all objects of all jobs; 0 for a handle that was made by `from_raw`.
    pub stamp: u64,
}

/// What may be the near end of a transfer: this PE's copy of symmetric memory, or a registered buffer of its own.
///
/// Not among them: a [`View`](crate::View), be it of shared or of symmetric memory, references and arrays of a kernel. A
/// NIC knows neither registers, stacks nor shared memory, so a transfer from there does not compile, on any path; a
/// single value goes by [`Ctx::p`](crate::Ctx::p).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the near end of a transfer of `{T}`",
    label = "not memory that a NIC can reach",
    note = "use a `SymSlice<{T}>`, or the `Local<{T}>` of a buffer that the host has registered"
)]
pub trait LocalBuffer<T: Pod>: Copy + sealed::Sealed {
    /// What the host looks at.
    fn handle(self) -> Handle;
    /// Elements.
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

/// A near end by its offset, as transfers take it.
#[inline(always)]
pub(crate) fn local_operand<T: Pod>(end: impl LocalBuffer<T>) -> SymSlice<T> {
    let Handle { offset, stamp, .. } = end.handle();
    SymSlice { offset, len: end.elements() as u64, stamp, _element: PhantomData }
}

/// The elements `range` of `len` from `offset` on, as offset and length; invalid if they are not all inside.
#[inline(always)]
const fn part<T>(offset: u64, len: u64, range: Range<usize>) -> (u64, u64) {
    let (start, end) = (range.start as u64, range.end as u64);
    if start <= end && end <= len {
        (offset + start * size_of::<T>() as u64, end - start)
    } else {
        (INVALID, 0)
    }
}

impl<T: Pod> Local<T> {
    /// The `len` elements of a registered buffer at `offset`, made by `stamp`.
    ///
    /// # Safety
    /// They are registered, with this element type, on the PE whose kernels get the handle.
    pub const unsafe fn from_raw(offset: u64, len: usize, stamp: u64) -> Self {
        Self { offset, len: len as u64, stamp, _element: PhantomData }
    }

    /// Elements.
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// True if there are none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Length in bytes.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.len * size_of::<T>() as u64
    }

    /// The elements `range`; invalid if they are not all inside.
    #[inline(always)]
    pub const fn slice(self, range: Range<usize>) -> Self {
        let (offset, len) = part::<T>(self.offset, self.len, range);
        Self { offset, len, ..self }
    }
}

impl<T: Pod> SymSlice<T> {
    /// The `len` elements at `offset` bytes from the base of the heap.
    ///
    /// # Safety
    /// They are an allocated object of this type in the heap of the context that the handle is used with.
    pub const unsafe fn from_raw(offset: u64, len: usize) -> Self {
        Self { offset, len: len as u64, stamp: RAW, _element: PhantomData }
    }

    /// The same, of the object with this stamp: the host refuses the handle once the object is gone.
    ///
    /// # Safety
    /// As [`SymSlice::from_raw`].
    pub const unsafe fn stamped(offset: u64, len: usize, stamp: u64) -> Self {
        Self { offset, len: len as u64, stamp, _element: PhantomData }
    }

    /// Elements.
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// True if there are none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Bytes from the base of the heap.
    #[inline(always)]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Length in bytes.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.len * size_of::<T>() as u64
    }

    /// The elements `range`; invalid if they are not all inside.
    #[inline(always)]
    pub const fn slice(self, range: Range<usize>) -> Self {
        let (offset, len) = part::<T>(self.offset, self.len, range);
        Self { offset, len, ..self }
    }

    /// Element `i`; invalid if there is none.
    #[inline(always)]
    pub const fn at(self, i: usize) -> Sym<T> {
        let offset =
            if (i as u64) < self.len { self.offset + i as u64 * size_of::<T>() as u64 } else { INVALID };
        Sym { offset, stamp: self.stamp, _element: PhantomData }
    }

    /// The same bytes as elements of another type; invalid if they are not whole elements, or not aligned.
    #[inline(always)]
    pub const fn cast<U: Pod>(self) -> SymSlice<U> {
        const { assert!(align_of::<U>() <= 16, "symmetric memory is aligned to 16 bytes, wherever it is") };
        let (size, align) = (size_of::<U>() as u64, align_of::<U>() as u64);
        // Sizes are constants: no division is left that could fail.
        if size != 0 && self.bytes().is_multiple_of(size) && self.offset.is_multiple_of(align) {
            SymSlice {
                offset: self.offset,
                len: self.bytes() / size,
                stamp: self.stamp,
                _element: PhantomData,
            }
        } else {
            SymSlice { offset: INVALID, len: 0, stamp: RAW, _element: PhantomData }
        }
    }
}

impl<T: Pod> Sym<T> {
    /// The element at `offset` bytes from the base of the heap.
    ///
    /// # Safety
    /// As [`SymSlice::from_raw`].
    pub const unsafe fn from_raw(offset: u64) -> Self {
        Self { offset, stamp: RAW, _element: PhantomData }
    }

    /// Bytes from the base of the heap.
    #[inline(always)]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// The element as a slice of one.
    #[inline(always)]
    pub const fn as_slice(self) -> SymSlice<T> {
        SymSlice { offset: self.offset, len: 1, stamp: self.stamp, _element: PhantomData }
    }
}

/// Blocks of elements of a symmetric object, each `stride` elements after the one before: what `iput` and `iget` move.
///
/// [`SymSlice::every`] and [`SymSlice::blocks`] make one. A block or stride of 0, or a stride shorter than the block, is an
/// [`Error::BadStride`](crate::Error::BadStride) of the call that gets it.
#[derive(Clone, Copy, Debug)]
pub struct Strided<T> {
    pub(crate) whole: SymSlice<T>,
    /// Elements of a block.
    pub(crate) block: u64,
    /// Elements from the beginning of a block to that of the next one.
    pub(crate) stride: u64,
    count: u64,
}

impl<T: Pod> SymSlice<T> {
    /// Every `stride`-th element, from the first one on.
    #[inline(always)]
    pub fn every(self, stride: usize) -> Strided<T> {
        self.blocks(1, stride)
    }

    /// As many blocks of `block` elements as fit, `stride` elements apart.
    #[inline(always)]
    pub fn blocks(self, block: usize, stride: usize) -> Strided<T> {
        let (block, stride) = (block as u64, stride as u64);
        let after_first = self.len.checked_sub(block).and_then(|left| left.checked_div(stride));
        Strided { whole: self, block, stride, count: after_first.map_or(0, |n| n + 1) }
    }
}

impl<T: Pod> Strided<T> {
    /// The object that they are in, from the first block on.
    #[inline(always)]
    pub fn whole(self) -> SymSlice<T> {
        self.whole
    }

    /// Elements of a block.
    #[inline(always)]
    pub fn block(self) -> usize {
        self.block as usize
    }

    /// Elements from the beginning of a block to that of the next one.
    #[inline(always)]
    pub fn stride(self) -> usize {
        self.stride as usize
    }

    /// Blocks.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.count as usize
    }

    /// True if there are none.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// The first `n` blocks; invalid if there are fewer.
    #[inline(always)]
    pub fn first(self, n: usize) -> Self {
        if n as u64 <= self.count {
            Self { count: n as u64, ..self }
        } else {
            Self { whole: SymSlice::NOWHERE, count: 0, ..self }
        }
    }
}

/// A 64-bit word that remote PEs set or add to, and that its owner waits on.
pub type Signal = u64;
