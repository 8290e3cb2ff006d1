//! State of this process: its devices, and which of its descriptors refer to opened devices.

use crate::attrs::Call;
use crate::device::Device;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::fork;
use crate::ioctl;
use crate::live::LiveFile;
use crate::node::device_number;
use crate::open_device::OpenDevice;
use crate::per_process::PerProcess;
use crate::settings::Settings;
use crate::sys::{self, Identity};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Limit of descriptor numbers for files of this library. Higher descriptors cannot be devices.
const MAX_FD: usize = 1 << 16;

/// Bit set of descriptors that may be devices, checked by every `close` and `fstat` of a program.
static DEVICES: [AtomicU64; MAX_FD / 64] = [const { AtomicU64::new(0) }; MAX_FD / 64];

/// Number of bits set in `DEVICES`.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Whether `fd` is marked as a file of this library, which is cheaper to check than the file's identity.
pub(crate) fn may_be_device(fd: RawFd) -> bool {
    let fd = fd as usize;
    // Relaxed suffices: passing a descriptor to another thread synchronizes already.
    fd < MAX_FD && DEVICES[fd / 64].load(Ordering::Relaxed) & 1 << (fd % 64) != 0
}

/// Whether any descriptor of this process is marked as a file of this library.
pub(crate) fn has_devices() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Marks or unmarks `fd` as a possible device. Fails with `EMFILE` for a number beyond the limit.
pub(crate) fn mark(fd: RawFd, device: bool) -> Result<(), Errno> {
    let fd = fd as usize;
    if fd >= MAX_FD {
        return Err(Errno::EMFILE);
    }
    let bit = 1 << (fd % 64);
    match device {
        true => {
            COUNT.fetch_add(1, Ordering::Relaxed);
            DEVICES[fd / 64].fetch_or(bit, Ordering::Relaxed)
        }
        false => {
            COUNT.fetch_sub(1, Ordering::Relaxed);
            DEVICES[fd / 64].fetch_and(!bit, Ordering::Relaxed)
        }
    };
    Ok(())
}

/// Devices and open device files of a process. A forked child starts without any, because it has no engine threads. It
/// uses its parent's devices through [`fork::call`].
pub(crate) struct Process {
    devices: Vec<Arc<Device>>,
    files: Mutex<BTreeMap<Identity, File>>,
}

#[derive(Clone)]
struct File {
    /// The descriptor that `open` returned. Closing it closes the device.
    fd: RawFd,
    index: u32,
    opened: Arc<Mutex<OpenDevice>>,
}

static CURRENT: PerProcess<Process> = PerProcess::new();

/// Returns the state of this process, or `None` if [`current`] has not created it.
pub(crate) fn existing() -> Option<&'static Process> {
    CURRENT.existing()
}

/// Returns the state of this process.
pub(crate) fn current() -> &'static Process {
    CURRENT.current(Process::new)
}

impl Process {
    fn new() -> Process {
        crate::log::start();
        let devices = match Settings::from_env() {
            Ok(settings) => {
                let settings = Arc::new(settings);
                (0..settings.devices).map(|i| Arc::new(Device::new(i, Arc::clone(&settings)))).collect()
            }
            Err(error) => {
                tracing::error!(%error, "there are no devices");
                Vec::new()
            }
        };
        Process { devices, files: Mutex::default() }
    }

    fn files(&self) -> std::sync::MutexGuard<'_, BTreeMap<Identity, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Whether the device with this index exists.
    pub(crate) fn has(&self, index: u32) -> bool {
        (index as usize) < self.devices.len()
    }

    /// Checks that a program may open the device with these rights, a combination of `R_OK`, `W_OK` and `X_OK`.
    pub(crate) fn may_open(&self, index: u32, mode: libc::c_int) -> Result<(), Errno> {
        let device = self.devices.get(index as usize).ok_or(Errno::ENOENT)?;
        if mode != libc::F_OK && device.has(Fault::Open) || mode & libc::X_OK != 0 {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    pub(crate) fn open(&self, index: u32, close_on_exec: bool) -> Result<RawFd, Errno> {
        let device = self.devices.get(index as usize).ok_or(Errno::ENOENT)?;
        if device.has(Fault::Open) {
            return Err(Errno::EACCES);
        }
        let file = sys::memory_file(close_on_exec)?;
        let own = file.try_clone().map_err(|_| Errno::EMFILE)?;
        let identity = sys::identity(file.as_raw_fd()).ok_or(Errno::EIO)?;
        mark(file.as_raw_fd(), true)?;
        fork::share(fork::Devices {
            any: || has_devices() && existing().is_some(),
            call: |device, at| existing().and_then(|process| process.call(device, at)),
        });
        let opened = Arc::new(Mutex::new(OpenDevice::new(Arc::clone(device), own)));
        let fd = file.into_raw_fd();
        self.files().insert(identity, File { fd, index, opened });
        tracing::debug!(device = device.name(), fd, "opened");
        Ok(fd)
    }

    /// Opens a sysfs file with its current contents, and returns the descriptor.
    pub(crate) fn read(&self, file: LiveFile, close_on_exec: bool) -> Result<RawFd, Errno> {
        let device = self.devices.get(file.device as usize).ok_or(Errno::ENOENT)?;
        let place = device.place()?;
        let contents = file.contents(&device.port(place), &device.gids(place), place.ip)?;
        sys::file_of(&contents, close_on_exec)
    }

    fn file(&self, fd: RawFd) -> Option<File> {
        let identity = sys::identity(fd)?;
        self.files().get(&identity).cloned()
    }

    /// Returns the device number of an opened device, as `stat` reports it.
    pub(crate) fn device_number(&self, fd: RawFd) -> Option<libc::dev_t> {
        self.file(fd).map(|file| device_number(file.index))
    }

    /// Executes an ioctl of request [`crate::attrs::REQUEST`]. Returns `None` if `fd` is not a device of this library.
    pub(crate) fn ioctl(&self, fd: RawFd, at: u64) -> Option<Result<(), Errno>> {
        let identity = sys::identity(fd)?;
        if let Some(done) = self.call(identity, at) {
            return Some(done);
        }
        if !sys::is_memory_file(fd) {
            return None;
        }
        let done = fork::call(identity, at);
        if done.is_none() {
            tracing::error!(fd, "the process that has opened the device has closed it, or has ended");
        }
        Some(done.unwrap_or(Err(Errno::ENODEV)))
    }

    /// Executes an ioctl of this process or of a forked child. Returns `None` if this process does not have the device
    /// open.
    pub(crate) fn call(&self, device: Identity, at: u64) -> Option<Result<(), Errno>> {
        let file = self.files().get(&device).cloned()?;
        let mut opened = file.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let call = match Call::read(at) {
            Ok(call) => call,
            Err(error) => return Some(Err(error)),
        };
        let result = ioctl::execute(&mut opened, &call);
        tracing::trace!(fd = file.fd, object = call.object, method = call.method, ?result, "ioctl");
        Some(result)
    }

    /// Destroys the objects of an opened device before its descriptor is closed. Does nothing for other descriptors.
    pub(crate) fn close(&self, fd: RawFd) {
        let Some(identity) = sys::identity(fd) else { return };
        let mut files = self.files();
        if files.get(&identity).is_some_and(|file| file.fd == fd) {
            let file = files.remove(&identity);
            // Unmarking cannot fail for a descriptor that was marked.
            let _ = mark(fd, false);
            drop(files);
            tracing::debug!(fd, "closed");
            drop(file);
        }
    }
}
