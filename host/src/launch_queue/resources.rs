//! Resources that a launch needs until it has finished.

use std::sync::Arc;

use rushmem_machine::Module;
use rushmem_memory::SegmentMap;

/// Shared resources of a launch, which must outlive it.
pub(crate) struct LaunchResources {
    /// The segments that the launch's context refers to.
    pub(crate) table: Arc<SegmentMap>,
    /// The module of its kernel, if the kernel is in one.
    pub(crate) module: Option<Arc<Module>>,
}

impl PartialEq for LaunchResources {
    fn eq(&self, other: &Self) -> bool {
        let modules = [self, other].map(|resources| resources.module.as_ref().map(Arc::as_ptr));
        Arc::ptr_eq(&self.table, &other.table) && modules[0] == modules[1]
    }
}
