//! Queue pairs: attributes, state machine, queues, and connection state.
//!
//! | file | holds |
//! |---|---|
//! | `requester`, `message` | the sending side of a connection; a send WQE in flight |
//! | `responder` | the receiving side, and its pending responses |
//! | `flight` | which packets have arrived, and which are missing |
//! | `pace` | the response time of the peer |
//! | `dynamic`, `xrc` | additional state of dynamic and extended connections |
//! | `raw` | settings of an Ethernet queue |
//! | `faults` | what injected faults hold back |

mod dynamic;
mod faults;
mod flight;
mod message;
mod pace;
mod raw;
mod requester;
mod responder;
pub(crate) mod xrc;

use super::srq::SharedSrq;
use crate::queue_memory::QueueMemory;
use crate::report::{Event, Report};
use crate::roce::{Psn, Service};
use crate::route::Route;
pub(crate) use dynamic::{DcTarget, Dci, Link, OfDct, Refusal};
use faults::LoopbackFaults;
pub(crate) use faults::{LatePayload, ResponderFaults, Split, Unanswered};
pub(crate) use flight::REORDER_WINDOW;
pub(crate) use message::{Kind, Message};
pub(crate) use raw::RawQueue;
pub(crate) use requester::Requester;
use responder::Responder;
pub(crate) use responder::{ExecutedRead, PartialMessage, Response};
use rushmem_mlx5::Syndrome;
use rushmem_mlx5::cqe::Completion;
use rushmem_mlx5::doorbell::{Record, record_counter};
use rushmem_mlx5::prm::qp::{QpContext, SEND_DBR, ServiceType};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// State of a QP, with the encoding of the QP context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Error = 6,
}

impl State {
    /// Whether the QP processes packets from its peer.
    pub(crate) fn receives(self) -> bool {
        matches!(self, State::Rtr | State::Rts)
    }
}

/// Attributes of a QP that the commands for state transitions set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attrs {
    pub(crate) remote_qpn: u32,
    /// Path MTU code, 1 to 5.
    pub(crate) mtu: u8,
    pub(crate) log_msg_max: u8,
    pub(crate) remote_read: bool,
    pub(crate) remote_write: bool,
    pub(crate) remote_atomic: bool,
    pub(crate) atomic_mode: u8,
    pub(crate) min_rnr_nak: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) log_sra_max: u8,
    pub(crate) log_rra_max: u8,
    /// Whether the QP's WRITEs may be written to memory out of order.
    pub(crate) unordered: bool,
    /// The Q_Key that received datagrams must carry.
    pub(crate) qkey: u32,
    pub(crate) pkey: u16,
}

impl Attrs {
    pub(crate) fn mtu_shift(&self) -> u32 {
        7 + u32::from(self.mtu.clamp(1, 5))
    }

    /// Returns the number of packets of a message of `len` bytes. An empty message takes one.
    pub(crate) fn packets(&self, len: u64) -> u32 {
        let shift = self.mtu_shift();
        ((len + (1 << shift) - 1) >> shift).max(1) as u32
    }

    /// Whether `atomic_mode` allows an atomic of `bytes` bytes, possibly an extended one.
    pub(crate) fn allows_atomic(&self, bytes: u64, extended: bool) -> bool {
        self.remote_atomic
            && match self.atomic_mode {
                0 => false,
                1 | 2 => bytes == 8 && !extended,
                mode => bytes <= 1 << mode.min(8),
            }
    }

    /// Returns how long a QP waits for its peer before it fails. `None` means forever.
    pub(crate) fn retry_timeout(&self) -> Option<Duration> {
        let once = self.ack_wait()?;
        Some(once * (u32::from(self.retry_count) + 1))
    }

    /// Returns the ACK timeout, 4.096 us times a power of two. An `ack_timeout` of 0 disables the timer.
    pub(crate) fn ack_wait(&self) -> Option<Duration> {
        (self.ack_timeout != 0).then(|| Duration::from_nanos(4096 << self.ack_timeout))
    }
}

/// Returns the duration of a 5-bit RNR timer code (InfiniBand volume 1, table 45).
pub(crate) fn rnr_time(code: u8) -> Duration {
    const MICROS: [u64; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
        5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760,
        327_680, 491_520,
    ];
    Duration::from_micros(MICROS[usize::from(code & 0x1f)])
}

pub(crate) struct Sq {
    pub(crate) ring: QueueMemory,
    pub(crate) log_size: u8,
    /// Index one past the last 64-byte block announced by a doorbell, modulo 2^16.
    pub(crate) producer: u16,
    /// Index of the next 64-byte block to execute, modulo 2^16.
    pub(crate) consumer: u16,
}

impl Sq {
    /// Returns the number of blocks that a doorbell has announced and that are not executed yet.
    pub(crate) fn pending(&self) -> u16 {
        self.producer.wrapping_sub(self.consumer)
    }

    pub(crate) fn depth(&self) -> u32 {
        1 << self.log_size
    }
}

pub(crate) struct Rq {
    pub(crate) ring: QueueMemory,
    pub(crate) log_size: u8,
    /// Size of a receive WQE, in bytes.
    pub(crate) stride: usize,
    pub(crate) consumer: u16,
}

/// Backoff of a requester whose peer has not posted a receive (RNR).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    /// When the request first failed for want of a receive.
    pub(crate) since: Instant,
    /// When to send the request again.
    pub(crate) until: Instant,
}

pub(crate) struct Qp {
    pub(crate) owner: u32,
    pub(crate) qpn: u32,
    pub(crate) service: Service,
    pub(crate) pd: u32,
    pub(crate) uar: u32,
    pub(crate) user_index: u32,
    pub(crate) cq_send: Option<u32>,
    pub(crate) cq_recv: Option<u32>,
    pub(crate) umems: [u32; 2],
    /// The QP context that QUERY_QP returns, as last written by the driver.
    pub(crate) context: QpContext,
    pub(crate) state: State,
    /// Options of enhanced connection establishment (ECE) that CREATE_QP has answered.
    pub(crate) offered_ece: u32,
    /// Bit mask of the ECE options in use.
    pub(crate) ece: u32,
    pub(crate) attrs: Attrs,
    pub(crate) route: Route,
    pub(crate) sq: Option<Sq>,
    pub(crate) rq: Option<Rq>,
    /// The shared receive queue, if the QP uses one instead of `rq`. For an XRC target, the one that the last request
    /// named.
    pub(crate) srq: Option<SharedSrq>,
    /// Set once the driver has been notified that the QP, which has failed, takes no more receives from its SRQ.
    pub(crate) has_left_srq: bool,
    /// The doorbell record, or `None` if the QP uses only shared queues.
    pub(crate) record: Option<QueueMemory>,
    /// The producer counter in the record at the last reset, until a doorbell arrives. Drivers may leave it there, so
    /// it must not be taken for a doorbell.
    pub(crate) left_in_record: Option<u16>,
    /// State of the initiator, if the QP is a DCI.
    pub(crate) dci: Option<Box<Dci>>,
    /// State of the connection, if the QP serves a connection of a DCT.
    pub(crate) of_dct: Option<Box<OfDct>>,
    /// Settings of the queue, if this is only a send queue or a receive queue, for Ethernet.
    pub(crate) raw: Option<Box<RawQueue>>,
    /// Set while the QP is in the scheduler's list.
    pub(crate) queued: bool,
    /// PSN of the first packet of the next request or datagram.
    pub(crate) send_psn: Psn,
    /// PSN expected in the next request packet.
    pub(crate) recv_psn: Psn,
    /// Number of messages received completely.
    pub(crate) msn: u32,
    /// Bytes already copied of the loopback message at the head of the send queue.
    pub(crate) progress: u64,
    pub(crate) stall: Option<Stall>,
    pub(crate) rnr_tries: u8,
    /// When the engine next checks the QP's timers.
    pub(crate) timer: Option<Instant>,
    /// Index of the WQE at the head of the send queue, and when the observer has seen it start.
    pub(crate) observed: Option<(u16, Instant)>,
    /// Completions that an injected fault delays, each with the time at which it is written.
    pub(crate) held: VecDeque<(Instant, Completion)>,
    /// Faults injected into the QP's loopback WQEs.
    pub(crate) faults: LoopbackFaults,
    pub(crate) req: Requester,
    pub(crate) resp: Responder,
}

impl Qp {
    /// Creates a QP in the Reset state, without queues.
    pub(crate) fn new(owner: u32, qpn: u32, service: Service, context: QpContext) -> Qp {
        Qp {
            owner,
            qpn,
            service,
            pd: context.pd,
            uar: context.uar_page,
            user_index: context.user_index,
            cq_send: None,
            cq_recv: None,
            umems: [0; 2],
            context,
            state: State::Reset,
            offered_ece: 0,
            ece: 0,
            attrs: Attrs::default(),
            route: Route::Loopback,
            sq: None,
            rq: None,
            srq: None,
            has_left_srq: false,
            record: None,
            left_in_record: None,
            dci: None,
            of_dct: None,
            raw: None,
            queued: false,
            send_psn: Psn::default(),
            recv_psn: Psn::default(),
            msn: 0,
            progress: 0,
            stall: None,
            rnr_tries: 0,
            timer: None,
            observed: None,
            held: VecDeque::new(),
            faults: LoopbackFaults::default(),
            req: Requester::default(),
            resp: Responder::default(),
        }
    }

    /// Returns the number by which other adapters address the QP, if that is QP 0 or 1.
    pub(crate) fn special(&self) -> Option<u32> {
        match self.context.st {
            ServiceType::QP0 => Some(0),
            ServiceType::QP1 => Some(1),
            _ => None,
        }
    }

    /// Moves the QP to the Error state for a reason that no CQE of its send queue reports.
    pub(crate) fn enter_error(&mut self, report: &mut Report, syndrome: Syndrome) {
        if std::mem::replace(&mut self.state, State::Error) != State::Error {
            // A connection of a DCT is not known to the driver, and an Ethernet queue reports its errors by CQEs only.
            if self.of_dct.is_none() && self.raw.is_none() {
                report.events.push(Event::QpError { qpn: self.qpn, syndrome });
            }
            // Schedules the QP, whose queues must be flushed.
            report.wakeups.push((report.now, self.qpn));
        }
    }

    /// Returns the QPN that the QP's CQEs carry: the DCTN for a connection of a DCT.
    pub(crate) fn number(&self) -> u32 {
        self.of_dct.as_ref().map_or(self.qpn, |of| of.dctn)
    }

    /// Whether the driver updates a doorbell record before it rings send doorbells.
    pub(crate) fn has_send_record(&self) -> bool {
        self.context.send_dbr_mode == SEND_DBR
    }

    pub(crate) fn record_producer(&self) -> u16 {
        self.record_counter_at(Record::SND_OFFSET)
    }

    /// Returns the counter of posted receives in the doorbell record.
    pub(crate) fn record_receives(&self) -> u16 {
        self.record_counter_at(Record::RCV_OFFSET)
    }

    fn record_counter_at(&self, offset: usize) -> u16 {
        self.record.as_ref().map_or(0, |record| record_counter(record.load_u32(offset)))
    }

    pub(crate) fn has_receive(&self) -> bool {
        match (&self.rq, &self.srq) {
            (Some(rq), _) => self.record_receives() != rq.consumer,
            (None, Some(srq)) => srq.get().posted() != 0,
            (None, None) => false,
        }
    }

    /// Whether receives can be posted, to the QP or to its shared receive queue.
    pub(crate) fn has_receive_queue(&self) -> bool {
        self.rq.is_some() || self.srq.is_some()
    }

    /// Sets the first PSN to send when a connection is established.
    pub(crate) fn begin_sending(&mut self, psn: Psn) {
        self.send_psn = psn;
        self.req.start(psn);
        // WQEs may have been posted in the Reset or Init state, but none was started.
        if let Some(sq) = &self.sq {
            self.req.started = sq.consumer;
        }
    }

    /// Resets all state of the connection and the queues, as in the transition to RST.
    pub(crate) fn reset(&mut self) {
        // The driver need not clear the record, and its old value must not be mistaken for a doorbell.
        self.left_in_record = Some(self.record_producer());
        // Before the receive queue's counters are reset, since the receive goes back to it.
        self.drop_partial_message();
        self.leave_xrc_queue();
        self.has_left_srq = false;
        self.dci = self.dci.take().map(|_| Box::default());
        self.route = Route::Loopback;
        self.state = State::Reset;
        self.attrs = Attrs::default();
        if let Some(sq) = &mut self.sq {
            (sq.producer, sq.consumer) = (0, 0);
            sq.ring.restart();
        }
        if let Some(rq) = &mut self.rq {
            rq.consumer = 0;
        }
        (self.send_psn, self.recv_psn, self.msn) = (Psn::default(), Psn::default(), 0);
        (self.progress, self.stall, self.rnr_tries) = (0, None, 0);
        self.observed = None;
        self.held.clear();
        self.faults = LoopbackFaults::default();
        self.req = Requester::default();
        self.resp = Responder::default();
    }
}
