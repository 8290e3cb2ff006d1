//! Embeds the compiled kernels of an application in its executable.

/// Includes the [`Ptx`](crate::Ptx) of kernels that the application's `build.rs` has compiled.
///
/// The argument is a string literal: the name of the module, or the name of the kernel crate with `_` for `-`. With
/// `rushmem_ptx::build("src/kernels.rs")` in `build.rs`, that is `rushmem::ptx!("kernels")`. An example with a crate:
///
/// ```
/// let kernels: rushmem::Ptx = rushmem::ptx!("rushmem_runtime_kernels");
/// # assert_eq!(kernels.name, "rushmem_runtime_kernels");
/// ```
#[macro_export]
macro_rules! ptx {
    ($name:literal) => {{
        // A static exists once in the program, even if the function that contains this macro is inlined in many places.
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
