//! The text of a panic.

use std::any::Any;

/// Returns the message of a panic that `catch_unwind` or `join` has caught, or `None` if the payload is not text.
///
/// ```
/// let panic = std::panic::catch_unwind(|| panic!("PE {} has failed", 3)).unwrap_err();
/// assert_eq!(rushmem_base::panic_text(&*panic), Some("PE 3 has failed"));
/// ```
pub fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}
