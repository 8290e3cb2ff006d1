//! Scopes of memory fences: sets of observers.

/// Set of observers for which a fence orders memory.
///
/// CUDA: thread scopes. GPUNetIO: `doca_gpu_dev_verbs_sync_scope`. GIN: `ncclMemFenceScope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceScope {
    /// The threads of the calling thread's block.
    Block,
    /// All threads of the GPU.
    Gpu,
    /// All threads of the GPU, peers, NICs and the host.
    System,
}
