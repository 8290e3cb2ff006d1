//! Types and functions that the expansion of `#[kernel]` uses, and that a runtime launches kernels with.
//!
//! For the GPU, the attribute emits a PTX entry that takes the context and the arguments by value. For the host, it
//! emits a function without the context that returns a [`Call`]. The runtime adds the context, so a kernel cannot run
//! before one exists.
#![allow(unsafe_code, reason = "implements `KernelArg`, and defines the panic handler")]

use crate::Ctx;
use crate::arch;
use crate::group::Thread;
use crate::heap::{Handle, Local, LocalBuffer, Sym, SymSlice};
use crate::watch;

pub use rushmem_macros::{KernelArg, kernel};

/// A value that a kernel can take as an argument. Its bytes have the same meaning on the host and on the GPU.
///
/// # Safety
/// The type is `repr(C)`, `repr(transparent)` or primitive, without host pointers. It has no padding, or `write` leaves
/// the padding out. Every bit pattern that safe host code can produce is safe for device code to trust.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel argument",
    label = "not known to be the same bytes on the host and on the GPU",
    note = "a kernel takes numbers, `bool`, `Sym<T>`, `SymSlice<T>`, `Local<T>` and structures with \
            `#[derive(KernelArg)]`"
)]
pub unsafe trait KernelArg: Copy + Send + Sync + 'static {
    /// Calls `see` with each handle in the value, for the host to refuse the launch if the object of one has been
    /// freed.
    fn handles(&self, _see: &mut dyn FnMut(Handle)) {}

    /// Writes the value to `bytes`, which has the size of the type and is zeroed.
    #[doc(hidden)]
    fn write(&self, bytes: &mut [u8]) {
        // SAFETY: the trait promises a type without padding, so all its bytes are initialised.
        let own = unsafe { core::slice::from_raw_parts((&raw const *self).cast::<u8>(), size_of::<Self>()) };
        for (to, from) in bytes.iter_mut().zip(own) {
            *to = *from;
        }
    }
}

/// Writes a field of a struct to the struct's bytes, at the field's offset. Called by `#[derive(KernelArg)]`.
#[doc(hidden)]
pub fn write_field<T: KernelArg>(field: &T, offset: usize, bytes: &mut [u8]) {
    if let Some(bytes) = bytes.get_mut(offset..offset.saturating_add(size_of::<T>())) {
        field.write(bytes);
    }
}

/// Fails to compile if `T` is not a kernel argument.
#[doc(hidden)]
pub const fn is_arg<T: KernelArg>() {}

macro_rules! primitive_args {
    ($($t:ty)*) => {$(
        // SAFETY: a primitive without padding or addresses; all bit patterns are values.
        unsafe impl KernelArg for $t {}
    )*};
}
primitive_args!(bool u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);

// SAFETY: `repr(C)` words without padding; safe code gets one from the allocator only.
unsafe impl<T: bytemuck::Pod> KernelArg for SymSlice<T> {
    fn handles(&self, see: &mut dyn FnMut(Handle)) {
        see(self.handle());
    }
}
// SAFETY: as above.
unsafe impl<T: bytemuck::Pod> KernelArg for Sym<T> {
    fn handles(&self, see: &mut dyn FnMut(Handle)) {
        see(self.as_slice().handle());
    }
}
// SAFETY: `repr(C)` words without padding; safe code gets one from a registration only.
unsafe impl<T: bytemuck::Pod> KernelArg for Local<T> {
    fn handles(&self, see: &mut dyn FnMut(Handle)) {
        see(self.handle());
    }
}

/// What a kernel may return: nothing, or a `Result<()>`.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot return `{Self}`",
    label = "a kernel returns nothing or `rushmem_device::Result<()>`"
)]
pub trait KernelResult: sealed::Sealed {
    /// Returns whether the kernel returned an error.
    #[doc(hidden)]
    fn failed(&self) -> bool;
}

impl KernelResult for () {
    #[inline(always)]
    fn failed(&self) -> bool {
        false
    }
}
impl<E> KernelResult for Result<(), E> {
    #[inline(always)]
    fn failed(&self) -> bool {
        self.is_err()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl<E> Sealed for Result<(), E> {}
}

/// Runs at the start of a kernel. Returns whether host and kernel agree on the ABI layout and no earlier launch in the
/// same launch queue has failed.
///
/// If the layouts differ, records the error where the host finds it; the kernel must not touch the context.
#[inline(always)]
pub fn enter(ctx: &Ctx) -> bool {
    enter_after_failure(ctx) && !ctx.follows_failure()
}

/// Runs at the start of a kernel that looks for an earlier failure itself. Returns whether host and kernel agree on the
/// ABI layout, like [`enter`].
#[inline(always)]
pub fn enter_after_failure(ctx: &Ctx) -> bool {
    arch::await_stream();
    let trusted = ctx.trusted();
    if trusted {
        watch::kernel_begins(ctx.parts_ref());
    }
    // One record for the whole grid suffices.
    if !trusted && Thread::index() == 0 {
        ctx.report_layout();
    }
    trusted
}

/// Runs when a kernel returns. If `result` is an error, marks the launch as failed in its launch queue. The failed call
/// has recorded its error already.
#[inline(always)]
pub fn finish<R: KernelResult>(ctx: &Ctx, result: R) {
    watch::kernel_ends();
    if result.failed() {
        ctx.mark_failed();
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::Call;

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use std::boxed::Box;
    use std::fmt;
    use std::panic::Location;
    use std::vec::Vec;

    use super::KernelArg;
    use crate::Ctx;
    use crate::abi::CtxParts;
    use crate::heap::Handle;

    /// A kernel and its arguments, created by the host-side function of `#[kernel]`. The runtime prepends the context
    /// and launches it, natively or as PTX.
    ///
    /// A call is immutable, so the arguments are those the compiler has checked.
    #[must_use = "a call does nothing until a runtime launches it"]
    pub struct Call {
        name: &'static str,
        args: Vec<Box<[u8]>>,
        handles: Vec<Handle>,
        max_threads: Option<u32>,
        per_block: bool,
        operation: Option<(&'static str, &'static Location<'static>)>,
        native: Box<dyn Fn(&Ctx) + Send + Sync>,
    }

    impl Call {
        /// Creates a call of a kernel, as PTX entry `name` or natively as `native`, without arguments. Used by
        /// `#[kernel]`.
        ///
        /// # Safety
        /// The entry `name` and `native` are compiled from the same kernel. The caller appends all arguments of the
        /// kernel, in its order.
        #[doc(hidden)]
        pub unsafe fn new(name: &'static str, native: impl Fn(&Ctx) + Send + Sync + 'static) -> Self {
            Self {
                name,
                args: Vec::new(),
                handles: Vec::new(),
                max_threads: None,
                per_block: false,
                operation: None,
                native: Box::new(native),
            }
        }

        /// Limits the number of threads per block. Used by `#[kernel]`.
        ///
        /// # Safety
        /// The PTX entry has this limit.
        #[doc(hidden)]
        pub unsafe fn with_max_threads(self, threads: u32) -> Self {
            Self { max_threads: Some(threads), ..self }
        }

        /// Allows the kernel to use the per-block queues. Used by `#[kernel]`.
        #[doc(hidden)]
        pub fn with_per_block(self) -> Self {
            Self { per_block: true, ..self }
        }

        /// Appends an argument. Used by `#[kernel]`.
        ///
        /// # Safety
        /// `value` is the kernel's next argument, and has its type.
        #[doc(hidden)]
        pub unsafe fn with_arg<T: KernelArg>(mut self, value: T) -> Self {
            let mut bytes = std::vec![0; size_of::<T>()];
            value.write(&mut bytes);
            self.args.push(bytes.into());
            value.handles(&mut |handle| self.handles.push(handle));
            self
        }

        /// Returns the name of the PTX entry.
        pub fn name(&self) -> &'static str {
            self.name
        }

        /// Returns the bytes of each argument, without the context.
        pub fn args(&self) -> impl ExactSizeIterator<Item = &[u8]> {
            self.args.iter().map(AsRef::as_ref)
        }

        /// Returns the handles among the arguments, nested ones included.
        pub fn handles(&self) -> &[Handle] {
            &self.handles
        }

        /// Returns the maximum number of threads per block, if the kernel sets one.
        pub fn max_threads(&self) -> Option<u32> {
            self.max_threads
        }

        /// Marks the call as part of a host operation, such as a host-side collective, with the operation's name and
        /// call site.
        pub fn of_operation(self, name: &'static str, site: &'static Location<'static>) -> Self {
            Self { operation: Some((name, site)), ..self }
        }

        /// Returns name and call site of the host operation that the call is part of, if any.
        pub fn operation(&self) -> Option<(&'static str, &'static Location<'static>)> {
            self.operation
        }

        /// Returns whether the kernel may call [`Ctx::per_block`].
        pub fn uses_per_block(&self) -> bool {
            self.per_block
        }

        /// Runs the native kernel as one GPU thread.
        ///
        /// # Safety
        /// The contract of [`Ctx::from_parts`] holds for `parts` until it returns. The caller is a thread of the native
        /// GPU emulator.
        pub unsafe fn run_native(&self, parts: &CtxParts) {
            // SAFETY: every address in `parts` is valid until this function returns, by its contract. A kernel cannot
            // keep the context longer.
            let ctx = unsafe { Ctx::from_parts(*parts) };
            (self.native)(&ctx);
        }
    }

    impl fmt::Debug for Call {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Call").field("name", &self.name).field("args", &self.args).finish_non_exhaustive()
        }
    }
}

/// Traps. Only reachable from a kernel with a panic path, which the PTX check of `rushmem-ptx` rejects.
#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the grid; nothing runs after it.
    unsafe { core::arch::nvptx::trap() }
}
