//! Operations of the runtime, such as puts and barriers, which hosts and streams launch as kernels.

use rushmem_device::kernel::Call;
use rushmem_machine::LaunchConfig;

/// An operation of the runtime: its name, and the kernel call and grid that perform it.
pub struct Operation {
    pub(crate) name: &'static str,
    pub(crate) grid: LaunchConfig,
    pub(crate) call: Call,
}
