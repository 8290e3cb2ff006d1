//! Errors of RDMA devices that are used through libibverbs.

use std::io;

use rushmem_mlx5::prm::CmdOpcode;

/// Errors of RDMA devices. Each message contains the device, the failed call and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// libibverbs or libmlx5 cannot be loaded, or lacks a function.
    #[error("{why}; {remedy}")]
    NoLibrary {
        /// Error of the dynamic loader, which names the library.
        why: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The system has no RDMA device with this name.
    #[error("there is no RDMA device {wanted}: {found}")]
    NoDevice {
        /// Name of the missing device.
        wanted: String,
        /// Devices that this system has, and the remedy.
        found: String,
    },
    /// A call of libibverbs or libmlx5 failed.
    #[error("{nic}: {call} failed: {}. {remedy}", errno_text(*errno))]
    Call {
        /// Name of the device.
        nic: String,
        /// Name of the call, and what it was about.
        call: String,
        /// `errno` after the call.
        errno: i32,
        /// What to do about the failed call.
        remedy: String,
    },
    /// Linux returned an error for a PRM command, and no output mailbox.
    ///
    /// Since Linux 5.18, a command that firmware refuses returns its output mailbox, so this is a refusal by Linux. Before,
    /// Linux keeps the mailbox, and it may be either.
    #[error(
        "{nic}: {command} failed with {}, without status and syndrome: {}. {DEBUG_DEVX}",
        errno_text(*errno),
        hidden_status(*errno)
    )]
    Command {
        /// Name of the device.
        nic: String,
        /// Opcode of the failed command.
        command: CmdOpcode,
        /// `errno` after the call.
        errno: i32,
    },
    /// An action failed with each of the methods that the device and the system might support.
    #[error("{nic}: {action} failed with every method: {}. {remedy}", attempts.join("; "))]
    Attempts {
        /// Name of the device.
        nic: String,
        /// The failed action, such as "registering GPU memory".
        action: String,
        /// Each method that was tried, with its error.
        attempts: Vec<String>,
        /// What to do if none of the methods works.
        remedy: String,
    },
    /// The device, or one of its ports, cannot be used.
    #[error("{nic}: {why}")]
    Unusable {
        /// Name of the device.
        nic: String,
        /// Why the device or the port cannot be used, and what to do about it.
        why: String,
    },
}

/// How users find the status and the syndrome of a DevX command, which Linux logs only on demand.
const DEBUG_DEVX: &str = "To learn more, let the kernel log commands of user space (echo 'func mlx5_cmd_check +p' > \
                          /sys/kernel/debug/dynamic_debug/control), and read dmesg";

/// Explains an `errno` that Linux returned for a command without its output mailbox: what firmware's status would be, if
/// firmware refused the command.
fn hidden_status(errno: i32) -> String {
    let statuses = match errno {
        libc::EINVAL => "the command, one of its parameters or objects, or the state of its QP",
        libc::EIO => "the length of a mailbox or the state of the device, or reports an internal error",
        libc::EAGAIN => "the command for lack of resources",
        libc::ENOMEM => "the command because a limit is exceeded",
        libc::EBUSY => "the command because an object is in use",
        _ => return "Linux refused the command".into(),
    };
    format!("Linux refused the command, or firmware refuses {statuses} and Linux is older than 5.18")
}

/// Formats an `errno` with its name, such as `ENOMEM (Cannot allocate memory)`.
pub fn errno_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("{} ({text})", errno_name(errno))
}

fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::ENOSPC => "ENOSPC",
        libc::ENOSYS => "ENOSYS",
        libc::ENODATA => "ENODATA",
        libc::EREMOTEIO => "EREMOTEIO",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::ETIMEDOUT => "ETIMEDOUT",
        _ => return format!("errno {errno}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_names_and_descriptions() {
        assert_eq!(errno_text(libc::ENOMEM), "ENOMEM (Cannot allocate memory)");
        assert!(errno_text(97).starts_with("errno 97 ("));
    }
}
