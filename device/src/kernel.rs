//! What `#[kernel]` expands to: a kernel with its arguments, ready to be launched by a host.

use std::boxed::Box;
use std::vec::Vec;

use crate::Ctx;

/// A value that a kernel may take as an argument: its bytes mean the same on the host and on the GPU.
///
/// # Safety
/// The type is `repr(C)` or primitive, holds no host pointer, and every bit pattern that safe host code can give
/// it is safe for device code to trust.
pub unsafe trait KernelArg: Copy + Send + Sync + 'static {}

/// A kernel and its arguments, made by calling the function that `#[kernel]` wrote on the host side. The runtime
/// prepends the context and launches it, natively or as PTX.
pub struct Call {
    /// The PTX entry.
    pub name: &'static str,
    /// The arguments after the context, each as its bytes.
    pub args: Vec<Box<[u8]>>,
    /// The same kernel as native code.
    pub native: Box<dyn Fn(&Ctx) + Send + Sync>,
}
