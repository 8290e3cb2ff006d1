//! Kernels of an application, as its build has compiled them.

/// The PTX of a kernel crate, built by `rushmem-ptx`. The macro [`ptx!`](crate::ptx) creates it.
#[derive(Clone, Copy, Debug)]
pub struct Ptx {
    /// The name of the kernel crate.
    pub name: &'static str,
    /// PTX text; empty if the build left it out.
    pub image: &'static str,
    /// The reason why the build left the PTX out, with the remedy; empty if there is PTX.
    pub omitted: &'static str,
    /// Machine code of the same kernels; empty unless built with `RUSHMEM_PTX_CUBIN`. GPUs of other architectures use
    /// the PTX.
    pub code: &'static [u8],
}

/// Includes the [`Ptx`](crate::Ptx) of a kernel crate, which the application's `build.rs` has built.
///
/// The argument is the crate's name with `_` for `-`, a string literal.
///
/// ```ignore
/// let job = Job::new()?.kernels(rushmem::ptx!("ring_kernels"));
/// ```
#[macro_export]
macro_rules! ptx {
    ($name:literal) => {{
        // A static is in the program once, even if the compiler inlines the function with this macro many times.
        static IMAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/", $name, ".ptx"));
        static CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".cubin"));
        const OMITTED: &str = include_str!(concat!(env!("OUT_DIR"), "/", $name, ".omitted"));
        $crate::Ptx { name: $name, image: IMAGE, omitted: OMITTED, code: CODE }
    }};
}
