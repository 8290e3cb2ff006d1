//! Constants and types of the header.
//!
//! Functions take constants as integers, because a C caller may pass any number: a Rust enum must not hold an unknown
//! one.
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use std::ffi::{c_char, c_void};

use rushmem::config::DeviceKind;
use rushmem::{Error, Result};
use rushmem_device::{Cmp, Reduce, SignalOp};

/// A PE (processing element) of this process, created by `rushmem_init`.
pub struct rushmem_pe(());

/// Memory of the caller that all PEs have registered as symmetric memory, created by `rushmem_register_symmetric`.
pub struct rushmem_window(());

/// A team of PEs. Kernels get the same value as the host.
pub type rushmem_team = u64;

/// The team of all PEs of the job.
pub const RUSHMEM_TEAM_WORLD: u64 = 0x1_0000_0000;

/// The team of the PEs that load and store each other's symmetric memory, including this one.
pub const RUSHMEM_TEAM_SHARED: u64 = 0x1_0000_0001;

/// The team of the PEs on this PE's node.
pub const RUSHMEM_TEAM_NODE: u64 = 0x1_0000_0002;

/// The team of no PE, which `rushmem_team_split_strided` returns on PEs outside the new team.
pub const RUSHMEM_TEAM_INVALID: u64 = 0xffff_ffff;

/// Length of a unique ID as text, including the final zero byte.
pub const RUSHMEM_UNIQUE_ID_BYTES: usize = 129;

/// Outcomes of functions. The numbers never change.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum rushmem_status {
    /// The call has succeeded.
    Success = 0,
    /// An argument, a setting or the order of calls is invalid.
    InvalidValue = 1,
    /// The symmetric heap, host memory or GPU memory is full.
    OutOfMemory = 2,
    /// This machine or this build lacks a requested feature.
    NotSupported = 3,
    /// The PEs made different collective calls, or differ in their builds or settings.
    Asymmetric = 4,
    /// There is no GPU, or not the requested one.
    NoGpu = 5,
    /// A kernel could not be launched, or was terminated from outside.
    LaunchFailed = 6,
    /// This library broke one of its own guarantees.
    Internal = 7,
    /// A call in a kernel failed. The text of the error gives the reason.
    Kernel = 8,
    /// A NIC refused a request, or did not complete it.
    Nic = 9,
    /// Other PEs did not arrive in time.
    Timeout = 10,
    /// A PE or the job's server was lost.
    PeerLost = 11,
    /// The PEs of a job could not find each other.
    Bootstrap = 12,
    /// The operating system refused a request.
    System = 13,
    /// The application failed.
    Application = 14,
}

/// Where kernels run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum rushmem_device_kind {
    /// As the setting `device` says. If it does not say, on a GPU, or natively if there is none.
    Auto = 0,
    /// Natively, in the GPU emulator on the cores of this machine.
    Native = 1,
    /// On a GPU. It is an error if there is none.
    Gpu = 2,
}

/// Updates of a signal.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum rushmem_signal {
    /// The signal becomes the value.
    Set = 0,
    /// The value is added to the signal.
    Add = 1,
}

/// Comparisons of a signal with a value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum rushmem_cmp {
    /// The signal is equal to the value.
    Eq = 0,
    /// The signal is not equal to the value.
    Ne = 1,
    /// The signal is greater than the value.
    Gt = 2,
    /// The signal is greater than or equal to the value.
    Ge = 3,
    /// The signal is less than the value.
    Lt = 4,
    /// The signal is less than or equal to the value.
    Le = 5,
    /// The signal is at or past the value, by less than 2^63. For counters that wrap.
    Reached = 6,
}

/// Element types of reductions. Kernels use the same numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum rushmem_type {
    /// `uint8_t`
    Uint8 = 0,
    /// `int8_t`
    Int8 = 1,
    /// `uint16_t`
    Uint16 = 2,
    /// `int16_t`
    Int16 = 3,
    /// `uint32_t`
    Uint32 = 4,
    /// `int32_t`
    Int32 = 5,
    /// `uint64_t`
    Uint64 = 6,
    /// `int64_t`
    Int64 = 7,
    /// IEEE 754 half precision, 2 bytes.
    Float16 = 8,
    /// bfloat16, 2 bytes.
    Bfloat16 = 9,
    /// `float`
    Float32 = 10,
    /// `double`
    Float64 = 11,
}

/// Reductions. The bitwise ones are defined for integers only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum rushmem_op {
    /// Sum of the elements.
    Sum = 0,
    /// Product of the elements.
    Prod = 1,
    /// Least element.
    Min = 2,
    /// Greatest element.
    Max = 3,
    /// Bitwise and.
    And = 4,
    /// Bitwise or.
    Or = 5,
    /// Bitwise exclusive or.
    Xor = 6,
}

/// Options of `rushmem_init`. A member that is 0 keeps the value from the environment and the settings file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_init_options {
    /// `sizeof(rushmem_init_options)`. Later versions may append members.
    pub size: usize,
    /// Unique ID of the job as text, or null to find the other PEs through the launcher.
    pub unique_id: *const c_char,
    /// Size of the symmetric heap in bytes.
    pub heap_bytes: u64,
    /// Number of this PE, if there is a unique ID.
    pub pe: i32,
    /// Number of PEs in the job, if there is a unique ID.
    pub n_pes: i32,
    /// Where kernels run: a `rushmem_device_kind`.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
}

/// Symmetric memory with a name, for `rushmem_save` and `rushmem_restore`. It is saved as elements of one byte.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_object {
    /// Name that no other object of the checkpoint has.
    pub name: *const c_char,
    /// Address of this PE's copy.
    pub ptr: *mut c_void,
    /// Size in bytes.
    pub bytes: usize,
}

/// Returns the variant whose number is `value`.
fn variant<T: Copy>(call: &'static str, what: &str, value: i32, variants: &[T]) -> Result<T> {
    let found = usize::try_from(value).ok().and_then(|at| variants.get(at)).copied();
    found.ok_or_else(|| {
        let last = variants.len() - 1;
        Error::misuse(call, format!("there is no {what} {value}: the last one is {last}"))
    })
}

pub(crate) fn device_kind(call: &'static str, value: i32) -> Result<DeviceKind> {
    variant(call, "device", value, &[DeviceKind::Auto, DeviceKind::Native, DeviceKind::Gpu])
}

pub(crate) fn signal_op(call: &'static str, value: i32) -> Result<SignalOp> {
    variant(call, "signal update", value, &[SignalOp::Set, SignalOp::Add])
}

pub(crate) fn cmp(call: &'static str, value: i32) -> Result<Cmp> {
    use Cmp::{Eq, Ge, Gt, Le, Lt, Ne, Reached};
    variant(call, "comparison", value, &[Eq, Ne, Gt, Ge, Lt, Le, Reached])
}

pub(crate) fn reduce_op(call: &'static str, value: i32) -> Result<Reduce> {
    use Reduce::{And, Max, Min, Or, Prod, Sum, Xor};
    variant(call, "reduction", value, &[Sum, Prod, Min, Max, And, Or, Xor])
}

pub(crate) fn element_type(call: &'static str, value: i32) -> Result<rushmem_type> {
    use rushmem_type::{
        Bfloat16, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64,
    };
    let all = [Uint8, Int8, Uint16, Int16, Uint32, Int32, Uint64, Int64, Float16, Bfloat16, Float32, Float64];
    variant(call, "element type", value, &all)
}

impl rushmem_type {
    /// Size of an element in bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Int64 | Self::Uint64 | Self::Float64 => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use rushmem_device::{ElementKind, Team};

    use super::*;

    #[test]
    fn predefined_teams_have_the_numbers_of_the_header() {
        assert_eq!(RUSHMEM_TEAM_WORLD, Team::WORLD.to_bits());
        assert_eq!(RUSHMEM_TEAM_SHARED, Team::SHARED.to_bits());
        assert_eq!(RUSHMEM_TEAM_NODE, Team::NODE.to_bits());
        assert_eq!(RUSHMEM_TEAM_INVALID, Team::INVALID.to_bits());
    }

    #[test]
    fn numbers_select_the_constants_of_the_header() {
        assert_eq!(device_kind("", rushmem_device_kind::Gpu as i32).unwrap(), DeviceKind::Gpu);
        assert_eq!(signal_op("", rushmem_signal::Add as i32).unwrap(), SignalOp::Add);
        assert_eq!(cmp("", rushmem_cmp::Le as i32).unwrap(), Cmp::Le);
        assert_eq!(reduce_op("", rushmem_op::Xor as i32).unwrap(), Reduce::Xor);
        for number in 0..12 {
            assert_eq!(element_type("", number).unwrap() as i32, number);
        }
        // Kernels take these numbers for those of the device API.
        assert_eq!(rushmem_type::Uint8 as u32, ElementKind::U8 as u32);
        assert_eq!(rushmem_type::Int64 as u32, ElementKind::I64 as u32);
        assert_eq!(rushmem_type::Float64 as u32, ElementKind::F64 as u32);
        for number in [-1, 12, i32::MAX] {
            assert!(element_type("a_call", number).is_err());
        }
    }
}
