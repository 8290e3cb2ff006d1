//! Tensors of Candle as buffers of Rushmem.
#![allow(unsafe_code, reason = "`Buffer` is an unsafe trait: its implementations promise valid memory")]

use std::ptr::NonNull;
use std::sync::OnceLock;

use candle_core::{CpuStorage, CudaStorage, InplaceOp1, Layout, Result, Tensor};
use rushmem::{Buffer, MemoryLocation};

/// A compact tensor of `f32`, on the CPU or a GPU, that can be a window.
pub struct TensorBuffer {
    tensor: Tensor,
    location: MemoryLocation,
}

// SAFETY: the address belongs to the tensor, which any thread may use.
unsafe impl Send for TensorBuffer {}
// SAFETY: see `Send`. A shared reference gives no access to the elements.
unsafe impl Sync for TensorBuffer {}

impl TensorBuffer {
    /// Makes a buffer of a tensor. Its earlier work on a GPU must be in the stream that launches the kernels.
    ///
    /// # Errors
    /// An error of Candle if the tensor is not compact, or has elements of another type.
    ///
    /// # Safety
    /// No other clone or view of the tensor is used while the runtime holds the buffer. On a GPU, work that Candle
    /// queues behind the kernels in their stream is no such use.
    pub unsafe fn new(tensor: Tensor) -> Result<Self> {
        let locate = Locate::default();
        tensor.inplace_op1(&locate)?;
        let location =
            locate.0.into_inner().ok_or_else(|| candle_core::Error::msg("a tensor without memory"))?;
        Ok(Self { tensor, location })
    }

    /// Returns the tensor.
    pub fn into_tensor(self) -> Tensor {
        self.tensor
    }
}

// SAFETY: the caller of `new` promised it, and Candle keeps the memory as long as the tensor.
unsafe impl Buffer for TensorBuffer {
    type Element = f32;
    fn location(&mut self) -> MemoryLocation {
        self.location
    }
    fn len(&self) -> usize {
        self.tensor.elem_count()
    }
}

/// An operation that changes nothing, and notes the address of the first element.
#[derive(Default)]
struct Locate(OnceLock<MemoryLocation>);

impl Locate {
    /// Returns the index of the first element of a compact tensor.
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
