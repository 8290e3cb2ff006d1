/// Largest number of threads in a block, on every CUDA GPU and in the native GPU emulator.
pub const MAX_THREADS: u32 = 1024;

/// Largest shared memory of a block in bytes in the native GPU emulator: the same as on Hopper GPUs.
pub const MAX_SHARED_BYTES: u32 = 227 * 1024;

/// The shape of a launch: blocks, threads, and dynamic shared memory.
///
/// ```
/// use rushmem_base::LaunchConfig;
///
/// Blocks and threads have up to three dimensions. `x` varies fastest, as in CUDA: in a block of 16 x 8 threads, thread
/// `(x, y)` has the rank `x + 16 * y`. Kernels read their position by `Ctx::block_idx` and `Ctx::thread_idx`.
///
/// let config = LaunchConfig::new(4, 256).with_shared_bytes(48 << 10);
/// assert_eq!((config.blocks, config.threads, config.shared_bytes), (4, 256, 49152));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks, at least 1.
    pub blocks: u32,
    /// Threads in each block, 1 to [`MAX_THREADS`].
    pub threads: u32,
    /// Dynamic shared memory of each block in bytes, at most [`MAX_SHARED_BYTES`].
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// Returns a launch of `blocks` blocks with `threads` threads each, without dynamic shared memory.
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self { blocks, threads, shared_bytes: 0 }
    }

    /// Returns the same launch with `bytes` bytes of dynamic shared memory in each block, at most [`MAX_SHARED_BYTES`].
    #[must_use]
    pub const fn with_shared_bytes(self, bytes: u32) -> Self {
        Self { shared_bytes: bytes, ..self }
    }
}
