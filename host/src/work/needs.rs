//! What a launch keeps while it runs.

use std::sync::Arc;

use crate::machine::Module;
use crate::memory::Table;

/// What must not go before a launch has ended.
pub(crate) struct Needs {
    /// The segments that its context names.
    pub(crate) table: Arc<Table>,
    /// What its kernel is of, if it is of a module.
    pub(crate) module: Option<Arc<Module>>,
}

impl PartialEq for Needs {
    fn eq(&self, other: &Self) -> bool {
        let modules = [self, other].map(|needs| needs.module.as_ref().map(Arc::as_ptr));
        Arc::ptr_eq(&self.table, &other.table) && modules[0] == modules[1]
    }
}
