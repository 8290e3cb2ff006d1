//! Candle tensors as buffers that the runtime can register as windows.
#![allow(unsafe_code, reason = "`Buffer` is an unsafe trait: its implementations promise valid memory")]

use std::ptr::NonNull;
use std::sync::OnceLock;

use candle_core::{CpuStorage, CudaStorage, InplaceOp1, Layout, Result, Tensor};
use rushmem::{Buffer, MemoryLocation};

/// A contiguous `f32` tensor, on the CPU or a GPU, that can be registered as a window.
pub struct TensorBuffer {
    tensor: Tensor,
    location: MemoryLocation,
}

// SAFETY: the address belongs to the tensor, which any thread may use.
unsafe impl Send for TensorBuffer {}
// SAFETY: see `Send`. A shared reference gives no access to the elements.
unsafe impl Sync for TensorBuffer {}

impl TensorBuffer {
    /// Wraps a tensor. On a GPU, pending work on the tensor must be in the stream that launches the kernels.
    ///
    /// # Errors
    /// Returns Candle's error if the tensor is not contiguous or not `f32`.
    ///
    /// # Safety
    /// No other clone or view of the tensor may be used while the runtime holds the buffer. Work that Candle queues
    /// after the kernels in their stream does not count as use.
    pub unsafe fn new(tensor: Tensor) -> Result<Self> {
        let locate = Locate::default();
        tensor.inplace_op1(&locate)?;
        let location =
            locate.0.into_inner().ok_or_else(|| candle_core::Error::msg("a tensor without memory"))?;
        Ok(Self { tensor, location })
    }

    /// Returns the tensor, with whatever the PEs have written to it.
    pub fn into_tensor(self) -> Tensor {
        self.tensor
    }
}

// SAFETY: the caller of `new` promised exclusive use, and Candle keeps the memory alive as long as the tensor.
unsafe impl Buffer for TensorBuffer {
    type Element = f32;
    fn location(&mut self) -> MemoryLocation {
        self.location
    }
    fn len(&self) -> usize {
        self.tensor.elem_count()
    }
}

/// A no-op Candle operation that records the address of a tensor's first element.
#[derive(Default)]
struct Locate(OnceLock<MemoryLocation>);

impl Locate {
    /// Returns the index of the first element of a contiguous tensor.
    fn first(layout: &Layout) -> Result<usize> {
        let range = layout.contiguous_offsets();
        Ok(range.ok_or_else(|| candle_core::Error::msg("the tensor is not compact: call `contiguous`"))?.0)
    }
}

impl InplaceOp1 for Locate {
    fn name(&self) -> &'static str {
        "locate"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let CpuStorage::F32(elements) = storage else { candle_core::bail!("the elements are not f32") };
        let start = NonNull::from(&mut elements[Self::first(layout)?..]).cast();
        self.0.get_or_init(|| MemoryLocation::Host(start));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        use candle_core::cuda_backend::cudarc::driver::DevicePtrMut;

        let stream = storage.device.cuda_stream();
        let (address, _record) = storage.as_cuda_slice_mut::<f32>()?.device_ptr_mut(&stream);
        let first = address + (Self::first(layout)? * size_of::<f32>()) as u64;
        self.0.get_or_init(|| MemoryLocation::Gpu(first));
        Ok(())
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda_fwd(&self, _: &mut CudaStorage, _: &Layout) -> Result<()> {
        candle_core::bail!("build the example with `--features cuda`")
    }
}
