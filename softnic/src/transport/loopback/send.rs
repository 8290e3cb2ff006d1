//! Executes SENDs over loopback, and completes the receives consumed by WRITEs with an immediate value.

use super::{Outcome, Source, no_receive};
use crate::dma::{Dma, Mkeys, Rights};
use crate::objects::Cq;
use crate::objects::qp::Qp;
use crate::queues::{Origin, ReceivedMessage, complete_receive, fail_receive, take_receive};
use crate::report::Report;
use crate::request::BadReceive;
use crate::table::Table;
use crate::wqe::{LocalError, Piece, for_each_piece};
use rushmem_mlx5::wqe::View;
use rushmem_mlx5::{CqeOpcode, Opcode};

pub(super) fn send(
    view: &View<'_>,
    source: &Source,
    target: &mut Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    (cqs, report): (&mut Table<Cq>, &mut Report),
) -> Result<u64, Outcome> {
    let Some(receive) = take_receive(target, report) else {
        return Err(no_receive(target));
    };
    let len = view.data_len();
    let moved = receive.fits(len).map_err(SendError::Receive).and_then(|()| {
        for_each_piece(view, mkeys, source.user, Rights::LOCAL_READ, 0, len, |piece, at| {
            let size = match piece {
                Piece::Memory(from) => from.len,
                Piece::Inline(bytes) => bytes.len() as u64,
            };
            let spread = receive.spread(mkeys, target.number(), at, size, |to, within| match piece {
                Piece::Memory(from) => dma.copy(&to, &from.part(within, to.len)),
                Piece::Inline(bytes) => dma.write(&to, &bytes[within as usize..]),
            });
            spread.map_err(SendError::Receive)
        })
    });
    match moved {
        Ok(()) => {}
        // The receive is consumed, although the fault is the sender's.
        Err(SendError::Own(refused)) => return Err(refused.into()),
        Err(SendError::Receive(bad)) => {
            fail_receive(target, cqs, report, receive.index, bad);
            target.enter_error(report, bad.refusal().syndrome().0);
            return Err(bad.refusal().into());
        }
    }
    // The completion announces the data, so the data must be visible first.
    dma.flush()?;
    let kind = if view.opcode() == Opcode::SEND { CqeOpcode::RESP_SEND } else { CqeOpcode::RESP_SEND_IMM };
    let message = ReceivedMessage {
        kind,
        index: receive.index,
        byte_cnt: len as u32,
        imm: view.imm().unwrap_or(0),
        solicited: view.flags().is_solicited(),
        origin: Origin::default(),
    };
    complete_receive(target, cqs, report, message);
    Ok(len)
}

/// Which side caused a SEND to fail.
enum SendError {
    Own(LocalError),
    Receive(BadReceive),
}

impl From<LocalError> for SendError {
    fn from(refused: LocalError) -> SendError {
        SendError::Own(refused)
    }
}

/// Completes the receive consumed by an RDMA WRITE with an immediate value.
pub(super) fn immediate(
    view: &View<'_>,
    target: &mut Qp,
    cqs: &mut Table<Cq>,
    dma: &mut Dma,
    report: &mut Report,
) -> Result<(), Outcome> {
    let Some(receive) = take_receive(target, report) else { return Ok(()) };
    // The completion announces the data, so the data must be visible first.
    dma.flush()?;
    let message = ReceivedMessage {
        kind: CqeOpcode::RESP_WR_IMM,
        index: receive.index,
        byte_cnt: view.data_len() as u32,
        imm: view.imm().unwrap_or(0),
        solicited: view.flags().is_solicited(),
        origin: Origin::default(),
    };
    complete_receive(target, cqs, report, message);
    Ok(())
}
