//! libcufile: copies between files and GPU memory (GPUDirect Storage).
//!
//! Its functions may allocate GPU memory, so they pass the driver gate.
#![allow(unsafe_code, reason = "calls libcufile")]

use std::error::Error as _;
use std::ffi::{OsStr, c_int, c_void};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use libloading::Library;

use crate::{Device, DeviceBuffer};

/// File names of the library: its soname, and the name that linkers use.
const LIBRARIES: [&str; 2] = ["libcufile.so.0", "libcufile.so"];

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE_FD: c_int = 1;

/// Largest number of bytes that one call copies.
const MAX_BYTES: u64 = 1 << 30;

/// `CUfileError_t`.
#[repr(C)]
struct Status {
    code: c_int,
    cuda: c_int,
}

/// The union in `CUfileDescr_t`.
#[repr(C)]
union DescribedFile {
    fd: c_int,
    _handle: *mut c_void,
}

/// `CUfileDescr_t`.
#[repr(C)]
struct Descriptor {
    kind: c_int,
    file: DescribedFile,
    operations: *const c_void,
}

/// `CUfileHandle_t`.
type RawHandle = *mut c_void;

/// `cuFileRead` and `cuFileWrite`: handle, address, number of bytes, offset in the file, offset from the address.
type Transfer = unsafe extern "C" fn(RawHandle, *mut c_void, usize, i64, i64) -> isize;

/// The functions of libcufile. The library is never unloaded.
pub struct CuFile {
    register: unsafe extern "C" fn(*mut RawHandle, *mut Descriptor) -> Status,
    deregister: unsafe extern "C" fn(RawHandle),
    read: Transfer,
    write: Transfer,
    _library: Library,
}

impl CuFile {
    /// Loads libcufile and opens its driver, once in a process. Waits until no PE of this process runs a kernel.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn load(device: &Device) -> Result<&'static Self, &'static str> {
        static LOADED: OnceLock<Result<CuFile, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| {
            let _exclusive = device.exclusive().map_err(|error| error.to_string())?;
            Self::open(&LIBRARIES)
        });
        loaded.as_ref().map_err(String::as_str)
    }

    fn open<N: AsRef<OsStr>>(names: &[N]) -> Result<Self, String> {
        let mut reason = String::new();
        for name in names {
            // SAFETY: loading the library runs its initializers, as intended.
            match unsafe { Library::new(name.as_ref()) } {
                Ok(library) => return Self::of_library(library).map_err(|error| cause_of(&error))?,
                Err(error) => reason = cause_of(&error),
            }
        }
        Err(reason)
    }

    /// Finds the functions, and opens the driver of the library.
    fn of_library(library: Library) -> Result<Result<Self, String>, libloading::Error> {
        // SAFETY: the types are those of cufile.h. The functions are kept with the library.
        let (open, cufile) = unsafe {
            let open = *library.get::<unsafe extern "C" fn() -> Status>(b"cuFileDriverOpen")?;
            let register = *library.get(b"cuFileHandleRegister")?;
            let deregister = *library.get(b"cuFileHandleDeregister")?;
            let (read, write) = (*library.get(b"cuFileRead")?, *library.get(b"cuFileWrite")?);
            (open, Self { register, deregister, read, write, _library: library })
        };
        // SAFETY: has no requirements.
        let status = unsafe { open() };
        Ok(match status.code {
            0 => Ok(cufile),
            _ => Err(format!("cuFileDriverOpen: {}", text_of(&status))),
        })
    }

    /// Copies the bytes at offset `at` of `file` to `range` of `buffer`. Waits until no PE of this process runs a kernel.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`], before anything is copied, if the library does not take this file.
    /// - Other errors of the library and the system.
    pub fn read(&self, file: &File, at: u64, buffer: &DeviceBuffer, range: Range<u64>) -> io::Result<()> {
        self.copy(self.read, "cuFileRead", (file, at), buffer, range)
    }

    /// Copies `range` of `buffer` to offset `at` of `file`. Waits until no PE of this process runs a kernel.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`], before anything is copied, if the library does not take this file.
    /// - Other errors of the library and the system.
    pub fn write(&self, file: &File, at: u64, buffer: &DeviceBuffer, range: Range<u64>) -> io::Result<()> {
        self.copy(self.write, "cuFileWrite", (file, at), buffer, range)
    }

    fn copy(
        &self,
        transfer: Transfer,
        name: &str,
        (file, at): (&File, u64),
        buffer: &DeviceBuffer,
        range: Range<u64>,
    ) -> io::Result<()> {
        let bytes = range.end.saturating_sub(range.start);
        let address = buffer.range_address(range.start as usize, bytes as usize).map_err(io::Error::other)?;
        let _exclusive = buffer.device().exclusive().map_err(io::Error::other)?;
        let handle = Handle::register(self, file)?;
        // SAFETY: the bytes belong to the buffer, and its context is current.
        unsafe { handle.transfer(transfer, name, at, address, bytes) }
    }
}

/// A file that the library has registered.
struct Handle<'a> {
    library: &'a CuFile,
    raw: RawHandle,
    _file: &'a File,
}

impl<'a> Handle<'a> {
    fn register(library: &'a CuFile, file: &'a File) -> io::Result<Self> {
        let described = DescribedFile { fd: file.as_raw_fd() };
        let mut descriptor = Descriptor { kind: OPAQUE_FD, file: described, operations: std::ptr::null() };
        let mut raw = std::ptr::null_mut();
        // SAFETY: both are live. The file stays open as long as the handle.
        let status = unsafe { (library.register)(&mut raw, &mut descriptor) };
        if status.code != 0 {
            let text = format!("cuFileHandleRegister: {}", text_of(&status));
            return Err(io::Error::new(ErrorKind::Unsupported, text));
        }
        Ok(Self { library, raw, _file: file })
    }

    /// Copies `bytes` bytes between offset `at` of the file and `address`.
    ///
    /// # Safety
    /// The bytes are allocated, in GPU memory of the current context.
    unsafe fn transfer(
        &self,
        transfer: Transfer,
        name: &str,
        at: u64,
        address: u64,
        bytes: u64,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < bytes {
            let now = (bytes - done).min(MAX_BYTES) as usize;
            // SAFETY: the handle is registered; for the memory, see above.
            let copied =
                unsafe { transfer(self.raw, address as *mut c_void, now, (at + done) as i64, done as i64) };
            match copied {
                1.. => done += copied as u64,
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                -1 => return Err(io::Error::last_os_error()),
                code => return Err(io::Error::other(format!("{name}: error {}", -code))),
            }
        }
        Ok(())
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: registered in `register`, deregistered once.
        unsafe { (self.library.deregister)(self.raw) };
    }
}

/// Returns the message of the dynamic loader, which libloading keeps as the source of its error.
fn cause_of(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn text_of(status: &Status) -> String {
    match status.cuda {
        0 => format!("error {}", status.code),
        cuda => format!("error {} (CUDA error {cuda})", status.code),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A library with the functions of libcufile for host memory. It copies at most 1000 bytes in a call, and takes no
    /// file that is not open for writing.
    const FAKE: &str = r#"
        use std::ffi::{c_int, c_void};
        use std::fs::File;
        use std::os::{fd::{BorrowedFd, AsFd}, unix::fs::FileExt};
        #[repr(C)] pub struct Status(c_int, c_int);
        #[repr(C)] pub struct Descriptor { kind: c_int, padding: u32, fd: c_int, upper: u32, operations: *const c_void }
        fn file(fd: *mut c_void) -> File {
            unsafe { BorrowedFd::borrow_raw(fd as c_int) }.as_fd().try_clone_to_owned().unwrap().into()
        }
        #[unsafe(no_mangle)] pub extern "C" fn cuFileDriverOpen() -> Status { Status(0, 0) }
        #[unsafe(no_mangle)] pub unsafe extern "C" fn cuFileHandleRegister(handle: *mut *mut c_void, d: *mut Descriptor) -> Status {
            let d = unsafe { &*d };
            let is_writable = file(d.fd as usize as *mut c_void).write_at(&[], 0).is_ok();
            if d.kind != 1 || !d.operations.is_null() || !is_writable { return Status(5018, 7); }
            unsafe { *handle = d.fd as usize as *mut c_void };
            Status(0, 0)
        }
        #[unsafe(no_mangle)] pub extern "C" fn cuFileHandleDeregister(_: *mut c_void) {}
        #[unsafe(no_mangle)] pub unsafe extern "C" fn cuFileRead(h: *mut c_void, base: *mut u8, size: usize, at: i64, offset: i64) -> isize {
            let part = unsafe { std::slice::from_raw_parts_mut(base.add(offset as usize), size.min(1000)) };
            file(h).read_at(part, at as u64).map_or(-5008, |n| n as isize)
        }
        #[unsafe(no_mangle)] pub unsafe extern "C" fn cuFileWrite(h: *mut c_void, base: *const u8, size: usize, at: i64, offset: i64) -> isize {
            let part = unsafe { std::slice::from_raw_parts(base.add(offset as usize), size.min(1000)) };
            file(h).write_at(part, at as u64).map_or(-5008, |n| n as isize)
        }
    "#;

    #[test]
    fn absent_library_is_named() {
        let error = CuFile::open(&["libnone.so.0"]).err().unwrap();
        assert!(error.contains("libnone.so.0"), "{error}");
    }

    #[test]
    fn transfers_continue_until_all_bytes_are_copied() {
        let folder = std::env::temp_dir().join(format!("rushmem-cufile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, library) = (folder.join("fake.rs"), folder.join("libfake.so"));
        std::fs::write(&source, FAKE).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut build = Command::new(rustc);
        build.args(["--edition=2024", "--crate-type=cdylib", "-o"]).arg(&library).arg(&source);
        let built = build.status();
        if !built.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED transfers_continue_until_all_bytes_are_copied: rustc cannot build a library");
            return;
        }
        let cufile = CuFile::open(&[&library]).unwrap();
        let path = folder.join("data");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let data: Vec<u8> = (0..4321_u32).map(|i| (i % 251) as u8).collect();
        let mut read = vec![0_u8; 4000];

        let handle = Handle::register(&cufile, &file).unwrap();
        let (from, to) = (data.as_ptr() as u64, read.as_mut_ptr() as u64);
        // SAFETY: the fake copies from and to host memory, and both ranges are inside of theirs.
        let results = unsafe {
            [
                handle.transfer(cufile.write, "cuFileWrite", 10, from, data.len() as u64),
                handle.transfer(cufile.read, "cuFileRead", 20, to, read.len() as u64),
                handle.transfer(cufile.read, "cuFileRead", 1000, to, read.len() as u64),
            ]
        };
        assert!(results[0].is_ok() && results[1].is_ok());
        assert_eq!(results[2].as_ref().unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert!(std::fs::read(&path).unwrap()[10..] == data);
        drop(handle);

        let unwritable = File::open("/dev/null").unwrap();
        let refused = Handle::register(&cufile, &unwritable).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert_eq!(refused.to_string(), "cuFileHandleRegister: error 5018 (CUDA error 7)");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
