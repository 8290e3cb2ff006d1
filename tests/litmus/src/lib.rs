//! The memory model as a test suite.
//!
//! A litmus test has a short program for each of a few actors, on one or several PEs, and a set of forbidden outcomes.
//! Allowed but rare outcomes are counted: a suite that never sees them may miss forbidden ones too. The suite's own
//! jobs run their PEs as threads; the program `litmus` runs the same tests in a job of processes. Tests have the IDs
//! `L01` to `L109`, and `list.txt` records the status of each.
//!
//! | module | contents |
//! |---|---|
//! | [`program`] | operations, actors, tests |
//! | [`table`] | the tests |
//! | [`path`](mod@path) | the settings of a job, and the injected faults |
//! | [`cast`] | the assignment of roles to PEs |
//! | [`run`](mod@run) | jobs, launches and outcomes |
//! | [`check`] | tests with separate kernels |
//! | [`report`] | the counts of outcomes, as a table |
//! | [`list`] | the status of each test |

pub mod cast;
pub mod check;
pub mod list;
pub mod path;
pub mod program;
pub mod report;
pub mod run;
pub mod table;
