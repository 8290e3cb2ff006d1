//! Random programs of collective calls.
