//! Scheduled failures as they happen, and their events.

use crate::core::Core;
use crate::health::Change;
use crate::report::event::Event;
use crate::route::Route;
use rushmem_mlx5::Syndrome;

impl Core {
    /// Makes the scheduled failures that are due.
    pub(crate) fn fail_due(&mut self) {
        if !self.failures.is_armed() {
            return;
        }
        for change in self.failures.take_due(self.now) {
            tracing::info!(?change, "injected failure");
            self.report.note_fault(None, change.name());
            let health = &mut self.failures.health;
            let event = match change {
                Change::PortFalls => {
                    health.port_is_down = true;
                    Event::Port { is_up: false }
                }
                Change::PortReturns => {
                    health.port_is_down = false;
                    Event::Port { is_up: true }
                }
                Change::AddressLeaves => {
                    health.address_is_lost = true;
                    Event::AddressLost
                }
                Change::DeviceFails => {
                    health.has_failed = true;
                    Event::DeviceFailed
                }
                Change::CqsFail => {
                    self.fail_cqs();
                    continue;
                }
            };
            self.report.events.push(event);
            let carries = self.failures.health.carries();
            if let Some(fabric) = &mut self.fabric {
                fabric.cut(!carries);
            }
        }
    }

    /// Makes the send CQ of each QP that is connected to another adapter fail, and so its QP.
    fn fail_cqs(&mut self) {
        let remote = self.qps.iter().filter(|(_, qp)| matches!(qp.route, Route::Peer(_)));
        let numbers: Vec<u32> = remote.map(|(qpn, _)| qpn).collect();
        for qpn in numbers {
            let Some(qp) = self.qps.get_mut(qpn) else { continue };
            if let Some(cqn) = qp.cq_send
                && let Some(cq) = self.cqs.get_mut(cqn)
                && !std::mem::replace(&mut cq.overrun, true)
            {
                self.report.events.push(Event::CqError { cqn });
            }
            qp.enter_error(&mut self.report, Syndrome::LOCAL_QP_OP_ERR);
        }
    }

    /// Takes the events not yet delivered, and keeps the failures among them for their contexts.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        /// Maximum number of failures that are kept for a context.
        const KEPT: usize = 256;
        let events = std::mem::take(&mut self.report.events);
        for event in &events {
            let reaches = |context: u32| match event {
                Event::Completion { .. }
                | Event::SrqLimit { .. }
                | Event::LastReceive { .. }
                | Event::DctDrained { .. } => false,
                Event::CqError { cqn } => self.cqs.get(*cqn).is_some_and(|cq| cq.owner == context),
                Event::QpError { qpn, .. } => self.qps.get(*qpn).is_some_and(|qp| qp.owner == context),
                Event::Port { .. } | Event::AddressLost | Event::DeviceFailed => true,
            };
            for (context, kept) in &mut self.kept_failures {
                if kept.len() < KEPT && reaches(*context) {
                    kept.push(*event);
                }
            }
        }
        events
    }
}
