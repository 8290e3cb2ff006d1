//! DevX subscriptions, by which programs receive the events of single objects.

use crate::events::{Channel, Kind};
use rushmem_mlx5::Syndrome;
use rushmem_softnic::Event;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Type numbers of events, as in the device's event queue entries.
mod number {
    pub(super) const COMPLETION: u16 = 0x00;
    pub(super) const CQ_ERROR: u16 = 0x04;
    pub(super) const LAST_WQE: u16 = 0x13;
    pub(super) const SRQ_LIMIT: u16 = 0x14;
    pub(super) const DCT_DRAINED: u16 = 0x1c;
    pub(super) const WQ_CATASTROPHIC: u16 = 0x05;
    pub(super) const WQ_INVALID_REQUEST: u16 = 0x10;
    pub(super) const WQ_ACCESS_VIOLATION: u16 = 0x11;
}

/// An object that can cause events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A CQ, by CQN.
    Cq(u32),
    /// A QP, by QPN.
    Qp(u32),
    /// An RMP or an SRQ of an XRC domain, by number.
    Rmp(u32),
    /// A DCT, by DCTN.
    Dct(u32),
}

/// Where an event is delivered.
pub(crate) enum Target {
    /// An event file, with a cookie of the program that starts each event.
    File(Arc<Channel>, u64),
    /// An `eventfd`.
    Counter(OwnedFd),
}

impl Target {
    fn tell(&self, entry: &[u8; 64]) {
        match self {
            Target::File(channel, cookie) => {
                let entry = if channel.kind() == Kind::Packets { &entry[..] } else { &[] };
                channel.send(&[&cookie.to_ne_bytes(), entry].concat());
            }
            Target::Counter(fd) => {
                let one = 1u64.to_ne_bytes();
                // SAFETY: the eight bytes of `one`. A full counter has signalled already.
                unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            }
        }
    }
}

/// All DevX subscriptions to objects of an adapter.
#[derive(Default)]
pub(crate) struct Subscriptions {
    list: HashMap<(Source, u16), Vec<Target>>,
}

impl Subscriptions {
    /// Subscribes `target` to events of type `event` of an object.
    pub(crate) fn add(&mut self, source: Source, event: u16, target: Target) {
        self.list.entry((source, event)).or_default().push(target);
    }

    /// Removes all subscriptions to an object.
    pub(crate) fn remove(&mut self, source: Source) {
        self.list.retain(|(other, _), _| *other != source);
    }

    /// Delivers an event. Returns whether anything has subscribed to it.
    pub(crate) fn event(&self, event: Event) -> bool {
        let Some((source, number)) = meaning(event) else { return false };
        let targets = self.list.get(&(source, number)).map_or(&[][..], Vec::as_slice);
        let entry = entry(source, number);
        targets.iter().for_each(|target| target.tell(&entry));
        !targets.is_empty()
    }
}

fn meaning(event: Event) -> Option<(Source, u16)> {
    Some(match event {
        Event::Completion { cqn } => (Source::Cq(cqn), number::COMPLETION),
        Event::CqError { cqn } => (Source::Cq(cqn), number::CQ_ERROR),
        Event::QpError { qpn, syndrome: Syndrome::REMOTE_INVAL_REQ_ERR } => {
            (Source::Qp(qpn), number::WQ_INVALID_REQUEST)
        }
        Event::QpError { qpn, syndrome: Syndrome::REMOTE_ACCESS_ERR } => {
            (Source::Qp(qpn), number::WQ_ACCESS_VIOLATION)
        }
        Event::QpError { qpn, .. } => (Source::Qp(qpn), number::WQ_CATASTROPHIC),
        Event::LastReceive { qpn } => (Source::Qp(qpn), number::LAST_WQE),
        Event::SrqLimit { srqn } => (Source::Rmp(srqn), number::SRQ_LIMIT),
        Event::DctDrained { dctn } => (Source::Dct(dctn), number::DCT_DRAINED),
        _ => return None,
    })
}

/// Encodes an event queue entry: its type, and the object's ID at the offset for that type.
fn entry(source: Source, number: u16) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[1] = number as u8;
    let (at, object) = match source {
        Source::Cq(cqn) if number == number::CQ_ERROR => (0x20, cqn),
        Source::Cq(cqn) => (0x38, cqn),
        Source::Qp(number) | Source::Rmp(number) | Source::Dct(number) => (0x38, number),
    };
    entry[at..at + 4].copy_from_slice(&object.to_be_bytes());
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn subscribers_get_only_their_events() {
        let (packets, whole) = Channel::new(Kind::Packets).unwrap();
        let (cookies, brief) = Channel::new(Kind::Fixed).unwrap();
        // SAFETY: takes numbers only.
        let counter = sys::owned(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) }).unwrap();
        let count = counter.try_clone().unwrap();
        let mut list = Subscriptions::default();
        list.add(Source::Cq(7), number::COMPLETION, Target::File(packets, 0x1111));
        list.add(Source::Cq(7), number::COMPLETION, Target::Counter(counter));
        list.add(Source::Qp(7), number::WQ_ACCESS_VIOLATION, Target::File(cookies, 0x2222));
        assert!(!list.event(Event::Completion { cqn: 8 }) && !list.event(Event::CqError { cqn: 7 }));
        assert!(list.event(Event::Completion { cqn: 7 }));
        assert!(list.event(Event::QpError { qpn: 7, syndrome: Syndrome::REMOTE_ACCESS_ERR }));

        let read = crate::events::tests::read;
        let bytes = read(whole, 100);
        assert_eq!((bytes.len(), &bytes[..8]), (72, &0x1111u64.to_ne_bytes()[..]));
        assert_eq!(bytes[8 + 0x38..8 + 0x3c], 7u32.to_be_bytes());
        assert_eq!(read(brief, 100), 0x2222u64.to_ne_bytes());
        assert_eq!(read(count.as_raw_fd(), 8), 1u64.to_ne_bytes());
        list.remove(Source::Cq(7));
        assert!(!list.event(Event::Completion { cqn: 7 }));
        sys::close(whole);
        sys::close(brief);
    }
}
