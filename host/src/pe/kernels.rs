//! Kernels that a PE loads while the job runs.

use std::sync::Weak;

use rushmem_error::call_site;
use rushmem_machine::Module;

use super::Pe;
#[cfg(doc)]
use crate::Error;
use crate::modules::check_dc;
use crate::{Ptx, Result};

/// Kernels that [`Pe::load`] has loaded. Dropping it unloads them.
#[must_use = "dropping it unloads the kernels"]
pub struct Kernels<'a> {
    pe: &'a Pe,
    module: Weak<Module>,
}

impl Kernels<'_> {
    /// Unloads the kernels: later launches of them are refused. NVSHMEM's `nvshmemx_cumodule_finalize`.
    ///
    /// Earlier launches continue to their end, and recorded graphs keep their kernels.
    ///
    /// On a GPU the call waits until no PE of this process runs a kernel, and then frees the module. While launches or
    /// graphs need the module, the next [`Pe::load`] or `unload`, or the end of the PE, frees it. The application may
    /// have captured a kernel from a CUDA stream. Its module stays until [`Pe::release_captured`] or the end of the PE,
    /// because CUDA does not report the end of that graph.
    pub fn unload(self) {}
}

impl Drop for Kernels<'_> {
    fn drop(&mut self) {
        self.pe.modules().unload(&self.module);
    }
}

/// # Kernels
///
/// Kernels that are loaded while the job runs.
impl Pe {
    /// Loads more kernels for this PE while the job runs. Not collective. NVSHMEM's `nvshmemx_cumodule_init`.
    ///
    /// Launches, streams and graphs of this PE can use them until they are unloaded. Before a kernel waits for another
    /// PE's kernel, both PEs must have loaded theirs. The kernels of [`Job::kernels`](crate::Job::kernels) are always
    /// loaded.
    ///
    /// On a GPU the call waits until no PE of this process runs a kernel, and no kernel begins meanwhile. So load
    /// before you launch a kernel that waits for later calls of this PE. If you do not, the kernel waits until its
    /// deadline (setting `timeout`).
    ///
    /// Native kernels are functions of the program. Loading only registers their names: a kernel outside any module
    /// runs, too, and a module without PTX has no known names.
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
    /// - [`Error::Misuse`] if one of its kernels has the name of a loaded kernel.
    /// - [`Error::Unavailable`] on a GPU if the build left the PTX out.
    /// - [`Error::Cuda`] if the driver cannot load the PTX.
    #[track_caller]
    pub fn load(&self, ptx: Ptx) -> Result<Kernels<'_>> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        if self.shape.is_dc() {
            check_dc(self.machine_ref(), &ptx)?;
        }
        Ok(Kernels { pe: self, module: self.modules().load("Pe::load", self.machine_ref(), &ptx)? })
    }
}
