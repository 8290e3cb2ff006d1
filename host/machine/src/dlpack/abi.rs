//! The C structures of DLPack 1.1, from `dlpack.h`, with the header's field names.

use std::ffi::c_void;

/// Version of the DLPack structures that a library exports: `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Structures of different major versions have different layouts.
    pub major: u32,
    /// A new minor version only adds values, such as types.
    pub minor: u32,
}

/// The major version of the structures in this module.
pub const MAJOR: u32 = 1;

/// Device that holds a tensor's memory: `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Kind of device: [`CPU`], [`CUDA`], [`CUDA_HOST`], or one that is not supported.
    pub device_type: i32,
    /// Index among the devices of this kind.
    pub device_id: i32,
}

/// Device type of ordinary CPU memory: `kDLCPU`.
pub const CPU: i32 = 1;
/// Device type of CUDA GPU memory: `kDLCUDA`.
pub const CUDA: i32 = 2;
/// Device type of CPU memory that CUDA has page-locked: `kDLCUDAHost`.
pub const CUDA_HOST: i32 = 3;

/// Element type: `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType {
    /// Kind of number: [`INT`], [`UINT`], [`FLOAT`], [`BFLOAT`], or one that is not supported.
    pub code: u8,
    /// Size of a number in bits.
    pub bits: u8,
    /// Numbers per element; more than 1 for vectors.
    pub lanes: u16,
}

/// Type code of signed integers: `kDLInt`.
pub const INT: u8 = 0;
/// Type code of unsigned integers: `kDLUInt`.
pub const UINT: u8 = 1;
/// Type code of IEEE floating-point numbers: `kDLFloat`.
pub const FLOAT: u8 = 2;
/// Type code of `bfloat16` numbers: `kDLBfloat`.
pub const BFLOAT: u8 = 4;

/// A tensor that does not own its memory: `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// Address of the memory on the device.
    pub data: *mut c_void,
    /// Device whose memory `data` points to.
    pub device: Device,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of the elements.
    pub dtype: DataType,
    /// Length of each dimension, in elements.
    pub shape: *mut i64,
    /// Distance of neighbouring elements in each dimension, in elements. Null for a contiguous tensor in row-major
    /// order.
    pub strides: *mut i64,
    /// Distance from `data` to the first element, in bytes.
    pub byte_offset: u64,
}

/// A tensor with the means to free it: `DLManagedTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensor {
    /// Shape, element type and address of the tensor.
    pub dl_tensor: Tensor,
    /// Private data of the exporting library.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this structure. Null if nothing needs to be freed.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// A tensor with the means to free it, its version and flags: `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensorVersioned {
    /// Version of this structure. All fields before `dl_tensor` are the same in every version.
    pub version: Version,
    /// Private data of the exporting library.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this structure. Null if nothing needs to be freed.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    /// Properties of the tensor, such as [`READ_ONLY`].
    pub flags: u64,
    /// Shape, element type and address of the tensor.
    pub dl_tensor: Tensor,
}

/// Flag of a tensor that must not be written.
pub const READ_ONLY: u64 = 1;

// The layout on x86-64 of the structures in `dlpack.h`.
const _: () = {
    use std::mem::offset_of;
    assert!(
        size_of::<Tensor>() == 48 && offset_of!(Tensor, dtype) == 20 && offset_of!(Tensor, byte_offset) == 40
    );
    assert!(size_of::<ManagedTensor>() == 64 && offset_of!(ManagedTensor, deleter) == 56);
    assert!(size_of::<ManagedTensorVersioned>() == 80 && offset_of!(ManagedTensorVersioned, dl_tensor) == 32);
};
