//! Name and version of this library, for kernels and hosts. OpenSHMEM 1.6 section 9.1.6.

use core::ffi::CStr;

/// The OpenSHMEM version that the calls follow: major, minor.
///
/// OpenSHMEM: `SHMEM_MAJOR_VERSION`, `SHMEM_MINOR_VERSION`, `shmem_info_get_version`.
pub const SPECIFICATION: (u32, u32) = (1, 6);

/// The version of this library: major, minor, patch. NVSHMEM: `nvshmemx_vendor_get_version_info`.
pub const VERSION: (u32, u32, u32) = (
    number(env!("CARGO_PKG_VERSION_MAJOR")),
    number(env!("CARGO_PKG_VERSION_MINOR")),
    number(env!("CARGO_PKG_VERSION_PATCH")),
);

/// The name of this library, as returned by `shmem_info_get_name`: `SHMEM_VENDOR_STRING`.
pub const NAME: &CStr = c"Rushmem";

/// Maximum length of a name in bytes, including its terminating zero: `SHMEM_MAX_NAME_LEN`.
pub const MAX_NAME_LEN: usize = 64;

const _: () = assert!(NAME.count_bytes() < MAX_NAME_LEN);

/// Parses a number of the package version, at compile time.
#[allow(clippy::indexing_slicing)]
const fn number(text: &str) -> u32 {
    let (digits, mut n, mut i) = (text.as_bytes(), 0, 0);
    while i < digits.len() {
        n = n * 10 + (digits[i] - b'0') as u32;
        i += 1;
    }
    n
}
