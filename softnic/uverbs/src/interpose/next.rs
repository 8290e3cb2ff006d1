//! Lookup of the functions that this library replaces, as the next library defines them: another preloaded one such as
//! `librspreload.so`, or the C library.

use crate::sys;
use libc::{c_char, c_int, c_uint, c_ulong, c_void, mode_t, size_t, ssize_t};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A replaced function, as the next library after this one defines it.
pub(super) struct Next {
    name: &'static CStr,
    /// Address of the function, or 0 before it was looked up. There is no lock, because the lookup may reenter this
    /// library.
    address: AtomicUsize,
}

impl Next {
    pub(super) const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicUsize::new(0) }
    }

    /// Returns the address of the function, or `None` if no later library has it.
    pub(super) fn address(&self) -> Option<*mut c_void> {
        let mut address = self.address.load(Ordering::Relaxed);
        if address == 0 {
            // SAFETY: a C string. The handle means the libraries after this one.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
            self.address.store(address, Ordering::Relaxed);
        }
        (address != 0).then_some(address as *mut c_void)
    }
}

/// `glob_t`, with the functions of `GLOB_ALTDIRFUNC`.
#[repr(C)]
pub struct Glob {
    results: [usize; 3],
    flags: c_int,
    pub(super) closedir: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(super) readdir: Option<unsafe extern "C" fn(*mut c_void) -> *mut libc::dirent>,
    pub(super) opendir: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void>,
    pub(super) lstat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
    pub(super) stat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
}

/// Error callback that a program passes to `glob`.
pub type GlobError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

/// Defines functions that call the next library's function of the same name, or evaluate `else` if there is none.
macro_rules! next {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $missing:expr;)*) => {
        $(
            /// Calls the function of this name in the next library.
            ///
            /// # Safety
            ///
            /// The same as for the C library's function.
            #[allow(unused_unsafe, reason = "some functions have no system call of their own")]
            pub(super) unsafe fn $name($($argument: $type),*) -> $result {
                static NEXT: Next = {
                    let name = concat!(stringify!($name), "\0").as_bytes();
                    match CStr::from_bytes_with_nul(name) {
                        Ok(name) => Next::new(name),
                        Err(_) => panic!("the name has a zero"),
                    }
                };
                let Some(address) = NEXT.address() else {
                    // SAFETY: the caller promises what the function and its system call need.
                    return unsafe { $missing };
                };
                // SAFETY: the C library's function of this name has this type.
                let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(address) };
                // SAFETY: the caller promises what the function needs.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

/// Filter callback that a program passes to `scandir`.
pub type Filter = Option<unsafe extern "C" fn(*const libc::dirent) -> c_int>;
/// Comparison callback that a program passes to `scandir`.
pub type Order = Option<unsafe extern "C" fn(*mut *const libc::dirent, *mut *const libc::dirent) -> c_int>;

type Path = *const c_char;

next! {
    open(path: Path, flags: c_int, mode: mode_t) -> c_int, else sys::open(libc::AT_FDCWD, path, flags, mode);
    openat(at: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int, else sys::open(at, path, flags, mode);
    access(path: Path, mode: c_int) -> c_int, else sys::access(libc::AT_FDCWD, path, mode, 0);
    faccessat(at: c_int, path: Path, mode: c_int, flags: c_int) -> c_int, else sys::access(at, path, mode, flags);
    stat(path: Path, to: *mut libc::stat) -> c_int, else sys::stat(libc::AT_FDCWD, path, to, 0);
    lstat(path: Path, to: *mut libc::stat) -> c_int,
        else sys::stat(libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW);
    fstat(fd: c_int, to: *mut libc::stat) -> c_int, else sys::stat(fd, c"".as_ptr(), to, libc::AT_EMPTY_PATH);
    fstatat(at: c_int, path: Path, to: *mut libc::stat, flags: c_int) -> c_int, else sys::stat(at, path, to, flags);
    statx(at: c_int, path: Path, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int,
        else sys::statx(at, path, flags, mask, to);
    readlink(path: Path, to: *mut c_char, room: size_t) -> ssize_t,
        else sys::readlink(libc::AT_FDCWD, path, to, room);
    readlinkat(at: c_int, path: Path, to: *mut c_char, room: size_t) -> ssize_t,
        else sys::readlink(at, path, to, room);
    chdir(path: Path) -> c_int, else sys::chdir(path);
    close(fd: c_int) -> c_int, else sys::close(fd);
    ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int, else sys::ioctl(fd, request, argument);
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int, else sys::socket(domain, kind, protocol);
    opendir(path: Path) -> *mut libc::DIR, else null_mut();
    fopen(path: Path, mode: Path) -> *mut libc::FILE, else null_mut();
    realpath(path: Path, to: *mut c_char) -> *mut c_char, else null_mut();
    getcwd(to: *mut c_char, room: size_t) -> *mut c_char, else null_mut();
    getxattr(path: Path, name: Path, to: *mut c_void, room: size_t) -> ssize_t, else -1;
    lgetxattr(path: Path, name: Path, to: *mut c_void, room: size_t) -> ssize_t, else -1;
    scandir(path: Path, list: *mut *mut *mut libc::dirent, filter: Filter, order: Order) -> c_int, else -1;
    scandirat(at: c_int, path: Path, list: *mut *mut *mut libc::dirent, filter: Filter, order: Order) -> c_int, else -1;
    glob(pattern: Path, flags: c_int, error: GlobError, to: *mut Glob) -> c_int, else libc::GLOB_NOSPACE;
}
