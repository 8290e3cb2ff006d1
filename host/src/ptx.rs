//! Embeds the kernels of an application, as its build has compiled them.

/// Includes the [`Ptx`](crate::Ptx) of the kernels that the application's `build.rs` has built.
///
/// The argument is a string literal: the name of the module, or the name of the kernel crate with `_` for `-`. With
/// `rushmem_ptx::build("src/kernels.rs")` in `build.rs`, it is `rushmem::ptx!("kernels")`. This crate builds a crate:
///
/// ```
/// let kernels: rushmem::Ptx = rushmem::ptx!("rushmem_runtime_kernels");
/// # assert_eq!(kernels.name, "rushmem_runtime_kernels");
/// ```
#[macro_export]
macro_rules! ptx {
    ($name:literal) => {{
        // A static is in the program once, even if the compiler inlines the function with this macro many times.
        static PTX: $crate::Ptx = $crate::Ptx::find(
            include!(env!(
                "KERNEL_PTX_INDEX",
                "rushmem::ptx! needs a build.rs that calls rushmem_ptx::build(\"src/kernels.rs\"), with the file of the \
                 kernels, and rushmem-ptx in [build-dependencies]"
            )),
            $name,
        );
        PTX
    }};
}
