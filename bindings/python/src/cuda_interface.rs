//! Imports of arrays in GPU memory through `__cuda_array_interface__`.
#![allow(unsafe_code, reason = "registers memory that other libraries describe")]

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushmem::MemoryLocation;

use crate::dtype::DType;
use crate::foreign::{Foreign, Memory};

/// Imports `array`, which has this interface. `gpu` is the GPU of this PE.
pub(crate) fn import(array: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>, gpu: u32) -> PyResult<Foreign> {
    let entry = |name: &str| {
        let missing = || PyValueError::new_err(format!("__cuda_array_interface__ has no {name}"));
        interface.get_item(name)?.ok_or_else(missing)
    };
    let shape: Vec<usize> = entry("shape")?.extract()?;
    let dtype = DType::of_typestr(&entry("typestr")?.extract::<String>()?)?;
    let (address, is_read_only): (u64, bool) = entry("data")?.extract()?;
    if is_read_only {
        return Err(PyValueError::new_err("the array is read-only, and peers could write to it"));
    }
    let strides = interface.get_item("strides")?.map(|strides| strides.extract::<Option<Vec<isize>>>());
    if let Some(strides) = strides.transpose()?.flatten()
        && strides != row_major(&shape, dtype.size())
    {
        return Err(PyValueError::new_err("the array is not contiguous in row-major order; register a copy"));
    }
    let bytes = dtype.size() * shape.iter().product::<usize>();
    let owner = Arc::new(array.clone().unbind());
    // SAFETY: the protocol promises valid memory for as long as the array exists, and `register` documents that the
    // library's work on it must have finished.
    let memory = unsafe { Memory::new(MemoryLocation::Gpu(address), bytes, gpu, owner) };
    Ok(Foreign { memory, shape, dtype })
}

/// Returns the distance of neighbouring elements in each dimension, in bytes.
fn row_major(shape: &[usize], size: usize) -> Vec<isize> {
    (1..=shape.len()).map(|next| (size * shape[next..].iter().product::<usize>()) as isize).collect()
}
