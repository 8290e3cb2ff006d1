//! Installs signal handlers that chain to those the process had before.
#![allow(unsafe_code, reason = "installs signal handlers, and calls those of others")]

use std::mem::MaybeUninit;

use libc::{c_int, c_void, siginfo_t};

pub(crate) type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Installs `handler` for signal `number`. Returns the previous action.
pub(crate) fn install(number: c_int, handler: Handler, flags: c_int) -> libc::sigaction {
    // SAFETY: the structures are plain data, for which zero is valid. The handler is a function of the right type.
    unsafe {
        let mut earlier: libc::sigaction = MaybeUninit::zeroed().assume_init();
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(number, &action, &mut earlier);
        earlier
    }
}

/// Calls the handler of the previous action `earlier`. Returns false if it has none.
///
/// # Safety
/// The system has passed the arguments to a signal handler.
pub(crate) unsafe fn call(
    earlier: &libc::sigaction,
    number: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) -> bool {
    match earlier.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => return false,
        handler if earlier.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the flag promises a function with three arguments.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(number, info, context);
        }
        handler => {
            // SAFETY: without the flag it is a function with one argument.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(number);
        }
    }
    true
}
