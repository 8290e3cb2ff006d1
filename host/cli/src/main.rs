//! The `rushmem` command.
fn main() {}
