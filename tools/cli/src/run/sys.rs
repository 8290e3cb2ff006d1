//! System calls that std does not offer. Only this module and `spawn` contain `unsafe` code.

use std::io;
use std::mem::MaybeUninit;

use libc::{SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2, c_int, pid_t};
use serde::{Deserialize, Serialize};

/// Signals that a launcher handles. SIGUSR1 requests the waits of the job, and SIGUSR2 another process; the others terminate it.
pub(super) const HANDLED: [c_int; 5] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Exit {
    /// The process exited with this code.
    Code(c_int),
    /// This signal killed the process.
    Signal(c_int),
}

impl Exit {
    /// Returns the exit code that a shell would report.
    pub(super) fn code(self) -> u8 {
        match self {
            Exit::Code(code) => code as u8,
            Exit::Signal(signal) => 128u8.wrapping_add(signal as u8),
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "was killed by {}", signal_name(*signal)),
        }
    }
}

/// Returns the name of a signal, such as `SIGKILL`.
pub(super) fn signal_name(signal: c_int) -> String {
    let name = match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGALRM => "SIGALRM",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        SIGHUP => "SIGHUP",
        libc::SIGILL => "SIGILL",
        SIGINT => "SIGINT",
        SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSYS => "SIGSYS",
        SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        SIGUSR1 => "SIGUSR1",
        SIGUSR2 => "SIGUSR2",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        other => return format!("signal {other}"),
    };
    name.into()
}

/// Blocks the signals of [`wait_for_signal`] in this thread and in all threads that it starts from now on.
pub(super) fn block_signals() -> io::Result<()> {
    let set = signal_set(&HANDLED);
    // SAFETY: `set` was initialised by `signal_set`; a null old set is allowed.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits for a signal. [`block_signals`] must have been called before this thread was started.
pub(super) fn wait_for_signal() -> io::Result<c_int> {
    let set = signal_set(&HANDLED);
    let mut signal = 0;
    // SAFETY: both pointers are to live local variables.
    match unsafe { libc::sigwait(&set, &mut signal) } {
        0 => Ok(signal),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn signal_set(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the whole set, and sigaddset then finds it initialised.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Raises the soft limit of open files to the hard limit. Returns the previous limits.
pub(super) fn raise_open_files() -> io::Result<libc::rlimit> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live local variable.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut old) } != 0 {
        return Err(io::Error::last_os_error());
    }
    set_open_files(&libc::rlimit { rlim_cur: old.rlim_max, ..old })?;
    Ok(old)
}

/// Sets the limits of open files. May be called in a new process before `exec`.
///
/// # Errors
/// The error of the system call.
pub(super) fn set_open_files(limits: &libc::rlimit) -> io::Result<()> {
    // SAFETY: the pointer is to a live variable; allowed between fork and exec.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Restores the default action of SIGPIPE, which std has replaced, and unblocks all signals. For a new process before
/// `exec`.
pub(super) fn reset_signals() {
    let set = signal_set(&[]);
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: `set` was initialised by `signal_set`; a null old set is allowed.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) };
}

/// Requests that this new process dies with its parent `parent`. For a new process before `exec`.
///
/// # Errors
/// ESRCH if the parent has died.
pub(super) fn die_with(parent: pid_t) -> io::Result<()> {
    // SAFETY: this option takes a signal number and touches no memory; allowed between fork and exec.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, SIGKILL as libc::c_ulong) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: has no preconditions; allowed between fork and exec.
    let now = unsafe { libc::getppid() };
    // The launcher may have died before `prctl` took effect.
    if now == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// Waits until the child process `pid` has exited, without reaping it.
///
/// Until the process is reaped, the system does not reuse its PID and process group ID.
pub(super) fn wait_for_exit(pid: u32) -> io::Result<Exit> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` is a live local variable for the kernel to fill.
        if unsafe { libc::waitid(libc::P_PID, pid, info.as_mut_ptr(), options) } == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroed above and filled by waitid, which for WEXITED sets the fields of an exited child.
    let (code, status) = unsafe {
        let info = info.assume_init();
        (info.si_code, info.si_status())
    };
    Ok(if code == libc::CLD_EXITED { Exit::Code(status) } else { Exit::Signal(status) })
}

/// Waits until the child process `pid` has exited, and reaps it.
///
/// # Errors
/// ECHILD if it has already been reaped.
pub(super) fn reap(pid: u32) -> io::Result<()> {
    // SAFETY: a null status is allowed.
    while unsafe { libc::waitpid(pid as pid_t, std::ptr::null_mut(), 0) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// Kills the processes of a child's group that still run, and reaps the child.
pub(super) fn kill_and_reap(leader: u32) {
    signal_group(leader, libc::SIGKILL);
    if let Err(error) = reap(leader) {
        tracing::warn!(%error, pid = leader, "cannot reap a process");
    }
}

/// Sends a signal to the process group of the child `leader`. The child must not have been reaped.
///
/// It is not an error if all its processes have exited.
pub(super) fn signal_group(leader: u32, signal: c_int) {
    // SAFETY: touches no memory; the group is the child's own, as it is not reaped (see `wait_for_exit`).
    unsafe { libc::kill(-(leader as pid_t), signal) };
}

/// Sends a signal to a process.
///
/// It is not an error if the process has exited.
pub(super) fn signal_process(pid: u32, signal: c_int) {
    // SAFETY: touches no memory.
    unsafe { libc::kill(pid as pid_t, signal) };
}
