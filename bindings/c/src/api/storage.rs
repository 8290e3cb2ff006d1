//! Files and checkpoints
#![allow(unsafe_code, reason = "exports functions, and reads the list of objects of the caller")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]

use std::ffi::{c_char, c_void};

use rushmem::{Checkpoint, Error, Pe, Result};

use super::natural;
use crate::error::{number, status};
use crate::handle::{self, Handle};
use crate::pointers;
use crate::types::{rushmem_object, rushmem_pe};

/// Saves symmetric objects of all PEs in the folder `path`, in place of the checkpoint that is there. Collective.
///
/// All PEs pass the same path and objects, and must see the same folder. It is created if there is none. Whatever fails,
/// the folder has the old or the new checkpoint; when the call returns, the new one has reached the disk. No PE and no
/// kernel may change the objects until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_save(
    pe: *mut rushmem_pe,
    path: *const c_char,
    objects: *const rushmem_object,
    count: usize,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { with_checkpoint("rushmem_save", pe, path, (objects, count), |pe, path, all| pe.save(path, all)) }
}

/// Restores symmetric objects of all PEs from the checkpoint in the folder `path`. Collective.
///
/// There must be as many PEs, without lost ones, as when it was saved, and each object must have the same name and size.
/// Objects of the checkpoint that are not named are left out. If the call fails, no object has changed, unless a PE was
/// lost meanwhile, or data that had been verified could not be loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_restore(
    pe: *mut rushmem_pe,
    path: *const c_char,
    objects: *const rushmem_object,
    count: usize,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        with_checkpoint("rushmem_restore", pe, path, (objects, count), |pe, path, all| pe.restore(path, all))
    }
}

/// Fills this PE's copies of symmetric objects from part `part` of the checkpoint in the folder `path`, however many PEs
/// have saved it. Not collective.
///
/// For jobs that go on with other PEs than those that saved. Nobody may replace the checkpoint during the call. Errors
/// are those of `rushmem_restore`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_restore_part(
    pe: *mut rushmem_pe,
    path: *const c_char,
    part: i32,
    objects: *const rushmem_object,
    count: usize,
) -> i32 {
    const CALL: &str = "rushmem_restore_part";
    // SAFETY: promised by the caller.
    unsafe {
        with_checkpoint(CALL, pe, path, (objects, count), |pe, path, all| {
            pe.restore_part(path, natural(CALL, "part", part)?, all)
        })
    }
}

/// Returns the number of parts of the checkpoint in the folder `path`, one for each PE that saved it, or -1 if there is
/// none or if it is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_checkpoint_parts(path: *const c_char) -> i32 {
    // SAFETY: promised by the caller.
    number(|| Ok(Checkpoint::parts(unsafe { text("rushmem_checkpoint_parts", "path", path) }?)? as i32))
}

/// Copies `bytes` bytes of a file, from offset `at` on, to this PE's copy of symmetric memory or to a local buffer.
///
/// Not collective. Kernels launched afterwards see the bytes. If the file is too short, nothing changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_read_file(
    pe: *mut rushmem_pe,
    path: *const c_char,
    at: u64,
    dst: *mut c_void,
    bytes: usize,
) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_read_file";
        let handle = handle::get(CALL, pe)?;
        // SAFETY: promised by the caller.
        let path = unsafe { text(CALL, "path", path) }?;
        handle.pe().read_file(path, at, handle.addresses.local((CALL, "dst"), dst, bytes)?)
    })
}

/// Copies `bytes` bytes of this PE's copy of symmetric memory, or of a local buffer, to a file, from offset `at` on.
///
/// Not collective. The file is created if there is none, and its other bytes stay. PEs may write to different places of
/// one file at the same time. A crash of the machine may still lose the bytes when the call has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_write_file(
    pe: *mut rushmem_pe,
    path: *const c_char,
    at: u64,
    src: *const c_void,
    bytes: usize,
) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_write_file";
        let handle = handle::get(CALL, pe)?;
        // SAFETY: promised by the caller.
        let path = unsafe { text(CALL, "path", path) }?;
        handle.pe().write_file(path, at, handle.addresses.local((CALL, "src"), src, bytes)?)
    })
}

/// Runs `call` with the path and the objects of a checkpoint.
///
/// # Safety
/// `path` is null or a C string, and `objects` is null or the address of `count` objects with names that are C strings.
unsafe fn with_checkpoint(
    name: &'static str,
    pe: *mut rushmem_pe,
    path: *const c_char,
    (objects, count): (*const rushmem_object, usize),
    call: impl FnOnce(&Pe, &str, &Checkpoint) -> Result<()>,
) -> i32 {
    status(|| {
        let handle = handle::get(name, pe)?;
        // SAFETY: promised by the caller.
        let (path, objects) =
            unsafe { (text(name, "path", path)?, pointers::list((name, "objects"), objects, count)?) };
        let add = |all: Checkpoint, each| {
            // SAFETY: promised by the caller.
            unsafe { with_object(name, &handle, all, each) }
        };
        call(handle.pe(), path, &objects.iter().try_fold(Checkpoint::new(), add)?)
    })
}

/// # Safety
/// The name of the object is null or a C string.
unsafe fn with_object(
    call: &'static str,
    handle: &Handle,
    all: Checkpoint,
    object: &rushmem_object,
) -> Result<Checkpoint> {
    // SAFETY: promised by the caller.
    let name = unsafe { text(call, "objects->name", object.name) }?;
    Ok(all.with(name, handle.addresses.symmetric((call, "objects->ptr"), object.ptr, object.bytes)?))
}

/// Returns the text at `text`, the argument `name`, which is required.
///
/// # Safety
/// `text` is null or a C string that does not change while the result is used.
unsafe fn text<'a>(call: &'static str, name: &str, text: *const c_char) -> Result<&'a str> {
    // SAFETY: promised by the caller.
    let text = unsafe { pointers::text(call, name, text) }?;
    text.ok_or_else(|| Error::misuse(call, format!("`{name}` is null")))
}
