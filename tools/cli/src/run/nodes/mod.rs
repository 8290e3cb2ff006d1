//! Jobs on several hosts that one launcher starts: it runs an agent on each other host by ssh.
//!
//! The launcher supervises the PEs of all hosts alike. An agent starts those of its host, passes their output and exits
//! on, and signals them. Both talk through ssh, whose standard input also carries the job's secret, so that no command
//! line shows it. An agent terminates its PEs when that input is closed.

pub(crate) mod agent;
mod frames;
pub(super) mod node;
