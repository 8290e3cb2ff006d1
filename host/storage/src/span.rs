//! A range of a PE's memory.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use rushmem_cuda::DeviceBuffer;
use rushmem_error::Result;
use rushmem_machine::Region;

/// A range of a PE's memory, of the host or of a GPU.
#[derive(Clone)]
pub struct Span {
    region: Region,
    at: u64,
    bytes: u64,
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl Span {
    /// Returns the span of `bytes` bytes that starts at offset `at` of `region`.
    pub fn new(region: Region, at: u64, bytes: u64) -> Self {
        Self { region, at, bytes, _owner: None }
    }

    /// Keeps `owner`, to which the memory belongs, as long as the span.
    #[must_use]
    pub fn keeping(self, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _owner: Some(owner), ..self }
    }

    /// Returns the length of the span, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the GPU memory that has the span, and its place there. `None` if the span is in host memory.
    pub(crate) fn in_gpu(&self) -> Option<(&DeviceBuffer, Range<u64>)> {
        Some((self.region.gpu.as_deref()?, self.at..self.at + self.bytes))
    }

    /// Copies the bytes at `offset` of the span to `bytes`.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.region.read(self.at + offset, bytes)
    }

    /// Copies `bytes` to `offset` of the span.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.region.write(self.at + offset, bytes)
    }
}
