//! Opens RDMA devices for DevX, libmlx5's interface to raw PRM commands, and creates objects with it.
#![allow(unsafe_code, reason = "calls libibverbs and libmlx5")]

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma_sys::{ibv_context, ibv_device};
use rushmem_error::{NicError, RdmaError, errno_text};
use rushmem_mlx5::prm::{CmdError, CmdOpcode, Header};

use super::ffi;
use super::remedy::{SEE_DMESG, last_errno};
use crate::provider::Object;

/// The RDMA devices found by libibverbs.
pub(super) struct Devices {
    list: *mut *mut ibv_device,
    count: usize,
}

pub(super) struct Device<'a> {
    raw: *mut ibv_device,
    /// Device name, such as `mlx5_0`.
    pub(super) name: String,
    /// Directory of the PCI device in sysfs, with symbolic links resolved.
    pub(super) sysfs: PathBuf,
    /// Path of the device node, such as `/dev/infiniband/uverbs0`.
    node: String,
    /// Whether libmlx5 drives the device.
    pub(super) is_mlx5: bool,
    _devices: &'a Devices,
}

impl Devices {
    /// Lists the devices (`ibv_get_device_list`). Returns an empty list if Linux has no RDMA support.
    ///
    /// # Errors
    ///
    /// [`RdmaError::NoLibrary`]: libibverbs or libmlx5 cannot be loaded.
    pub(super) fn find() -> Result<Self, RdmaError> {
        ffi::load()?;
        let mut count = 0;
        // SAFETY: the call writes the count to a live variable.
        let list = unsafe { ffi::ibv_get_device_list(&mut count) };
        if list.is_null() {
            tracing::debug!("ibv_get_device_list: {}", errno_text(last_errno()));
            count = 0;
        }
        Ok(Self { list, count: count.max(0) as usize })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Device<'_>> {
        (0..self.count).map(|i| {
            // SAFETY: `i` is below the list's length, and the list lives as long as `self`.
            let raw = unsafe { *self.list.add(i) };
            // SAFETY: `raw` is a device in the list, and its strings are null-terminated.
            let (name, node, path, is_mlx5) = unsafe {
                let device = &*raw;
                let text = |field: &[c_char]| CStr::from_ptr(field.as_ptr()).to_string_lossy().into_owned();
                let supported = ffi::mlx5dv_is_supported(raw);
                (text(&device.name), text(&device.dev_name), text(&device.ibdev_path), supported)
            };
            let link = Path::new(&path).join("device");
            let sysfs = link.canonicalize().unwrap_or(link);
            Device { raw, name, sysfs, node: format!("/dev/infiniband/{node}"), is_mlx5, _devices: self }
        })
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        if !self.list.is_null() {
            // SAFETY: `ibv_get_device_list` made the list, and it is freed once. Opened devices stay open.
            unsafe { ffi::ibv_free_device_list(self.list) };
        }
    }
}

impl Device<'_> {
    /// Returns the device's name and PCI address, for messages.
    pub(super) fn title(&self) -> String {
        match pci_address(&self.sysfs) {
            Some(pci) => format!("{} ({pci})", self.name),
            None => self.name.clone(),
        }
    }

    /// Opens the device for DevX (`mlx5dv_open_device`).
    pub(super) fn open(&self) -> Result<Arc<Context>, RdmaError> {
        let mut attr = ffi::ContextAttr { flags: ffi::CONTEXT_DEVX, comp_mask: 0 };
        // SAFETY: the device is in a live list, and `attr` is a live variable.
        let raw = unsafe { ffi::mlx5dv_open_device(self.raw, &mut attr) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Arc::new(Context { raw, title: self.title(), commands: AtomicU64::new(0) })),
            None => Err(self.open_error(last_errno())),
        }
    }

    /// Builds the error for a device that could not be opened. `errno` is that of the failed attempt.
    ///
    /// If the device opens without DevX, DevX is the cause. Otherwise opens the device node directly to learn the
    /// errno: libibverbs may report the errno of another call.
    fn open_error(&self, errno: i32) -> RdmaError {
        // SAFETY: the device is in a live list.
        let plain = unsafe { ffi::ibv_open_device(self.raw) };
        let (call, errno, remedy) = if plain.is_null() {
            let errno = self.open_node().err().unwrap_or(errno);
            let remedy = match errno {
                libc::EACCES | libc::EPERM => format!(
                    "This user has no permission: allow it to read and write {0} (a udev rule, or chmod 666 {0}), or \
                     pass the node into the container (--device {0})",
                    self.node
                ),
                libc::ENOENT | libc::ENODEV | libc::ENXIO => {
                    "The node is missing: load the module ib_uverbs, or pass the node into the container"
                        .into()
                }
                _ => SEE_DMESG.into(),
            };
            (format!("opening {}", self.node), errno, remedy)
        } else {
            // SAFETY: `plain` was opened above, and is closed once.
            unsafe { ffi::ibv_close_device(plain) };
            let remedy = "The device opens without DevX, but queues need DevX: set UCTX_EN=1 in its firmware \
                          (mlxconfig), use Linux 5.0 or newer with CONFIG_MLX5_INFINIBAND, or use RUSHMEM_NIC=soft";
            ("opening the device for DevX".into(), errno, remedy.into())
        };
        RdmaError::Call { nic: self.title(), call, errno, remedy }
    }

    /// Checks whether the device node can be opened as libibverbs does. Returns the errno value if it cannot.
    fn open_node(&self) -> Result<(), i32> {
        let path = CString::new(self.node.as_str()).map_err(|_| libc::EINVAL)?;
        // SAFETY: `path` is a C string, and an opened descriptor is closed once.
        unsafe {
            match libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) {
                -1 => Err(last_errno()),
                fd => {
                    libc::close(fd);
                    Ok(())
                }
            }
        }
    }
}

/// Returns the PCI address, such as `0000:3b:00.0`, from a device's path in sysfs.
pub(super) fn pci_address(sysfs: &Path) -> Option<&str> {
    let name = sysfs.file_name()?.to_str()?;
    let is_address = name.len() >= 12
        && name.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
        && name.matches(':').count() == 2
        && name.matches('.').count() == 1;
    is_address.then_some(name)
}

/// An open device, closed on drop.
pub(super) struct Context {
    raw: NonNull<ibv_context>,
    title: String,
    commands: AtomicU64,
}

// SAFETY: any thread may use a context, because libibverbs and libmlx5 lock internally.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Returns the device's name and PCI address, for messages.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Builds the error for a libibverbs or libmlx5 call on this device that failed with `errno`.
    pub(super) fn error(&self, call: impl Into<String>, errno: i32, remedy: impl Into<String>) -> RdmaError {
        RdmaError::Call { nic: self.title.clone(), call: call.into(), errno, remedy: remedy.into() }
    }

    pub(super) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Counts a PRM command, and returns an error if it failed and Linux has not returned its output mailbox.
    ///
    /// An error status in the output mailbox is not an error here: the caller decodes it, and it is more precise than
    /// the errno value.
    fn outcome(&self, input: &[u8], output: &[u8], failed: bool, errno: i32) -> Result<(), RdmaError> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        if !failed || CmdError::check(output).is_err() {
            return Ok(());
        }
        let command = Header::decode(input).map_or(CmdOpcode(0), |header| header.opcode);
        Err(RdmaError::Command { nic: self.title.clone(), command, errno })
    }

    /// Returns the EQN of completion vector 0 (`mlx5dv_devx_query_eqn`).
    pub(super) fn query_eqn(&self) -> Result<u8, RdmaError> {
        let mut eqn = 0;
        // SAFETY: the context is open, and `eqn` is a live variable.
        let errno = unsafe { ffi::mlx5dv_devx_query_eqn(self.raw(), 0, &mut eqn) };
        match errno {
            0 => Ok(eqn as u8),
            errno => Err(self.error("mlx5dv_devx_query_eqn", errno, SEE_DMESG)),
        }
    }

    /// Executes a command that does not refer to an object (`mlx5dv_devx_general_cmd`).
    pub(super) fn general(&self, input: &[u8], output: &mut [u8]) -> Result<(), RdmaError> {
        // SAFETY: the context is open, and the mailboxes have these lengths.
        let errno = unsafe {
            ffi::mlx5dv_devx_general_cmd(
                self.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        self.outcome(input, output, errno != 0, errno)
    }

    /// Executes a command that creates an object (`mlx5dv_devx_obj_create`).
    pub(super) fn create(self: &Arc<Self>, input: &[u8], output: &mut [u8]) -> Result<DevxObject, RdmaError> {
        // SAFETY: the context is open, and the mailboxes have these lengths.
        let raw = unsafe {
            ffi::mlx5dv_devx_obj_create(
                self.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        self.outcome(input, output, raw.is_null(), last_errno())?;
        Ok(DevxObject { raw: NonNull::new(raw), context: Arc::clone(self) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `Device::open` opened the context, and it is closed once. Its objects hold an `Arc` of it.
        let errno = unsafe { ffi::ibv_close_device(self.raw()) };
        if errno != 0 {
            tracing::warn!("{}: closing the device: {}", self.title, errno_text(errno));
        }
    }
}

/// An object created by a DevX command. The inner value is `None` if the device refused the command.
pub(super) struct DevxObject {
    raw: Option<NonNull<ffi::DevxObj>>,
    context: Arc<Context>,
}

// SAFETY: any thread may use an object, because calls change no state of it in libmlx5.
unsafe impl Send for DevxObject {}
// SAFETY: as for `Send`.
unsafe impl Sync for DevxObject {}

impl DevxObject {
    pub(super) fn raw(&self) -> Option<NonNull<ffi::DevxObj>> {
        self.raw
    }
}

impl Object for DevxObject {
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError> {
        let Some(object) = self.raw else {
            let why = "a command names an object that the device did not create";
            return Err(RdmaError::Unusable { nic: self.context.title.clone(), why: why.into() }.into());
        };
        let queries = Header::decode(input)
            .is_ok_and(|header| matches!(header.opcode, CmdOpcode::QUERY_QP | CmdOpcode::QUERY_CQ));
        let call = if queries { ffi::mlx5dv_devx_obj_query } else { ffi::mlx5dv_devx_obj_modify };
        let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: the object is live, and the mailboxes have these lengths.
        let errno = unsafe { call(object.as_ptr(), from, input.len(), to, output.len()) };
        Ok(self.context.outcome(input, output, errno != 0, errno)?)
    }
}

impl Drop for DevxObject {
    fn drop(&mut self) {
        if let Some(object) = self.raw {
            // SAFETY: `Context::create` created the object, and it is destroyed once.
            let errno = unsafe { ffi::mlx5dv_devx_obj_destroy(object.as_ptr()) };
            if errno != 0 {
                tracing::warn!("{}: destroying an object: {}", self.context.title, errno_text(errno));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_pci_address_at_the_end_of_a_path() {
        let path = |text| pci_address(Path::new(text)).map(str::to_owned);
        assert_eq!(path("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"), Some("0000:3b:00.0".into()));
        assert_eq!(path("/tmp/sys/class/infiniband/mlx5_0/device"), None);
    }
}
