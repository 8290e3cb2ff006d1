//! Tensors of other libraries: windows over memory that the runtime has not allocated.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rushmem::dlpack::abi::{CPU, Device, ManagedTensor, Tensor};
use rushmem::dlpack::{DlpackError, DlpackTensor, TensorElement};
use rushmem::{Buffer, MemoryLocation};
use rushmem_tests::Setup;

use super::memory::{ALL, LEN, Reached, pattern};
use super::setups;

/// A tensor of a library that counts the tensors it gets back.
struct Exported {
    /// Aligned as windows are, with a page of its own on each side: GPUs map host memory by pages.
    data: Vec<Page>,
    shape: [i64; 2],
    returned: *const AtomicU32,
}

#[repr(align(4096))]
#[derive(Clone)]
struct Page(#[expect(dead_code, reason = "the elements of the tensor")] [u64; 512]);

unsafe extern "C" fn give_back(tensor: *mut ManagedTensor) {
    // SAFETY: both were leaked by `export`, and the runtime calls this once.
    let exported = unsafe { Box::from_raw(Box::from_raw(tensor).manager_ctx.cast::<Exported>()) };
    // SAFETY: the counter outlives the job.
    unsafe { &*exported.returned }.fetch_add(1, Ordering::SeqCst);
}

/// Exports a tensor of two rows of `ALL / 2` zeroes.
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
fn a_dlpack_tensor_is_a_window() {
    for setup in setups::all() {
        let returned = AtomicU32::new(0);
        setup.run(|pe| {
            // SAFETY: a tensor of this test.
            let tensor = unsafe { DlpackTensor::<u64>::from_raw(export(&returned)) }?;
            assert_eq!(tensor.shape(), [2, ALL / 2]);
            let window = pe.register_symmetric(tensor)?;
            Reached::within(window.handle()).check(pe)?;
            let mut tensor = pe.unregister_symmetric(window)?;
            // The puts of the previous PE are in the library's own memory.
            let MemoryLocation::Host(start) = tensor.location() else { panic!("a tensor of the CPU") };
            // SAFETY: the elements of the tensor, which nothing else uses now.
            let row = unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<u64>(), LEN) };
            assert_eq!(row, pattern((pe.my_pe() + pe.n_pes() - 1) % pe.n_pes(), LEN));
            Ok(())
        });
        assert_eq!(returned.into_inner(), setup.pes(), "{setup}");
    }
}

#[test]
fn a_refused_dlpack_tensor_goes_back_to_its_library() {
    let returned = AtomicU32::new(0);
    // SAFETY: a tensor of this test.
    let refused = unsafe { DlpackTensor::<f64>::from_raw(export(&returned)) };
    let expected = DlpackError::ElementType { found: u64::DATA_TYPE, expected: f64::DATA_TYPE };
    assert_eq!(refused.err(), Some(expected));
    assert_eq!(returned.into_inner(), 1);
}

#[test]
fn a_registered_dlpack_tensor_goes_back_when_its_pe_ends() {
    let returned = AtomicU32::new(0);
    let setup = Setup::new(2);
    setup.run(|pe| {
        if pe.my_pe() == 0 {
            // SAFETY: a tensor of this test.
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
