//! State of each open context other than its objects: its listener and its failures.

use crate::objects::Objects;
use crate::report::Event;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of failures stored per context until its driver calls
/// [`Context::failures`](crate::Context::failures).
const MAX_FAILURES: usize = 256;

/// Callback of a context, called after the adapter has changed the context's memory.
pub(crate) type Listener = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(crate) struct Contexts {
    last: u32,
    open: BTreeMap<u32, Context>,
}

#[derive(Default)]
struct Context {
    /// Called after the adapter has changed the context's memory.
    listener: Option<Listener>,
    /// Failures that the next call of [`Context::failures`](crate::Context::failures) returns.
    failures: Vec<Event>,
}

impl Contexts {
    /// Opens a context and returns its number.
    pub(crate) fn open(&mut self) -> u32 {
        self.last += 1;
        self.open.insert(self.last, Context::default());
        self.last
    }

    pub(crate) fn close(&mut self, context: u32) {
        self.open.remove(&context);
    }

    pub(crate) fn listen(&mut self, context: u32, listener: Listener) {
        if let Some(context) = self.open.get_mut(&context) {
            context.listener = Some(listener);
        }
    }

    pub(crate) fn listener(&self, context: u32) -> Option<Listener> {
        self.open.get(&context)?.listener.clone()
    }

    /// Stores the failures among `events` in each context that they affect.
    pub(crate) fn keep(&mut self, events: &[Event], objects: &Objects) {
        for event in events {
            let reaches = |context: u32| match event {
                Event::Completion { .. }
                | Event::SrqLimit { .. }
                | Event::LastReceive { .. }
                | Event::DctDrained { .. } => false,
                Event::CqError { cqn } => objects.cqs.get(*cqn).is_some_and(|cq| cq.owner == context),
                Event::QpError { qpn, .. } => objects.qps.get(*qpn).is_some_and(|qp| qp.owner == context),
                Event::Port { .. } | Event::AddressLost | Event::DeviceFailed => true,
            };
            for (number, context) in &mut self.open {
                if context.failures.len() < MAX_FAILURES && reaches(*number) {
                    context.failures.push(*event);
                }
            }
        }
    }

    pub(crate) fn take_failures(&mut self, context: u32) -> Vec<Event> {
        self.open.get_mut(&context).map(|context| std::mem::take(&mut context.failures)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Faults;

    #[test]
    fn failures_of_the_port_reach_every_context() {
        let (mut contexts, objects) = (Contexts::default(), Objects::new(&Faults::default(), &mut None));
        let (a, b) = (contexts.open(), contexts.open());
        let down = Event::Port { is_up: false };
        contexts.keep(&[down, Event::Completion { cqn: 1 }, Event::CqError { cqn: 1 }], &objects);
        assert_eq!((contexts.take_failures(a), contexts.take_failures(a)), (vec![down], vec![]));
        contexts.close(b);
        assert!(contexts.take_failures(b).is_empty());
    }
}
