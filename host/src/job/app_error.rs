//! Converts the errors of applications to [`Error`].

use crate::Error;

/// The error that an application has returned. An [`Error`] is kept as it is; any other error becomes [`Error::App`].
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
