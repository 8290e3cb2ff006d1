//! Translates events of the adapter into entries of event queues.

use crate::eq::EventQueues;
use rushmem_mlx5::Syndrome;
use rushmem_mlx5::prm::eq::{Eqe, EventType};
use rushmem_softnic::{Context, Event};

/// The only port, as an entry names it.
const PORT: u8 = 1 << 4;

/// Writes the entry for `event` to the queues that receive it.
pub(crate) fn deliver(queues: &EventQueues, context: &Context, event: Event) {
    match event {
        Event::Completion { cqn } => {
            // A CQ that was destroyed has none.
            if let Some(number) = context.event_queue(cqn) {
                queues.post(number, Eqe { event_type: EventType::COMP, number: cqn, ..Eqe::default() });
            }
        }
        other => other_entry(other).into_iter().for_each(|eqe| queues.broadcast(eqe)),
    }
}

fn other_entry(event: Event) -> Option<Eqe> {
    let of_queue = |event_type, queue_type, number| Eqe { event_type, queue_type, number, ..Eqe::default() };
    let of_port = |event_sub_type| Eqe {
        event_type: EventType::PORT_CHANGE,
        event_sub_type,
        port: PORT,
        ..Eqe::default()
    };
    Some(match event {
        Event::CqError { cqn } => Eqe {
            event_type: EventType::CQ_ERROR,
            first: cqn,
            cq_syndrome: Eqe::CQ_OVERRUN,
            ..Eqe::default()
        },
        Event::QpError { qpn, syndrome } => {
            let event_type = match syndrome {
                Syndrome::REMOTE_INVAL_REQ_ERR => EventType::WQ_INVAL_REQ_ERROR,
                Syndrome::REMOTE_ACCESS_ERR => EventType::WQ_ACCESS_ERROR,
                _ => EventType::WQ_CATAS_ERROR,
            };
            of_queue(event_type, Eqe::OF_QP, qpn)
        }
        Event::SrqLimit { srqn } => of_queue(EventType::SRQ_RQ_LIMIT, Eqe::OF_SRQ, srqn),
        Event::LastReceive { qpn } => of_queue(EventType::SRQ_LAST_WQE, Eqe::OF_QP, qpn),
        Event::DctDrained { dctn } => of_queue(EventType::DCT_DRAINED, Eqe::OF_QP, dctn),
        Event::Port { is_up: true } => of_port(Eqe::PORT_ACTIVE),
        Event::Port { is_up: false } => of_port(Eqe::PORT_DOWN),
        Event::AddressLost => of_port(Eqe::PORT_LID),
        // The health buffer reports a failed adapter. Other events are not those of hardware.
        _ => return None,
    })
}
