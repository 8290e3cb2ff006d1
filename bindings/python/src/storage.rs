//! Checkpoints of arrays, and copies between arrays and files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushmem::{Checkpoint, Pe, Result};
use rushmem_device::SymSlice;

use crate::allocation::Lease;
use crate::array::Array;
use crate::error::{exception, misuse};
use crate::session::Session;
use crate::wait::{brief, interruptible};

/// Returns the number of parts of the checkpoint in the folder `path`: one for each PE that saved it.
///
/// >>> rushmem.checkpoint_parts("/nowhere")  # doctest: +ELLIPSIS
/// Traceback (most recent call last):
/// rushmem.Error: ...
#[pyfunction]
pub(crate) fn checkpoint_parts(py: Python<'_>, path: PathBuf) -> PyResult<u32> {
    brief(py, || Checkpoint::parts(path))
}

/// Runs a call with a folder and the arrays of a checkpoint, by name.
pub(crate) fn with_checkpoint(
    session: &Arc<Session>,
    path: PathBuf,
    arrays: &Bound<'_, PyDict>,
    call: impl FnOnce(&Pe, PathBuf, &Checkpoint) -> Result<()> + Send + 'static,
) -> PyResult<()> {
    let (py, session) = (arrays.py(), Arc::clone(session));
    // By name, because dicts that are equal on all PEs may differ in their order.
    let named =
        arrays.iter().map(|(name, array)| Ok((name.extract::<String>()?, array.cast_into::<Array>()?)));
    let named = named.collect::<PyResult<BTreeMap<_, _>>>()?;
    let (mut objects, mut leases) = (Checkpoint::new(), Vec::new());
    for (name, array) in named {
        let array = array.get();
        objects = with_array(objects, name, array.operand(py)?, array.element_type().size());
        leases.push(lease(py, array)?);
    }
    interruptible(py, move || {
        let _leases = leases;
        session.with(|started| call(started.pe(), path, &objects))
    })
}

/// Keeps an array from being freed during a call, which goes on in the background after an interrupt.
fn lease(py: Python<'_>, array: &Array) -> PyResult<Lease> {
    let lease = array.memory().lend("a copy to or from a file".into());
    lease.map_err(|error| exception(py, error))
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
    let (session, bytes, lease) = (Arc::clone(session), array.operand(py)?, lease(py, array)?);
    interruptible(py, move || {
        let _lease = lease;
        session.with(|started| call(started.pe(), path, offset, bytes))
    })
}
