//! The error of an application.

use crate::Error;

/// The error of an application. An [`Error`] is kept as it is; any other error becomes [`Error::App`].
pub struct AppError(pub(super) Error);

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for AppError {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        match error.downcast::<Error>() {
            Ok(ours) => Self(*ours),
            Err(other) => Self(Error::App(other)),
        }
    }
}
