/// Maximum number of blocks per launch, on CUDA GPUs and in the native GPU emulator.
pub const MAX_BLOCKS: u32 = i32::MAX as u32;

/// Maximum number of threads per block, on CUDA GPUs and in the native GPU emulator.
pub const MAX_THREADS: u32 = 1024;

/// Maximum shared memory per block in the native GPU emulator, in bytes. The same as on Hopper GPUs.
pub const MAX_SHARED_BYTES: u32 = 227 * 1024;

/// The shape of a launch: blocks, threads, and dynamic shared memory.
///
/// Blocks and threads have up to three dimensions. `x` varies fastest, as in CUDA: in a block of 16 x 8 threads, thread
/// `(x, y)` has rank `x + 16 * y`. Kernels obtain their position from `Ctx::block_idx` and `Ctx::thread_idx`.
///
/// ```
/// use rushmem_base::LaunchConfig;
///
/// let line = LaunchConfig::new(4, 256).with_shared_bytes(48 << 10);
/// assert_eq!((line.blocks(), line.threads(), line.shared_bytes()), (4, 256, 49152));
///
/// let image = LaunchConfig::new_2d([60, 34], [32, 8]);
/// assert_eq!((image.blocks(), image.threads()), (60 * 34, 256));
/// assert_eq!(image.grid_dim(), [60, 34, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    grid_dim: [u32; 3],
    block_dim: [u32; 3],
    shared_bytes: u32,
}

impl LaunchConfig {
    /// Creates a one-dimensional launch of `blocks` blocks with `threads` threads each, without dynamic shared memory.
    ///
    /// The limits are [`MAX_BLOCKS`] blocks and [`MAX_THREADS`] threads per block. They are checked when the kernel is
    /// launched.
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self::new_3d([blocks, 1, 1], [threads, 1, 1])
    }

    /// Creates a two-dimensional launch, from the sizes of the grid and of each block in `x` and `y`.
    pub const fn new_2d(grid_dim: [u32; 2], block_dim: [u32; 2]) -> Self {
        let ([blocks_x, blocks_y], [threads_x, threads_y]) = (grid_dim, block_dim);
        Self::new_3d([blocks_x, blocks_y, 1], [threads_x, threads_y, 1])
    }

    /// Creates a three-dimensional launch, from the sizes of the grid and of each block in `x`, `y` and `z`.
    pub const fn new_3d(grid_dim: [u32; 3], block_dim: [u32; 3]) -> Self {
        Self { grid_dim, block_dim, shared_bytes: 0 }
    }

    /// Returns the same launch with a one-dimensional grid of `blocks` blocks.
    #[must_use]
    pub const fn with_blocks(self, blocks: u32) -> Self {
        Self { grid_dim: [blocks, 1, 1], ..self }
    }

    /// Returns the same launch with one-dimensional blocks of `threads` threads.
    #[must_use]
    pub const fn with_threads(self, threads: u32) -> Self {
        Self { block_dim: [threads, 1, 1], ..self }
    }

    /// Returns the same launch with `bytes` bytes of dynamic shared memory per block, at most [`MAX_SHARED_BYTES`].
    #[must_use]
    pub const fn with_shared_bytes(self, bytes: u32) -> Self {
        Self { shared_bytes: bytes, ..self }
    }

    /// Total number of blocks. Saturates at `u32::MAX`.
    pub const fn blocks(self) -> u32 {
        volume(self.grid_dim)
    }

    /// Total number of threads per block. Saturates at `u32::MAX`.
    pub const fn threads(self) -> u32 {
        volume(self.block_dim)
    }

    /// Dynamic shared memory per block, in bytes.
    pub const fn shared_bytes(self) -> u32 {
        self.shared_bytes
    }

    /// Number of blocks in `x`, `y` and `z`.
    pub const fn grid_dim(self) -> [u32; 3] {
        self.grid_dim
    }

    /// Number of threads per block in `x`, `y` and `z`.
    pub const fn block_dim(self) -> [u32; 3] {
        self.block_dim
    }
}

/// Multiplies three dimensions, saturating at `u32::MAX`, which the launch rejects.
const fn volume([x, y, z]: [u32; 3]) -> u32 {
    x.saturating_mul(y).saturating_mul(z)
}
