//! Resources that a launch keeps alive until it has finished.

use std::sync::Arc;

use rushmem_machine::Module;
use rushmem_memory::SegmentMap;

/// Shared resources that a launch needs while it runs.
pub(crate) struct LaunchResources {
    /// The segment table to which the launch's context refers.
    pub(crate) table: Arc<SegmentMap>,
    /// The module that contains the kernel. `None` for a native kernel outside any module.
    pub(crate) module: Option<Arc<Module>>,
}

impl PartialEq for LaunchResources {
    fn eq(&self, other: &Self) -> bool {
        let modules = [self, other].map(|resources| resources.module.as_ref().map(Arc::as_ptr));
        Arc::ptr_eq(&self.table, &other.table) && modules[0] == modules[1]
    }
}
