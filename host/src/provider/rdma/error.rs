//! What an RDMA device can refuse, and what to do about it.

use std::io;

/// Why an RDMA device cannot be used. Each message names the device, the call and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// The system has no such device.
    #[error("there is no RDMA device {wanted}: {found}")]
    NoDevice {
        /// The name asked for.
        wanted: String,
        /// What there is instead.
        found: String,
    },
    /// A call of libibverbs or libmlx5 failed.
    #[error("{nic}: {call} failed: {}. {remedy}", errno_text(*errno))]
    Call {
        /// The device.
        nic: String,
        /// The call, and what about.
        call: String,
        /// Why.
        errno: i32,
        /// What to do.
        remedy: String,
    },
    /// Every way to do something failed.
    #[error("{nic}: {what} failed in every way: {}. {remedy}", attempts.join("; "))]
    Attempts {
        /// The device.
        nic: String,
        /// What was to be done.
        what: String,
        /// Each way, and why it failed.
        attempts: Vec<String>,
        /// What to do.
        remedy: String,
    },
    /// The device, or a port of it, is not fit.
    #[error("{nic}: {why}")]
    Unusable {
        /// The device.
        nic: String,
        /// Why, and what to do.
        why: String,
    },
}

/// The last error of the C library.
pub(super) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// `ENOMEM (Cannot allocate memory)`.
pub(super) fn errno_text(errno: i32) -> String {
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

/// What to do when memory could not be registered for this reason. The limit on locked memory is the usual one.
pub(super) fn memory_remedy(errno: i32) -> String {
    match errno {
        libc::ENOMEM | libc::EPERM | libc::EAGAIN => {
            let limit = match locked_limit() {
                None => {
                    "unlimited, so the system has no more memory to lock; use a smaller RUSHMEM_HEAP_BYTES"
                        .into()
                }
                Some(bytes) => format!(
                    "{} KiB; raise it (ulimit -l unlimited, or LimitMEMLOCK=infinity for a service), or use a smaller \
                     RUSHMEM_HEAP_BYTES",
                    bytes >> 10
                ),
            };
            format!("This process may lock memory up to a limit, which is {limit}")
        }
        libc::EOPNOTSUPP => {
            "This kernel or device has no such call: update the kernel, or use RUSHMEM_NIC=soft".into()
        }
        _ => "See dmesg for what the mlx5_ib driver says".into(),
    }
}

/// `RLIMIT_MEMLOCK` in bytes, none for unlimited.
fn locked_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is written to a live variable.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (done == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_named() {
        assert_eq!(errno_text(libc::ENOMEM), "ENOMEM (Cannot allocate memory)");
        assert!(errno_text(97).starts_with("errno 97 ("));
    }

    #[test]
    fn the_limit_on_locked_memory_is_told() {
        let text = memory_remedy(libc::ENOMEM);
        assert!(text.contains("unlimited"), "{text}");
        assert!(!memory_remedy(libc::EFAULT).contains("limit"));
    }
}
