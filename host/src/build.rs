//! What this process was built from.
#![allow(unsafe_code, reason = "reads ELF notes through pointers of the dynamic loader")]

use std::ffi::c_void;
use std::fmt::Write;

/// The linker's build id of this executable, or, where the linker gives none, a description of the file. All PEs of a
/// job must have the same.
pub(crate) fn build_id() -> String {
    let mut id = None;
    // SAFETY: `visit` gets `id` back as its argument, and only while this call runs.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut id).cast()) };
    id.unwrap_or_else(executable)
}

/// Called for each loaded object, the executable first: stops there.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> i32 {
    // SAFETY: the loader gives a valid description, whose headers and segments are mapped.
    let note = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        headers.iter().filter(|h| h.p_type == libc::PT_NOTE).find_map(|h| {
            let at = (info.dlpi_addr + h.p_vaddr) as *const u8;
            gnu_build_id(std::slice::from_raw_parts(at, h.p_memsz as usize))
        })
    };
    // SAFETY: `build_id` passed its local.
    unsafe { *out.cast::<Option<String>>() = note };
    1
}

/// The build id in a note segment, in hexadecimal.
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

/// Length of the executable and version of this crate: less than a build id, but never nothing.
fn executable() -> String {
    let len = std::env::current_exe().and_then(std::fs::metadata).map_or(0, |m| m.len());
    format!("{} {len}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_found_among_other_notes() {
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
    fn this_test_has_a_build() {
        assert!(!build_id().is_empty());
        assert_eq!(build_id(), build_id());
    }
}
