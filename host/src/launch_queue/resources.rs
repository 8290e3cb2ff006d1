//! Resources that a launch keeps while it runs.

use std::sync::Arc;

use rushmem_machine::Module;
use rushmem_memory::SegmentMap;

/// Shared resources of a launch, which must outlive it.
pub(crate) struct LaunchResources {
    /// The segments that the launch's context names.
    pub(crate) table: Arc<SegmentMap>,
    /// The module of its kernel, if it has one.
    pub(crate) module: Option<Arc<Module>>,
}

impl PartialEq for LaunchResources {
    fn eq(&self, other: &Self) -> bool {
        let modules = [self, other].map(|resources| resources.module.as_ref().map(Arc::as_ptr));
        Arc::ptr_eq(&self.table, &other.table) && modules[0] == modules[1]
    }
}
