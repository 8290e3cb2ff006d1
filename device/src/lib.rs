//! The shmem API for GPU kernels, and the mlx5 send-queue protocol under it.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(stdarch_nvptx, asm_experimental_arch))]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

pub mod arch;
pub mod kernel;

pub use kernel::kernel;

/// The context of a kernel: its place in the job. `repr(C)`, passed by value as the first kernel parameter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ctx {
    placeholder: [u64; 16],
}

impl Ctx {
    pub(crate) fn trusted(&self) -> bool {
        self.placeholder[0] != 0
    }
}
