//! The device numbers of the nodes in `/dev/infiniband`.

use crate::abi::MAJOR;

/// The minor number of the first device.
pub(crate) const FIRST_MINOR: u32 = 192;

/// Returns the device number of a node.
pub(crate) fn device_number(index: u32) -> libc::dev_t {
    libc::makedev(MAJOR, FIRST_MINOR + index)
}

/// Returns the device number as text: `231:192`, ...
pub(crate) fn device_number_text(index: u32) -> String {
    format!("{MAJOR}:{}", FIRST_MINOR + index)
}

/// Returns the device number of a device's file for management datagrams.
pub(crate) fn umad_number(index: u32) -> libc::dev_t {
    libc::makedev(MAJOR, index)
}

/// Returns the same as text.
pub(crate) fn umad_number_text(index: u32) -> String {
    format!("{MAJOR}:{index}")
}
