//! Identifies the build of the runtime. PEs compare this ID, because all PEs of a job must run the same build.
#![allow(unsafe_code, reason = "reads ELF notes through pointers of the dynamic loader")]

use std::ffi::{CStr, OsStr, c_void};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The executable or shared library that contains this crate.
#[derive(Default)]
struct Object {
    /// Path of a shared library. Empty for the executable.
    path: PathBuf,
    build_id: Option<String>,
}

/// Returns the linker's build ID of the executable or shared library that contains this crate or, failing that, a
/// description of the file.
pub(crate) fn build_id() -> String {
    let mut object = Object::default();
    // SAFETY: `visit` gets `object` back as its argument, and only while this call runs.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut object).cast()) };
    object.build_id.take().unwrap_or_else(|| object.describe())
}

/// Reads the path and build ID of the loaded object that contains this function into the [`Object`] at `out`, and then
/// stops the iteration.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> i32 {
    // SAFETY: the loader passes a valid description with a path, and the headers and segments in it are mapped. `out` is
    // the local variable of `build_id`, which waits for this call.
    let (info, headers, object) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info, headers, &mut *out.cast::<Object>())
    };
    let here = (visit as *const c_void).addr() as u64;
    let holds = |h: &libc::Elf64_Phdr| {
        let begin = info.dlpi_addr + h.p_vaddr;
        h.p_type == libc::PT_LOAD && (begin..begin + h.p_memsz).contains(&here)
    };
    if !headers.iter().any(holds) {
        return 0;
    }
    // SAFETY: see above.
    unsafe {
        object.path = OsStr::from_bytes(CStr::from_ptr(info.dlpi_name).to_bytes()).into();
        object.build_id = headers.iter().filter(|h| h.p_type == libc::PT_NOTE).find_map(|h| {
            let at = (info.dlpi_addr + h.p_vaddr) as *const u8;
            gnu_build_id(std::slice::from_raw_parts(at, h.p_memsz as usize))
        });
    }
    1
}

/// Returns the build ID in a note segment, in hexadecimal.
fn gnu_build_id(mut notes: &[u8]) -> Option<String> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let word = |i: usize| u32::from_ne_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let (name_len, len, kind) = (word(0) as usize, word(4) as usize, word(8));
        let (name, rest) = rest.split_at_checked(name_len.next_multiple_of(4))?;
        let (value, rest) = rest.split_at_checked(len.next_multiple_of(4))?;
        if kind == NT_GNU_BUILD_ID && name.starts_with(b"GNU\0") {
            return Some(value[..len].iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            }));
        }
        notes = rest;
    }
}

impl Object {
    /// Returns the version of this crate and the size of the file, which identify a build less reliably.
    fn describe(&self) -> String {
        let path =
            if self.path.as_os_str().is_empty() { std::env::current_exe() } else { Ok(self.path.clone()) };
        let len = path.and_then(std::fs::metadata).map_or(0, |m| m.len());
        format!("{} {len}", env!("CARGO_PKG_VERSION"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_build_id_among_other_notes() {
        let mut notes = Vec::new();
        for (kind, name, value) in [(1u32, b"GNU\0", &[9u8; 16][..]), (3, b"GNU\0", &[0xab, 0xcd, 0x01])] {
            notes.extend(4u32.to_ne_bytes());
            notes.extend((value.len() as u32).to_ne_bytes());
            notes.extend(kind.to_ne_bytes());
            notes.extend(name);
            notes.extend(value);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(gnu_build_id(&notes).as_deref(), Some("abcd01"));
        assert_eq!(gnu_build_id(&notes[..40]), None);
        assert_eq!(gnu_build_id(&[]), None);
    }

    #[test]
    fn the_build_id_is_stable() {
        assert!(!build_id().is_empty());
        assert_eq!(build_id(), build_id());
    }
}
