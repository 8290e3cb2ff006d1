//! Converts the outcome of a call to a status, and keeps the text of the thread's last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rushmem::{Result, Status};
use rushmem_base::panic_text;
use rushmem_error::call_site;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs `call` and returns the status of its outcome: 0, or the code of a [`Status`]. A panic becomes
/// [`Status::Internal`].
pub(crate) fn status(call: impl FnOnce() -> Result<()>) -> i32 {
    match caught(call) {
        Ok(()) => 0,
        Err(status) => status.code(),
    }
}

/// Runs `call` and returns its number, or -1 if it fails.
pub(crate) fn number(call: impl FnOnce() -> Result<i32>) -> i32 {
    caught(call).unwrap_or(-1)
}

/// Runs `call`. If it fails, keeps the text of its error, and returns the error's status.
fn caught<R>(call: impl FnOnce() -> Result<R>) -> Result<R, Status> {
    let _site = call_site::enter_foreign();
    let (status, text) = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => (error.status(), error.to_string()),
        Err(panic) => (
            Status::Internal,
            format!("rushmem has panicked: {}", panic_text(&*panic).unwrap_or("unknown cause")),
        ),
    };
    // A C string ends at its first zero byte.
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.set(text);
    Err(status)
}

/// Returns the text of the calling thread's last error, which stays valid until the thread's next error.
pub(crate) fn last() -> *const c_char {
    LAST.with_borrow(|text| CStr::as_ptr(text))
}

#[cfg(test)]
mod tests {
    use rushmem::Error;

    use super::*;

    fn last_text() -> String {
        LAST.with_borrow(|text| text.to_str().unwrap().into())
    }

    #[test]
    fn panic_becomes_a_status_with_its_text() {
        let code = status(|| panic!("{} went wrong\0", 1));
        assert_eq!(code, Status::Internal.code());
        assert_eq!(last_text(), "rushmem has panicked: 1 went wrong ");
    }

    #[test]
    fn each_thread_has_its_own_last_error() {
        assert_eq!(number(|| Err(Error::misuse("a_call", "wrong"))), -1);
        assert!(last_text().starts_with("a_call: wrong"), "{}", last_text());
        std::thread::spawn(|| assert_eq!(last_text(), "")).join().unwrap();
        assert_eq!(status(|| Ok(())), 0);
        assert!(last_text().starts_with("a_call: wrong"), "success does not clear it");
    }
}
