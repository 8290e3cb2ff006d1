//! The interface of types that issue operations: a PE runs them immediately, a stream queues them.

use rushmem_error::call_site;

use crate::launch_queue::Operation;
use crate::{Pe, Result, Stream};

/// A type that issues operations: a [`Pe`] or a stream. Sealed: the module is private to this crate.
pub trait Issue {
    /// Returns the PE on whose behalf operations are issued.
    #[doc(hidden)]
    fn issuer(&self) -> &Pe;

    /// Issues the operation that `describe` returns. The host waits for it, a stream queues it.
    #[doc(hidden)]
    #[track_caller]
    fn issue(&self, describe: impl FnOnce(&Pe) -> Result<Operation>) -> Result<()>;
}

impl Issue for Pe {
    fn issuer(&self) -> &Pe {
        self
    }

    #[track_caller]
    fn issue(&self, describe: impl FnOnce(&Pe) -> Result<Operation>) -> Result<()> {
        let _site = call_site::enter();
        let operation = describe(self)?;
        let _span = self.trace.call(operation.name);
        self.initiate(operation)
    }
}

impl Issue for Stream<'_> {
    fn issuer(&self) -> &Pe {
        self.pe()
    }

    #[track_caller]
    fn issue(&self, describe: impl FnOnce(&Pe) -> Result<Operation>) -> Result<()> {
        let _site = call_site::enter();
        let operation = describe(self.pe())?;
        let _span = self.pe().trace.call(operation.name);
        self.enqueue(operation)
    }
}
