//! Application memory that a PE can register for communication: the [`Buffer`] trait and its implementations.
#![allow(unsafe_code, reason = "`Buffer` is an unsafe trait: its implementations promise valid memory")]

use std::any::Any;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;
use cudarc::driver::CudaSlice;
use rushmem_cuda::settled_address;
#[cfg(doc)]
use rushmem_error::Error;
use rushmem_error::Result;
use rushmem_softnic::{HostBuffer, Memory as _};

/// Address of application memory, with the kind of memory it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLocation {
    /// Ordinary host memory, by its address in this process.
    Host(NonNull<u8>),
    /// Address of memory that CUDA has already page-locked, as `cudaMallocHost` does.
    PageLocked(NonNull<u8>),
    /// Address in GPU memory.
    Gpu(u64),
}

/// User memory that `Pe::register` and `Pe::register_symmetric` accept. Nothing is copied: kernels, NICs and peers use
/// the memory in place. Unregistering returns the buffer.
///
/// `Vec`, boxed slices, [`Pages`] and [`DlpackTensor`](crate::dlpack::DlpackTensor) implement it. [`HostRange`] and
/// [`GpuBuffer`] wrap an address. GPUs map host memory by whole pages, so of two buffers that share a page, only one
/// can be registered at a time. [`Pages`] never share a page.
///
/// # Safety
/// - [`location`](Buffer::location) points to [`len`](Buffer::len) initialised elements, aligned for their type.
/// - Any thread, kernel or NIC may read and write the elements.
/// - The elements stay at their address until the value is dropped, even if the value moves.
/// - No references to the elements exist while the runtime holds the value.
pub unsafe trait Buffer: Send + Sync + 'static {
    /// Element type of the registered memory, which kernels load and store.
    type Element: Pod;
    /// Returns the address of the first element.
    fn location(&mut self) -> MemoryLocation;
    /// Number of elements.
    fn len(&self) -> usize;
    /// Returns whether there are no elements. Empty memory cannot be registered.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// SAFETY: a vector's elements stay allocated until it is dropped or grows. Both need the value.
unsafe impl<T: Pod + Send + Sync> Buffer for Vec<T> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        MemoryLocation::Host(NonNull::from(self.as_mut_slice()).cast())
    }
    fn len(&self) -> usize {
        Vec::len(self)
    }
}

// SAFETY: see `Vec`; a box never grows.
unsafe impl<T: Pod + Send + Sync> Buffer for Box<[T]> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        MemoryLocation::Host(NonNull::from(&mut **self).cast())
    }
    fn len(&self) -> usize {
        <[T]>::len(self)
    }
}

/// Zeroed host memory in dedicated pages, which GPUs can map without affecting other buffers. Dereferences to a slice.
#[derive(Debug)]
pub struct Pages<T> {
    memory: HostBuffer,
    len: usize,
    _elements: PhantomData<T>,
}

impl<T: Pod> Pages<T> {
    /// Allocates `len` zeroed elements.
    ///
    /// # Panics
    /// Panics if the size in bytes overflows.
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
        // SAFETY: `len` initialised elements, and only this value points to them while it is not registered.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }
}

impl<T: Pod> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: see `deref`; the borrow is unique.
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

/// Elements in host memory that this program does not own, such as a file mapping or a C array.
#[derive(Debug)]
pub struct HostRange<T> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: an address range. The caller of `new` promised that any thread may use it.
unsafe impl<T: Send> Send for HostRange<T> {}
// SAFETY: see `Send`.
unsafe impl<T: Sync> Sync for HostRange<T> {}

impl<T: Pod> HostRange<T> {
    /// Creates a buffer of the `len` elements at `start`.
    ///
    /// # Safety
    /// The rules of [`Buffer`] apply. The elements are initialised, aligned and allocated until this value is dropped.
    /// No references to them exist while they are registered.
    pub unsafe fn new(start: NonNull<T>, len: usize) -> Self {
        Self { start, len }
    }
}

// SAFETY: the caller of `new` promised it.
unsafe impl<T: Pod + Send + Sync> Buffer for HostRange<T> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        MemoryLocation::Host(self.start.cast())
    }
    fn len(&self) -> usize {
        self.len
    }
}

/// Elements in GPU memory of another library, and an owner that keeps them allocated. The owner can be a `CudaSlice` of
/// cudarc, a guard, or `()` if the program keeps the memory alive by other means.
#[derive(Debug)]
pub struct GpuBuffer<T, O> {
    owner: O,
    address: u64,
    len: usize,
    _elements: PhantomData<fn() -> T>,
}

impl<T: Pod, O: Any + Send + Sync> GpuBuffer<T, O> {
    /// Creates a buffer of the `len` elements at `address`, which `owner` keeps allocated.
    ///
    /// # Safety
    /// The rules of [`Buffer`] apply. The memory is on the GPU that runs this PE's kernels, and stays allocated until
    /// `owner` is dropped.
    pub unsafe fn new(owner: O, address: u64, len: usize) -> Self {
        Self { owner, address, len, _elements: PhantomData }
    }

    /// Returns the owner. Unregistering a window returns its buffer.
    pub fn into_owner(self) -> O {
        self.owner
    }
}

impl<T: Pod + Send + Sync> GpuBuffer<T, CudaSlice<T>> {
    /// Creates a buffer of a cudarc slice. [`into_owner`](Self::into_owner) returns the slice.
    ///
    /// The call blocks until earlier work on the slice has completed, in its own stream and in all streams that
    /// cudarc's events track. After that, kernels in any stream can use the window.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # fn app(pe: &rushmem::Pe, stream: &Arc<cudarc::driver::CudaStream>) -> Result<(), Box<dyn std::error::Error>> {
    /// use cudarc::driver::CudaSlice;
    /// use rushmem::GpuBuffer;
    ///
    /// let window = pe.register_symmetric(GpuBuffer::from_slice(stream.alloc_zeros::<f32>(1024)?)?)?;
    /// // Pass `window.handle()` to kernels.
    /// let numbers: CudaSlice<f32> = pe.unregister_symmetric(window)?.into_owner();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Cuda`] if earlier work failed, or the stream of the slice is being captured.
    pub fn from_slice(mut slice: CudaSlice<T>) -> Result<Self> {
        let (address, len) = (settled_address(&mut slice)?, slice.len());
        Ok(Self { owner: slice, address, len, _elements: PhantomData })
    }
}

// SAFETY: the caller of `new` promised it, or the buffer owns a slice that no work uses. The machine checks the GPU.
unsafe impl<T: Pod, O: Any + Send + Sync> Buffer for GpuBuffer<T, O> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        MemoryLocation::Gpu(self.address)
    }
    fn len(&self) -> usize {
        self.len
    }
}
