//! Compares a GPU's clock with the host's, to place kernels on the timeline.

use rushmem_runtime_kernels::rushmem_clock;
use rushmem_trace::now_ns;

use super::describe::ONE_THREAD;
use crate::launch_queue::Operation;
use crate::{Pe, Result};

/// Number of times that the GPU's clock is read. The fastest reading bounds it best.
const READINGS: u32 = 16;

impl Pe {
    /// Relates the GPU's clock to the host's, if the timeline shows kernels of this PE's GPU.
    ///
    /// # Errors
    /// - The [errors of all operations](crate::Operations#errors).
    pub(crate) fn compare_clocks(&self) -> Result<()> {
        if !self.trace.needs_clock() {
            return Ok(());
        }
        let slot = self.launch_queues().scratch.result_word(self.config().timeout)?;
        let word = slot.word::<u64>();
        for _ in 0..READINGS {
            let operation = Operation { name: "clock", grid: ONE_THREAD, call: rushmem_clock(word) };
            let before = now_ns();
            self.initiate(operation)?;
            let after = now_ns();
            let mut device_ns = 0u64;
            self.heap().read(word.offset(), bytemuck::bytes_of_mut(&mut device_ns))?;
            self.trace.bound_clock(before, device_ns, after);
        }
        Ok(())
    }
}
