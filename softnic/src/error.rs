//! Errors of adapter calls that are not PRM commands.

use crate::address::Ip;
use std::net::Ipv6Addr;

/// Error of an adapter call other than a PRM command, which reports errors in its output mailbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The UDP fabric could not be bound.
    #[error(
        "cannot bind UDP port {port} of {ip}: {source}; it needs an IPv4 address of this machine that is up"
    )]
    Bind {
        /// Address that the configuration requests.
        ip: Ip,
        /// First UDP port that was tried.
        port: u16,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The adapter could not join a multicast group.
    #[error("cannot join the multicast group {group}: {source}")]
    Group {
        /// GID of the multicast group.
        group: Ipv6Addr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The capture file could not be written.
    #[error("cannot write the capture file {path:?}: {source}")]
    Capture {
        /// Path of the capture file.
        path: std::path::PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The log of commands and WQEs could not be written.
    #[error("cannot write the log of commands and WQEs {path:?}: {source}")]
    Record {
        /// Path of the log.
        path: std::path::PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The engine thread could not be started.
    #[error("cannot start the adapter's engine thread: {0}")]
    Thread(std::io::Error),
    /// The operating system provides no random numbers.
    #[error("the operating system has no random numbers: {0}")]
    Random(String),
    /// A setting is out of its range.
    #[error("setting {name} = {value} is out of range: {expected}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The rejected value, as text.
        value: String,
        /// The accepted values, as text.
        expected: &'static str,
    },
    /// A umem does not lie within its memory.
    #[error("umem of {len} bytes at offset {offset} leaves a memory of {size} bytes")]
    UmemRange {
        /// Offset of the umem in the memory, in bytes.
        offset: u64,
        /// Length of the umem, in bytes.
        len: u64,
        /// Size of the memory, in bytes.
        size: u64,
    },
    /// The memory cannot be used as a UAR page.
    #[error("no doorbell page at offset {offset:#x} of this memory: {why}")]
    UarMemory {
        /// Offset of the page in the memory, in bytes.
        offset: u64,
        /// Why the memory is unsuitable.
        why: &'static str,
    },
    /// The memory cannot hold the clock register.
    #[error("no clock register at offset {offset:#x} of this memory: {why}")]
    ClockMemory {
        /// Offset of the register in the memory, in bytes.
        offset: u64,
        /// Why the memory is unsuitable.
        why: &'static str,
    },
    /// No object with this number belongs to the context.
    #[error("no {kind} {id:#x} in this context")]
    Unknown {
        /// Kind of the object.
        kind: &'static str,
        /// ID of the object.
        id: u32,
    },
    /// The object cannot be destroyed, because other objects refer to it.
    #[error("{kind} {id:#x} is still used by {users} objects")]
    InUse {
        /// Kind of the object.
        kind: &'static str,
        /// ID of the object.
        id: u32,
        /// Number of objects that refer to it.
        users: u32,
    },
    /// No more objects of this kind can be created.
    #[error("no more {0}s")]
    Exhausted(&'static str),
}
