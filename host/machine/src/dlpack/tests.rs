//! Imports tensors from a mock library that counts how often its deleter is called.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::*;

/// A tensor of the mock library: its memory, and the arrays that the structure points to.
struct Exported {
    data: Vec<f32>,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    deleted: Arc<AtomicU32>,
}

impl Exported {
    fn new(shape: &[i64]) -> Self {
        Self { data: vec![1.5; 64], shape: shape.into(), strides: None, deleted: Arc::default() }
    }

    /// Returns the tensor and its owner, which [`delete`] or [`delete_versioned`] frees.
    fn tensor(self) -> (Tensor, *mut c_void) {
        let mut boxed = Box::new(self);
        let tensor = Tensor {
            data: boxed.data.as_mut_ptr().cast(),
            device: Device { device_type: abi::CPU, device_id: 0 },
            ndim: boxed.shape.len() as i32,
            dtype: f32::DATA_TYPE,
            shape: boxed.shape.as_mut_ptr(),
            strides: boxed.strides.as_mut().map_or(std::ptr::null_mut(), |strides| strides.as_mut_ptr()),
            byte_offset: 0,
        };
        (tensor, Box::into_raw(boxed).cast())
    }

    /// Exports the tensor after applying `change`, imports it, and checks that the deleter is called exactly once.
    fn import(self, change: impl FnOnce(&mut Tensor)) -> Result<(Vec<usize>, usize), DlpackError> {
        let deleted = Arc::clone(&self.deleted);
        let (mut dl_tensor, manager_ctx) = self.tensor();
        change(&mut dl_tensor);
        let raw = Box::new(ManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete) });
        // SAFETY: a tensor of this test.
        let imported = unsafe { DlpackTensor::<f32>::from_raw(NonNull::from(Box::leak(raw))) };
        assert_eq!(deleted.load(Ordering::SeqCst), u32::from(imported.is_err()));
        let found = imported.map(|tensor| (tensor.shape().to_vec(), Buffer::len(&tensor)));
        assert_eq!(deleted.load(Ordering::SeqCst), 1);
        found
    }
}

/// Frees an [`Exported`] tensor and counts the call of the deleter.
///
/// # Safety
/// `manager_ctx` comes from [`Exported::tensor`].
unsafe fn free(manager_ctx: *mut c_void) {
    // SAFETY: promised by the caller.
    let exported = unsafe { Box::from_raw(manager_ctx.cast::<Exported>()) };
    exported.deleted.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn delete(tensor: *mut ManagedTensor) {
    // SAFETY: the structure was leaked by its test, and is deleted once.
    unsafe { free(Box::from_raw(tensor).manager_ctx) };
}

unsafe extern "C" fn delete_versioned(tensor: *mut ManagedTensorVersioned) {
    // SAFETY: the structure was leaked by its test, and is deleted once.
    unsafe { free(Box::from_raw(tensor).manager_ctx) };
}

/// Imports a versioned 2 x 3 tensor with these flags. Returns the outcome and how often its deleter was called.
fn import_versioned(major: u32, flags: u64) -> (Result<usize, DlpackError>, u32) {
    let exported = Exported::new(&[2, 3]);
    let deleted = Arc::clone(&exported.deleted);
    let (dl_tensor, manager_ctx) = exported.tensor();
    let (version, deleter) = (Version { major, minor: 7 }, Some(delete_versioned as _));
    let raw = Box::new(ManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor });
    // SAFETY: a tensor of this test.
    let imported = unsafe { DlpackTensor::<f32>::from_versioned(NonNull::from(Box::leak(raw))) };
    let len = imported.map(|tensor| Buffer::len(&tensor));
    (len, deleted.load(Ordering::SeqCst))
}

#[test]
fn compact_tensor_keeps_its_shape() {
    assert_eq!(Exported::new(&[2, 3]).import(|_| ()), Ok((vec![2, 3], 6)));
    assert_eq!(Exported::new(&[]).import(|_| ()), Ok((vec![], 1)), "a scalar");
    assert_eq!(Exported::new(&[]).import(|tensor| tensor.shape = std::ptr::null_mut()), Ok((vec![], 1)));
}

#[test]
fn byte_offset_moves_the_first_element() {
    let (mut tensor, owner) = Exported::new(&[4]).tensor();
    tensor.byte_offset = 12;
    let start = first_element::<f32>(&tensor, 4).unwrap();
    assert_eq!(start.as_ptr().addr(), tensor.data.addr() + 12);
    // SAFETY: from `tensor`, freed once.
    unsafe { free(owner) };
}

#[test]
fn location_depends_on_the_device() {
    for (device_type, wanted) in [(abi::CPU, "Host"), (abi::CUDA_HOST, "PageLocked"), (abi::CUDA, "Gpu")] {
        let (mut dl_tensor, manager_ctx) = Exported::new(&[2, 2]).tensor();
        dl_tensor.device = Device { device_type, device_id: 3 };
        let raw = Box::new(ManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete) });
        // SAFETY: a tensor of this test. Nothing accesses its elements.
        let mut tensor = unsafe { DlpackTensor::<f32>::from_raw(NonNull::from(Box::leak(raw))) }.unwrap();
        assert!(format!("{:?}", tensor.location()).starts_with(wanted));
        assert_eq!(tensor.device().device_id, 3);
    }
}

#[test]
fn rejects_tensors_that_cannot_be_buffers() {
    let refused = |change: &dyn Fn(&mut Tensor)| Exported::new(&[2, 3]).import(change).unwrap_err();
    let managed = Device { device_type: 13, device_id: 1 };
    assert_eq!(refused(&|tensor| tensor.device = managed), DlpackError::Device(managed));
    assert_eq!(refused(&|tensor| tensor.ndim = -1), DlpackError::Shape(-1));
    assert_eq!(refused(&|tensor| tensor.shape = std::ptr::null_mut()), DlpackError::Shape(2));
    assert_eq!(refused(&|tensor| tensor.data = std::ptr::null_mut()), DlpackError::NullData);
    assert_eq!(refused(&|tensor| tensor.byte_offset = u64::MAX), DlpackError::TooLarge);
    assert!(matches!(refused(&|tensor| tensor.byte_offset = 2), DlpackError::Misaligned { align: 4, .. }));
    for (code, bits, lanes) in [(abi::FLOAT, 64, 1), (abi::INT, 32, 1), (abi::FLOAT, 32, 4), (6, 8, 1)] {
        let found = DataType { code, bits, lanes };
        let expected = f32::DATA_TYPE;
        assert_eq!(refused(&|tensor| tensor.dtype = found), DlpackError::ElementType { found, expected });
    }
    assert_eq!(Exported::new(&[2, -3]).import(|_| ()), Err(DlpackError::Shape(2)));
    assert_eq!(
        Exported::new(&[2, 0]).import(|tensor| tensor.data = std::ptr::null_mut()),
        Err(DlpackError::Empty)
    );
    assert_eq!(Exported::new(&[i64::MAX, i64::MAX, 0]).import(|_| ()), Err(DlpackError::Empty));
    assert_eq!(Exported::new(&[i64::MAX, 4]).import(|_| ()), Err(DlpackError::TooLarge));
    assert_eq!(Exported::new(&[i64::MAX / 2]).import(|_| ()), Err(DlpackError::TooLarge));
    // The product of stride and length overflows.
    let huge = Exported { strides: Some(vec![2, 1]), ..Exported::new(&[i64::MAX, 2]) };
    assert_eq!(huge.import(|_| ()), Err(DlpackError::TooLarge));
    let transposed = Exported { strides: Some(vec![1, 2]), ..Exported::new(&[2, 3]) };
    let strides = DlpackError::Strides { shape: [2, 3].into(), strides: [1, 2].into() };
    assert_eq!(transposed.import(|_| ()), Err(strides));
}

#[test]
fn rejects_other_versions_and_read_only_tensors() {
    assert_eq!(import_versioned(1, 0), (Ok(6), 1));
    assert_eq!(import_versioned(1, 2), (Ok(6), 1), "a copy");
    let version = DlpackError::Version(Version { major: 2, minor: 7 });
    assert_eq!(import_versioned(2, 0), (Err(version), 1));
    assert_eq!(import_versioned(1, abi::READ_ONLY), (Err(DlpackError::ReadOnly), 1));
}

#[test]
fn deleter_is_optional() {
    let (dl_tensor, owner) = Exported::new(&[4]).tensor();
    let mut raw = ManagedTensor { dl_tensor, manager_ctx: owner, deleter: None };
    // SAFETY: a tensor of this test.
    drop(unsafe { DlpackTensor::<f32>::from_raw(NonNull::from(&mut raw)) }.unwrap());
    // SAFETY: from `tensor`, freed once.
    unsafe { free(owner) };
}

#[test]
fn errors_name_types_and_the_remedy() {
    let found = DataType { code: abi::FLOAT, bits: 64, lanes: 2 };
    let error = DlpackError::ElementType { found, expected: Bf16::DATA_TYPE };
    assert_eq!(
        Error::from(error).to_string(),
        "DlpackTensor: the elements of the tensor are f64 x 2, but the program expects bf16"
    );
    let strides = DlpackError::Strides { shape: [2, 3].into(), strides: [1, 2].into() };
    assert_eq!(
        strides.to_string(),
        "the tensor of shape [2, 3] is not compact in row-major order, since its strides are [1, 2]; export a \
         contiguous copy"
    );
}

/// Visits every element of a tensor to check that addresses increase by one element in row-major order.
fn in_order(shape: &[usize], strides: &[i64]) -> bool {
    let mut index = vec![0; shape.len()];
    (0..shape.iter().product::<usize>() as i64).all(|expected| {
        let at: i64 = index.iter().zip(strides).map(|(&i, stride)| i as i64 * stride).sum();
        for (i, &length) in index.iter_mut().zip(shape).rev() {
            *i = (*i + 1) % length;
            if *i != 0 {
                break;
            }
        }
        at == expected
    })
}

fn row_major(shape: &[usize]) -> Vec<i64> {
    (0..shape.len()).map(|i| shape[i + 1..].iter().product::<usize>() as i64).collect()
}

proptest! {
    #[test]
    fn accepts_strides_iff_elements_are_in_order(
        dims in prop::collection::vec((1..4_usize, 0..9_i64, any::<bool>()), 0..4),
    ) {
        let shape: Vec<usize> = dims.iter().map(|dim| dim.0).collect();
        // Replace only some strides, so both outcomes occur.
        let right = row_major(&shape).into_iter().zip(&dims);
        let strides: Vec<i64> = right.map(|(right, dim)| if dim.2 { right } else { dim.1 }).collect();
        let exported = Exported {
            strides: Some(strides.clone()),
            ..Exported::new(&shape.iter().map(|&length| length as i64).collect::<Vec<_>>())
        };
        prop_assert_eq!(exported.import(|_| ()).is_ok(), in_order(&shape, &strides));
    }
}
