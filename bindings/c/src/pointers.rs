//! Reads and writes through pointers of the caller, which may be null or misaligned.
#![allow(unsafe_code, reason = "dereferences pointers of the caller")]

use std::ffi::{CStr, c_char};
use std::mem::{MaybeUninit, offset_of, size_of};

use rushmem::{Error, Result};

use crate::types::rushmem_init_options;

/// A variable of the caller that receives a result.
pub(crate) struct Out<'a, T>(&'a mut MaybeUninit<T>);

impl<T> Out<'_, T> {
    /// Checks the address of the variable, before the call has any effect.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if it is null or misaligned.
    ///
    /// # Safety
    /// `to` is null, or valid for a write of `T` until the value is dropped.
    pub(crate) unsafe fn new(call: &'static str, name: &str, to: *mut T) -> Result<Self> {
        check(call, name, to)?;
        // SAFETY: not null, aligned, and otherwise promised by the caller.
        Ok(Self(unsafe { &mut *to.cast() }))
    }

    pub(crate) fn write(self, value: T) {
        self.0.write(value);
    }
}

/// Returns the `count` values at `from`, the argument `name`, which may be null if there are none.
///
/// # Errors
/// - [`Error::Misuse`] if it is null or misaligned, or if there cannot be so many values.
///
/// # Safety
/// `from` is null, or the address of `count` values that do not change while the result is used.
pub(crate) unsafe fn list<'a, T>(
    (call, name): (&'static str, &str),
    from: *const T,
    count: usize,
) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check(call, name, from)?;
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Error::misuse(call, format!("`{name}` cannot have {count} elements")));
    }
    // SAFETY: not null, aligned, not larger than a slice may be, and otherwise promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

fn check<T>(call: &'static str, name: &str, pointer: *const T) -> Result<()> {
    let why = match pointer {
        _ if pointer.is_null() => "is null".into(),
        _ if !pointer.is_aligned() => format!("is not a multiple of {} bytes: {pointer:p}", align_of::<T>()),
        _ => return Ok(()),
    };
    Err(Error::misuse(call, format!("`{name}` {why}")))
}

/// Returns the text at `text`, or `None` if it is null.
///
/// # Errors
/// - [`Error::Misuse`] if it is not UTF-8.
///
/// # Safety
/// `text` is null, or a C string that does not change while the result is used.
pub(crate) unsafe fn text<'a>(
    call: &'static str,
    name: &str,
    text: *const c_char,
) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|error| Error::misuse(call, format!("`{name}` is not UTF-8: {error}")))
}

/// Writes `value` as a C string to the `room` bytes at `to`.
///
/// # Errors
/// - [`Error::Misuse`] if `to` is null, or there is too little room.
///
/// # Safety
/// `to` is null, or valid for writes of `room` bytes.
pub(crate) unsafe fn write_text(call: &'static str, to: *mut c_char, room: usize, value: &str) -> Result<()> {
    check(call, "out", to)?;
    if room <= value.len() {
        let what = format!("{room} bytes are too few for {} and a zero byte", value.len());
        return Err(Error::misuse(call, what));
    }
    // SAFETY: there is room for the text and the zero byte.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), value.len());
        to.add(value.len()).write(0);
    }
    Ok(())
}

/// Returns the options at `options`, or `None` if it is null. Members of a later version must be 0.
///
/// # Errors
/// - [`Error::Misuse`] if the pointer is misaligned, the size is too small, or a member of a later version is not 0.
///
/// # Safety
/// `options` is null, or points to a structure whose first member is its size.
pub(crate) unsafe fn options(
    call: &'static str,
    options: *const rushmem_init_options,
) -> Result<Option<rushmem_init_options>> {
    if options.is_null() {
        return Ok(None);
    }
    check(call, "options", options)?;
    const { assert!(offset_of!(rushmem_init_options, size) == 0) };
    // SAFETY: promised by the caller.
    let size = unsafe { options.cast::<usize>().read() };
    let known = size_of::<rushmem_init_options>();
    if size < known {
        let what =
            format!("`options->size` is {size}; it must be sizeof(rushmem_init_options), which is {known}");
        return Err(Error::misuse(call, what));
    }
    // SAFETY: the structure has at least the members of this version, and `size - known` bytes after them.
    let (options, later) = unsafe {
        (options.read(), std::slice::from_raw_parts(options.cast::<u8>().add(known), size - known))
    };
    if options.reserved != 0 || later.iter().any(|&byte| byte != 0) {
        return Err(Error::misuse(
            call,
            "`options` has members that this version of the library does not know",
        ));
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeroed(size: usize) -> rushmem_init_options {
        rushmem_init_options {
            size,
            unique_id: std::ptr::null(),
            heap_bytes: 0,
            pe: 0,
            n_pes: 0,
            device: 0,
            reserved: 0,
        }
    }

    #[test]
    fn options_of_a_later_version_are_accepted_if_their_members_are_zero() {
        #[repr(C)]
        struct Later(rushmem_init_options, u64);
        let mut later = Later(zeroed(size_of::<Later>()), 0);
        // SAFETY: the size is that of the structure.
        let read = |later: &Later| unsafe { options("init", (&raw const *later).cast()) };
        assert!(read(&later).unwrap().is_some());
        later.1 = 1;
        let error = read(&later).unwrap_err().to_string();
        assert!(error.contains("members that this version of the library does not know"), "{error}");
    }

    #[test]
    fn options_with_a_wrong_size_or_address_are_rejected() {
        let small = zeroed(size_of::<rushmem_init_options>() - 1);
        // SAFETY: the pointer is valid, or rejected because it is misaligned.
        let read =
            |at: *const rushmem_init_options| unsafe { options("init", at) }.map(|found| found.is_some());
        assert!(read(&small).unwrap_err().to_string().contains("`options->size` is"));
        let shifted = (&raw const small).wrapping_byte_add(1);
        assert!(read(shifted).unwrap_err().to_string().contains("is not a multiple of 8 bytes"));
        assert!(!read(std::ptr::null()).unwrap());
    }

    #[test]
    fn text_needs_room_for_its_zero_byte() {
        let mut out = [1; 4];
        let at = out.as_mut_ptr();
        // SAFETY: the array has 4 bytes.
        let write = |room| unsafe { write_text("version", at, room, "abc") };
        assert!(write(3).is_err());
        write(4).unwrap();
        assert_eq!(out, [b'a', b'b', b'c', 0].map(|byte: u8| byte as c_char));
    }
}
