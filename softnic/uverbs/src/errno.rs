//! Error numbers, as the kernel returns them.

use rushmem_mlx5::prm::{CmdError, CmdStatus, DecodeError};
use std::fmt;

/// A system error code, such as `EINVAL`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

macro_rules! names {
    ($($name:ident)*) => {
        impl Errno {
            $(pub(crate) const $name: Errno = Errno(libc::$name);)*
        }

        impl fmt::Debug for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Errno::$name => f.write_str(stringify!($name)),)*
                    Errno(other) => write!(f, "errno {other}"),
                }
            }
        }
    };
}

names! {
    EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EBADF EBUSY EFAULT EINVAL EIO EISCONN EMFILE EMSGSIZE ENETUNREACH ENODATA ENODEV ENOENT ENOMEM
    ENOSPC ENOSYS EOPNOTSUPP EPERM EPROTONOSUPPORT EREMOTEIO ESRCH
}

impl Errno {
    /// Returns the error of this thread's last system call.
    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Maps a refused command to an error code like the kernel's driver.
impl From<CmdError> for Errno {
    fn from(error: CmdError) -> Errno {
        match error.status {
            CmdStatus::INT_ERR
            | CmdStatus::BAD_SYS_STATE
            | CmdStatus::BAD_INP_LEN
            | CmdStatus::BAD_OUTP_LEN => Errno::EIO,
            CmdStatus::RES_BUSY => Errno::EBUSY,
            CmdStatus::LIM => Errno::ENOMEM,
            CmdStatus::NO_RES => Errno::EAGAIN,
            _ => Errno::EINVAL,
        }
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<DecodeError> for Errno {
    fn from(error: DecodeError) -> Errno {
        match error {
            DecodeError::Refused(error) => error.into(),
            _ => Errno::EIO,
        }
    }
}

impl From<rushmem_softnic::Error> for Errno {
    fn from(error: rushmem_softnic::Error) -> Errno {
        match error {
            rushmem_softnic::Error::InUse { .. } => Errno::EBUSY,
            rushmem_softnic::Error::Exhausted(_) => Errno::ENOMEM,
            rushmem_softnic::Error::Bind { source, .. } | rushmem_softnic::Error::Capture { source, .. } => {
                source.into()
            }
            rushmem_softnic::Error::Thread(source) | rushmem_softnic::Error::Group { source, .. } => {
                source.into()
            }
            _ => Errno::EINVAL,
        }
    }
}
