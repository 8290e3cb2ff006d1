//! Element types of arrays.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use rushmem::dlpack::TensorElement;
use rushmem::dlpack::abi::{self, DataType};
use rushmem_device::{Bf16, Element, F16};

/// Element type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
    Bf16,
}

/// A function of an element type, which is only known at run time.
pub(crate) trait Visitor {
    type Output;
    fn visit<T: Element + TensorElement>(self) -> Self::Output;
}

/// Returns the DLPack description of the visited type.
struct Describe;

impl Visitor for Describe {
    type Output = DataType;
    fn visit<T: Element + TensorElement>(self) -> DataType {
        T::DATA_TYPE
    }
}

impl DType {
    const ALL: [(Self, &str); 12] = [
        (Self::I8, "int8"),
        (Self::I16, "int16"),
        (Self::I32, "int32"),
        (Self::I64, "int64"),
        (Self::U8, "uint8"),
        (Self::U16, "uint16"),
        (Self::U32, "uint32"),
        (Self::U64, "uint64"),
        (Self::F16, "float16"),
        (Self::F32, "float32"),
        (Self::F64, "float64"),
        (Self::Bf16, "bfloat16"),
    ];

    pub(crate) fn dispatch<V: Visitor>(self, visitor: V) -> V::Output {
        match self {
            Self::I8 => visitor.visit::<i8>(),
            Self::I16 => visitor.visit::<i16>(),
            Self::I32 => visitor.visit::<i32>(),
            Self::I64 => visitor.visit::<i64>(),
            Self::U8 => visitor.visit::<u8>(),
            Self::U16 => visitor.visit::<u16>(),
            Self::U32 => visitor.visit::<u32>(),
            Self::U64 => visitor.visit::<u64>(),
            Self::F16 => visitor.visit::<F16>(),
            Self::F32 => visitor.visit::<f32>(),
            Self::F64 => visitor.visit::<f64>(),
            Self::Bf16 => visitor.visit::<Bf16>(),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(dtype, _)| *dtype == self).map_or("", |(_, name)| name)
    }

    /// Size of an element, in bytes.
    pub(crate) fn size(self) -> usize {
        usize::from(self.data_type().bits / 8)
    }

    pub(crate) fn data_type(self) -> DataType {
        self.dispatch(Describe)
    }

    /// Returns the type with this DLPack description, if it is supported.
    pub(crate) fn of_data_type(data_type: DataType) -> Option<Self> {
        Self::ALL.into_iter().map(|(dtype, _)| dtype).find(|dtype| dtype.data_type() == data_type)
    }

    /// Returns NumPy's name of the type in array interfaces. NumPy has none for `bfloat16`.
    pub(crate) fn typestr(self) -> Option<String> {
        let DataType { code, bits, .. } = self.data_type();
        let letter = match code {
            abi::INT => 'i',
            abi::UINT => 'u',
            abi::FLOAT => 'f',
            _ => return None,
        };
        let order = if bits == 8 { '|' } else { '<' };
        Some(format!("{order}{letter}{}", bits / 8))
    }

    /// Returns the type with this name in array interfaces.
    pub(crate) fn of_typestr(text: &str) -> PyResult<Self> {
        let found = Self::ALL.into_iter().find(|(dtype, _)| dtype.typestr().as_deref() == Some(text));
        found.map(|(dtype, _)| dtype).ok_or_else(|| unknown(text))
    }
}

/// A name (`"float32"`), a type of Python or NumPy (`float`, `numpy.float32`), a `numpy.dtype` or a `torch.dtype`.
impl<'py> FromPyObject<'_, 'py> for DType {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.getattr("str").and_then(|text| text.extract::<String>())
            && text.starts_with('>')
        {
            return Err(PyValueError::new_err(format!(
                "the byte order of {text} is not that of this machine"
            )));
        }
        let named = [object.getattr("name"), object.getattr("__name__")];
        let name = named.into_iter().flatten().find_map(|name| name.extract::<String>().ok());
        let text = match (object.extract::<String>(), name) {
            (Ok(text), _) | (_, Some(text)) => text,
            // A `torch.dtype` has no name, but prints as `torch.float32`.
            _ => object.str()?.to_string(),
        };
        let name = match text.rsplit('.').next().unwrap_or_default() {
            "float" => "float64",
            "int" => "int64",
            name => name,
        };
        let found = Self::ALL.into_iter().find(|(_, known)| *known == name);
        found.map(|(dtype, _)| dtype).ok_or_else(|| unknown(&text))
    }
}

fn unknown(text: &str) -> PyErr {
    let names = DType::ALL.map(|(_, name)| name).join(", ");
    PyTypeError::new_err(format!("{text} is not an element type; the types are {names}"))
}
