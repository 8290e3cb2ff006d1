//! Whole-system suites.
