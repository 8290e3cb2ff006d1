//! The class `Array`.

use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyTuple};
use rushmem_device::SymSlice;

use crate::allocation::{Allocation, Place};
use crate::dlpack::{self, View};
use crate::dtype::DType;
use crate::error::{exception, misuse};
use crate::wait::{brief, interruptible};

/// A symmetric array: every PE has a copy, with the same shape and element type.
///
/// `Runtime.zeros` and `Runtime.empty` create arrays. The memory of this PE's copy is shared with NumPy, PyTorch and
/// CuPy without a copy, through DLPack and the array interfaces.
///
/// >>> cells = rt.zeros((2, 3), "float32")
/// >>> numpy.from_dlpack(cells)[1, 2] = 1.0
/// >>> cells[1].shape
/// (3,)
#[pyclass(frozen, subclass, module = "rushmem")]
pub(crate) struct Array {
    memory: Arc<Allocation>,
    part: SymSlice<u8>,
    address: u64,
    shape: Vec<usize>,
    dtype: DType,
    /// PE whose copy the array is. `None` for this PE's copy, which operations accept.
    peer: Option<u32>,
}

impl Array {
    pub(crate) fn new(memory: Arc<Allocation>, address: u64, shape: Vec<usize>, dtype: DType) -> Self {
        Self { part: memory.object(), memory, address, shape, dtype, peer: None }
    }

    pub(crate) fn memory(&self) -> &Arc<Allocation> {
        &self.memory
    }

    pub(crate) fn element_type(&self) -> DType {
        self.dtype
    }

    pub(crate) fn lengths(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the bytes of the array, as an operand of an operation.
    pub(crate) fn operand(&self, py: Python<'_>) -> PyResult<SymSlice<u8>> {
        if let Some(pe) = self.peer {
            let what = format!("this array is PE {pe}'s copy; pass the array that peer() was called on");
            return Err(misuse(py, "rushmem", what));
        }
        self.memory.check().map_err(|error| exception(py, error))?;
        Ok(self.part)
    }

    /// Returns a description such as `shape (2, 3), float32`.
    pub(crate) fn describe(&self) -> String {
        let lengths: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        let comma = if lengths.len() == 1 { "," } else { "" };
        format!("shape ({}{comma}), {}", lengths.join(", "), self.dtype.name())
    }

    fn rows(&self) -> PyResult<usize> {
        self.shape
            .first()
            .copied()
            .ok_or_else(|| PyTypeError::new_err("an array without dimensions has no length"))
    }

    /// Returns `count` rows from row `first` on, as an array of this shape.
    fn part(&self, first: usize, count: usize, shape: Vec<usize>) -> Self {
        let row = self.dtype.size() * self.shape[1..].iter().product::<usize>();
        Self {
            memory: Arc::clone(&self.memory),
            part: self.part.slice(first * row..(first + count) * row),
            address: self.address + (first * row) as u64,
            shape,
            dtype: self.dtype,
            peer: self.peer,
        }
    }

    fn device(&self) -> (i32, i32) {
        dlpack::device(self.memory.place())
    }
}

#[pymethods]
impl Array {
    /// Length of each dimension.
    ///
    /// >>> rt.zeros((2, 3)).shape
    /// (2, 3)
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Name of the element type, such as `"float32"`.
    ///
    /// >>> rt.zeros(4).dtype
    /// 'float32'
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Number of dimensions.
    ///
    /// >>> rt.zeros((2, 3)).ndim
    /// 2
    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    ///
    /// >>> rt.zeros((2, 3)).size
    /// 6
    #[getter]
    fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size of the array in bytes.
    ///
    /// >>> rt.zeros((2, 3)).nbytes
    /// 24
    #[getter]
    fn nbytes(&self) -> u64 {
        self.part.bytes()
    }

    /// Address of the first element, for kernels of this PE.
    ///
    /// >>> array = rt.zeros(4)
    /// >>> array[1].address - array.address
    /// 4
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<u64> {
        self.memory.check().map_err(|error| exception(py, error))?;
        Ok(self.address)
    }

    /// Returns the copy of PE `pe`, if its memory is mapped into this process, and `None` otherwise.
    ///
    /// The result can be passed to other libraries, but not to operations. On GPUs, the PEs of a node are mapped by
    /// default; natively, the setting `peer_path="p2p"` maps them.
    ///
    /// >>> array = rt.zeros(4)
    /// >>> theirs = array.peer((rt.rank + 1) % rt.world_size)
    fn peer(&self, py: Python<'_>, pe: u32) -> PyResult<Option<Self>> {
        let part = self.operand(py)?;
        let address = brief(py, || {
            self.memory
                .session()
                .with(|started| Ok(started.pe().ptr(part, pe).map(|first| first.addr() as u64)))
        })?;
        Ok(address.map(|address| Self {
            memory: Arc::clone(&self.memory),
            part,
            address,
            shape: self.shape.clone(),
            dtype: self.dtype,
            peer: Some(pe),
        }))
    }

    /// Frees the array on every PE. Collective.
    ///
    /// All work that uses the array must have finished. It is an error to free an array while views of other libraries
    /// exist, or a part of an array. Arrays that are not freed exist until the runtime is finalized.
    ///
    /// >>> array = rt.zeros(4)
    /// >>> array.free()
    fn free(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if this.memory.is_foreign() {
            return Err(misuse(
                py,
                "free",
                "the memory of a window belongs to another library; call unregister()",
            ));
        }
        let object = this.operand(py)?;
        if (object.offset(), object.len()) != (this.memory.object().offset(), this.memory.object().len()) {
            return Err(misuse(py, "free", "this is a part of an array; free the whole array"));
        }
        let memory = Arc::clone(&this.memory);
        interruptible(py, move || {
            memory.free("free", || memory.session().with(|started| started.pe().free(memory.object())))
        })
    }

    /// Exports the array as a DLPack capsule. `numpy.from_dlpack`, `torch.from_dlpack` and `cupy.from_dlpack` call it.
    ///
    /// The runtime does not use the consumer's stream, so `stream` is ignored: wait for operations on other streams
    /// before using the memory.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = stream;
        if copy == Some(true) {
            return Err(PyBufferError::new_err("symmetric memory is never copied; copy the result"));
        }
        if let Some(wanted) = dl_device.filter(|wanted| *wanted != self.device()) {
            let text = format!("the array is on DLPack device {:?}, not on {wanted:?}", self.device());
            return Err(PyBufferError::new_err(text));
        }
        let lease = self.memory.lend(format!("DLPack, {}", self.describe()));
        let lease = lease.map_err(|error| exception(py, error))?;
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let view =
            View { address: self.address, shape: &self.shape, dtype: self.dtype, place: self.memory.place() };
        dlpack::export(py, &view, lease, is_versioned)
    }

    /// Returns the DLPack device type and ID.
    fn __dlpack_device__(&self) -> (i32, i32) {
        self.device()
    }

    /// The array interface of NumPy. Only arrays in host memory have it.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let typestr = self.typestr("__array_interface__", !matches!(self.memory.place(), Place::Gpu(_)))?;
        let lease = self.memory.lend(format!("array interface, {}", self.describe()));
        let lease = lease.map_err(|error| exception(py, error))?;
        let describe = py.import("rushmem._interface")?.getattr("array_interface")?;
        describe.call1((self.address, self.nbytes(), self.shape(py)?, typestr, lease))
    }

    /// The array interface of CUDA libraries. Only arrays in GPU memory have it.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let typestr =
            self.typestr("__cuda_array_interface__", matches!(self.memory.place(), Place::Gpu(_)))?;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("data", (self.address(py)?, false))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("stream", py.None())?;
        Ok(interface)
    }

    /// Returns a part along the first dimension, which shares memory: `array[2:5]` or `array[2]`.
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        let rows = self.rows()?;
        if let Ok(slice) = index.cast::<PySlice>() {
            let range = slice.indices(rows as isize)?;
            if range.step != 1 {
                return Err(PyValueError::new_err(
                    "a part of an array must be contiguous: the step must be 1",
                ));
            }
            let shape = [&[range.slicelength], &self.shape[1..]].concat();
            let first = if range.slicelength == 0 { 0 } else { range.start as usize };
            return Ok(self.part(first, range.slicelength, shape));
        }
        let given: isize =
            index.extract().map_err(|_| PyTypeError::new_err("an index is an int or a slice"))?;
        let row = if given < 0 { given + rows as isize } else { given };
        match usize::try_from(row) {
            Ok(row) if row < rows => Ok(self.part(row, 1, self.shape[1..].to_vec())),
            _ => Err(PyIndexError::new_err(format!("index {given} is out of range for {rows} rows"))),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        self.rows()
    }

    fn __repr__(&self) -> String {
        match self.peer {
            None => format!("<rushmem array of {}>", self.describe()),
            Some(pe) => format!("<rushmem array of {}, on PE {pe}>", self.describe()),
        }
    }
}

impl Array {
    fn typestr(&self, interface: &str, has_interface: bool) -> PyResult<String> {
        let typestr = self.dtype.typestr().filter(|_| has_interface);
        typestr.ok_or_else(|| {
            let text =
                format!("an array of {} in this memory has no {interface}; use DLPack", self.dtype.name());
            PyAttributeError::new_err(text)
        })
    }
}
