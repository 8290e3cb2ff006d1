//! The methods of [`Pe`] for kernels that the runtime does not launch, such as those of CUDA C++, Triton and Numba.

use rushmem_error::call_site;

use super::Pe;
use crate::{Error, Result};

/// # Kernels of other languages
///
/// The context for kernels that the runtime does not launch, and their errors.
impl Pe {
    /// Returns the device address of this PE's context, for kernels that the application launches by other means.
    ///
    /// The address is that of a [`SegmentTable`](rushmem_device::abi::SegmentTable). It is the same for each call and
    /// valid until the PE shuts down, so compiled kernels and captured graphs may contain it. With native kernels, it is
    /// an address in this process.
    ///
    /// A kernel can access all symmetric memory and local buffers that existed when it was launched, including parts of
    /// the heap, windows and local buffers that were added after this call. Together they can have 64 segments. Before
    /// a buffer is unregistered or the PE shuts down, such kernels must have finished: the runtime does not know of
    /// them. [`Pe::check`] reports their errors.
    ///
    /// After the first call, the runtime always expects a running kernel: it polls for connection requests, and
    /// [`Pe::reset_queues`] is refused. Not collective. On a GPU, the first call waits until no PE of this process runs
    /// a kernel.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if there are more than 64 segments, or, on a GPU, DC initiators or failover.
    /// - [`Error::Memory`] or [`Error::Cuda`] if the machine has no memory for the context.
    ///
    /// # Examples
    /// ```no_run
    /// # fn app(pe: &rushmem::Pe) -> rushmem::Result<()> {
    /// let context: u64 = pe.resident_context()?;
    /// assert_eq!(pe.resident_context()?, context);
    /// // Pass `context` to a kernel, wait for the kernel, and report its errors:
    /// pe.check()
    /// # }
    /// ```
    #[track_caller]
    pub fn resident_context(&self) -> Result<u64> {
        let _site = call_site::enter();
        let unsupported = if self.shape.is_dc() {
            Some("the job has DC initiators, to which these kernels cannot post; raise RUSHMEM_DC_ABOVE")
        } else if self.shape.failover {
            Some("these kernels cannot hand queues over to the host; leave RUSHMEM_FAILOVER off")
        } else {
            None
        };
        if let Some(why) = unsupported.filter(|_| self.is_gpu()) {
            let what = "the context of kernels of other languages".into();
            return Err(Error::Unavailable { what, why: why.into() });
        }
        let (address, is_new) = self.memory.resident()?;
        if is_new {
            // As for captured launches: a kernel may run at any time from now on.
            self.service.launched();
        }
        Ok(address.0)
    }

    /// Returns the errors that kernels with the [resident context](Pe::resident_context) have recorded since the last
    /// call, as one error. Does not wait for anything.
    ///
    /// Call it after waiting for such kernels. If a launch of the runtime has failed as well, the wait for that launch
    /// reports all recorded errors instead. While a launch of the runtime is running, its errors may be reported here.
    ///
    /// # Errors
    /// - [`Error::Device`] with the errors recorded by kernels.
    /// - [`Error::PeerLost`] if a PE is lost.
    /// - [`Error::NoConnection`] and other errors of connections that kernels have requested.
    ///
    /// # Examples
    /// ```no_run
    /// # fn app(pe: &rushmem::Pe) -> rushmem::Result<()> {
    /// if let Err(error) = pe.check() {
    ///     eprintln!("a kernel failed: {error}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        let _site = call_site::enter();
        self.judge(Ok(()), false, true)
    }
}
