//! Streams of other libraries.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Handle (`CUstream`) of a stream that a user passes: an int, or an object of PyTorch, CuPy, Numba or cuda.core.
#[derive(Clone, Copy)]
pub(crate) struct StreamHandle(pub(crate) usize);

impl<'py> FromPyObject<'_, 'py> for StreamHandle {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(handle) = object.extract() {
            return Ok(Self(handle));
        }
        // PyTorch, then CuPy.
        for name in ["cuda_stream", "ptr"] {
            if let Some(handle) = object.getattr_opt(name)? {
                return Ok(Self(handle.extract()?));
            }
        }
        // The protocol of CUDA's own packages: a version and the handle.
        if let Some(protocol) = object.getattr_opt("__cuda_stream__")? {
            let pair = if protocol.is_callable() { protocol.call0()? } else { protocol };
            let (_, handle): (u32, usize) = pair.extract()?;
            return Ok(Self(handle));
        }
        let text = format!(
            "{} is not a stream; pass an int, or an object with cuda_stream, ptr or __cuda_stream__",
            object.get_type().name()?
        );
        Err(PyTypeError::new_err(text))
    }
}
