//! Device numbers of the nodes in `/dev/infiniband`, which follow from the index of a device.

use crate::abi::MAJOR;

/// Device minor of `uverbs0`.
pub(crate) const FIRST_MINOR: u32 = 192;

/// Returns the `dev_t` of a uverbs node.
pub(crate) fn device_number(index: u32) -> libc::dev_t {
    libc::makedev(MAJOR, FIRST_MINOR + index)
}

/// Returns the `dev_t` of a uverbs node as text, such as `231:192`.
pub(crate) fn device_number_text(index: u32) -> String {
    format!("{MAJOR}:{}", FIRST_MINOR + index)
}

/// Returns the `dev_t` of a umad node.
pub(crate) fn umad_number(index: u32) -> libc::dev_t {
    libc::makedev(MAJOR, index)
}

/// Returns the `dev_t` of a umad node as text.
pub(crate) fn umad_number_text(index: u32) -> String {
    format!("{MAJOR}:{index}")
}
