//! Calls that the members do not agree about.
