//! Starts the process of a PE, which shares the launcher's memory until it executes its program. Unsafe code, like
//! `sys`.
//!
//! `fork` copies the page tables of the launcher, which grow with each PE. `posix_spawn` copies nothing, but it cannot
//! set the limit of open files, nor make the process die with the launcher.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;
use std::ptr;

use libc::{c_char, c_int, c_void, pid_t};

use super::sys;

/// Stack size of the process until it executes its program, in bytes. The C library puts the arguments of a script on
/// it.
const STACK_BYTES: usize = 64 << 10;

/// PID of a started process, and the read ends of the pipes from its output streams.
pub(super) struct Spawned {
    pub(super) pid: u32,
    pub(super) out: PipeReader,
    pub(super) err: PipeReader,
}

/// Everything that the new process needs. It must not allocate, so all of this is prepared for it.
struct Start {
    program: *const c_char,
    args: *const *const c_char,
    variables: *const *const c_char,
    streams: [c_int; 3],
    open_files: libc::rlimit,
    launcher: pid_t,
    /// `errno`, if the program could not be executed.
    error: c_int,
}

/// Returns an empty standard input for [`spawn`].
///
/// # Errors
/// The error of opening `/dev/null`.
pub(super) fn no_input() -> io::Result<File> {
    File::open("/dev/null")
}

/// Starts the program of `command` with its arguments and variables, and with `input` as its standard input. It has its
/// own process group, no blocked signals, and `open_files` as its limits of open files.
///
/// The process dies with this launcher. Linux kills it when the thread that started it exits, so call this on the main
/// thread only.
///
/// # Errors
/// The error of the first system call that fails, even if it fails in the new process.
pub(super) fn spawn(
    command: &Command,
    input: &impl AsRawFd,
    open_files: libc::rlimit,
) -> io::Result<Spawned> {
    let ((out, to_out), (err, to_err)) = (io::pipe()?, io::pipe()?);
    let program = c_string(command.get_program())?;
    let args = std::iter::once(command.get_program()).chain(command.get_args());
    let args = args.map(c_string).collect::<io::Result<Vec<_>>>()?;
    let variables = variables(command)?;
    let (args, variables) = (pointers(&args), pointers(&variables));
    let mut start = Start {
        program: program.as_ptr(),
        args: args.as_ptr(),
        variables: variables.as_ptr(),
        streams: [input.as_raw_fd(), to_out.as_raw_fd(), to_err.as_raw_fd()],
        open_files,
        launcher: std::process::id() as pid_t,
        error: 0,
    };
    let pid = clone(&mut start, STACK_BYTES + size_of_val(&*args))?;
    if start.error != 0 {
        sys::reap(pid)?;
        return Err(io::Error::from_raw_os_error(start.error));
    }
    Ok(Spawned { pid, out, err })
}

/// Returns the environment of this process with the changes of `command`, as `NAME=value`.
fn variables(command: &Command) -> io::Result<Vec<CString>> {
    let mut all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => drop(all.insert(name.into(), value.into())),
            None => drop(all.remove(name)),
        }
    }
    let joined = |(name, value): (OsString, OsString)| {
        let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
        c_string(&OsString::from_vec(text))
    };
    all.into_iter().map(joined).collect()
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

/// Returns the addresses of the strings, terminated by a null pointer.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|text| CStr::as_ptr(text)).chain([ptr::null()]).collect()
}

/// Runs `begin` in a new process on a stack of `bytes`. Returns its PID once it has executed a program or exited.
fn clone(start: &mut Start, bytes: usize) -> io::Result<u32> {
    let mut stack = vec![0u128; bytes / 16];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK suspends this thread until the new process no longer uses the stack and `start`.
    match unsafe { libc::clone(begin, top, flags, ptr::from_mut(start).cast()) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid as u32),
    }
}

/// Prepares the new process and executes its program.
extern "C" fn begin(start: *mut c_void) -> c_int {
    // SAFETY: the pointer is to the `Start` of `clone`, and the thread in that call is suspended in the meantime.
    let start = unsafe { &mut *start.cast::<Start>() };
    let error = match prepare(start) {
        // SAFETY: the strings are null-terminated, and so are the lists; all outlive the call.
        Ok(()) => unsafe {
            libc::execvpe(start.program, start.args, start.variables);
            io::Error::last_os_error()
        },
        Err(error) => error,
    };
    start.error = error.raw_os_error().unwrap_or(libc::EINVAL);
    // SAFETY: exits only this process, and leaves the launcher's memory unchanged.
    unsafe { libc::_exit(127) }
}

/// Sets up the new process before it executes the program. Uses nothing but system calls, since memory and locks belong
/// to the launcher.
fn prepare(start: &Start) -> io::Result<()> {
    let check = |result: c_int| if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: the call touches no memory.
    check(unsafe { libc::setpgid(0, 0) })?;
    for (to, from) in (0..).zip(start.streams).filter(|(to, from)| to != from) {
        // SAFETY: the call touches no memory.
        check(unsafe { libc::dup2(from, to) })?;
    }
    sys::set_open_files(&start.open_files)?;
    sys::die_with(start.launcher)?;
    sys::reset_signals();
    Ok(())
}
