//! Converts errors of the runtime to exceptions.

use pyo3::prelude::*;
use pyo3::types::PyType;
use rushmem::{Error, Status};

/// Creates an instance of the class in `rushmem._errors` that fits the error.
pub(crate) fn exception(py: Python<'_>, error: Error) -> PyErr {
    let (class, kind) = (class_of(&error), error.status().name());
    let text = error.to_string();
    let instance = py.import("rushmem._errors").and_then(|errors| errors.getattr(class)?.call1((text, kind)));
    instance.map_or_else(|failed| failed, PyErr::from_value)
}

/// Creates the exception for an invalid call.
pub(crate) fn misuse(py: Python<'_>, call: &'static str, what: impl Into<String>) -> PyErr {
    exception(py, Error::misuse(call, what))
}

/// Returns the message of an exception, with its class, as the reason of an abort.
pub(crate) fn reason(class: &Bound<'_, PyType>, value: &Bound<'_, PyAny>) -> String {
    let name = class.name().map_or_else(|_| "an exception".into(), |name| name.to_string());
    match value.str().map(|text| text.to_string()) {
        Ok(text) if !text.is_empty() => format!("{name}: {text}"),
        _ => name,
    }
}

fn class_of(error: &Error) -> &'static str {
    match error.status() {
        Status::PeerLost => "PeerLostError",
        Status::InvalidValue => "MisuseError",
        Status::Timeout => "DeadlineError",
        _ if error.is_deadline() => "DeadlineError",
        _ => "Error",
    }
}
