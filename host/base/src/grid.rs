/// Largest number of threads in a block, on every CUDA GPU and in the native GPU emulator.
pub const MAX_THREADS: u32 = 1024;

/// Largest shared memory of a block in bytes in the native GPU emulator: the same as on Hopper GPUs.
pub const MAX_SHARED_BYTES: u32 = 227 * 1024;

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks, at least 1.
    pub blocks: u32,
    /// Threads in each block, 1 to [`MAX_THREADS`].
    pub threads: u32,
    /// Dynamic shared memory of each block in bytes, at most [`MAX_SHARED_BYTES`].
    pub shared_bytes: u32,
}
