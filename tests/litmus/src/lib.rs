//! The memory model as a test suite.
//!
//! A litmus test is a short program for each of a few actors, on one PE or several, and the outcomes that the model
//! forbids; outcomes that are allowed but rare are counted, since a suite that never sees one may be too tame to see a
//! forbidden one either. The tests are numbered `L01` to `L97`; `list.txt` says of each what becomes of it.
//!
//! | module | holds |
//! |---|---|
//! | [`program`] | operations, actors, tests |
//! | [`table`] | the tests |
//! | [`path`](mod@path) | the settings that they run with, and the adversary's faults |
//! | [`run`](mod@run) | a job for a path, the launches, the outcomes |
//! | [`report`] | what was seen, as a table |
//! | [`list`] | what becomes of each number |

pub mod list;
pub mod path;
pub mod program;
pub mod report;
pub mod run;
pub mod table;
