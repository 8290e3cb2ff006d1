//! Scopes of memory fences.

/// The observers that a fence covers.
///
/// CUDA: thread scopes. GPUNetIO: `doca_gpu_dev_verbs_sync_scope`. GIN: `ncclMemFenceScope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceScope {
    /// The threads of the block.
    Block,
    /// All threads of the GPU.
    Gpu,
    /// All threads of the GPU, peers, NICs and the host.
    System,
}
