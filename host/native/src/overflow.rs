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
    EARLIER.get_or_init(install);
    // A thread that is ending has lost its own values, and keeps the stack that it has.
    let _ = ALTERNATE.try_with(|stack| {
        stack.get_or_init(AlternateStack::install);
    });
}

fn install() -> libc::sigaction {
    // SAFETY: the structures are plain data, for which zero is valid. The handler is a function of the right type.
    unsafe {
        let mut earlier: libc::sigaction = MaybeUninit::zeroed().assume_init();
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGSEGV, &action, &mut earlier);
        earlier
    }
}

/// Handles SIGSEGV: writes the hint if the current lane has met its guard page, and passes the signal on.
///
/// It only reads memory of this thread, formats into an array and calls `write`, as a handler may.
extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid information. The current lane lives while it is current.
    unsafe {
        let address = (*info).si_addr() as usize;
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        if let Some(lane) = CURRENT.get().as_ref()
            && (lane.guard..lane.guard + page).contains(&address)
        {
            let mut line = MessageBuffer { bytes: [0; 512], len: 0 };
            // A line that does not fit is cut.
            let _ = writeln!(line, "Error: {lane}");
            libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len);
        }
        pass_on(signal, info, context);
    }
}

/// Calls the earlier handler. Without one, restores the default action, and the access is repeated.
///
/// # Safety
/// The system has passed the arguments to a signal handler.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let earlier = EARLIER.get();
    match earlier.map_or(libc::SIG_DFL, |action| action.sa_sigaction) {
        // SAFETY: a signal number and a plain value.
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
        handler if earlier.is_some_and(|action| action.sa_flags & libc::SA_SIGINFO != 0) => {
            // SAFETY: the flag promises a function with three arguments.
            unsafe {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(handler);
                handler(signal, info, context);
            }
        }
        handler => {
            // SAFETY: without the flag it is a function with one argument.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
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
