//! A hint for lanes that overflow their stack: their PE, their kernel and the setting that helps.
//!
//! The stack of a lane ends with a guard page, and an access to it raises SIGSEGV. A handler recognises the page, writes
//! one line, and passes the signal to the handler before it, or to the default action.
#![allow(unsafe_code, reason = "handles a signal")]

use std::cell::{Cell, OnceCell};
use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t};

use crate::signal;

/// Bytes of an alternate signal stack.
const ALTERNATE_STACK: usize = 64 << 10;

/// A lane, as the handler names it.
pub(crate) struct LaneStack {
    pub(crate) pe: Option<u32>,
    pub(crate) kernel: Option<&'static str>,
    pub(crate) block: u32,
    pub(crate) thread: u32,
    /// Size of the stack in bytes, as the launch asked for it.
    pub(crate) bytes: usize,
    /// Lowest address of the stack: its guard page.
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
    /// The lane that this thread runs.
    static CURRENT: Cell<*const LaneStack> = const { Cell::new(ptr::null()) };
    static ALTERNATE: OnceCell<Option<AlternateStack>> = const { OnceCell::new() };
}

/// The action before this module's handler.
static EARLIER: OnceLock<libc::sigaction> = OnceLock::new();

/// Calls `f` with the current lane of this thread, if it runs one. A signal handler may call it.
pub(crate) fn with_current<R>(f: impl FnOnce(&LaneStack) -> R) -> Option<R> {
    // SAFETY: the current lane lives while it is current.
    unsafe { CURRENT.get().as_ref() }.map(f)
}

/// Runs `f` while `lane` is the current lane of this thread.
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

/// Installs the handler, once for the process, and an alternate signal stack for this thread if it has none.
pub(crate) fn prepare() {
    EARLIER.get_or_init(|| signal::install(libc::SIGSEGV, on_fault, libc::SA_ONSTACK));
    // A thread that is ending has lost its own values, and keeps the stack that it has.
    let _ = ALTERNATE.try_with(|stack| {
        stack.get_or_init(AlternateStack::install);
    });
}

/// Handles SIGSEGV: writes the hint if the current lane has met its guard page, and passes the signal on.
///
/// It only reads memory of this thread, formats into an array and calls `write`, as a handler may.
extern "C" fn on_fault(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid information, and the buffer is live.
    unsafe {
        let address = (*info).si_addr() as usize;
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        with_current(|lane| {
            if (lane.guard..lane.guard + page).contains(&address) {
                let mut line = MessageBuffer { bytes: [0; 512], len: 0 };
                // A line that does not fit is cut.
                let _ = writeln!(line, "Error: {lane}");
                libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len);
            }
        });
        if !EARLIER.get().is_some_and(|earlier| signal::call(earlier, number, info, context)) {
            // The default action is restored, and the access is repeated.
            libc::signal(number, libc::SIG_DFL);
        }
    }
}

/// A line of text in an array.
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

/// The alternate signal stack of a thread that had none, until the thread ends.
struct AlternateStack(#[expect(dead_code, reason = "the signal stack of this thread")] Box<[u8]>);

impl AlternateStack {
    /// Returns `None` for a thread that has one already, as threads of Rust's standard library do.
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
        // SAFETY: a live value; no lane runs on a thread that ends.
        unsafe { libc::sigaltstack(&none, ptr::null_mut()) };
    }
}
