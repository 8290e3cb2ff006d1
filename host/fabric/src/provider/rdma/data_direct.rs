//! Data direct: a second PCI function of a ConnectX-8, which reaches GPU memory without passing the CPU.
//!
//! Queues cannot use it, so completions would not stay behind the data of gets and of fetching atomics. Only peers
//! access memory through it: the rkey of GPU memory is one of data direct, and the lkey is not. All that peers write to
//! a heap, data and signals, then takes the same path.
#![allow(unsafe_code, reason = "calls libmlx5")]

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};

use rushmem_config::Switch;
use rushmem_error::errno_text;

use super::context::{Context, pci_address};
use super::ffi;
use crate::provider::sysfs;

/// Whether an RDMA device has a data-direct device, and whether a job uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DataDirect {
    /// It has none.
    Absent,
    /// The settings do not use the one at this directory in sysfs.
    Unused(PathBuf),
    /// Peers access GPU memory through the one at this directory in sysfs.
    Used(PathBuf),
    /// The settings ask for it, and this is why it cannot be looked for.
    Unknown(String),
}

impl DataDirect {
    /// Looks for the data-direct device of an RDMA device.
    pub(super) fn find(context: &Context, wanted: Switch) -> Self {
        match (path(context), wanted) {
            (Ok(Some(path)), Switch::On) => Self::Used(path),
            (Ok(Some(path)), Switch::Off) => Self::Unused(path),
            (Err(why), Switch::On) => Self::Unknown(why),
            (Ok(None), _) | (Err(_), Switch::Off) => Self::Absent,
        }
    }

    /// Returns the directory in sysfs of the device through which peers access GPU memory, if it is not the NIC itself.
    pub(super) fn used(&self) -> Option<&Path> {
        match self {
            Self::Used(path) => Some(path),
            _ => None,
        }
    }

    /// Returns a suffix for the description of the RDMA device.
    pub(super) fn describe(&self) -> String {
        let name = |path: &Path| pci_address(path).map_or_else(|| path.display().to_string(), str::to_owned);
        match self {
            Self::Absent => String::new(),
            Self::Unused(path) => format!(", data direct {} unused (RUSHMEM_DATA_DIRECT=off)", name(path)),
            Self::Used(path) => format!(", data direct {}", name(path)),
            Self::Unknown(why) => format!(", no data direct: {why}"),
        }
    }
}

/// Returns the directory in sysfs of the data-direct device, or `None` if there is none. The error says why that is
/// unknown.
fn path(context: &Context) -> Result<Option<PathBuf>, String> {
    let Some(functions) = ffi::data_direct() else {
        return Err("libmlx5 lacks it; install rdma-core 54 or newer".into());
    };
    let mut text: [c_char; libc::PATH_MAX as usize] = [0; libc::PATH_MAX as usize];
    // SAFETY: the context is open, and the text has this length.
    let errno = unsafe { (functions.sysfs_path)(context.raw(), text.as_mut_ptr(), text.len() - 1) };
    match errno {
        0 => {
            // SAFETY: the last byte is zero in any case.
            let path = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
            Ok(Some(sysfs::root().join(path.trim_start_matches('/'))))
        }
        libc::ENODEV => Ok(None),
        libc::EPROTONOSUPPORT | libc::EOPNOTSUPP => Err("Linux lacks it; it came with 6.12".into()),
        errno => Err(format!("mlx5dv_get_data_direct_sysfs_path: {}", errno_text(errno))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_used_device_is_on_the_path() {
        let folder = PathBuf::from("/sys/devices/pci0000:7d/0000:7d:00.0/0000:7e:00.1");
        let used = DataDirect::Used(folder.clone());
        assert_eq!((used.used(), used.describe()), (Some(&*folder), ", data direct 0000:7e:00.1".into()));
        for other in [DataDirect::Unused(folder), DataDirect::Unknown("why".into()), DataDirect::Absent] {
            assert_eq!(other.used(), None, "{other:?}");
        }
        assert_eq!(DataDirect::Absent.describe(), "");
    }
}
