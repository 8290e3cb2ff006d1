//! Hexadecimal formatting of byte slices.

use core::fmt::{self, Formatter};

pub(crate) fn hex(bytes: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
