//! Texts that suggest what users can do about a failed libibverbs or libmlx5 call.
#![allow(unsafe_code, reason = "calls getrlimit")]

use std::io;

/// Remedy for errors that only the driver can explain.
pub(super) const SEE_DMESG: &str = "See the messages of the mlx5_ib driver in dmesg";

pub(super) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Returns what users can do about a failed memory registration. The usual cause is the limit on locked memory.
pub(super) fn memory_remedy(errno: i32) -> String {
    match errno {
        libc::ENOMEM | libc::EPERM | libc::EAGAIN => {
            let limit = match locked_limit() {
                None => {
                    "unlimited, so the system has no more memory to lock; lower RUSHMEM_HEAP_BYTES".into()
                }
                Some(bytes) => format!(
                    "{} KiB; raise it (ulimit -l unlimited, or LimitMEMLOCK=infinity for a service), or lower \
                     RUSHMEM_HEAP_BYTES",
                    bytes >> 10
                ),
            };
            format!("This process may lock memory up to a limit, which is {limit}")
        }
        libc::EOPNOTSUPP => {
            "Linux or the device does not support this call: update Linux, or use RUSHMEM_NIC=soft".into()
        }
        _ => SEE_DMESG.into(),
    }
}

/// Returns `RLIMIT_MEMLOCK` in bytes, or `None` if it is unlimited.
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
    fn remedies_state_the_limit_on_locked_memory() {
        let text = memory_remedy(libc::ENOMEM);
        assert!(text.contains("unlimited"), "{text}");
        assert!(!memory_remedy(libc::EFAULT).contains("limit"));
    }
}
