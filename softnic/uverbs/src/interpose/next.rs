//! The C library's own functions, behind the ones of this library.

use libc::{c_char, c_int, c_void, size_t, ssize_t};
use std::ffi::CStr;
use std::sync::OnceLock;

/// A function of the C library. It may be missing.
pub(super) struct Next(OnceLock<usize>);

impl Next {
    pub(super) const fn new() -> Next {
        Next(OnceLock::new())
    }

    /// Returns the address of the function behind this library's own.
    fn address(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a C string. The handle means the libraries behind this one.
        let find = || unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
        let address = *self.0.get_or_init(find);
        (address != 0).then_some(address as *mut c_void)
    }
}

/// Defines a function that calls the C library's function of this name.
macro_rules! next {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $missing:expr;)*) => {$(
        /// Calls the C library's function.
        ///
        /// # Safety
        ///
        /// The same as for the C library's function.
        pub(super) unsafe fn $name($($argument: $type),*) -> $result {
            static NEXT: Next = Next::new();
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("the name has a zero"),
            };
            let Some(address) = NEXT.address(NAME) else { return $missing };
            // SAFETY: the C library's function of this name has this type.
            let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller promises what the function needs.
            unsafe { function($($argument),*) }
        }
    )*};
}

/// A filter of `scandir`.
pub type Filter = Option<unsafe extern "C" fn(*const libc::dirent) -> c_int>;
/// An order of `scandir`.
pub type Order = Option<unsafe extern "C" fn(*mut *const libc::dirent, *mut *const libc::dirent) -> c_int>;

next! {
    opendir(path: *const c_char) -> *mut libc::DIR, else std::ptr::null_mut();
    fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE, else std::ptr::null_mut();
    realpath(path: *const c_char, to: *mut c_char) -> *mut c_char, else std::ptr::null_mut();
    getcwd(to: *mut c_char, room: size_t) -> *mut c_char, else std::ptr::null_mut();
    getxattr(path: *const c_char, name: *const c_char, to: *mut c_void, room: size_t) -> ssize_t, else -1;
    lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void, room: size_t) -> ssize_t, else -1;
    scandir(path: *const c_char, list: *mut *mut *mut libc::dirent, filter: Filter, order: Order) -> c_int,
        else -1;
}
