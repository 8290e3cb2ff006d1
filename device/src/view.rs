//! Elements of memory that other threads, PEs and NICs use at the same time.
#![allow(unsafe_code, reason = "reads and writes elements of shared memory in bounds")]

use core::panic::Location;

use bytemuck::Pod;

use crate::abi::DevAddr;
use crate::amo::AmoWord;
use crate::arch::{self, SysWord};
use crate::error::{Site, out_of_range};

/// A run of elements that is shared: each access is one load or store, none is a reference.
///
/// Accesses are weak: order them with barriers, signals or fences. An index outside of the run reads as zero,
/// writes nothing, and is reported: the launch ends with [`Error::OutOfRange`](crate::Error::OutOfRange).
#[derive(Clone, Copy)]
pub struct View<T> {
    base: *mut T,
    len: usize,
    state: DevAddr,
}

impl<T: Pod> View<T> {
    /// # Safety
    /// `base` is aligned and valid for `len` elements for as long as the kernel runs; whoever writes them at the
    /// same time does so with single stores.
    #[inline(always)]
    pub(crate) unsafe fn new(base: *mut T, len: usize, state: DevAddr) -> Self {
        Self { base, len, state }
    }

    /// Elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// True if there are none.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Element `i`; zero, and an error record, if there is none.
    #[inline(always)]
    #[track_caller]
    pub fn load(self, i: usize) -> T {
        if i < self.len {
            // SAFETY: in bounds; `new` promised the rest.
            unsafe { arch::read(self.base.add(i)) }
        } else {
            self.out_of_range(i, Location::caller());
            T::zeroed()
        }
    }

    /// Writes element `i`; nothing, and an error record, if there is none.
    #[inline(always)]
    #[track_caller]
    pub fn store(self, i: usize, v: T) {
        if i < self.len {
            // SAFETY: in bounds; `new` promised the rest.
            unsafe { arch::write(self.base.add(i), v) }
        } else {
            self.out_of_range(i, Location::caller());
        }
    }

    /// The base address, for code that must go beyond single elements.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut T {
        self.base
    }

    #[inline(always)]
    fn out_of_range(self, i: usize, site: Site) {
        let _ = out_of_range(self.state, i as u64, self.len as u64, u64::MAX, site);
    }
}

impl<T: AmoWord> View<T> {
    /// Element `i`, by a strong load that orders nothing: a loop that looks for what another block, or a peer, stores here
    /// sees it come. Otherwise as [`View::load`]. With [`Ctx::fence_acquire`](crate::Ctx::fence_acquire) after it; a wait, which has a
    /// deadline, is better where it does.
    #[inline(always)]
    #[track_caller]
    pub fn load_relaxed(self, i: usize) -> T {
        if i < self.len {
            // SAFETY: in bounds; `new` promised the rest.
            T::from_word(unsafe { T::Word::load_relaxed(self.base.add(i).cast()) })
        } else {
            self.out_of_range(i, Location::caller());
            T::zeroed()
        }
    }

    /// Writes element `i` by a strong store that orders nothing, for those who look with [`View::load_relaxed`] or wait.
    /// Otherwise as [`View::store`]. With [`Ctx::fence_release`](crate::Ctx::fence_release) before it.
    #[inline(always)]
    #[track_caller]
    pub fn store_relaxed(self, i: usize, v: T) {
        if i < self.len {
            // SAFETY: in bounds; `new` promised the rest.
            unsafe { T::Word::store_relaxed(self.base.add(i).cast(), T::word(v.bits())) }
        } else {
            self.out_of_range(i, Location::caller());
        }
    }
}

/// Elements of another PE's copy of a symmetric object, reached by loads and stores: [`Ctx::ptr`](crate::Ctx::ptr).
///
/// An address of that copy, and so no symmetric address: no call takes it where it wants a
/// [`SymSlice`](crate::SymSlice). Accesses are as those of a [`View`]. A store is on its way when the call returns;
/// [`Ctx::fence`](crate::Ctx::fence) and [`Ctx::quiet`](crate::Ctx::quiet) of the thread that stored order it as they
/// order a put, and a [`put_signal`](crate::Ctx::put_signal) by a group announces what its threads stored before. Loads
/// see what the PE, or others, had made visible before a wait of this thread ended.
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
pub struct RemoteView<T>(View<T>);

impl<T: Pod> RemoteView<T> {
    #[inline(always)]
    pub(crate) fn new(view: View<T>) -> Self {
        Self(view)
    }

    /// Elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Element `i`; zero, and an error record, if there is none.
    #[inline(always)]
    #[track_caller]
    pub fn load(self, i: usize) -> T {
        self.0.load(i)
    }

    /// Writes element `i`; nothing, and an error record, if there is none.
    #[inline(always)]
    #[track_caller]
    pub fn store(self, i: usize, v: T) {
        self.0.store(i, v)
    }

    /// The base address, for code that must go beyond single elements.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }
}
