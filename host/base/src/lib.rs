//! Items shared by all host crates: the [shape of a launch](LaunchConfig), [lists of PEs](Pes), [locks](lock) that
//! ignore poisoning, [compiled kernels](Ptx), and facts about the [machine and the launcher](host_name).
//!
//! This crate depends on nothing, so every other host crate may use it. Code that belongs to one subsystem goes into
//! the crate of that subsystem instead.
#![deny(unsafe_code)]

mod cause;
mod cores;
mod environment;
mod launch_config;
mod output_file;
mod panic_text;
mod pes;
mod ports;
mod process;
mod ptx;
mod sync;

pub use cause::root_cause;
pub use cores::{cores, crowd_deadline, pes_per_core, shared_deadline};
pub use environment::{boot_id, host_name, local_processes};
pub use launch_config::{LaunchConfig, MAX_BLOCKS, MAX_SHARED_BYTES, MAX_THREADS};
pub use output_file::check_writable;
pub use panic_text::panic_text;
pub use pes::Pes;
pub use ports::{free_port, loopback};
pub use process::{has_signal, stat_field, status_bytes};
pub use ptx::Ptx;
/// Advice appended to error messages when the operating system refuses to start a thread.
pub const THREAD_ADVICE: &str =
    "raise the limits on processes and threads (`ulimit -u`) and on memory (`ulimit -v`), or run fewer PEs";

pub use sync::{into_inner, lock, wait, wait_timeout};
