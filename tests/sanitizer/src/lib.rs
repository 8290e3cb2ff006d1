//! Small programs that test the communication sanitizer and illustrate the memory model.
//!
//! Each program is a function in a file of `programs/`, described by its doc. A racy program has one race, whose two
//! lines are marked `// first` and `// second`. The mark `// waits` is on the waits of a deadlock. All other programs
//! are clean and assert what they read. Most programs have a twin that makes one call more or fewer.
//!
//! Start with `programs/flags.rs`, in which one PE puts data and a flag, and another PE waits for the flag.
#![forbid(unsafe_code)]

mod program;
mod programs;
mod source;
pub mod table;

pub use program::{Code, Memory, Program, Topic, Verdict};
pub use programs::all;
pub use source::{Listing, Marks};
