//! Runs the suite, and tests the suite itself.
//!
//! `RUSHMEM_LITMUS_ROUNDS` is the number of rounds of each test on each path. The tables of outcomes are printed, and
//! written to files in cargo's folder for tests.

mod collect;
mod harness;
mod host;
mod listed;
mod paths;
mod processes;
mod sanitized;
