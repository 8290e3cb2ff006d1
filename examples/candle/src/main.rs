//! Example: sends a Candle tensor to the next PE, from a kernel in Candle's own stream. Candle then computes with the
//! tensor that arrived.
//!
//! ```sh
//! RUSHMEM_PES=4 cargo run --release                                    # tensors on the CPU
//! RUSHMEM_PES=4 RUSHMEM_DEVICE=gpu cargo run --release --features cuda # on a GPU
//! ```

mod tensor;

use std::error::Error;

use candle_core::{DType, Device, Tensor};
use rushmem::prelude::*;
use rushmem::{Ptx, config::Config};

use tensor::TensorBuffer;

const KERNELS: Ptx = rushmem::ptx!("rushmem_candle_kernels");
const SHAPE: (usize, usize) = (256, 1024);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let mut config = Config::load()?;
    if cfg!(not(feature = "cuda")) {
        config.set("device", "native")?;
    }
    Job::with_config(config).kernels(KERNELS).run(exchange)?;
    Ok(())
}

/// Sends this PE's tensor to the next PE and checks the tensor received from the previous one.
fn exchange(pe: &Pe) -> Result<()> {
    let (me, n) = (pe.my_pe(), pe.n_pes());
    let device = match pe.gpu() {
        Some(gpu) => Device::new_cuda_with_stream(gpu as usize)?,
        None => Device::Cpu,
    };
    // Compute all tensors before any kernel runs: Candle loads its kernels on first use, and loading waits for running
    // kernels.
    let expected = tensor_of((me + n - 1) % n, &device)?;
    let inbox = Tensor::zeros(SHAPE, DType::F32, &device)?;
    difference(&inbox, &expected)?;
    device.synchronize()?;
    // SAFETY: no other tensor shares this memory, and only the code below uses it.
    let (source, inbox_buffer) =
        unsafe { (TensorBuffer::new(tensor_of(me, &device)?)?, TensorBuffer::new(inbox.clone())?) };
    let (source, window) = (pe.register_symmetric(source)?, pe.register_symmetric(inbox_buffer)?);
    let arrived = pe.alloc_one::<Signal>()?;

    let stream = candle_stream(pe, &device)?;
    let grid = LaunchConfig::new(4, 128);
    stream.launch(grid, rushmem_candle_kernels::pass_on(window.handle(), source.handle(), arrived))?;
    // Candle may wait for running kernels. Past this barrier every PE has launched its kernel, so none of them depends
    // on further host calls.
    pe.host_sync()?;
    // On a GPU, Candle's kernels follow in the same stream.
    let on_gpu = if pe.is_gpu() { Some(difference(&inbox, &expected)?) } else { None };
    stream.wait()?;
    drop(stream);

    let received = pe.unregister_symmetric(window).map_err(rushmem::Error::from)?.into_tensor();
    drop(pe.unregister_symmetric(source).map_err(rushmem::Error::from)?);
    let found = match on_gpu {
        Some(found) => found,
        None => difference(&received, &expected)?,
    };
    let (wrong, mean) = (found.to_scalar::<f32>()?, received.mean_all()?.to_scalar::<f32>()?);
    if wrong != 0.0 {
        return Err(format!("PE {me}: the tensor differs from that of the previous PE by {wrong}").into());
    }
    println!("PASS candle: PE {me} of {n} received a tensor with mean {mean} ({})", pe.machine());
    Ok(())
}

fn tensor_of(pe: u32, device: &Device) -> candle_core::Result<Tensor> {
    let numbers = Tensor::arange(0.0, (SHAPE.0 * SHAPE.1) as f32, device)?;
    // The numbers are below 2^24, so their sums are exact.
    numbers.affine(1.0, f64::from(1000 * pe))?.reshape(SHAPE)
}

fn difference(a: &Tensor, b: &Tensor) -> candle_core::Result<Tensor> {
    (a - b)?.abs()?.sum_all()
}

/// Wraps Candle's CUDA stream as a stream of the PE. Native PEs get a stream from the runtime.
#[cfg(feature = "cuda")]
fn candle_stream<'a>(pe: &'a Pe, device: &Device) -> Result<Stream<'a>> {
    match device {
        Device::Cuda(cuda) => Ok(pe.stream_from(&cuda.cuda_stream())?),
        _ => Ok(pe.stream()?),
    }
}

/// Creates a stream of the PE, because Candle has no streams on the CPU.
#[cfg(not(feature = "cuda"))]
fn candle_stream<'a>(pe: &'a Pe, _: &Device) -> Result<Stream<'a>> {
    Ok(pe.stream()?)
}
