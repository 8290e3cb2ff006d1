//! Diagnoses stack overflows of lanes: names the PE, the kernel and the setting that helps.
//!
//! The page below a lane's stack is a guard page, and an access to it raises SIGSEGV. The handler recognises the page,
//! writes one line, and passes the signal on to the previous handler or the default action.
#![allow(unsafe_code, reason = "handles a signal")]

use std::cell::{Cell, OnceCell};
use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t};

use crate::signal;

/// Size of the signal stack on which the handler runs, in bytes.
const ALTERNATE_STACK: usize = 64 << 10;

/// The stack of a lane, with what the handler reports about the lane.
pub(crate) struct LaneStack {
    pub(crate) pe: Option<u32>,
    pub(crate) kernel: Option<&'static str>,
    pub(crate) block: u32,
    pub(crate) thread: u32,
    /// Requested size of the lane's stack in bytes.
    pub(crate) bytes: usize,
    /// Address of the guard page below the lane's stack.
    pub(crate) guard: usize,
}

impl fmt::Display for LaneStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pe) = self.pe {
            write!(f, "PE {pe}: ")?;
        }
        if let Some(kernel) = self.kernel {
            write!(f, "kernel {kernel}: ")?;
        }
        write!(
            f,
            "lane {} of block {} overflowed its stack of {} bytes; raise RUSHMEM_NATIVE_STACK, or keep less on the stack",
            self.thread, self.block, self.bytes
        )
    }
}

thread_local! {
    /// The lane that is running on this thread.
    static CURRENT: Cell<*const LaneStack> = const { Cell::new(ptr::null()) };
    static ALTERNATE: OnceCell<Option<AlternateStack>> = const { OnceCell::new() };
}

/// Action for SIGSEGV that was installed before this module's handler.
static EARLIER: OnceLock<libc::sigaction> = OnceLock::new();

/// Calls `f` with the lane that is running on this thread, if any. Safe to call from a signal handler.
pub(crate) fn with_current<R>(f: impl FnOnce(&LaneStack) -> R) -> Option<R> {
    // SAFETY: the current lane lives while it is current.
    unsafe { CURRENT.get().as_ref() }.map(f)
}

/// Runs `f`, during which `lane` is the current lane of this thread.
#[inline]
pub(crate) fn enter<R>(lane: &LaneStack, f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(ptr::null());
        }
    }
    CURRENT.set(lane);
    let _leave = Leave;
    f()
}

/// Installs the SIGSEGV handler once per process, and an alternate signal stack on this thread if it has none. The
/// handler needs one: the lane's stack is exhausted when it runs.
pub(crate) fn prepare() {
    EARLIER.get_or_init(|| signal::install(libc::SIGSEGV, on_fault, libc::SA_ONSTACK));
    // A thread that is exiting has already destroyed its thread-local values. It keeps the signal stack that it has.
    let _ = ALTERNATE.try_with(|stack| {
        stack.get_or_init(AlternateStack::install);
    });
}

/// Handles SIGSEGV: writes a line if the current lane hit its guard page, and passes the signal on.
///
/// It is async-signal-safe: it only reads memory of this thread, formats into an array and calls `write`.
extern "C" fn on_fault(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid information, and the buffer is live.
    unsafe {
        let address = (*info).si_addr() as usize;
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        with_current(|lane| {
            if (lane.guard..lane.guard + page).contains(&address) {
                let mut line = MessageBuffer { bytes: [0; 512], len: 0 };
                // A line that does not fit is truncated.
                let _ = writeln!(line, "Error: {lane}");
                libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len);
            }
        });
        if !EARLIER.get().is_some_and(|earlier| signal::call(earlier, number, info, context)) {
            // Restore the default action and return: the access is repeated and kills the process.
            libc::signal(number, libc::SIG_DFL);
        }
    }
}

/// A fixed buffer into which a signal handler formats a line without allocating. Longer text is truncated.
struct MessageBuffer {
    bytes: [u8; 512],
    len: usize,
}

impl Write for MessageBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(text.as_bytes()) {
            *to = *from;
            self.len += 1;
        }
        Ok(())
    }
}

/// The alternate signal stack that this module installed on a thread. Removed when the thread exits.
struct AlternateStack(#[expect(dead_code, reason = "the signal stack of this thread")] Box<[u8]>);

impl AlternateStack {
    /// Installs an alternate signal stack on this thread. Returns `None` if the thread has one already, like all
    /// threads that Rust's standard library starts.
    fn install() -> Option<Self> {
        // SAFETY: the calls read and write live values. The new stack lives until `drop` has disabled it.
        unsafe {
            let mut current: libc::stack_t = MaybeUninit::zeroed().assume_init();
            libc::sigaltstack(ptr::null(), &mut current);
            if current.ss_flags & libc::SS_DISABLE == 0 {
                return None;
            }
            let mut stack = vec![0; ALTERNATE_STACK].into_boxed_slice();
            let new =
                libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: ALTERNATE_STACK };
            (libc::sigaltstack(&new, ptr::null_mut()) == 0).then_some(Self(stack))
        }
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        let none =
            libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: ALTERNATE_STACK };
        // SAFETY: a live value; no lane runs on a thread that is exiting.
        unsafe { libc::sigaltstack(&none, ptr::null_mut()) };
    }
}
