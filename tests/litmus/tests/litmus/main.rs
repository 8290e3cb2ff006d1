//! Runs the litmus suite, and tests the suite itself.
//!
//! `RUSHMEM_LITMUS_ROUNDS` sets the number of rounds of each test on each path. The tables of outcomes are printed, and
//! written to cargo's folder for temporary files of tests.

mod collect;
mod harness;
mod host;
mod listed;
mod paths;
mod processes;
mod sanitized;
