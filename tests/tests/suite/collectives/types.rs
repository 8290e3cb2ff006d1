//! Reductions of every type.
