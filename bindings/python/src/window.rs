//! The class `Window`.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushmem::{Error, Result};
use rushmem_base::lock;

use crate::allocation::{Allocation, Kept};
use crate::array::Array;
use crate::foreign::{Foreign, Memory};
use crate::session::Session;
use crate::wait::interruptible;
use crate::{cuda_interface, dlpack};

type Registered = rushmem::Window<Memory>;

/// Symmetric memory that belongs to another library. `Runtime.register` creates it, and it is used as an array.
///
/// >>> inbox = numpy.zeros(16)
/// >>> window = rt.register(inbox)
/// >>> window.unregister()
#[pyclass(frozen, extends = Array, module = "rushmem")]
pub(crate) struct Window(Arc<Mutex<Option<Registered>>>);

impl Window {
    /// Registers an array of another library. `gpu` is the GPU of this PE.
    pub(crate) fn register(
        session: &Arc<Session>,
        array: &Bound<'_, PyAny>,
        gpu: Option<u32>,
    ) -> PyResult<Py<Self>> {
        let py = array.py();
        let Foreign { memory, shape, dtype } = import(array, gpu)?;
        let (place, owner) = (memory.place(), memory.owner());
        let here = Arc::clone(session);
        let (window, address) = interruptible(py, move || {
            here.with(|started| {
                let window = started.pe().register_symmetric(memory)?;
                let address = started.pe().address(window.handle())?;
                Ok((window, address))
            })
        })?;
        let kept = Kept { _guard: None, owner: Some(owner) };
        let memory = Allocation::new(Arc::clone(session), window.handle(), place, kept);
        let class = PyClassInitializer::from(Array::new(memory, address, shape, dtype));
        Py::new(py, class.add_subclass(Self(Arc::new(Mutex::new(Some(window))))))
    }
}

#[pymethods]
impl Window {
    /// Ends the registration on every PE, so the other library may free the memory. Collective.
    ///
    /// It is an error to unregister a window while views of it exist.
    ///
    /// >>> window = rt.register(numpy.zeros(16))
    /// >>> window.unregister()
    fn unregister(slf: &Bound<'_, Self>) -> PyResult<()> {
        let memory = Arc::clone(slf.as_super().get().memory());
        let registered = Arc::clone(&slf.get().0);
        interruptible(slf.py(), move || memory.free("unregister", || unregister(&memory, &registered)))
    }
}

fn import(array: &Bound<'_, PyAny>, gpu: Option<u32>) -> PyResult<Foreign> {
    if array.hasattr("__dlpack__")? {
        return dlpack::import(array);
    }
    match array.getattr_opt("__cuda_array_interface__")? {
        Some(interface) => cuda_interface::import(array, interface.cast::<PyDict>()?, gpu.unwrap_or(0)),
        None => {
            let class = array.get_type().name()?;
            Err(PyTypeError::new_err(format!("{class} has neither __dlpack__ nor __cuda_array_interface__")))
        }
    }
}

fn unregister(memory: &Allocation, registered: &Mutex<Option<Registered>>) -> Result<()> {
    let mut slot = lock(registered);
    let window =
        slot.take().ok_or_else(|| Error::misuse("unregister", "the window has been unregistered"))?;
    memory.session().with(|started| match started.pe().unregister_symmetric(window) {
        Ok(_) => Ok(()),
        Err(kept) => {
            *slot = Some(*kept.registration);
            Err(*kept.error)
        }
    })
}
