//! Operations of the runtime, which hosts and streams launch like kernels of the application.

use rushmem_device::kernel::Call;
use rushmem_machine::LaunchConfig;

/// A kernel of the runtime, with the name of the operation it performs.
pub struct Operation {
    pub(crate) name: &'static str,
    pub(crate) grid: LaunchConfig,
    pub(crate) call: Call,
}
