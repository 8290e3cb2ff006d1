//! The memory model as a test suite.
//!
//! A litmus test is a short program for each of a few actors, on one PE or several, and the outcomes that the model
//! forbids; outcomes that are allowed but rare are counted, since a suite that never sees one may be too tame to see a
//! forbidden one either. The suite's own jobs have their PEs as threads; the program `litmus` does the same in a job of processes. The tests are numbered `L01` to `L97`; `list.txt` says of each what becomes of it.
//!
//! | module | holds |
//! |---|---|
//! | [`program`] | operations, actors, tests |
//! | [`table`] | the tests |
//! | [`path`](mod@path) | the settings that they run with, and the adversary's faults |
//! | [`cast`] | which PEs the roles of a test are |
//! | [`run`](mod@run) | a job for a path, or one that is there; the launches, the outcomes |
//! | [`check`] | tests that are programs of their own |
//! | [`report`] | what was seen, as a table |
//! | [`list`] | what becomes of each number |

pub mod cast;
pub mod check;
pub mod list;
pub mod path;
pub mod program;
pub mod report;
pub mod run;
pub mod table;
