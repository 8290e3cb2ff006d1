//! The one difference between host and stream operations: how an operation is issued.

use crate::launch_queue::Operation;
use crate::{Pe, Result, Stream};

/// A type that issues operations. Only this crate implements it, since the module is private.
pub trait Issue {
    /// Returns the PE that issues.
    #[doc(hidden)]
    fn issuer(&self) -> &Pe;

    /// Issues an operation. The host waits for it, and a stream queues it.
    #[doc(hidden)]
    #[track_caller]
    fn issue(&self, operation: Operation) -> Result<()>;
}

impl Issue for Pe {
    fn issuer(&self) -> &Pe {
        self
    }

    #[track_caller]
    fn issue(&self, operation: Operation) -> Result<()> {
        let _span = self.trace.call(operation.name);
        self.initiate(operation)
    }
}

impl Issue for Stream<'_> {
    fn issuer(&self) -> &Pe {
        self.pe()
    }

    #[track_caller]
    fn issue(&self, operation: Operation) -> Result<()> {
        let _span = self.pe().trace.call(operation.name);
        self.enqueue(operation)
    }
}
