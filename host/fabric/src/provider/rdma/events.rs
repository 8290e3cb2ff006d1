//! Reads the events of an RDMA device: of its port, of the device itself, and of the CQs and QPs created through DevX.
//!
//! Verbs report port and device events in the context's event file. DevX objects have no verbs events; they are
//! reported by a DevX event channel.
#![allow(unsafe_code, reason = "calls libibverbs and libmlx5")]

use std::ptr::NonNull;
use std::sync::Arc;

use rushmem_error::{RdmaError, errno_text};
use rushmem_mlx5::prm::{CmdOpcode, Header, cq, qp};

use super::context::{Context, DevxObject};
use super::ffi::{self, event_type};
use super::port::{Port, changed_address};
use super::remedy::{SEE_DMESG, last_errno};
use crate::provider::NicEvent;

/// Types of event queue entries (PRM, "Events").
mod entry_type {
    pub(super) const CQ_ERROR: u16 = 0x04;
    pub(super) const WQ_CATASTROPHIC: u16 = 0x05;
    pub(super) const WQ_INVALID_REQUEST: u16 = 0x10;
    pub(super) const WQ_ACCESS_VIOLATION: u16 = 0x11;
}

/// Offset of the event type in an event queue entry, in bytes.
const ENTRY_TYPE: usize = 1;

/// The sources from which the events of an open device are read.
pub(super) struct Events {
    /// `None` if the kernel driver has no event channels for DevX objects.
    channel: Option<NonNull<ffi::EventChannel>>,
    context: Arc<Context>,
}

// SAFETY: any thread may use the channel, because calls change no state of it in libmlx5.
unsafe impl Send for Events {}
// SAFETY: as for `Send`.
unsafe impl Sync for Events {}

impl Events {
    /// Opens the event sources of a device, in nonblocking mode.
    pub(super) fn open(context: &Arc<Context>) -> Result<Self, RdmaError> {
        // SAFETY: the context is open.
        let fd = unsafe { (*context.raw()).async_fd };
        let unblock = |fd, call: &str| match set_nonblocking(fd) {
            Ok(()) => Ok(()),
            Err(errno) => Err(context.error(call, errno, SEE_DMESG)),
        };
        unblock(fd, "fcntl of the event file")?;
        // SAFETY: the context is open.
        let channel = NonNull::new(unsafe { ffi::mlx5dv_devx_create_event_channel(context.raw(), 0) });
        let events = Self { channel, context: Arc::clone(context) };
        match channel {
            // SAFETY: the channel is open.
            Some(channel) => unblock(unsafe { channel.as_ref() }.fd, "fcntl of the DevX event channel")?,
            None => {
                let why = errno_text(last_errno());
                tracing::info!("{}: failures of CQs and QPs have no events: {why}", context.title());
            }
        }
        Ok(events)
    }

    /// Subscribes to failures of an object, if it is a CQ or QP. `input` and `output` are the mailboxes of its
    /// creation.
    pub(super) fn subscribe(&self, object: &DevxObject, input: &[u8], output: &[u8]) {
        let (Some(channel), Some(object)) = (self.channel, object.raw()) else { return };
        let (source, events): (Source, &mut [u16]) = match Header::decode(input).map(|header| header.opcode) {
            Ok(CmdOpcode::CREATE_CQ) => match cq::CreateCqOut::decode(output) {
                Ok(out) => (Source::Cq(out.cqn), &mut [entry_type::CQ_ERROR]),
                Err(_) => return,
            },
            Ok(CmdOpcode::CREATE_QP) => match qp::CreateQpOut::decode(output) {
                Ok(out) => (
                    Source::Qp(out.qpn),
                    &mut [
                        entry_type::WQ_CATASTROPHIC,
                        entry_type::WQ_INVALID_REQUEST,
                        entry_type::WQ_ACCESS_VIOLATION,
                    ],
                ),
                Err(_) => return,
            },
            _ => return,
        };
        let (len, cookie) = (size_of_val(events) as u16, source.cookie());
        // SAFETY: channel and object are live, and `events` has `len` bytes.
        let errno = unsafe {
            ffi::mlx5dv_devx_subscribe_devx_event(
                channel.as_ptr(),
                object.as_ptr(),
                len,
                events.as_mut_ptr(),
                cookie,
            )
        };
        if errno != 0 {
            let why = errno_text(last_errno());
            tracing::info!("{}: failures of {source:?} have no events: {why}", self.context.title());
        }
    }

    /// Takes the pending events of `port`, of the device and of its DevX objects.
    pub(super) fn take(&self, port: &Port) -> Vec<NicEvent> {
        let mut events = Vec::new();
        while let Some((number, event_type)) = self.next_verbs_event() {
            tracing::debug!("{}: event {event_type} of port {number}", self.context.title());
            let is_of_port = number == i32::from(port.address.number);
            match event_type {
                event_type::DEVICE_FATAL => events.push(NicEvent::DeviceFailed),
                event_type::PORT_ERR if is_of_port => events.push(NicEvent::PortDown),
                event_type::PORT_ACTIVE if is_of_port => {
                    events.push(NicEvent::PortUp);
                    // The subnet manager may have assigned another LID.
                    events.extend(self.changed_address(port));
                }
                event_type::GID_CHANGE | event_type::LID_CHANGE | event_type::PKEY_CHANGE if is_of_port => {
                    events.extend(self.changed_address(port));
                }
                _ => {}
            }
        }
        events.extend(std::iter::from_fn(|| self.next_devx_event()));
        events
    }

    /// Returns an event if the port's address has changed. Compares only the LID, GID and partition key in use: Linux
    /// reports changes of all table entries, and most of them do not matter.
    fn changed_address(&self, port: &Port) -> Option<NicEvent> {
        let changed = changed_address(&self.context, port).unwrap_or_else(|error| {
            tracing::debug!("{error}");
            None
        });
        changed.map(NicEvent::AddressChanged)
    }

    /// Returns the port and type of the next verbs event, or `None` if none is pending.
    fn next_verbs_event(&self) -> Option<(i32, u32)> {
        let mut event = ffi::AsyncEvent::EMPTY;
        // SAFETY: the context is open, `event` is a live variable, and each event that was read is acknowledged once.
        unsafe {
            if ffi::ibv_get_async_event(self.context.raw(), &mut event) != 0 {
                return None;
            }
            ffi::ibv_ack_async_event(&mut event);
        }
        Some((event.port, event.event_type))
    }

    fn next_devx_event(&self) -> Option<NicEvent> {
        let mut event = ffi::DevxEvent::EMPTY;
        let len = size_of_val(&event);
        // SAFETY: the channel is open, and `event` is a live variable with `len` bytes.
        let read = unsafe { ffi::mlx5dv_devx_get_event(self.channel?.as_ptr(), &mut event, len) };
        if read < 0 {
            return None;
        }
        Some(match (Source::of(event.cookie), event.entry[ENTRY_TYPE].into()) {
            (Source::Cq(cqn), _) => NicEvent::CqFailed { cqn },
            (Source::Qp(qpn), entry_type::WQ_CATASTROPHIC) => NicEvent::QpFailed { qpn },
            (Source::Qp(qpn), _) => NicEvent::RequestRefused { qpn },
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Some(channel) = self.channel {
            // SAFETY: `open` created the channel, and it is destroyed once.
            unsafe { ffi::mlx5dv_devx_destroy_event_channel(channel.as_ptr()) };
        }
    }
}

/// A NIC object whose failures are reported as events: a CQ or QP, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Cq(u32),
    Qp(u32),
}

impl Source {
    /// Bit that distinguishes the cookies of QPs from those of CQs. Object numbers have only 24 bits.
    const QP: u64 = 1 << 32;

    /// Returns the cookie that identifies the object in its DevX events.
    fn cookie(self) -> u64 {
        match self {
            Self::Cq(cqn) => cqn.into(),
            Self::Qp(qpn) => Self::QP | u64::from(qpn),
        }
    }

    /// Decodes the cookie of a DevX event.
    fn of(cookie: u64) -> Self {
        let number = cookie as u32;
        if cookie & Self::QP != 0 { Self::Qp(number) } else { Self::Cq(number) }
    }
}

/// Sets a file to nonblocking. The error is an errno value.
fn set_nonblocking(fd: i32) -> Result<(), i32> {
    // SAFETY: takes numbers only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: takes numbers only.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(last_errno());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_name_their_object() {
        for source in [Source::Cq(0), Source::Cq(0xff_ffff), Source::Qp(0), Source::Qp(0xff_ffff)] {
            assert_eq!(Source::of(source.cookie()), source);
        }
    }
}
