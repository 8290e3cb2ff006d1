//! Views of memory elements that other threads, PEs and NICs access concurrently.
#![allow(unsafe_code, reason = "reads and writes elements of shared memory in bounds")]

use core::marker::PhantomData;
use core::panic::Location;

use bytemuck::Pod;

use crate::abi::DevAddr;
use crate::amo::AmoWord;
use crate::arch::{self, SysWord};
use crate::ctx::{Ctx, CtxRef};
use crate::error::{Site, out_of_range};
use crate::heap::{LocalBuffer, Sym, SymSlice, local_operand};
use crate::sharing::{PerGpu, Sharing};
use crate::watch::{self, Event};

/// A view of shared elements. Each access is a single load or store, never a reference.
///
/// Accesses are weak: order them with barriers, signals or fences. A load outside the view returns zero and a store
/// outside of it does nothing, but both write an error record: the launch fails with
/// [`Error::OutOfRange`](crate::Error::OutOfRange).
#[derive(Clone, Copy)]
pub struct View<'k, T> {
    base: *mut T,
    len: usize,
    state: DevAddr,
    _kernel: PhantomData<&'k ()>,
}

impl<T: Pod> View<'_, T> {
    /// Creates a view of `len` elements at `base`.
    ///
    /// # Safety
    /// `base` is aligned and valid for `len` elements while the kernel runs. Others write them at the same time by
    /// single stores only.
    #[inline(always)]
    pub(crate) unsafe fn new(base: *mut T, len: usize, state: DevAddr) -> Self {
        Self { base, len, state, _kernel: PhantomData }
    }

    /// Returns the number of elements of the view.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns whether the view has no elements.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns element `i`. If there is no such element, records an error and returns zero.
    #[inline(always)]
    #[track_caller]
    pub fn load(self, i: usize) -> T {
        if i < self.len {
            watch::load("load", self.address(i), size_of::<T>() as u64);
            // SAFETY: in bounds; `new` promised the rest.
            unsafe { arch::read(self.base.add(i)) }
        } else {
            // Kernels have no panic path, so record the error and return zero.
            self.out_of_range(i, Location::caller());
            T::zeroed()
        }
    }

    /// Writes element `i`. If there is no such element, records an error and does nothing.
    #[inline(always)]
    #[track_caller]
    pub fn store(self, i: usize, v: T) {
        if i < self.len {
            watch::store("store", self.address(i), size_of::<T>() as u64);
            // SAFETY: in bounds; `new` promised the rest.
            unsafe { arch::write(self.base.add(i), v) }
        } else {
            self.out_of_range(i, Location::caller());
        }
    }

    /// Returns the address of the first element, for code that needs more than access to single elements.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut T {
        self.base
    }

    /// Returns the address of element `i`, for the sanitizer.
    #[inline(always)]
    fn address(self, i: usize) -> u64 {
        self.base.wrapping_add(i).addr() as u64
    }

    #[inline(always)]
    fn out_of_range(self, i: usize, site: Site) {
        let _ = out_of_range(self.state, i as u64, self.len as u64, u64::MAX, site);
    }
}

impl<T: AmoWord> View<'_, T> {
    /// Returns element `i` by a strong load without ordering. Otherwise like [`View::load`].
    ///
    /// A loop of such loads sees the stores of other blocks and of peers; call
    /// [`Ctx::fence_acquire`](crate::Ctx::fence_acquire) after it. Prefer a wait where possible, because waits have a
    /// deadline.
    #[inline(always)]
    #[track_caller]
    pub fn load_relaxed(self, i: usize) -> T {
        if i < self.len {
            // SAFETY: in bounds; `new` promised the rest.
            let found = T::from_word(unsafe { T::Word::load_relaxed(self.base.add(i).cast()) });
            let (address, bytes) = (self.address(i), size_of::<T>() as u64);
            watch::note("load_relaxed", Event::StrongLoad { address, bytes });
            found
        } else {
            self.out_of_range(i, Location::caller());
            T::zeroed()
        }
    }

    /// Writes element `i` by a strong store without ordering, for threads that use [`View::load_relaxed`] or a wait.
    /// Otherwise like [`View::store`]. Call [`Ctx::fence_release`](crate::Ctx::fence_release) before it, to publish
    /// earlier stores.
    #[inline(always)]
    #[track_caller]
    pub fn store_relaxed(self, i: usize, v: T) {
        if i < self.len {
            let (address, bytes) = (self.address(i), size_of::<T>() as u64);
            watch::note("store_relaxed", Event::StrongStore { address, bytes });
            // SAFETY: in bounds; `new` promised the rest.
            unsafe { T::Word::store_relaxed(self.base.add(i).cast(), T::word(v.bits())) }
        } else {
            self.out_of_range(i, Location::caller());
        }
    }
}

/// A view of another PE's copy of a symmetric object, accessed by loads and stores. Returned by
/// [`Ctx::ptr`](crate::Ctx::ptr).
///
/// It holds the address of that copy, not a symmetric address, so it is not accepted where a call takes a
/// [`SymSlice`](crate::SymSlice). Accesses are like those of a [`View`]. A store may still be in flight when the call
/// returns: [`Ctx::fence`](crate::Ctx::fence) and [`Ctx::quiet`](crate::Ctx::quiet) of the same thread order it like a
/// put, and a [`put_signal`](crate::Ctx::put_signal) of a group announces earlier stores of its threads. Loads see what
/// other PEs had made visible before this thread's last wait returned.
///
/// ```
/// # use rushmem_device::prelude::*;
/// fn put(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>) -> Result {
///     if let Some(there) = ctx.ptr(dst, 1) {
///         there.store(0, 5);
///     }
///     ctx.put(Thread, dst, src, 1)
/// }
/// ```
///
/// ```compile_fail
/// # use rushmem_device::prelude::*;
/// fn put(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>) -> Result {
///     let Some(there) = ctx.ptr(dst, 1) else { return Ok(()) };
///     ctx.put(Thread, there, src, 1) // not a symmetric address
/// }
/// ```
#[derive(Clone, Copy)]
pub struct RemoteView<'k, T>(View<'k, T>);

impl<'k, T: Pod> RemoteView<'k, T> {
    #[inline(always)]
    pub(crate) fn new(view: View<'k, T>) -> Self {
        Self(view)
    }

    /// Returns the number of elements of the view.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Returns whether the view has no elements.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns element `i`. If there is no such element, records an error and returns zero.
    #[inline(always)]
    #[track_caller]
    pub fn load(self, i: usize) -> T {
        self.0.load(i)
    }

    /// Writes element `i`. If there is no such element, records an error and does nothing.
    #[inline(always)]
    #[track_caller]
    pub fn store(self, i: usize, v: T) {
        self.0.store(i, v)
    }

    /// Returns the address of the first element, for code that needs more than access to single elements.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }
}

/// # Memory of this PE and of P2P peers
///
/// Views through which a kernel loads and stores elements of symmetric objects.
impl<'k, S: Sharing> Ctx<'k, S> {
    /// Returns this PE's copy of a symmetric object, or a registered buffer, for plain loads and stores.
    ///
    /// An invalid handle yields an empty view and an error record.
    #[inline(always)]
    #[track_caller]
    pub fn local<T: Pod>(&self, object: impl LocalBuffer<T>) -> View<'k, T> {
        let object = local_operand(object);
        let (base, len) = match self.local_addr(object) {
            Ok(base) => (base, object.len()),
            Err(_) => (core::ptr::null_mut(), 0),
        };
        // SAFETY: inside of this PE's memory; the allocator aligned it for `T`.
        unsafe { View::new(base, len, self.parts_ref().state) }
    }

    /// Returns this PE's copy of a symmetric element, as a view of one element.
    #[inline(always)]
    #[track_caller]
    pub fn local_one<T: Pod>(&self, object: Sym<T>) -> View<'k, T> {
        self.local(object.as_slice())
    }

    /// Returns the copy of `object` on `pe`, for loads and stores.
    ///
    /// Returns `None` if that PE is not a P2P peer, or if there is no such PE or object. A PE's own copy is always
    /// accessible. Which PEs are P2P peers is decided when the job starts, by the setting `peer_path`.
    ///
    /// OpenSHMEM 1.6 section 9.2, `shmem_ptr`.
    #[inline(always)]
    pub fn ptr<T: Pod>(&self, object: SymSlice<T>, pe: u32) -> Option<RemoteView<'k, T>> {
        // Try the window first: it takes no memory access.
        let base = match self.p2p_addr(pe, object.offset(), object.bytes()) {
            Some(base) => base,
            None => {
                let found = ptr_slow(CtxRef::of(self), object.offset(), object.bytes(), pe);
                if found.0 == 0 {
                    return None;
                }
                found.ptr()
            }
        };
        // SAFETY: inside of symmetric memory, which is mapped; the allocator aligned it for `T`.
        Some(RemoteView::new(unsafe { View::new(base, object.len(), self.parts_ref().state) }))
    }

    /// Returns the block's dynamic shared memory as a view with as many elements as fit. On a GPU, its initial content
    /// is undefined.
    #[inline(always)]
    pub fn shared<T: Pod>(&self) -> View<'k, T> {
        let (base, bytes) = arch::shared();
        let len = bytes.checked_div(size_of::<T>()).unwrap_or(0);
        // SAFETY: the launch gave the block `bytes` bytes at `base`, aligned to 16.
        unsafe { View::new(base.cast(), len, self.parts_ref().state) }
    }
}

/// Returns the address of an object on a PE whose heap is not in the P2P window, or 0 if it is not mapped or there is
/// no such PE or object.
#[inline(never)]
fn ptr_slow(ctx_ref: CtxRef, offset: u64, bytes: u64, pe: u32) -> DevAddr {
    let ctx = ctx_ref.ctx::<PerGpu>();
    if pe >= ctx.parts_ref().n_pes || !ctx.has(offset, bytes) {
        return DevAddr(0);
    }
    if pe == ctx.parts_ref().pe {
        return DevAddr(ctx.address::<u8>(offset).addr() as u64);
    }
    DevAddr(ctx.peer_addr::<u8>(pe, offset).map_or(0, |p| p.addr() as u64))
}
