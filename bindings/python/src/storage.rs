//! Checkpoints of arrays, and copies between arrays and files.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushmem::{Checkpoint, Pe, Result};
use rushmem_device::SymSlice;

use crate::array::Array;
use crate::error::misuse;
use crate::session::Session;
use crate::wait::interruptible;

/// Runs a collective call with a folder and the arrays of a checkpoint, by name.
pub(crate) fn with_checkpoint(
    session: &Arc<Session>,
    path: PathBuf,
    arrays: &Bound<'_, PyDict>,
    call: fn(&Pe, PathBuf, &Checkpoint) -> Result<()>,
) -> PyResult<()> {
    let (py, session) = (arrays.py(), Arc::clone(session));
    let objects = arrays.iter().try_fold(Checkpoint::new(), |objects, (name, array)| {
        let (name, array) = (name.extract::<String>()?, array.cast_into::<Array>()?);
        let array = array.get();
        PyResult::Ok(with_array(objects, name, array.operand(py)?, array.element_type().size()))
    })?;
    interruptible(py, move || session.with(|started| call(started.pe(), path, &objects)))
}

/// Adds the bytes of an array, with the size of its elements, which is a power of two up to 8.
fn with_array(objects: Checkpoint, name: String, bytes: SymSlice<u8>, element: usize) -> Checkpoint {
    match element {
        1 => objects.with(name, bytes),
        2 => objects.with(name, bytes.cast::<u16>()),
        4 => objects.with(name, bytes.cast::<u32>()),
        _ => objects.with(name, bytes.cast::<u64>()),
    }
}

/// Runs a call with a file and the bytes of an array. `offset` is the array's position in the file, in bytes.
pub(crate) fn with_file(
    py: Python<'_>,
    session: &Arc<Session>,
    (path, offset): (PathBuf, i64),
    (name, array): (&'static str, &Array),
    call: fn(&Pe, PathBuf, u64, SymSlice<u8>) -> Result<()>,
) -> PyResult<()> {
    let offset = u64::try_from(offset).map_err(|_| misuse(py, name, format!("the offset is {offset}")))?;
    let (session, bytes) = (Arc::clone(session), array.operand(py)?);
    interruptible(py, move || session.with(|started| call(started.pe(), path, offset, bytes)))
}
