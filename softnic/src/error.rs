//! Errors outside the command interface.

use crate::address::Ip;
use std::net::Ipv4Addr;

/// An error outside the command interface.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The UDP fabric could not be bound.
    #[error(
        "cannot bind UDP port {port} of {ip}: {source}; it needs an IPv4 address of this machine that is up"
    )]
    Bind {
        /// Requested address.
        ip: Ip,
        /// First port tried.
        port: u16,
        /// Cause, from the operating system.
        source: std::io::Error,
    },
    /// The adapter could not join a multicast group.
    #[error("cannot join the multicast group {group}: {source}")]
    Group {
        /// The group.
        group: Ipv4Addr,
        /// Cause, from the operating system.
        source: std::io::Error,
    },
    /// The capture file could not be written.
    #[error("cannot write the capture file {path:?}: {source}")]
    Capture {
        /// The file.
        path: std::path::PathBuf,
        /// Cause, from the operating system.
        source: std::io::Error,
    },
    /// The WQE log could not be written.
    #[error("cannot write the WQE log {path:?}: {source}")]
    Record {
        /// The file.
        path: std::path::PathBuf,
        /// Cause, from the operating system.
        source: std::io::Error,
    },
    /// The engine thread could not be started.
    #[error("cannot start the adapter's engine thread: {0}")]
    Thread(std::io::Error),
    /// The system has no random numbers.
    #[error("the operating system has no random numbers: {0}")]
    Random(String),
    /// A setting is out of its range.
    #[error("setting {name} = {value} is out of range: {expected}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// Accepted values.
        expected: &'static str,
    },
    /// A umem does not lie within its memory.
    #[error("umem of {len} bytes at offset {offset} leaves a memory of {size} bytes")]
    UmemRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes of the memory.
        size: u64,
    },
    /// Memory cannot be a doorbell page.
    #[error("no doorbell page at offset {offset:#x} of this memory: {why}")]
    UarMemory {
        /// First byte.
        offset: u64,
        /// Cause.
        why: &'static str,
    },
    /// Memory cannot hold the clock.
    #[error("no clock register at offset {offset:#x} of this memory: {why}")]
    ClockMemory {
        /// First byte.
        offset: u64,
        /// Cause.
        why: &'static str,
    },
    /// No object with this number belongs to this context.
    #[error("no {kind} {id:#x} in this context")]
    Unknown {
        /// Kind of object.
        kind: &'static str,
        /// Its number.
        id: u32,
    },
    /// The object is still used by others.
    #[error("{kind} {id:#x} is still used by {users} objects")]
    InUse {
        /// Kind of object.
        kind: &'static str,
        /// Its number.
        id: u32,
        /// How many objects use it.
        users: u32,
    },
    /// No more objects of this kind.
    #[error("no more {0}s")]
    Exhausted(&'static str),
}
