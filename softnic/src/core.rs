//! The adapter's state, and the pass that advances it.

use crate::clock::ClockRegisters;
use crate::config::Config;
use crate::cq::Cq;
use crate::datagram;
use crate::dc::Dct;
use crate::dma::{Dma, Mkeys, Umem};
use crate::engine::Wake;
use crate::health::Failures;
use crate::introduction::{Introductions, Meaning};
use crate::limits;
use crate::link::udp::TooLong;
use crate::link::{Fabric, Rest};
use crate::management::{self, Inbox, MAD};
use crate::multicast::Members;
use crate::qp::{Qp, State};
use crate::report::Report;
use crate::report::event::Event;
use crate::report::observe::Observation;
use crate::report::stats::Stats;
use crate::report::violation::Rule;
use crate::rng::Rng;
use crate::roce::{self, Bth, Ext};
use crate::route::Route;
use crate::sq;
use crate::srq::SharedSrq;
use crate::table::Table;
use crate::uar::{Rung, UarPage};
use crate::wire;
use crate::wqe::{self, Done};
use rushmem_mlx5::cqe::{Completion, Failure};
use rushmem_mlx5::{Cqe, CqeOpcode, Segment, Syndrome};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Instant;

/// Segments of the largest send entry, rounded up to whole blocks.
pub(crate) const MAX_SEGMENTS: usize = 64;

/// The whole state of the adapter. The engine thread and command callers lock it in turn.
pub(crate) struct Core {
    pub(crate) config: Config,
    /// Address of the fabric; the adapter's identity.
    pub(crate) address: SocketAddrV4,
    pub(crate) fabric: Option<Fabric>,
    pub(crate) contexts: u32,
    /// Callbacks for changes of a context's memory, by context.
    pub(crate) listeners: BTreeMap<u32, Listener>,
    pub(crate) clocks: ClockRegisters,
    pub(crate) pds: Table<Pd>,
    pub(crate) uars: Table<UarPage>,
    pub(crate) umems: Table<Umem>,
    pub(crate) mkeys: Mkeys,
    pub(crate) cqs: Table<Cq>,
    pub(crate) xrcds: Table<Xrcd>,
    pub(crate) srqs: Table<SharedSrq>,
    pub(crate) qps: Table<Box<Qp>>,
    pub(crate) dcts: Table<Dct>,
    /// Sequence number of the last dynamic connection of an initiator.
    pub(crate) connections: u32,
    /// Answers to packets that have no QP.
    pub(crate) answers: Vec<((u32, SocketAddrV4), Bth, Ext)>,
    /// Path MTUs to the peers of dynamic connections, and when the system told them.
    pub(crate) path_mtus: BTreeMap<Ipv4Addr, (Instant, Option<u32>)>,
    pub(crate) dma: Dma,
    pub(crate) report: Report,
    /// QPs with work, in turn.
    pub(crate) ready: VecDeque<u32>,
    pub(crate) timers: BinaryHeap<Reverse<(Instant, u32)>>,
    pub(crate) scratch: Box<[Segment; MAX_SEGMENTS]>,
    pub(crate) now: Instant,
    /// State of the engine, for the next pass.
    pub(crate) rest: Rest,
    /// WQEs of the current QP that wait for their data.
    pub(crate) finished: Vec<Done>,
    pub(crate) rung_doorbells: Vec<Rung>,
    /// Number of scans of the UAR pages.
    pub(crate) doorbell_scans: u32,
    /// Payload of the current datagram.
    pub(crate) payload: Vec<u8>,
    /// Pages of closed contexts. A kernel may ring them as long as the adapter lives.
    pub(crate) retired: Vec<UarPage>,
    pub(crate) failures: Failures,
    /// Management datagrams for the driver.
    pub(crate) mads: Inbox,
    introductions: Introductions,
    /// Members of multicast groups.
    pub(crate) members: Members,
    /// The failures that each context has not taken yet.
    pub(crate) kept_failures: BTreeMap<u32, Vec<Event>>,
}

/// A callback of a context's owner.
pub(crate) type Listener = Arc<dyn Fn() + Send + Sync>;

/// A protection domain.
pub(crate) struct Pd {
    pub(crate) owner: u32,
    /// Keys, QPs and shared receive queues in it.
    pub(crate) users: u32,
}

/// An XRC domain. Every context may use it, since programs share domains.
pub(crate) struct Xrcd {
    pub(crate) owner: u32,
    /// Targets and shared receive queues in it.
    pub(crate) users: u32,
}

impl Core {
    /// Creates an adapter without objects. `numbers` draws the first QP number and the first key index, if they are random.
    pub(crate) fn new(
        config: Config,
        address: SocketAddrV4,
        fabric: Option<Fabric>,
        mut numbers: Option<Rng>,
    ) -> Core {
        let now = Instant::now();
        let faults = config.faults.clone();
        let failures = Failures::new(faults.planned_failures());
        let dma = Dma::with_loose_atomics(faults.loose_atomic, Rng::new(faults.seed.rotate_left(32)));
        let report = Report::new(faults);
        // No target has the number of a QP.
        let numbered = (1 << limits::LOG_MAX_QP) + (1 << limits::LOG_MAX_DCT);
        let mut qps = Table::from_random(0x100, numbered, numbers.as_mut());
        let dcts = qps.split_off(1 << limits::LOG_MAX_DCT);
        Core {
            config,
            address,
            fabric,
            contexts: 0,
            listeners: BTreeMap::new(),
            clocks: ClockRegisters::default(),
            pds: Table::new(1, 1 << 16),
            uars: Table::new(0x10, 1 << 16),
            umems: Table::new(1, 1 << 20),
            mkeys: Table::from_random(0x100, 1 << 20, numbers.as_mut()),
            cqs: Table::new(0x400, 1 << limits::LOG_MAX_CQ),
            xrcds: Table::new(1, 1 << limits::LOG_MAX_XRCD),
            srqs: Table::new(1, 1 << 16),
            qps,
            dcts,
            connections: numbers.as_mut().map_or(0, |rng| rng.below(1 << 32) as u32),
            answers: Vec::new(),
            path_mtus: BTreeMap::new(),
            dma,
            report,
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            scratch: Box::new([Segment::ZERO; MAX_SEGMENTS]),
            now,
            rest: Rest::default(),
            finished: Vec::new(),
            rung_doorbells: Vec::new(),
            doorbell_scans: 0,
            payload: Vec::new(),
            retired: Vec::new(),
            failures,
            mads: Inbox::default(),
            introductions: Introductions::default(),
            members: Members::default(),
            kept_failures: BTreeMap::new(),
        }
    }

    /// Runs one round of doorbells, packets, send queues and timers. Returns whether there was work.
    ///
    /// `wanted` returns whether a command waits for the core. The other QPs then wait for the next pass.
    pub(crate) fn pass(&mut self, wanted: impl Fn() -> bool) -> bool {
        self.now = Instant::now();
        self.report.now = self.now;
        self.clocks.store(|| self.report.timestamp());
        self.fail_due();
        let mut busy = self.doorbells() | self.packets();
        for _ in 0..self.ready.len() {
            let Some(qpn) = self.ready.pop_front() else { break };
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.queued = false;
            }
            let shortages = self.shortages();
            if self.report.draw_skip(qpn) || sq::run(self, qpn) {
                self.enqueue(qpn);
            }
            // A QP that waits for room in shared memory is no work: the peer wakes the engine.
            busy |= self.shortages() == shortages;
            if wanted() {
                break;
            }
        }
        for (due, qpn) in std::mem::take(&mut self.report.wakeups) {
            self.arm(qpn, due);
        }
        self.dma.settle();
        self.report.lookout.landed();
        self.dma.land_due(Some(self.now), |owner| self.report.note_change(owner));
        self.fire_timers();
        if let Some(fabric) = &mut self.fabric {
            fabric.flush(self.now, &mut self.report.stats, &mut self.report.lookout);
            busy |= fabric.blocked();
            for too_long in fabric.take_too_long() {
                self.note_too_long(too_long);
            }
        }
        busy
    }

    /// Executes what has been posted, and handles and answers what has arrived, before a command removes a key that this needs or
    /// stops a QP. Hardware is faster than the command: a message that a program has received is acknowledged by then, and one that
    /// the peer has acknowledged is complete.
    pub(crate) fn catch_up(&mut self) {
        /// Most passes. A peer may keep the adapter busy.
        const MOST: usize = 16;

        if self.report.injects_faults {
            return;
        }
        for _ in 0..MOST {
            // A pass polls the sockets only occasionally. They may hold packets from before shared memory was in use.
            self.rest.has_mail = true;
            if !self.pass(|| false) {
                break;
            }
        }
    }

    /// Returns how often a QP found no room for a packet.
    fn shortages(&self) -> u64 {
        self.fabric.as_ref().map_or(0, |fabric| fabric.shortages)
    }

    /// Notes the loss of a packet that was too long, for the error of its QP.
    fn note_too_long(&mut self, TooLong { to, dest_qpn }: TooLong) {
        let sent_it = |qp: &Qp| qp.route == Route::Peer(to) && qp.attrs.remote_qpn == dest_qpn;
        let sender = self.qps.iter().find(|(_, qp)| sent_it(qp)).map(|(qpn, _)| qpn);
        if let Some(qp) = sender.and_then(|qpn| self.qps.get_mut(qpn)) {
            qp.req.too_long = true;
        }
    }

    /// Sends a management datagram at once.
    pub(crate) fn send_mad(&mut self, to: Ipv4Addr, bytes: &[u8; MAD]) {
        let (bth, ext) = self.mads.headers();
        let delivered = match &mut self.fabric {
            _ if to == *self.address.ip() => self.mads.add(to, bytes),
            Some(fabric) if fabric.room() != 0 => {
                let way = (management::QPN, SocketAddrV4::new(to, roce::PORT));
                let Ok(()) = fabric.send(way, &bth, &ext, MAD, |payload| {
                    payload.copy_from_slice(bytes);
                    Ok::<(), std::convert::Infallible>(())
                });
                fabric.flush(Instant::now(), &mut self.report.stats, &mut self.report.lookout);
                true
            }
            _ => false,
        };
        self.report.stats.lost += u64::from(!delivered);
    }

    /// Handles the introductions among the management datagrams that have arrived. The others wait for the driver.
    fn introduce(&mut self) {
        for mad in self.mads.take() {
            match self.introductions.receive(mad.from, &mad.bytes) {
                Meaning::Question(answer) => self.send_mad(mad.from, &answer),
                Meaning::Answer => {
                    if let Some(fabric) = &mut self.fabric {
                        fabric.note_software(SocketAddrV4::new(mad.from, roce::PORT));
                    }
                }
                Meaning::Stray => self.report.stats.dropped += 1,
                Meaning::Other => self.mads.put_back(mad),
            }
        }
    }

    /// Notes that a QP is connected to `peer`. Several packets may go to a software adapter as one, so the peer is asked unless
    /// its address tells.
    pub(crate) fn meet(&mut self, peer: SocketAddrV4, is_software: bool) {
        let Some(fabric) = &mut self.fabric else { return };
        if is_software {
            fabric.note_software(peer);
        } else if fabric.segments()
            && peer.port() == roce::PORT
            && let Some(question) = self.introductions.ask(*peer.ip())
        {
            self.send_mad(*peer.ip(), &question);
        }
    }

    /// Handles one burst of packets.
    fn packets(&mut self) -> bool {
        // The fabric is taken out, so that a packet handler may borrow the rest. Responses are sent later.
        let Some(mut fabric) = self.fabric.take() else { return false };
        let mut complete_receive = Stats::default();
        let (now, rest) = (self.now, std::mem::take(&mut self.rest));
        let mut busy =
            fabric.receive(now, rest, &mut complete_receive, |from, bytes| wire::packet(self, from, bytes));
        busy |= fabric.receive_groups(&mut complete_receive, |from, to, bytes| {
            datagram::receive_group(self, from, to, bytes);
        });
        for (way, bth, ext) in self.answers.drain(..) {
            fabric.send_empty(way, &bth, &ext);
        }
        for group in self.members.take_empty() {
            fabric.leave(group);
        }
        self.fabric = Some(fabric);
        self.introduce();
        self.report.stats.packets_received += complete_receive.packets_received;
        self.report.stats.bytes_received += complete_receive.bytes_received;
        self.report.stats.shared_received += complete_receive.shared_received;
        self.report.stats.dropped += complete_receive.dropped;
        self.report.stats.faults += complete_receive.faults;
        for _ in 0..complete_receive.faults {
            self.report.lookout.note(|| Observation::Fault { qpn: None, kind: "black_hole" });
        }
        busy
    }

    /// Returns the conditions that end the engine's sleep.
    pub(crate) fn wake(&self) -> Wake {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let due = self.fabric.as_ref().and_then(Fabric::next_due);
        Wake {
            sockets: self.fabric.as_ref().map_or([None; 2], Fabric::waiters),
            timer: [timer, due, self.dma.next_due(), self.failures.next_due()].into_iter().flatten().min(),
            now: self.now,
        }
    }

    /// Returns the listeners of the contexts with changed memory since the last call.
    pub(crate) fn changed_listeners(&mut self) -> Vec<Listener> {
        let changed = self.report.drain_changed();
        changed.filter_map(|context| self.listeners.get(&context)).cloned().collect()
    }

    /// Returns whether the next pass has work before any doorbell, packet or timer.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.report.wakeups.is_empty() || !self.report.events.is_empty()
    }

    /// Adds a QP to the list of QPs with work.
    pub(crate) fn enqueue(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && !std::mem::replace(&mut qp.queued, true)
        {
            self.ready.push_back(qpn);
        }
    }

    /// Ends every connection after a failure of the engine, so that no peer waits in vain.
    pub(crate) fn end_all_connections(&mut self, why: &str) {
        self.report.violations.record(Rule::Engine, 0, why.to_owned());
        self.finished.clear();
        self.rung_doorbells.clear();
        let numbers: Vec<u32> = self.qps.iter().map(|(qpn, _)| qpn).collect();
        for qpn in numbers {
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.enter_error(&mut self.report, Syndrome::LOCAL_QP_OP_ERR);
                qp.queued = false;
            }
            self.enqueue(qpn);
        }
    }

    /// Schedules the QP for time `at`.
    pub(crate) fn arm(&mut self, qpn: u32, at: Instant) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && qp.timer.is_none_or(|armed| armed > at)
        {
            qp.timer = Some(at);
            self.timers.push(Reverse((at, qpn)));
        }
    }

    fn fire_timers(&mut self) {
        while let Some(Reverse((at, qpn))) = self.timers.peek().copied()
            && at <= self.now
        {
            self.timers.pop();
            if let Some(qp) = self.qps.get_mut(qpn)
                && qp.timer == Some(at)
            {
                qp.timer = None;
                self.enqueue(qpn);
            }
        }
    }
}

/// Writes the completion of a send WQE. On overrun the QP enters the error state.
#[inline]
pub(crate) fn complete(qp: &mut Qp, cqs: &mut Table<Cq>, report: &mut Report, done: Done) {
    report.lookout.note(|| wqe::ends(qp.qpn, done, None));
    let completion = Completion {
        opcode: done.opcode,
        qpn: qp.qpn,
        wqe_counter: done.index,
        user_index: qp.user_index,
        byte_cnt: done.byte_cnt,
        timestamp: report.timestamp(),
    };
    if report.faults.completion_delay > 0.0 {
        hold(qp, report, completion);
        return;
    }
    push(qp, qp.cq_send, cqs, report, |owner| Cqe::requester(&completion, owner));
}

/// Holds a completion back, by a fault or behind another held completion.
fn hold(qp: &mut Qp, report: &mut Report, completion: Completion) {
    let mut due = report.now;
    if report.rng.chance(report.faults.completion_delay) {
        report.note_fault(Some(qp.qpn), "completion_delay");
        due += report.faults.completion_delay_time;
    }
    let due = qp.held.back().map_or(due, |(before, _)| due.max(*before));
    qp.held.push_back((due, completion));
    report.wakeups.push((due, qp.qpn));
}

/// Writes held completions that are due, or all of them.
pub(crate) fn release(qp: &mut Qp, cqs: &mut Table<Cq>, report: &mut Report, all: bool) {
    while let Some((due, completion)) = qp.held.front().copied() {
        if !all && due > report.now {
            report.wakeups.push((due, qp.qpn));
            break;
        }
        qp.held.pop_front();
        push(qp, qp.cq_send, cqs, report, |owner| Cqe::requester(&completion, owner));
    }
}

/// Writes the error completion of a send WQE and puts the QP into error.
#[cold]
pub(crate) fn fail(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    report: &mut Report,
    done: Done,
    syndrome: Syndrome,
    vendor: u8,
) {
    if syndrome != Syndrome::WR_FLUSH_ERR {
        tracing::debug!(qpn = qp.qpn, index = done.index, opcode = %done.opcode, ?syndrome, vendor, "send entry failed");
    }
    release(qp, cqs, report, true);
    qp.state = State::Error;
    report.lookout.note(|| wqe::ends(qp.qpn, done, Some(syndrome)));
    let failure = Failure {
        kind: CqeOpcode::REQ_ERR,
        opcode: done.opcode,
        qpn: qp.qpn,
        wqe_counter: done.index,
        srqn_uidx: qp.user_index,
        syndrome,
        vendor_syndrome: vendor,
    };
    report.stats.error_cqes += 1;
    push(qp, qp.cq_send, cqs, report, |owner| Cqe::error(&failure, owner));
}

/// Writes a CQE to a CQ.
pub(crate) fn push(
    qp: &mut Qp,
    cqn: Option<u32>,
    cqs: &mut Table<Cq>,
    report: &mut Report,
    make: impl FnOnce(bool) -> Cqe,
) {
    let Some(cq) = cqn.and_then(|cqn| cqs.get_mut(cqn)) else { return };
    let first = !cq.overrun;
    match cq.push(make) {
        Ok(raised) => {
            report.stats.cqes += 1;
            report.lookout.note(|| Observation::Cqe { cqn: cqn.unwrap_or(0), qpn: qp.qpn });
            report.note_change(qp.owner);
            report.events.extend(raised.then_some(Event::Completion { cqn: cqn.unwrap_or(0) }));
        }
        Err(_) => {
            qp.enter_error(report, Syndrome::LOCAL_QP_OP_ERR);
            if first {
                let detail = format!("CQ {:#x} of {} entries is full", cqn.unwrap_or(0), 1u32 << cq.log_size);
                report.violations.record(Rule::CqOverrun, qp.qpn, detail);
                report.events.push(Event::CqError { cqn: cqn.unwrap_or(0) });
            }
        }
    }
}
