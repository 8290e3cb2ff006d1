//! `#[kernel]`: one source function, a PTX entry and a native kernel with a typed launcher.
//!
//! Use it as `rushmem_device::kernel::kernel`, from the module that has the types that the expansion names.

use proc_macro::TokenStream;

mod expand;
mod parse;

/// Makes a function a kernel.
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
/// assert_eq!(call.name, "work");
/// ```
///
/// For the GPU this is the PTX entry `work` with the context and the arguments by value. On the host it is
/// `pub fn work(n: u32) -> rushmem_device::kernel::Call`, which a runtime launches as PTX or natively; the context is
/// the runtime's to give.
///
/// The first parameter is `&Ctx`. The others are by value and implement `rushmem_device::kernel::KernelArg`. A kernel
/// returns nothing or a `rushmem_device::Result<()>`, so that `?` ends it: the call that failed has
/// recorded its error by then. A kernel is a plain function: not `async`, `const`, `unsafe`, generic or a method.
///
/// `#[kernel(max_threads = 512)]` says how many threads a block has at most; a launch with more is refused. The compiler then
/// uses no more registers than such a block has: a kernel without it may turn out to need so many that only smaller blocks can be
/// launched. CUDA's `__launch_bounds__`.
///
/// A kernel crate begins with
/// `#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]`, and the names of its kernels are
/// unique in it, whatever their modules: PTX has one name space.
#[proc_macro_attribute]
pub fn kernel(attr: TokenStream, item: TokenStream) -> TokenStream {
    match parse::kernel(attr.into(), item.into()) {
        Ok(kernel) => expand::expand(&kernel).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
