//! Small programs that judge the communication sanitizer, and show the memory model.
//!
//! Each program is a function in a file of `programs/`. Its doc says what it does. A racy program has one race: the comments
//! `// first` and `// second` mark its two lines. The comment `// waits` marks the waits of a deadlock. All other programs are
//! clean, and assert what they read. Most programs have a twin, which makes one call more or one call less.
//!
//! Start with `programs/flags.rs`: one PE puts data and a flag, and another PE waits for the flag.
#![forbid(unsafe_code)]

mod program;
mod programs;
mod source;
pub mod table;

pub use program::{Code, Memory, Program, Topic, Verdict};
pub use programs::all;
pub use source::{Listing, Marks};
