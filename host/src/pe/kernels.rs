//! Loads and unloads kernels of a PE while the job runs.

use std::sync::Weak;

use rushmem_error::call_site;
use rushmem_machine::Module;

use super::Pe;
#[cfg(doc)]
use crate::Error;
use crate::modules::check_features;
use crate::{Ptx, Result};

/// Kernels loaded by [`Pe::load`]. Dropping it unloads them.
#[must_use = "dropping it unloads the kernels"]
pub struct Kernels<'a> {
    pe: &'a Pe,
    module: Weak<Module>,
}

impl Kernels<'_> {
    /// Unloads the kernels: later launches of them are refused. NVSHMEM's `nvshmemx_cumodule_finalize`.
    ///
    /// Earlier launches run to completion, and recorded graphs keep their kernels.
    ///
    /// On a GPU the call waits until no PE of this process runs a kernel, and then frees the module. If launches or
    /// graphs still need the module, it is freed by the next [`Pe::load`] or `unload`, or when the PE is shut down. If
    /// the application has captured a kernel from a CUDA stream, its module stays until [`Pe::release_captured`] or the
    /// shutdown, because CUDA does not report when that graph is destroyed.
    pub fn unload(self) {}
}

impl Drop for Kernels<'_> {
    fn drop(&mut self) {
        self.pe.modules().unload(&self.module);
    }
}

/// # Kernels
///
/// Methods that load kernels while the job runs.
impl Pe {
    /// Loads more kernels for this PE while the job runs. Not collective. NVSHMEM's `nvshmemx_cumodule_init`.
    ///
    /// Launches, streams and graphs of this PE can use them until they are unloaded. If a kernel waits for another PE's
    /// kernel, both PEs must have loaded theirs before. The kernels of [`Job::kernels`](crate::Job::kernels) are always
    /// loaded.
    ///
    /// On a GPU the call waits until no PE of this process runs a kernel, and keeps new ones from starting until it is
    /// done. So load before launching a kernel that waits for later calls of this PE, or that kernel will wait until
    /// its deadline (setting `timeout`).
    ///
    /// Native kernels are functions of the program, and loading only registers their names. Kernels outside any module
    /// can run as well, and the names of a module without PTX are unknown.
    ///
    /// [`ptx!`](crate::ptx) includes a module in the program:
    ///
    /// ```no_run
    /// # use rushmem::{Pe, Ptx, Result};
    /// # use rushmem_device::kernel::Call;
    /// # fn relax_with(pe: &Pe, solver: Ptx, relax: Call) -> Result<()> {
    /// let solver = pe.load(solver)?;
    /// pe.run(pe.grid(), relax)?;
    /// solver.unload();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Misuse`] if one of the kernels has the name of a loaded kernel.
    /// - [`Error::Unavailable`] on a GPU if the build omitted the PTX.
    /// - [`Error::Cuda`] if the driver cannot load the PTX.
    #[track_caller]
    pub fn load(&self, ptx: Ptx) -> Result<Kernels<'_>> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        check_features(self.machine_ref(), self.shape, &ptx)?;
        Ok(Kernels { pe: self, module: self.modules().load("Pe::load", self.machine_ref(), &ptx)? })
    }
}
