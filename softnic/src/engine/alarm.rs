//! Wakes the engine thread while it sleeps: an eventfd that is written only if the engine is about to sleep.
#![allow(unsafe_code, reason = "system calls on an eventfd")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// Wakes the engine thread of one adapter.
///
/// The engine arms the alarm and checks for work once more before it sleeps. A caller changes memory before it rings.
/// So either the engine finds the change, or the caller finds the alarm armed.
pub(crate) struct Alarm {
    event: OwnedFd,
    armed: AtomicBool,
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Alarm> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(Alarm { event: unsafe { OwnedFd::from_raw_fd(fd) }, armed: AtomicBool::new(false) })
    }

    /// Wakes the engine if it sleeps, or prevents its next sleep if the alarm is armed.
    pub(crate) fn ring(&self) {
        // Orders the caller's stores before the load. Pairs with the fence in `arm`.
        fence(Ordering::SeqCst);
        // At most one ringer writes for each `arm`, so an awake engine costs no system call.
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            let one = 1u64;
            // SAFETY: 8 readable bytes. The counter cannot overflow, because one ring follows each `arm`.
            unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
        }
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    /// Arms the alarm. The engine must check for work once more before it sleeps.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Sleeps until [`Alarm::ring`] is called, a packet arrives on one of `sockets`, or `time` has passed. Returns
    /// whether a socket is readable.
    pub(crate) fn sleep(&self, sockets: [Option<RawFd>; 2], time: Duration) -> bool {
        let fd = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // The system ignores negative descriptors.
        let [first, second] = sockets.map(|socket| fd(socket.unwrap_or(-1)));
        let mut fds = [fd(self.event.as_raw_fd()), first, second];
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
        };
        // SAFETY: three valid entries, a valid timespec and no signal mask. The caller polls for work after any result.
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, &raw const time, std::ptr::null()) };
        if fds[0].revents != 0 {
            let mut rings = 0u64;
            // SAFETY: 8 writable bytes.
            unsafe { libc::read(self.event.as_raw_fd(), (&raw mut rings).cast(), size_of::<u64>()) };
        }
        fds[1].revents != 0 || fds[2].revents != 0
    }
}

/// A handle that wakes the engine of an adapter, obtained from [`Context::waker`](crate::Context::waker).
#[derive(Clone)]
pub struct Waker(pub(crate) Arc<Alarm>);

impl Waker {
    /// Wakes the engine to check for doorbells, if it is asleep. Costs only a fence if it is awake.
    pub fn wake(&self) {
        self.0.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_ring_ends_or_prevents_a_sleep() {
        let alarm = Alarm::new().unwrap();
        let long = Duration::from_secs(60);
        let begin = Instant::now();
        alarm.arm();
        alarm.ring();
        assert!(!alarm.is_armed());
        alarm.sleep([None; 2], long);
        alarm.arm();
        std::thread::scope(|scope| {
            scope.spawn(|| alarm.sleep([None; 2], long));
            alarm.ring();
        });
        assert!(begin.elapsed() < long);
        // Each ring wakes the engine once.
        alarm.sleep([None; 2], Duration::from_millis(1));
        assert!(!alarm.is_armed());
    }
}
