//! Files of events, and subscriptions to them.

use super::FIRST_ID;
use crate::attrs::Call;
use crate::errno::Errno;
use crate::events::Kind;
use crate::open_device::OpenDevice;
use crate::subscriptions::Target;
use crate::sys;

/// Flag of an event file whose events have no data.
const OMIT_DATA: u32 = 1;

/// Maximum number of event types of a subscription.
const MAX_EVENT_TYPES: usize = 16;

/// Types of the events that objects have, as Linux knows them on a device that does not list them itself.
const OF_OBJECTS: [u16; 15] =
    [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x10, 0x11, 0x12, 0x13, 0x14, 0x18, 0x1c, 0x1d];

/// Type of the event of a port, the only one that needs no object.
const PORT_CHANGE: u16 = 0x09;

/// Handles DEVX_ASYNC_EVENT_FD alloc.
pub(super) fn create_file(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let flags: u32 = call.optional(FIRST_ID + 1)?.unwrap_or(0);
    let kind = if flags & OMIT_DATA != 0 { Kind::Fixed } else { Kind::Packets };
    let fd = opened.new_channel(kind)?;
    call.return_file(FIRST_ID, fd)
}

/// Handles DEVX_SUBSCRIBE_EVENT: subscribes to events of an object that was created through DevX.
pub(super) fn subscribe(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    const FILE: u16 = FIRST_ID;
    const OBJECT: u16 = FIRST_ID + 1;
    const EVENTS: u16 = FIRST_ID + 2;
    const COUNTER: u16 = FIRST_ID + 3;
    const COOKIE: u16 = FIRST_ID + 4;

    let channel = opened.channel(call.optional_fd(FILE)?.ok_or(Errno::EINVAL)?)?;
    let events = call.bytes(EVENTS)?;
    let events: Vec<u16> = events.chunks_exact(2).map(|two| u16::from_ne_bytes([two[0], two[1]])).collect();
    if events.is_empty() || events.len() > MAX_EVENT_TYPES {
        return Err(Errno::EINVAL);
    }
    let allowed = if call.has(OBJECT) { &OF_OBJECTS[..] } else { &[PORT_CHANGE] };
    if !events.iter().all(|event| allowed.contains(event)) {
        return Err(Errno::EINVAL);
    }
    if !call.has(OBJECT) {
        tracing::debug!("events of no object are not supported");
        return Err(Errno::EOPNOTSUPP);
    }
    let source = super::obj::source(opened, call.handle(OBJECT)?)?;
    let counter = call.optional_fd(COUNTER)?;
    let cookie: u64 = call.optional(COOKIE)?.unwrap_or(0);
    for event in events {
        let target = match counter {
            Some(fd) => Target::Counter(sys::duplicate(fd)?),
            None => Target::File(channel.clone(), cookie),
        };
        opened.session()?.adapter.registry.subscribe(source, event, target);
    }
    Ok(())
}
