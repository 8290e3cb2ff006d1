//! Delivery of an adapter's events to the event files of programs.

use crate::abi::{self, event_type};
use crate::events::Channel;
use crate::settings::LinkLayer;
use crate::subscriptions::{Source, Subscriptions, Target};
use rushmem_mlx5::Syndrome;
use rushmem_softnic::Event;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Receiver of an object's events: an event file, and the program's user handle of the object.
pub(crate) struct Waiter {
    channel: Arc<Channel>,
    user_handle: u64,
    /// Length of each event in the event file, in bytes.
    len: usize,
    /// Number of events that have been written to the event file.
    sent: AtomicU32,
}

impl Waiter {
    /// Creates a receiver of a CQ's completion events. An event is the program's user handle.
    pub(crate) fn of_completions(channel: Arc<Channel>, user_handle: u64) -> Arc<Waiter> {
        Arc::new(Waiter { channel, user_handle, len: 8, sent: AtomicU32::new(0) })
    }

    /// Creates a receiver of an object's asynchronous events.
    pub(crate) fn of_failures(channel: Arc<Channel>, user_handle: u64) -> Arc<Waiter> {
        let len = size_of::<abi::AsyncEvent>();
        Arc::new(Waiter { channel, user_handle, len, sent: AtomicU32::new(0) })
    }

    /// Writes an event to the event file. Completion events are only the user handle, so `event_type` does not matter
    /// for them.
    fn tell(&self, event_type: u32) {
        let event = abi::AsyncEvent { element: self.user_handle, event_type, reserved: 0 };
        if self.channel.send(&bytemuck::bytes_of(&event)[..self.len]) {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes unread events. Returns the number of events that the program has read.
    pub(crate) fn finish(&self) -> u32 {
        let own = self.user_handle.to_ne_bytes();
        let unread = self.channel.take_back(self.len, |event| event.starts_with(&own));
        self.sent.load(Ordering::Relaxed).saturating_sub(unread)
    }
}

/// Receivers of an adapter's events.
#[derive(Default)]
pub(crate) struct Registry {
    lists: Mutex<Lists>,
    link: LinkLayer,
}

#[derive(Default)]
struct Lists {
    completions: HashMap<u32, Arc<Waiter>>,
    cqs: HashMap<u32, Arc<Waiter>>,
    /// Receivers of each QP's events, by QPN. A QP has several if programs share it as an XRC target.
    qps: HashMap<u32, Vec<Arc<Waiter>>>,
    srqs: HashMap<u32, Arc<Waiter>>,
    subscriptions: Subscriptions,
    /// Files for asynchronous events of port and device, one for each time that a program has opened the device.
    openers: Vec<Weak<Channel>>,
}

impl Registry {
    /// Creates the registry of an adapter with this link layer.
    pub(crate) fn new(link: LinkLayer) -> Registry {
        Registry { link, ..Registry::default() }
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers `waiter` for a CQ's completion events.
    pub(crate) fn listen_to_completions(&self, cqn: u32, waiter: Arc<Waiter>) {
        self.lists().completions.insert(cqn, waiter);
    }

    /// Registers `waiter` for a CQ's errors.
    pub(crate) fn listen_to_cq(&self, cqn: u32, waiter: Arc<Waiter>) {
        self.lists().cqs.insert(cqn, waiter);
    }

    /// Registers `waiter` for a QP's errors.
    pub(crate) fn listen_to_qp(&self, qpn: u32, waiter: Arc<Waiter>) {
        self.lists().qps.entry(qpn).or_default().push(waiter);
    }

    /// Registers `waiter` for the event that an SRQ has fallen below its limit.
    pub(crate) fn listen_to_srq(&self, srqn: u32, waiter: Arc<Waiter>) {
        self.lists().srqs.insert(srqn, waiter);
    }

    /// Registers an event file for events of the port and the device.
    pub(crate) fn listen_to_port(&self, channel: &Arc<Channel>) {
        let openers = &mut self.lists().openers;
        openers.retain(|channel| channel.strong_count() > 0);
        openers.push(Arc::downgrade(channel));
    }

    /// Unregisters the receivers of a CQ.
    pub(crate) fn forget_cq(&self, cqn: u32) {
        let mut lists = self.lists();
        lists.completions.remove(&cqn);
        lists.cqs.remove(&cqn);
    }

    /// Unregisters a receiver of a QP.
    pub(crate) fn forget_qp(&self, qpn: u32, waiter: &Arc<Waiter>) {
        let mut lists = self.lists();
        if let Some(waiters) = lists.qps.get_mut(&qpn) {
            waiters.retain(|other| !Arc::ptr_eq(other, waiter));
            if waiters.is_empty() {
                lists.qps.remove(&qpn);
            }
        }
    }

    /// Unregisters the receiver of an SRQ.
    pub(crate) fn forget_srq(&self, srqn: u32) {
        self.lists().srqs.remove(&srqn);
    }

    /// Subscribes `target` to events of type `event` of an object.
    pub(crate) fn subscribe(&self, source: Source, event: u16, target: Target) {
        self.lists().subscriptions.add(source, event, target);
    }

    /// Removes all subscriptions to an object.
    pub(crate) fn unsubscribe(&self, source: Source) {
        self.lists().subscriptions.remove(source);
    }

    /// Delivers an event of the adapter.
    pub(crate) fn event(&self, event: Event) {
        let lists = self.lists();
        if let Some(event_type) = port_type(event, self.link) {
            // The element is the port number.
            let event = abi::AsyncEvent { element: 1, event_type, reserved: 0 };
            for channel in lists.openers.iter().filter_map(Weak::upgrade) {
                channel.send(bytemuck::bytes_of(&event));
            }
            return;
        }
        let subscribed = lists.subscriptions.event(event);
        let one = |waiter: Option<_>| waiter.map(std::slice::from_ref).unwrap_or_default();
        let all = |qpn| lists.qps.get(&qpn).map(Vec::as_slice).unwrap_or_default();
        let (waiters, event_type) = match event {
            Event::Completion { cqn } => (one(lists.completions.get(&cqn)), 0),
            Event::CqError { cqn } => (one(lists.cqs.get(&cqn)), event_type::CQ_ERR),
            Event::QpError { qpn, syndrome } => (all(qpn), type_of(syndrome)),
            Event::SrqLimit { srqn } => (one(lists.srqs.get(&srqn)), event_type::SRQ_LIMIT_REACHED),
            Event::LastReceive { qpn } => (all(qpn), event_type::QP_LAST_WQE_REACHED),
            _ => (&[][..], 0),
        };
        waiters.iter().for_each(|waiter| waiter.tell(event_type));
        if waiters.is_empty() {
            tracing::debug!(?event, subscribed, "event that no verbs object waits for");
        }
    }
}

/// Returns the verbs event type for an event of the port or the device.
fn port_type(event: Event, link: LinkLayer) -> Option<u32> {
    Some(match event {
        Event::Port { is_up: true } => event_type::PORT_ACTIVE,
        Event::Port { is_up: false } => event_type::PORT_ERR,
        Event::AddressLost if link == LinkLayer::InfiniBand => event_type::LID_CHANGE,
        Event::AddressLost => event_type::GID_CHANGE,
        Event::DeviceFailed => event_type::DEVICE_FATAL,
        _ => return None,
    })
}

/// Returns the verbs event type for the error of a QP.
fn type_of(syndrome: Syndrome) -> u32 {
    match syndrome {
        Syndrome::REMOTE_INVAL_REQ_ERR => event_type::QP_REQ_ERR,
        Syndrome::REMOTE_ACCESS_ERR => event_type::QP_ACCESS_ERR,
        _ => event_type::QP_FATAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Kind;
    use crate::sys;

    fn read(fd: i32) -> abi::AsyncEvent {
        crate::user::prefix(&crate::events::tests::read(fd, 16))
    }

    #[test]
    fn every_opener_gets_the_events_of_the_port() {
        let registry = Registry::default();
        let files = [Channel::new(Kind::Fixed).unwrap(), Channel::new(Kind::Fixed).unwrap()];
        files.iter().for_each(|(channel, _)| registry.listen_to_port(channel));
        let events = [
            (Event::Port { is_up: false }, event_type::PORT_ERR),
            (Event::Port { is_up: true }, event_type::PORT_ACTIVE),
            (Event::AddressLost, event_type::GID_CHANGE),
            (Event::DeviceFailed, event_type::DEVICE_FATAL),
        ];
        for (event, event_type) in events {
            registry.event(event);
            for (_, fd) in &files {
                let event = read(*fd);
                assert_eq!((event.element, event.event_type), (1, event_type));
            }
        }
        for (_, fd) in files {
            sys::close(fd);
        }
    }

    #[test]
    fn failures_carry_the_handle_of_the_program() {
        let (channel, fd) = Channel::new(Kind::Fixed).unwrap();
        let registry = Registry::default();
        let waiter = |name| Waiter::of_failures(Arc::clone(&channel), name);
        let (cq, qp) = (waiter(0x1111), waiter(0x2222));
        registry.listen_to_cq(5, cq.clone());
        registry.listen_to_qp(5, qp.clone());
        registry.event(Event::Completion { cqn: 5 });
        registry.event(Event::CqError { cqn: 5 });
        let error = |syndrome| Event::QpError { qpn: 5, syndrome };
        let syndromes = [
            (Syndrome::REMOTE_INVAL_REQ_ERR, event_type::QP_REQ_ERR),
            (Syndrome::REMOTE_ACCESS_ERR, event_type::QP_ACCESS_ERR),
            (Syndrome::LOCAL_QP_OP_ERR, event_type::QP_FATAL),
        ];
        syndromes.iter().for_each(|(syndrome, _)| registry.event(error(*syndrome)));
        let first = read(fd);
        assert_eq!((first.element, first.event_type), (0x1111, event_type::CQ_ERR));
        for (_, expected) in &syndromes[..2] {
            let event = read(fd);
            assert_eq!((event.element, event.event_type), (0x2222, *expected));
        }
        // The third is never read, but a program can destroy the QP without acknowledging it.
        assert_eq!((cq.finish(), qp.finish()), (1, 2));
        registry.forget_qp(5, &qp);
        registry.event(error(Syndrome::REMOTE_ACCESS_ERR));
        assert_eq!(channel.take_back(16, |_| true), 0);
        sys::close(fd);
    }
}
