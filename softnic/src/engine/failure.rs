//! Applies scheduled failures of the port and the adapter when they are due, and raises their events.

use crate::health::Change;
use crate::objects::Objects;
use crate::report::{Event, Report};
use crate::route::Route;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::Syndrome;

pub(super) fn fail_due(path: &mut Datapath) {
    let Datapath { failures, report, objects, fabric, .. } = path;
    if !failures.is_armed() {
        return;
    }
    for change in failures.take_due(report.now) {
        tracing::info!(?change, "injected failure");
        report.note_fault(None, change.name());
        let health = &mut failures.health;
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
                fail_cqs(objects, report);
                continue;
            }
        };
        report.events.push(event);
        if let Some(fabric) = fabric {
            fabric.cut(!failures.health.carries());
        }
    }
}

/// Moves each QP that is connected to another adapter to the Error state, and marks its send CQ as overrun.
fn fail_cqs(objects: &mut Objects, report: &mut Report) {
    let Objects { qps, cqs, .. } = objects;
    for qpn in qps.numbers(|qp| matches!(qp.route, Route::Peer(_))) {
        let Some(qp) = qps.get_mut(qpn) else { continue };
        if let Some(cqn) = qp.cq_send
            && let Some(cq) = cqs.get_mut(cqn)
            && !std::mem::replace(&mut cq.overrun, true)
        {
            report.events.push(Event::CqError { cqn });
        }
        qp.enter_error(report, Syndrome::LOCAL_QP_OP_ERR);
    }
}
