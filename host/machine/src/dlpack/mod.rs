//! Tensors that other libraries pass through DLPack.
//!
//! A library such as PyTorch, JAX or CuPy exports a tensor as a `DLManagedTensor`. [`DlpackTensor`] is a [`Buffer`] of
//! it, which `Pe::register_symmetric` accepts. Nothing is copied. [`abi`] has the structures of the header `dlpack.h`.
#![allow(unsafe_code, reason = "reads structures of other libraries and calls their deleters")]

pub mod abi;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use bytemuck::Pod;
use rushmem_device::{Bf16, F16};
use rushmem_error::{Error, Result};

use self::abi::{DataType, Device, ManagedTensor, ManagedTensorVersioned, Tensor, Version};
use crate::buffer::{Buffer, MemoryLocation};

/// Element type of a [`DlpackTensor`].
///
/// Implemented for the integers of 8 to 64 bits, `f32`, `f64`, [`F16`] and [`Bf16`].
pub trait TensorElement: Pod + Send + Sync + sealed::Sealed {
    /// The DLPack description of the type.
    const DATA_TYPE: DataType;
}

mod sealed {
    /// Restricts [`TensorElement`](super::TensorElement) to types that DLPack can describe.
    pub trait Sealed {}
}

macro_rules! elements {
    ($code:expr => $($element:ty),*) => {$(
        impl sealed::Sealed for $element {}
        impl TensorElement for $element {
            const DATA_TYPE: DataType =
                DataType { code: $code, bits: 8 * size_of::<$element>() as u8, lanes: 1 };
        }
    )*};
}

elements!(abi::INT => i8, i16, i32, i64);
elements!(abi::UINT => u8, u16, u32, u64);
elements!(abi::FLOAT => F16, f32, f64);
elements!(abi::BFLOAT => Bf16);

/// The reason why a DLPack tensor cannot be a [`Buffer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DlpackError {
    /// The major version of the structure is unknown, so its layout is, too.
    #[error("the tensor has version {}.{} of DLPack, but this runtime knows version {}; export it with that version",
        .0.major, .0.minor, abi::MAJOR)]
    Version(Version),
    /// The tensor is read-only, but peers can write to registered memory.
    #[error("the tensor is read-only, and peers could write to it; export a copy")]
    ReadOnly,
    /// The memory belongs to a device that kernels cannot access.
    #[error("the tensor is on device {} of DLPack type {}; move it to the CPU (type 1) or a CUDA GPU (type 2)",
        .0.device_id, .0.device_type)]
    Device(Device),
    /// The elements are not of the type that the program expects.
    #[error("the elements of the tensor are {}, but the program expects {}", Named(.found), Named(.expected))]
    ElementType {
        /// Type of the tensor's elements.
        found: DataType,
        /// Type that the program expects.
        expected: DataType,
    },
    /// The shape is null, or has a negative length or number of dimensions.
    #[error("the shape of the tensor is not valid ({0} dimensions)")]
    Shape(i32),
    /// The elements are not contiguous in row-major order.
    #[error(
        "the tensor of shape {shape:?} is not compact in row-major order, since its strides are {strides:?}; \
        export a contiguous copy"
    )]
    Strides {
        /// Length of each dimension, in elements.
        shape: Box<[usize]>,
        /// Distance of neighbouring elements in each dimension, in elements.
        strides: Box<[i64]>,
    },
    /// The tensor has no elements.
    #[error("the tensor has no elements, and empty memory cannot be registered")]
    Empty,
    /// The tensor has elements, but no address.
    #[error("the address of the tensor is null")]
    NullData,
    /// The elements do not fit into the address space.
    #[error("the tensor ends beyond the largest address")]
    TooLarge,
    /// The first element is not aligned for its type.
    #[error("the address {address:#x} of the tensor is not a multiple of {align} bytes")]
    Misaligned {
        /// Address of the first element.
        address: u64,
        /// Alignment of the element type, in bytes.
        align: usize,
    },
}

impl From<DlpackError> for Error {
    fn from(error: DlpackError) -> Self {
        Error::misuse("DlpackTensor", error.to_string())
    }
}

struct Named<'a>(&'a DataType);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DataType { code, bits, lanes } = *self.0;
        match code {
            abi::INT => write!(f, "i{bits}")?,
            abi::UINT => write!(f, "u{bits}")?,
            abi::FLOAT => write!(f, "f{bits}")?,
            abi::BFLOAT => write!(f, "bf{bits}")?,
            code => write!(f, "of DLPack code {code} with {bits} bits")?,
        }
        if lanes == 1 { Ok(()) } else { write!(f, " x {lanes}") }
    }
}

/// A contiguous tensor of another library, in CPU memory or on a CUDA GPU. Dropping it calls the library's deleter.
///
/// The tensor must be in row-major order without gaps. In the window, element `[i, j]` of a tensor with 10
/// columns is `handle().at(10 * i + j)`.
///
/// Both structures of `dlpack.h` are supported: the versioned one with major version 1, and the older one without a
/// version.
///
/// ```no_run
/// # fn app(pe: &rushmem::Pe, capsule: *mut std::ffi::c_void) -> Result<(), rushmem::Error> {
/// use std::ptr::NonNull;
/// use rushmem::dlpack::DlpackTensor;
///
/// let tensor = NonNull::new(capsule).expect("a tensor").cast();
/// // SAFETY: the library has handed the tensor over, and has finished its work on it.
/// let tensor = unsafe { DlpackTensor::<f32>::from_raw(tensor) }?;
/// let window = pe.register_symmetric(tensor)?;
/// // Pass `window.handle()` to kernels. Then give the tensor back:
/// drop(pe.unregister_symmetric(window)?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DlpackTensor<T> {
    location: MemoryLocation,
    len: usize,
    shape: Box<[usize]>,
    device: Device,
    _owner: Owner,
    _elements: PhantomData<fn() -> T>,
}

// SAFETY: the caller of the constructor promised that any thread may use the memory and call the deleter.
unsafe impl<T: Send> Send for DlpackTensor<T> {}
// SAFETY: see `Send`. A shared reference gives no access to the elements.
unsafe impl<T: Sync> Sync for DlpackTensor<T> {}

impl<T: TensorElement> DlpackTensor<T> {
    /// Takes ownership of a tensor without a version: a `DLManagedTensor`, the content of a Python capsule named
    /// `dltensor`.
    ///
    /// The caller must rename the capsule to `used_dltensor`, as the Python protocol demands. The tensor's deleter is
    /// called exactly once: when the value is dropped, or by this call if it fails.
    ///
    /// # Errors
    /// - [`DlpackError`] if the tensor cannot be a buffer: any variant but `Version` and `ReadOnly`
    ///
    /// # Safety
    /// - `tensor` points to a valid structure of the header, which the caller owns.
    /// - The rules of [`Buffer`] hold for the elements until the deleter is called, on any thread.
    /// - The library's work on the tensor has completed, or is in a stream that the program orders before its kernels.
    pub unsafe fn from_raw(tensor: NonNull<ManagedTensor>) -> Result<Self, DlpackError> {
        let owner = Owner::Plain(tensor);
        // SAFETY: promised by the caller.
        let tensor = unsafe { tensor.as_ref() }.dl_tensor;
        // SAFETY: promised by the caller; the owner keeps it.
        unsafe { Self::new(tensor, owner) }
    }

    /// Takes ownership of a tensor with a version: a `DLManagedTensorVersioned`, the content of a Python capsule named
    /// `dltensor_versioned`. Otherwise like [`from_raw`](Self::from_raw).
    ///
    /// # Errors
    /// - [`DlpackError`] if the tensor cannot be a buffer
    ///
    /// # Safety
    /// The rules of [`from_raw`](Self::from_raw) apply. If the major version differs, only the fields before
    /// `dl_tensor` need to be valid.
    pub unsafe fn from_versioned(tensor: NonNull<ManagedTensorVersioned>) -> Result<Self, DlpackError> {
        let owner = Owner::Versioned(tensor);
        // SAFETY: every version has this field. Read it through the pointer: a reference to the whole structure would
        // claim fields that another version may lack.
        let version = unsafe { (&raw const (*tensor.as_ptr()).version).read() };
        if version.major != abi::MAJOR {
            return Err(DlpackError::Version(version));
        }
        // SAFETY: promised by the caller for this major version.
        let versioned = unsafe { tensor.as_ref() };
        if versioned.flags & abi::READ_ONLY != 0 {
            return Err(DlpackError::ReadOnly);
        }
        // SAFETY: promised by the caller; the owner keeps it.
        unsafe { Self::new(versioned.dl_tensor, owner) }
    }

    /// Validates the tensor. `owner` calls the deleter if that fails.
    ///
    /// # Safety
    /// `tensor` is valid while `owner` lives.
    unsafe fn new(tensor: Tensor, owner: Owner) -> Result<Self, DlpackError> {
        // Check the device first: on others, `data` may be a handle rather than an address.
        if !matches!(tensor.device.device_type, abi::CPU | abi::CUDA_HOST | abi::CUDA) {
            return Err(DlpackError::Device(tensor.device));
        }
        let expected = T::DATA_TYPE;
        if tensor.dtype != expected {
            return Err(DlpackError::ElementType { found: tensor.dtype, expected });
        }
        // SAFETY: promised by the caller.
        let (shape, strides) = unsafe { (lengths(&tensor)?, numbers(tensor.strides, tensor.ndim)) };
        let len = shape.iter().try_fold(1_usize, |len, &next| len.checked_mul(next));
        // With a zero among them, the other lengths may overflow, and the tensor is just empty.
        let len = if shape.contains(&0) { 0 } else { len.ok_or(DlpackError::TooLarge)? };
        if len == 0 {
            return Err(DlpackError::Empty);
        }
        if strides.is_some_and(|strides| !is_compact(&shape, strides)) {
            let strides = strides.unwrap_or_default().into();
            return Err(DlpackError::Strides { shape, strides });
        }
        let start = first_element::<T>(&tensor, len)?;
        let location = match tensor.device.device_type {
            abi::CUDA => MemoryLocation::Gpu(start.addr().get() as u64),
            abi::CUDA_HOST => MemoryLocation::PageLocked(start),
            _ => MemoryLocation::Host(start),
        };
        let device = tensor.device;
        Ok(Self { location, len, shape, device, _owner: owner, _elements: PhantomData })
    }

    /// Returns the length of each dimension, in elements.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the device of the memory. For a GPU, `device_id` is its CUDA ordinal.
    pub fn device(&self) -> Device {
        self.device
    }
}

// SAFETY: the caller of the constructor promised valid elements, and the checks found them compact and aligned.
unsafe impl<T: TensorElement> Buffer for DlpackTensor<T> {
    type Element = T;
    fn location(&mut self) -> MemoryLocation {
        self.location
    }
    fn len(&self) -> usize {
        self.len
    }
}

/// Calls the tensor's deleter on drop.
#[derive(Debug)]
enum Owner {
    Plain(NonNull<ManagedTensor>),
    Versioned(NonNull<ManagedTensorVersioned>),
}

impl Drop for Owner {
    fn drop(&mut self) {
        match *self {
            // SAFETY: the structure is valid until its deleter is called, which happens only here.
            Owner::Plain(tensor) => unsafe {
                let delete = (&raw const (*tensor.as_ptr()).deleter).read();
                if let Some(delete) = delete {
                    delete(tensor.as_ptr());
                }
            },
            // SAFETY: see above. Every version has the deleter at this offset.
            Owner::Versioned(tensor) => unsafe {
                let delete = (&raw const (*tensor.as_ptr()).deleter).read();
                if let Some(delete) = delete {
                    delete(tensor.as_ptr());
                }
            },
        }
    }
}

/// Returns the length of each dimension.
///
/// # Safety
/// `shape` is null or points to `ndim` lengths.
unsafe fn lengths(tensor: &Tensor) -> Result<Box<[usize]>, DlpackError> {
    let wrong = || DlpackError::Shape(tensor.ndim);
    if tensor.ndim < 0 {
        return Err(wrong());
    }
    // SAFETY: promised by the caller.
    let shape = unsafe { numbers(tensor.shape, tensor.ndim) }.ok_or_else(wrong)?;
    shape.iter().map(|&length| usize::try_from(length).map_err(|_| wrong())).collect()
}

/// Returns the `count` numbers at `start`, or `None` if `count` is negative, or positive with a null `start`.
///
/// # Safety
/// `start` is null or points to `count` numbers, which outlive the result.
unsafe fn numbers<'a>(start: *const i64, count: i32) -> Option<&'a [i64]> {
    match usize::try_from(count) {
        Ok(0) => Some(&[]),
        Ok(_) if start.is_null() => None,
        // SAFETY: promised by the caller.
        Ok(count) => Some(unsafe { std::slice::from_raw_parts(start, count) }),
        Err(_) => None,
    }
}

/// Returns whether a tensor with these strides is contiguous in row-major order. The stride of a dimension of length 1
/// is ignored. The lengths must not be 0, and their product must fit into 128 bits.
fn is_compact(shape: &[usize], strides: &[i64]) -> bool {
    let mut expected = 1_i128;
    shape.iter().zip(strides).rev().all(|(&length, &stride)| {
        let right = length == 1 || i128::from(stride) == expected;
        expected *= length as i128;
        right
    })
}

/// Returns the address of the first of `len` elements.
fn first_element<T>(tensor: &Tensor, len: usize) -> Result<NonNull<u8>, DlpackError> {
    let data = NonNull::new(tensor.data.cast::<u8>()).ok_or(DlpackError::NullData)?;
    let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
    let offset = usize::try_from(tensor.byte_offset).ok();
    let end = bytes
        .zip(offset)
        .and_then(|(bytes, offset)| data.addr().get().checked_add(offset)?.checked_add(bytes));
    let (Some(_), Some(offset)) = (end, offset) else { return Err(DlpackError::TooLarge) };
    let start = data.as_ptr().wrapping_add(offset);
    let align = align_of::<T>();
    if !start.addr().is_multiple_of(align) {
        return Err(DlpackError::Misaligned { address: start.addr() as u64, align });
    }
    NonNull::new(start).ok_or(DlpackError::NullData)
}
