//! Errors of the runtime: [`Error`] with its stable [`Status`], errors of NICs ([`NicError`]), and errors that kernels
//! recorded ([`DeviceError`]), with the names of objects ([`ObjectNames`]) and the line of the application
//! ([`call_site`]).
//!
//! `rushmem` re-exports what applications need. The rest, and everything hidden from the documentation, is internal to
//! the crates of the runtime and may change at any time.
#![deny(unsafe_code)]

pub mod call_site;
mod error;
mod names;
mod nic_error;
mod report;
mod status;

pub use call_site::CallSite;
pub use error::{Error, Result};
pub use names::{InObject, ObjectNames};
pub use nic_error::NicError;
#[cfg(feature = "rdma")]
pub use nic_error::{RdmaError, errno_text};
pub use report::{DeviceError, recorded};
pub use status::{Status, meaning_of};
