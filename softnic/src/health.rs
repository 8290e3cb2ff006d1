//! The health of the adapter, and the failures that are scheduled for it.

use std::time::{Duration, Instant};

/// The health of the adapter and its only port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether the port is down. No packets are sent or received.
    pub port_is_down: bool,
    /// Whether the port has lost its IP address. No packets are sent or received.
    pub address_is_lost: bool,
    /// Whether the adapter has had a fatal error. No packets are sent or received.
    pub has_failed: bool,
}

impl Health {
    /// Whether packets can be sent and received: the adapter and its port are healthy.
    pub(crate) fn carries(self) -> bool {
        self == Health::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    PortFalls,
    PortReturns,
    AddressLeaves,
    DeviceFails,
    CqsFail,
}

impl Change {
    /// Returns the name of the fault's setting in [`Faults`](crate::Faults).
    pub(crate) fn name(self) -> &'static str {
        match self {
            Change::PortFalls => "port_falls",
            Change::PortReturns => "port_returns",
            Change::AddressLeaves => "address_leaves",
            Change::DeviceFails => "device_fails",
            Change::CqsFail => "cqs_fail",
        }
    }
}

/// Failures that are scheduled for the adapter, and its current health.
pub(crate) struct Failures {
    /// Failures and recoveries, each with its time after the first connection to another adapter. Empty after that
    /// connection.
    plan: Vec<(Duration, Change)>,
    /// Failures and recoveries that have not happened, each with its time. Empty before the first connection.
    due: Vec<(Instant, Change)>,
    pub(crate) health: Health,
}

impl Failures {
    /// Schedules `plan`: failures and recoveries, each with its time after the first connection to another adapter.
    pub(crate) fn new(plan: Vec<(Duration, Change)>) -> Failures {
        Failures { plan, due: Vec::new(), health: Health::default() }
    }

    /// Records a connection to another adapter. The first one starts the clock of the scheduled failures.
    pub(crate) fn connected(&mut self, now: Instant) {
        self.due.extend(self.plan.drain(..).map(|(after, change)| (now + after, change)));
    }

    /// Whether a failure or recovery is due in the future.
    pub(crate) fn is_armed(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns when the next failure or recovery is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.iter().map(|(at, _)| *at).min()
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Change> {
        let (due, later) = std::mem::take(&mut self.due).into_iter().partition(|(at, _)| *at <= now);
        self.due = later;
        let due: Vec<(Instant, Change)> = due;
        due.into_iter().map(|(_, change)| change).collect()
    }
}
