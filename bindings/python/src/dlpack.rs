//! DLPack capsules: exports of arrays, and imports of arrays of other libraries.
#![allow(unsafe_code, reason = "passes structures of C through capsules")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushmem::Buffer;
use rushmem::dlpack::abi::{self, Device, ManagedTensor, ManagedTensorVersioned, Tensor, Version};
use rushmem::dlpack::{DlpackError, DlpackTensor, TensorElement};
use rushmem_device::Element;

use crate::allocation::{Lease, Place};
use crate::dtype::{DType, Visitor};
use crate::error::exception;
use crate::foreign::{Foreign, Memory};

const PLAIN: &CStr = c"dltensor";
const USED_PLAIN: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// Version of the exported structures.
const VERSION: Version = Version { major: abi::MAJOR, minor: 0 };

/// Returns the device type and ID of memory.
pub(crate) fn device(place: Place) -> (i32, i32) {
    match place {
        Place::Host => (abi::CPU, 0),
        Place::PageLocked => (abi::CUDA_HOST, 0),
        Place::Gpu(gpu) => (abi::CUDA, gpu as i32),
    }
}

/// What an exported tensor points to: the `manager_ctx` of its structure.
struct Exported {
    shape: Vec<i64>,
    strides: Vec<i64>,
    _lease: Lease,
}

/// The memory that a tensor refers to.
pub(crate) struct View<'a> {
    pub(crate) address: u64,
    pub(crate) shape: &'a [usize],
    pub(crate) dtype: DType,
    pub(crate) place: Place,
}

/// Exports memory in a capsule. The capsule, or the library that consumes it, owns the lease.
pub(crate) fn export<'py>(
    py: Python<'py>,
    view: &View<'_>,
    lease: Lease,
    is_versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let shape: Vec<i64> = view.shape.iter().map(|&length| length as i64).collect();
    let strides = (1..=shape.len()).map(|next| shape[next..].iter().product()).collect();
    let mut exported = Box::new(Exported { shape, strides, _lease: lease });
    let (device_type, device_id) = device(view.place);
    let dl_tensor = Tensor {
        data: std::ptr::with_exposed_provenance_mut(view.address as usize),
        device: Device { device_type, device_id },
        ndim: exported.shape.len() as i32,
        dtype: view.dtype.data_type(),
        shape: exported.shape.as_mut_ptr(),
        strides: exported.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let manager_ctx = Box::into_raw(exported).cast();
    if is_versioned {
        let deleter = Some(delete_versioned as _);
        let tensor = ManagedTensorVersioned { version: VERSION, manager_ctx, deleter, flags: 0, dl_tensor };
        capsule(py, Box::into_raw(Box::new(tensor)).cast(), VERSIONED)
    } else {
        let tensor = ManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete_plain as _) };
        capsule(py, Box::into_raw(Box::new(tensor)).cast(), PLAIN)
    }
}

fn capsule<'py>(py: Python<'py>, tensor: *mut c_void, name: &'static CStr) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the name is static, and the destructor deletes the tensor that a consumer has not taken.
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(tensor, name.as_ptr(), Some(delete_unused)))
    }
}

/// Deletes the tensor of a capsule that nobody has consumed. A consumer renames the capsule.
unsafe extern "C" fn delete_unused(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes a capsule of this module, which has one of the two names if the tensor is still in it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            delete_plain(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        }
    }
}

/// Called on any thread, with or without the GIL.
unsafe extern "C" fn delete_versioned(tensor: *mut ManagedTensorVersioned) {
    // SAFETY: `export` created both boxes, and a tensor is deleted once.
    unsafe { drop(Box::from_raw(Box::from_raw(tensor).manager_ctx.cast::<Exported>())) };
}

/// Called on any thread, with or without the GIL.
unsafe extern "C" fn delete_plain(tensor: *mut ManagedTensor) {
    // SAFETY: `export` created both boxes, and a tensor is deleted once.
    unsafe { drop(Box::from_raw(Box::from_raw(tensor).manager_ctx.cast::<Exported>())) };
}

/// A tensor that a capsule contained.
#[derive(Clone, Copy)]
enum Imported {
    Plain(NonNull<ManagedTensor>),
    Versioned(NonNull<ManagedTensorVersioned>),
}

/// Imports the array of another library. Dropping the memory's owner calls the library's deleter.
pub(crate) fn import(array: &Bound<'_, PyAny>) -> PyResult<Foreign> {
    let py = array.py();
    let newest = PyDict::new(py);
    newest.set_item("max_version", (abi::MAJOR, 0))?;
    let capsule = match array.call_method("__dlpack__", (), Some(&newest)) {
        // The library is older than DLPack 1.0.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => array.call_method0("__dlpack__")?,
        capsule => capsule?,
    };
    let tensor = take(&capsule)?;
    // SAFETY: the capsule contained a valid structure. One of another major version may have another layout, which
    // `from_versioned` refuses, so any element type will do.
    let found = unsafe {
        match tensor {
            Imported::Plain(tensor) => Some(tensor.as_ref().dl_tensor.dtype),
            Imported::Versioned(tensor)
                if (&raw const (*tensor.as_ptr()).version).read().major == abi::MAJOR =>
            {
                Some(tensor.as_ref().dl_tensor.dtype)
            }
            Imported::Versioned(_) => None,
        }
    };
    // An unknown element type is refused like any other that differs, by a constructor that deletes the tensor.
    let dtype = found.and_then(DType::of_data_type).unwrap_or(DType::U8);
    let adopted = dtype.dispatch(Adopt(tensor));
    let (memory, shape) = adopted.map_err(|error| exception(py, error.into()))?;
    Ok(Foreign { memory, shape, dtype })
}

/// Takes the tensor out of a capsule.
fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Imported> {
    let taken = |name: &CStr, used: &'static CStr| {
        // SAFETY: the object is checked to be a capsule of this name. The new name is static.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 1 {
                return None;
            }
            let tensor = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
            ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr());
            NonNull::new(tensor)
        }
    };
    let versioned = taken(VERSIONED, USED_VERSIONED).map(|tensor| Imported::Versioned(tensor.cast()));
    let tensor = versioned.or_else(|| taken(PLAIN, USED_PLAIN).map(|tensor| Imported::Plain(tensor.cast())));
    tensor.ok_or_else(|| PyBufferError::new_err("__dlpack__ did not return a DLPack capsule"))
}

/// Makes memory of a tensor of the visited element type. Returns it with its shape.
struct Adopt(Imported);

impl Visitor for Adopt {
    type Output = Result<(Memory, Vec<usize>), DlpackError>;
    fn visit<T: Element + TensorElement>(self) -> Self::Output {
        // SAFETY: `take` has taken the structure out of its capsule. The protocol allows any thread to use the elements
        // and to call the deleter, and `register` documents that the library's work on them must have finished.
        let mut tensor = unsafe {
            match self.0 {
                Imported::Plain(tensor) => DlpackTensor::<T>::from_raw(tensor),
                Imported::Versioned(tensor) => DlpackTensor::<T>::from_versioned(tensor),
            }
        }?;
        let (location, shape) = (tensor.location(), tensor.shape().to_vec());
        let (bytes, gpu) = (tensor.len() * size_of::<T>(), tensor.device().device_id as u32);
        // SAFETY: the tensor owns the elements, and `DlpackTensor` has checked them.
        Ok((unsafe { Memory::new(location, bytes, gpu, Arc::new(tensor)) }, shape))
    }
}
