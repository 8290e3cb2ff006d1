//! Keeps kernels that use the per-block queues of a PE from overlapping, since only one kernel may use them at a time.

use std::sync::Mutex;

use rushmem_base::lock;
use rushmem_machine::Event;

use crate::{Error, Result};

/// The last launch of a kernel that may use the PE's per-block queues.
#[derive(Default)]
pub(crate) struct PerBlockQueues(Mutex<Option<LastUse>>);

struct LastUse {
    /// Sequence number of this use of the queues, starting at 1. Each use is ordered after the previous one.
    number: u64,
    kernel: &'static str,
    /// An event recorded after the launch.
    end: Event,
}

impl PerBlockQueues {
    /// Launches `kernel`, which may use the per-block queues, by calling `launch`. `launch` returns an event after the
    /// kernel.
    ///
    /// `follows` is the number of the last use that the stream is ordered after. It is set to the number of this use.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if another kernel that may use the queues may be running at the same time.
    /// - The errors of `launch`.
    pub(crate) fn launch(
        &self,
        kernel: &'static str,
        follows: &mut u64,
        launch: impl FnOnce() -> Result<Event>,
    ) -> Result<()> {
        let mut last = lock(&self.0);
        let number = match &*last {
            Some(last) if last.number > *follows && !last.end.has_passed()? => {
                let what = format!(
                    "{kernel} and {}, which may still run, both use the queues of their blocks; wait for that launch, \
                     let this stream follow an event after it, or use contexts of the host (`Pe::context`)",
                    last.kernel
                );
                return Err(Error::misuse("launch", what));
            }
            Some(last) => last.number + 1,
            None => 1,
        };
        *last = Some(LastUse { number, kernel, end: launch()? });
        *follows = number;
        Ok(())
    }
}
