//! The macros `#[kernel]`, which turns a function into a PTX entry and a native kernel with a typed launcher, and
//! `#[derive(KernelArg)]`, which makes a struct an argument of kernels.
//!
//! Import them from `rushmem_device::kernel`, which also has the types that the expansion uses.

use proc_macro::TokenStream;

mod errors;
mod expand;
mod export;
mod generic;
mod instances;
mod kernel_arg;
mod options;
mod parse;

/// Turns a function into a kernel.
///
/// ```
/// use rushmem_device::Ctx;
/// use rushmem_device::kernel::kernel;
///
/// /// Does its work `n` times.
/// #[kernel]
/// pub fn work(ctx: &Ctx, n: u32) {
///     // ...
/// #   let _ = (ctx, n);
/// }
///
/// let call = work(3); // for a runtime to launch
/// assert_eq!(call.name(), "work");
/// ```
///
/// On the GPU, the kernel is the PTX entry `work`, which takes the context and the arguments by value. On the host, it
/// is the function `pub fn work(n: u32) -> rushmem_device::kernel::Call`. A runtime launches that call as PTX or
/// natively, and supplies the context.
///
/// The first parameter is `&Ctx`. All others are passed by value and implement `rushmem_device::kernel::KernelArg`. A
/// kernel returns nothing or a `rushmem_device::Result<()>`. The operator `?` returns from the kernel early; the failed
/// call has already recorded its error. A kernel is a plain function: not `async`, `const` or `unsafe`, and not a
/// method.
///
/// # Generic kernels
///
/// A PTX entry has a single signature, so a generic kernel lists the types and constants for which it is compiled:
///
/// ```
/// use core::ops::Mul;
///
/// use rushmem_device::kernel::kernel;
/// use rushmem_device::{Ctx, Pod, SymSlice, Thread};
///
/// /// Multiplies every `STEP`th element of `data` by `factor`.
/// #[kernel(T = [f32, f64], STEP = [1, 2])]
/// pub fn scale<T: Pod + Mul<Output = T>, const STEP: usize>(ctx: &Ctx, data: SymSlice<T>, factor: T) {
///     let data = ctx.local(data);
///     let mut i = Thread::index() * STEP;
///     while i < data.len() {
///         data.store(i, data.load(i) * factor);
///         i += Thread::count() * STEP;
///     }
/// }
///
/// # // SAFETY: no kernel runs with it.
/// # let data = unsafe { SymSlice::<f32>::stamped(64, 3, 9) };
/// let call = scale::<f32, 2>(data, 0.5); // or `scale::<_, 2>`
/// assert_eq!(call.name(), "scale_f32_2");
/// ```
///
/// Each combination is an instance with its own entry, which is named after the kernel, followed by the arguments in
/// the order of the parameters. On the host, other instances do not compile, and the error lists those that exist. A
/// generic host function that launches the kernel needs the bound `(): ScaleInstance<T, STEP>`; the attribute defines
/// this trait next to the kernel. Constants are non-negative integers or `bool`s.
///
/// # Limits
///
/// `#[kernel(max_threads = 512)]` sets the maximum number of threads per block, like `__launch_bounds__` in CUDA. The
/// runtime refuses launches with more threads, and the compiler limits registers to what such a block has. Without this
/// limit, a kernel may need so many registers that only smaller blocks can be launched.
///
/// `#[kernel(per_block)]` allows a kernel to call `Ctx::per_block`. The runtime runs only one such kernel at a time.
///
/// A kernel crate starts with `#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]`; a module of an
/// application needs no such line. Names of kernels and instances must be unique within the crate or module, because
/// PTX has a single namespace.
#[proc_macro_attribute]
pub fn kernel(attr: TokenStream, item: TokenStream) -> TokenStream {
    match parse::kernel(attr.into(), item.into()) {
        Ok(kernel) if kernel.instances.is_empty() => expand::expand(&kernel).into(),
        Ok(kernel) => generic::expand(&kernel).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Implements `KernelArg` for a struct of kernel arguments.
///
/// The struct must be `Copy` and `#[repr(C)]`. Each field must be a kernel argument: a number, a `bool`, a handle or
/// another such struct. Handles in fields are checked like handles passed directly.
///
/// ```
/// #![forbid(unsafe_code)]
/// use rushmem_device::kernel::{KernelArg, kernel};
/// use rushmem_device::{Ctx, SymSlice};
///
/// /// A table in symmetric memory.
/// #[derive(Clone, Copy, KernelArg)]
/// #[repr(C)]
/// pub struct Table {
///     pub words: SymSlice<u64>,
///     pub width: u32,
///     pub sorted: bool,
/// }
///
/// #[kernel]
/// pub fn fill(ctx: &Ctx, table: Table) {
///     ctx.local(table.words).store(0, table.width.into());
/// }
/// ```
#[proc_macro_derive(KernelArg)]
pub fn kernel_arg(input: TokenStream) -> TokenStream {
    kernel_arg::derive(input.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Exports a device call as `extern "C"` functions, for kernels in other languages. Only for `rushmem-device-c`.
///
/// `#[export(thread, warp, block)]` on `fn quiet(ctx: &Ctx<'_>, group: impl Group) -> Result` defines `rushmem_device_quiet`,
/// `rushmem_device_quiet_warp` and `rushmem_device_quiet_block`. Without a `group`, the first thread of the warp or block makes the
/// call. `T = [uint32: u32]` defines the functions of a generic call: `rushmem_device_uint32_atomic_inc`.
/// `direct = ...` is a condition on the context and the exported arguments, under which the call has a short path: see
/// `is_direct` in that crate.
#[doc(hidden)]
#[proc_macro_attribute]
pub fn export(attr: TokenStream, item: TokenStream) -> TokenStream {
    export::expand(attr.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}
