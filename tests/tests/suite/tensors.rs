//! Tests of windows over tensors of other libraries, that is over memory that the runtime did not allocate.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rushmem::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use rushmem::cudarc::driver::{CudaContext, CudaStream};
use rushmem::dlpack::abi::{CPU, Device, ManagedTensor, Tensor};
use rushmem::dlpack::{DlpackError, DlpackTensor, TensorElement};
use rushmem::{Buffer, Error, GpuBuffer, MemoryLocation, Operations, Pages, Pe};
use rushmem_test_kernels::{fill_with, next_round};
use rushmem_tests::{Setup, grid};

use super::memory::{ALL, LEN, Reached, pattern};
use super::setups;

/// A tensor exported by a library that counts how many tensors are returned to it.
struct Exported {
    /// Elements of the tensor, aligned like a window and on separate pages: GPUs map host memory by pages.
    data: Vec<Page>,
    shape: [i64; 2],
    returned: *const AtomicU32,
}

#[repr(align(4096))]
#[derive(Clone)]
struct Page(#[expect(dead_code, reason = "the elements of the tensor")] [u64; 512]);

unsafe extern "C" fn give_back(tensor: *mut ManagedTensor) {
    // SAFETY: `export` leaked both boxes, and the runtime calls the deleter once.
    let exported = unsafe { Box::from_raw(Box::from_raw(tensor).manager_ctx.cast::<Exported>()) };
    // SAFETY: the counter outlives the job.
    unsafe { &*exported.returned }.fetch_add(1, Ordering::SeqCst);
}

/// Exports a tensor of two rows with `ALL / 2` zeros each. Its deleter increments `returned`.
fn export(returned: &AtomicU32) -> NonNull<ManagedTensor> {
    let data = vec![Page([0; 512]); ALL.div_ceil(512)];
    let mut exported = Box::new(Exported { data, shape: [2, ALL as i64 / 2], returned });
    let dl_tensor = Tensor {
        data: exported.data.as_mut_ptr().cast(),
        device: Device { device_type: CPU, device_id: 0 },
        ndim: 2,
        dtype: u64::DATA_TYPE,
        shape: exported.shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let manager_ctx: *mut c_void = Box::into_raw(exported).cast();
    NonNull::from(Box::leak(Box::new(ManagedTensor { dl_tensor, manager_ctx, deleter: Some(give_back) })))
}

#[test]
fn dlpack_tensor_is_registered_as_a_window() {
    for setup in setups::with_host_windows() {
        let returned = AtomicU32::new(0);
        setup.run(|pe| {
            // SAFETY: `export` returns a valid tensor.
            let tensor = unsafe { DlpackTensor::<u64>::from_raw(export(&returned)) }?;
            assert_eq!(tensor.shape(), [2, ALL / 2]);
            let window = pe.register_symmetric(tensor)?;
            Reached::within(window.handle()).check(pe)?;
            let mut tensor = pe.unregister_symmetric(window)?;
            // The puts of the previous PE went to the library's own memory.
            let MemoryLocation::Host(start) = tensor.location() else { panic!("a tensor of the CPU") };
            // SAFETY: the elements belong to the tensor, and nothing else uses them now.
            let row = unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<u64>(), LEN) };
            assert_eq!(row, pattern((pe.my_pe() + pe.n_pes() - 1) % pe.n_pes(), LEN));
            Ok(())
        });
        assert_eq!(returned.into_inner(), setup.pes(), "{setup}");
    }
}

#[test]
fn rejected_dlpack_tensor_is_returned_to_its_library() {
    let returned = AtomicU32::new(0);
    // SAFETY: `export` returns a valid tensor.
    let refused = unsafe { DlpackTensor::<f64>::from_raw(export(&returned)) };
    let expected = DlpackError::ElementType { found: u64::DATA_TYPE, expected: f64::DATA_TYPE };
    assert_eq!(refused.err(), Some(expected));
    assert_eq!(returned.into_inner(), 1);
}

#[test]
fn registered_dlpack_tensor_is_returned_when_its_pe_is_dropped() {
    let returned = AtomicU32::new(0);
    let setup = Setup::new(2);
    setup.run(|pe| {
        if pe.my_pe() == 0 {
            // SAFETY: `export` returns a valid tensor.
            let tensor = unsafe { DlpackTensor::<u64>::from_raw(export(&returned)) }?;
            assert!(pe.register(tensor).is_ok());
            // SAFETY: as above.
            let tensor = unsafe { DlpackTensor::<u64>::from_raw(export(&returned)) }?;
            drop(tensor);
            assert_eq!(returned.load(Ordering::SeqCst), 1, "the registered one stays until the PE ends");
        }
        pe.host_sync()
    });
    assert_eq!(returned.into_inner(), 2);
}

/// Whether kernels run on a GPU. If not, reports that the test cannot run.
fn has_gpu(test: &str) -> bool {
    let found = Setup::on_gpu();
    if !found {
        eprintln!("SKIPPED {test}: kernels run natively, without CUDA");
    }
    found
}

/// Creates a cudarc stream on the GPU of each PE, before any kernel runs. Collective.
fn cudarc_stream(pe: &Pe) -> Result<Arc<CudaStream>, Error> {
    let context = CudaContext::new(pe.gpu().expect("kernels run on a GPU") as usize);
    let stream = context.and_then(|context| context.new_stream()).expect("a stream of cudarc");
    pe.host_sync()?;
    Ok(stream)
}

#[test]
fn cudarc_slice_is_registered_as_a_window() {
    if !has_gpu("cudarc_slice_is_registered_as_a_window") {
        return;
    }
    for setup in setups::all() {
        setup.run(|pe| {
            let (stream, heap) = (cudarc_stream(pe)?, pe.alloc::<u64>(1)?);
            let slice = stream.alloc_zeros::<u64>(ALL).expect("GPU memory");
            let window = pe.register_symmetric(GpuBuffer::from_slice(slice)?)?;
            for other in 0..pe.n_pes() {
                let mapped = pe.ptr(heap, other).is_some();
                assert_eq!(pe.ptr(window.handle(), other).is_some(), mapped, "{setup}");
            }
            Reached::within(window.handle()).check(pe)?;
            let slice = pe.unregister_symmetric(window)?.into_owner();
            let found = stream.clone_dtoh(&slice).expect("a copy");
            assert_eq!(found[..LEN], pattern((pe.my_pe() + pe.n_pes() - 1) % pe.n_pes(), LEN), "{setup}");
            Ok(())
        });
    }
}

#[test]
fn kernels_run_in_order_on_the_applications_stream() {
    if !has_gpu("kernels_run_in_order_on_the_applications_stream") {
        return;
    }
    Setup::new(2).run(|pe| {
        let stream = cudarc_stream(pe)?;
        let numbers = stream.clone_htod(&[7_u64; 1000]).expect("a copy");
        let window = pe.register_symmetric(GpuBuffer::from_slice(numbers)?)?;
        let next = (pe.my_pe() + 1) % pe.n_pes();
        let dst = pe.alloc::<u64>(1000)?;
        // SAFETY: `stream` outlives the PE's streams, which are waited for.
        let ours = [pe.stream_from(&stream)?, unsafe { pe.stream_from_raw(stream.cu_stream().cast()) }?];
        for (value, ours) in (8..).zip(&ours) {
            ours.put(dst, window.handle(), next)?;
            ours.quiet()?;
            ours.wait()?;
            pe.host_sync()?;
            assert_eq!(pe.read(dst)?, [value - 1; 1000]);
            pe.host_sync()?;
            ours.launch(grid(2, 32), fill_with(window.handle(), value))?;
        }
        let [one, other] = ours;
        one.wait()?;
        other.wait()?;
        let numbers = pe.unregister_symmetric(window)?.into_owner();
        assert_eq!(stream.clone_dtoh(&numbers).expect("a copy"), [9; 1000]);
        // SAFETY: null is the default stream.
        unsafe { pe.stream_from_raw(std::ptr::null_mut()) }?.wait()
    });
}

#[test]
fn application_graph_captures_kernels() {
    if !has_gpu("application_graph_captures_kernels") {
        return;
    }
    Setup::new(2).run(|pe| {
        let stream = cudarc_stream(pe)?;
        let (round, data) = (pe.alloc_one::<u64>()?, pe.alloc::<u64>(100)?);
        let window = pe.register_symmetric(Pages::<u64>::zeroed(100))?;
        let next = (pe.my_pe() + 1) % pe.n_pes();
        let ours = pe.stream_from(&stream)?;
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).expect("a capture");
        ours.launch(grid(1, 32), next_round(round, data))?;
        ours.put(window.handle(), data, next)?;
        // A second stream, dropped during the capture.
        pe.stream_from(&stream)?.quiet()?;
        let error = ours.wait().unwrap_err().to_string();
        assert!(error.contains("call it after the capture"), "{error}");
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).expect("a graph").expect("some kernels");
        pe.host_sync()?;
        assert_eq!(pe.read_one(round)?, 0, "captured, and not run");
        for _ in 0..3 {
            graph.launch().expect("a launch");
        }
        ours.wait()?;
        pe.host_sync()?;
        assert_eq!(pe.read(window.handle())?, [3; 100]);

        // The graph may run again, so the window cannot be unregistered.
        let kept = pe.unregister_symmetric(window).unwrap_err();
        drop(graph);
        pe.host_sync()?;
        // SAFETY: the graph has been destroyed, and its launches have completed.
        unsafe { pe.release_captured() };
        assert_eq!(pe.unregister_symmetric(*kept.registration)?[..], [3; 100]);
        Ok(())
    });
}
