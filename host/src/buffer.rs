//! Memory of the user's that can be registered.

use std::any::Any;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;
use rushmem_softnic::{HostBuffer, Memory as _};

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLocation {
    /// In this process.
    Host(NonNull<u8>),
    /// At this address of GPU memory.
    Gpu(u64),
}

/// Memory of the user's that [`Pe::register`](crate::Pe::register) and
/// [`Pe::register_symmetric`](crate::Pe::register_symmetric) take, and give back when the registration ends. Nothing is
/// copied: kernels, NICs and peers use the memory itself.
///
/// A `Vec`, a boxed slice and [`Pages`] are such memory; [`HostRange`] and [`GpuBuffer`] make it of an address. A GPU knows
/// host memory by pages: of two buffers that share one, only one can be registered at a time. [`Pages`] have theirs alone.
///
/// # Safety
/// [`location`](Buffer::location) leads to [`len`](Buffer::len) initialised elements that are aligned for their type, may be read
/// and written by anybody, and stay where they are until the value is dropped, wherever the value itself is moved. While
/// the runtime has the value, nobody has references to them.
pub unsafe trait Buffer: Send + Sync + 'static {
    /// An element.
    type Element: Pod;
    /// Where the first element is.
    fn location(&mut self) -> MemoryLocation;
    /// Elements.
    fn len(&self) -> usize;
    /// True if there are none; such memory cannot be registered.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// SAFETY: a vector's elements are allocated until it is dropped or grows, which needs the value.
unsafe impl<T: Pod + Send + Sync> Buffer for Vec<T> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        MemoryLocation::Host(NonNull::from(self.as_mut_slice()).cast())
    }
    fn len(&self) -> usize {
        Vec::len(self)
    }
}

// SAFETY: as a vector's.
unsafe impl<T: Pod + Send + Sync> Buffer for Box<[T]> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        MemoryLocation::Host(NonNull::from(&mut **self).cast())
    }
    fn len(&self) -> usize {
        <[T]>::len(self)
    }
}

/// Zeroed host memory in pages of its own, for buffers that GPUs reach too. A slice in every other respect.
#[derive(Debug)]
pub struct Pages<T> {
    memory: HostBuffer,
    len: usize,
    _elements: PhantomData<T>,
}

impl<T: Pod> Pages<T> {
    /// `len` zeroed elements.
    ///
    /// # Panics
    /// If so many bytes cannot be counted.
    pub fn zeroed(len: usize) -> Self {
        const { assert!(align_of::<T>() <= 4096, "a page is aligned to 4096 bytes") };
        let bytes =
            len.checked_mul(size_of::<T>()).expect("no buffer has more bytes than there are addresses");
        Self { memory: HostBuffer::new(bytes), len, _elements: PhantomData }
    }
}

impl<T: Pod> Deref for Pages<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements, zeroed at first, which only this value leads to while it is not registered.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }
}

impl<T: Pod> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().cast(), self.len) }
    }
}

// SAFETY: whole pages, allocated until the value is dropped.
unsafe impl<T: Pod + Send + Sync> Buffer for Pages<T> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        MemoryLocation::Host(self.memory.host_ptr().unwrap_or(NonNull::dangling()))
    }
    fn len(&self) -> usize {
        self.len
    }
}

/// Elements in host memory of somebody else's, such as a file's mapping or an array of C.
#[derive(Debug)]
pub struct HostRange<T> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: an address range, which its maker promises that anybody may use.
unsafe impl<T: Send> Send for HostRange<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostRange<T> {}

impl<T: Pod> HostRange<T> {
    /// The `len` elements from `start` on.
    ///
    /// # Safety
    /// As of a [`Buffer`]: initialised, aligned, allocated until this value is dropped, and used by nobody else through
    /// references while they are registered.
    pub unsafe fn new(start: NonNull<T>, len: usize) -> Self {
        Self { start, len }
    }
}

// SAFETY: the promise of `new`.
unsafe impl<T: Pod + Send + Sync> Buffer for HostRange<T> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        MemoryLocation::Host(self.start.cast())
    }
    fn len(&self) -> usize {
        self.len
    }
}

/// Elements in GPU memory that another library has allocated, and the value that keeps it allocated: a `CudaSlice` of
/// cudarc, a guard, or `()` where something else does.
#[derive(Debug)]
pub struct GpuBuffer<T, O> {
    owner: O,
    address: u64,
    len: usize,
    _elements: PhantomData<fn() -> T>,
}

impl<T: Pod, O: Any + Send + Sync> GpuBuffer<T, O> {
    /// The `len` elements at `address`, which `owner` keeps allocated.
    ///
    /// # Safety
    /// As of a [`Buffer`]: memory of the GPU that this PE's kernels run on, which stays allocated until `owner` is dropped.
    pub unsafe fn new(owner: O, address: u64, len: usize) -> Self {
        Self { owner, address, len, _elements: PhantomData }
    }

    /// The value that keeps it allocated.
    pub fn into_owner(self) -> O {
        self.owner
    }
}

// SAFETY: the promise of `new`.
unsafe impl<T: Pod, O: Any + Send + Sync> Buffer for GpuBuffer<T, O> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        MemoryLocation::Gpu(self.address)
    }
    fn len(&self) -> usize {
        self.len
    }
}
