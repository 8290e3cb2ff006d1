//! The health of the adapter, and the failures that are scheduled for it.

use std::time::{Duration, Instant};

use crate::rng::Rng;

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
    /// Mean duration of the periods for which the port is up and down, if it flaps.
    flaps: Option<Duration>,
    /// Draws these periods.
    rng: Rng,
    pub(crate) health: Health,
}

impl Failures {
    /// Schedules `plan`: failures and recoveries, each with its time after the first connection to another adapter.
    ///
    /// With `flaps`, the port also goes down and up for random periods of this mean duration.
    pub(crate) fn new(mut plan: Vec<(Duration, Change)>, flaps: Option<Duration>, rng: Rng) -> Failures {
        let mut failures =
            Failures { plan: Vec::new(), due: Vec::new(), flaps, rng, health: Health::default() };
        plan.extend(failures.period().map(|up| (up, Change::PortFalls)));
        Failures { plan, ..failures }
    }

    /// Draws the duration of the next period of a port that flaps.
    fn period(&mut self) -> Option<Duration> {
        let most = 2 * self.flaps?.as_micros() as u64;
        Some(Duration::from_micros(1 + self.rng.below(most.max(1))))
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
        for &(at, change) in &due {
            let next = match change {
                Change::PortFalls => Change::PortReturns,
                Change::PortReturns => Change::PortFalls,
                _ => continue,
            };
            let period = self.period();
            self.due.extend(period.map(|period| (at + period, next)));
        }
        due.into_iter().map(|(_, change)| change).collect()
    }
}
