//! Executes WQEs whose destination QP is on the same adapter: without packets, and with a single copy from source to
//! destination.
//!
//! The responder's checks run immediately, and their result is the answer. If the peer cannot answer, because it is not
//! ready to receive or expects another PSN, the WQE waits and eventually fails like one that is not acknowledged. On an
//! unreliable connection, the message is lost instead.

mod fault_injection;
mod observe;
mod send;

use super::datapath::Datapath;
use super::schedule::Schedule;
use crate::dma::{Dma, Mkeys, Rights, User};
use crate::memory::MemoryError;
use crate::objects::qp::{Attrs, Dci, Qp, Refusal, Stall, State, rnr_time, xrc};
use crate::objects::{Cq, Objects, SharedSrq, access};
use crate::queues::{BadWqe, complete, cq_reached, fail, fetch, malformed};
use crate::report::Report;
use crate::request::{AtomicRequest, RemoteError, RemoteRange};
use crate::roce::{Psn, Service, pkeys_match};
use crate::route::Route;
use crate::table::Table;
use crate::umr::{self, Changer};
use crate::wqe::{self, Done, LocalError, Piece, check_keys, for_each_piece};
use rushmem_mlx5::prm::qp::ServiceType;
use rushmem_mlx5::seg::RaddrSeg;
use rushmem_mlx5::wqe::View;
use rushmem_mlx5::{Opcode, Syndrome};
use send::{immediate, send};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Maximum number of WQEs executed before other QPs run.
const BURST: usize = 64;
/// Maximum payload moved before other QPs run, and per step of a long message, in bytes.
const BURST_BYTES: u64 = 1 << 20;
/// Retry interval while the peer does not answer.
const RETRY: Duration = Duration::from_micros(50);

enum Step {
    /// The WQE moved this many bytes of its message.
    Moved(u64),
    /// Nothing can be done until a doorbell or a timer.
    Idle,
    /// The QP has entered the error state.
    Failed,
}

/// The outcome of one attempt to execute a WQE.
enum Outcome {
    Done,
    /// Part of a long message was moved. Contains the number of bytes moved so far.
    Partly(u64),
    /// The peer does not answer, as if it were unreachable.
    Silent,
    /// The responder has no receive posted. Contains its RNR timer code.
    NotReady(u8),
    /// The WQE waits for a condition that has no event, so it is polled.
    Waits,
    Local(LocalError),
    Remote(RemoteError),
}

impl Outcome {
    /// Adapts the outcome to the service: on an unreliable one, a WQE completes even if its message is lost.
    fn on(self, service: Service, report: &mut Report) -> Outcome {
        match (service, self) {
            (Service::Uc, Outcome::Silent | Outcome::NotReady(_) | Outcome::Remote(_)) => {
                report.stats.lost += 1;
                Outcome::Done
            }
            (_, outcome) => outcome,
        }
    }
}

impl From<LocalError> for Outcome {
    fn from(refused: LocalError) -> Outcome {
        Outcome::Local(refused)
    }
}

impl From<RemoteError> for Outcome {
    fn from(refusal: RemoteError) -> Outcome {
        Outcome::Remote(refusal)
    }
}

impl From<MemoryError> for Outcome {
    fn from(error: MemoryError) -> Outcome {
        Outcome::Remote(RemoteError::Failed(error))
    }
}

/// What the requester contributes to the execution of one WQE.
struct Source {
    service: Service,
    user: User,
    peer: u32,
    /// QPN of the peer, or DCTN of a dynamic connection.
    peer_number: u32,
    owner: u32,
    /// Whether the QP only changes keys, and has no peer.
    is_umr_qp: bool,
    /// Why the dynamic connection could not be established.
    refusal: Option<Refusal>,
    psn: Psn,
    attrs: Attrs,
    index: u16,
    progress: u64,
    /// The part of the message that this step moves.
    part: Range<u64>,
    /// Whether an injected fault delays the answer to a READ or an atomic, or the landing of a WRITE.
    late: bool,
}

impl Source {
    #[inline]
    fn new(qp: &Qp, index: u16, part: Range<u64>) -> Source {
        Source {
            service: qp.service,
            user: User { pd: qp.pd, qpn: qp.qpn },
            peer: qp.attrs.remote_qpn,
            peer_number: qp.dci.as_deref().and_then(Dci::dctn).unwrap_or(qp.attrs.remote_qpn),
            owner: qp.owner,
            is_umr_qp: qp.context.st == ServiceType::REG_UMR,
            refusal: qp.dci.as_deref().and_then(Dci::refusal),
            psn: qp.send_psn,
            attrs: qp.attrs,
            index,
            progress: qp.progress,
            part,
            late: qp.faults.is_late(),
        }
    }

    /// Returns the QP as one whose WQE changes a key.
    fn changer(&self) -> Changer {
        Changer { owner: self.owner, user: self.user, is_umr_qp: self.is_umr_qp }
    }

    /// Returns the number of bytes of the message that are moved after this step.
    fn end_progress(&self) -> u64 {
        self.progress + (self.part.end - self.part.start)
    }

    /// Selects the SRQ `srqn` for the peer, which is an XRC target, if the peer exists.
    fn aim(&self, qps: &mut Table<Box<Qp>>, srqs: &Table<SharedSrq>, srqn: u32) -> Result<(), Outcome> {
        let target = qps.get_mut(self.peer).filter(|target| self.is_expected_by(target));
        Ok(target.map_or(Ok(()), |target| xrc::aim(target, srqs, srqn))?)
    }

    /// Whether `target` is connected to the requester's QP and expects its next PSN.
    #[inline]
    fn is_expected_by(&self, target: &Qp) -> bool {
        target.state.receives()
            && target.service == self.service
            && target.route == Route::Loopback
            && target.attrs.remote_qpn == self.user.qpn
            && (self.service != Service::Xrc || target.is_xrc_target())
            && pkeys_match(target.attrs.pkey, self.attrs.pkey)
            // On a mismatch a peer over packets would not acknowledge, so the WQE waits and runs into its retry
            // timeout.
            && (target.recv_psn == self.psn || !self.service.is_reliable())
    }
}

/// A WQE that failed while it was executed.
struct FailedWqe {
    done: Done,
    blocks: u8,
    /// Syndrome and vendor syndrome for the CQE.
    error: (Syndrome, u8),
    /// Whether the responder refused the WQE.
    remote: bool,
}

/// The loopback transport, with its state between the WQEs of a burst.
#[derive(Default)]
pub(super) struct Loopback {
    /// WQEs of the current QP that have been executed, but whose copies are still in flight.
    pub(super) finished: Vec<Done>,
}

impl Loopback {
    /// Executes a burst of WQEs of a QP. Returns whether it can execute more immediately.
    pub(super) fn run(&mut self, path: &mut Datapath, qpn: u32) -> bool {
        if path.report.injects_faults
            && !fault_injection::answer(qpn, &mut path.objects, &mut path.report, false)
        {
            // The QP has failed, so its queues must be flushed.
            return true;
        }
        let mut bytes = 0;
        let mut more = true;
        for _ in 0..BURST {
            match self.step(path, qpn) {
                Step::Moved(moved) => bytes += moved,
                Step::Idle => {
                    more = false;
                    break;
                }
                Step::Failed => break,
            }
            if bytes >= BURST_BYTES {
                break;
            }
        }
        // One wait for the copies of the whole burst.
        if !self.finished.is_empty() {
            self.announce(&mut path.objects, &mut path.report, qpn);
        }
        more
    }

    /// Completes the WQEs in `finished`, after waiting once for all their copies.
    #[cold]
    fn announce(&mut self, objects: &mut Objects, report: &mut Report, qpn: u32) {
        let Objects { qps, cqs, dma, .. } = objects;
        let Some(qp) = qps.get_mut(qpn) else { return self.finished.clear() };
        let landed = dma.flush();
        report.lookout.landed();
        for done in self.finished.drain(..) {
            match landed {
                Ok(()) => complete(qp, cqs, report, done),
                Err(_) if qp.state == State::Error => fail(qp, cqs, report, done, Syndrome::WR_FLUSH_ERR, 0),
                // Which copy failed is unknown, so the first WQE fails: its data may be the missing part.
                Err(_) => fail(qp, cqs, report, done, Syndrome::REMOTE_OP_ERR, 0),
            }
        }
    }

    #[inline]
    fn step(&mut self, path: &mut Datapath, qpn: u32) -> Step {
        let Datapath { objects, scratch, report, schedule, .. } = path;
        let now = report.now;
        let Some(qp) = objects.qps.get_mut(qpn).filter(|qp| qp.state == State::Rts) else {
            return Step::Idle;
        };
        if let Some(stall) = qp.stall.filter(|stall| stall.until > now) {
            // The timer that expired may have been another one.
            report.wakeups.push((stall.until, qpn));
            return Step::Idle;
        }
        let Some(sq) = qp.sq.as_ref().filter(|sq| sq.pending() != 0) else { return Step::Idle };
        let index = sq.consumer;
        let view = match fetch(sq, (qp.service, qpn), index, scratch, report) {
            Ok(view) => view,
            Err(bad) => return self.fail_malformed(objects, report, qpn, (index, bad)),
        };
        // The WQE has another target, or its connection is not established yet.
        if qp.dci.as_mut().is_some_and(|dci| !dci.serves(&view)) {
            return Step::Idle;
        }
        let mut part = qp.progress..view.data_len().min(qp.progress + BURST_BYTES);
        if report.injects_faults {
            if let Some(until) = fault_injection::waits(qp, &view, report) {
                report.wakeups.push((until, qpn));
                return Step::Idle;
            }
            part = qp.faults.piece().unwrap_or(part);
        }
        if report.lookout.is_on() {
            observe::begins(qp, &view, report);
        }
        let source = Source::new(qp, index, part);
        let aimed = view.xrc_srqn().map_or(Ok(()), |srqn| source.aim(&mut objects.qps, &objects.srqs, srqn));
        let outcome = aimed.and_then(|()| execute(&view, &source, objects, report));
        self.conclude(outcome.unwrap_or_else(|other| other), &view, &source, objects, report, schedule)
    }

    /// Completes a WQE that was attempted, fails it, or schedules the next attempt.
    #[inline]
    fn conclude(
        &mut self,
        outcome: Outcome,
        view: &View<'_>,
        source: &Source,
        objects: &mut Objects,
        report: &mut Report,
        schedule: &mut Schedule,
    ) -> Step {
        let Objects { qps, cqs, dma, .. } = objects;
        let Some(qp) = qps.get_mut(source.user.qpn) else { return Step::Idle };
        if report.lookout.is_on() {
            observe::outcome(&outcome, view, (qp, source), dma, report);
        }
        let outcome = outcome.on(source.service, report);
        if report.injects_faults && matches!(outcome, Outcome::Done | Outcome::Partly(_)) {
            fault_injection::moved(qp, report);
        }
        let done = Done { index: source.index, opcode: view.opcode(), byte_cnt: 0 };
        let retry = match outcome {
            Outcome::Done => {
                let moved = view.data_len() - qp.progress.min(view.data_len());
                self.finish(qp, cqs, dma, report, view, done);
                return if qp.state == State::Error { Step::Failed } else { Step::Moved(moved) };
            }
            Outcome::Partly(progress) => {
                let moved = progress - qp.progress;
                qp.progress = progress;
                (qp.stall, qp.rnr_tries) = (None, 0);
                // At least a whole burst: a long message completes the visit, and other QPs are served.
                return Step::Moved(moved.max(BURST_BYTES));
            }
            Outcome::Waits => Ok(report.now + RETRY),
            Outcome::Silent => retry_silent(qp, report.now),
            Outcome::NotReady(code) => retry_not_ready(qp, code, report.now),
            Outcome::Local(error) => Err(error.syndrome()),
            Outcome::Remote(error) => Err(error.syndrome()),
        };
        match retry {
            Ok(until) => {
                schedule.arm(qp, until);
                Step::Idle
            }
            Err(error) => {
                let remote = matches!(outcome, Outcome::Remote(_));
                let failed = FailedWqe { done, blocks: view.n_blocks(), error, remote };
                self.fail_wqe(objects, report, source, failed)
            }
        }
    }

    /// Completes earlier WQEs, then fails a malformed one.
    #[cold]
    fn fail_malformed(
        &mut self,
        objects: &mut Objects,
        report: &mut Report,
        qpn: u32,
        (index, bad): (u16, BadWqe),
    ) -> Step {
        self.announce(objects, report, qpn);
        fault_injection::answer(qpn, objects, report, true);
        if let Some(qp) = objects.qps.get_mut(qpn).filter(|qp| qp.state == State::Rts) {
            malformed(qp, &mut objects.cqs, report, index, bad);
        }
        Step::Failed
    }

    /// Completes earlier WQEs, then fails this one.
    #[cold]
    fn fail_wqe(
        &mut self,
        objects: &mut Objects,
        report: &mut Report,
        source: &Source,
        failed: FailedWqe,
    ) -> Step {
        let FailedWqe { done, blocks, error: (syndrome, vendor), remote } = failed;
        let qpn = source.user.qpn;
        self.announce(objects, report, qpn);
        fault_injection::answer(qpn, objects, report, true);
        let Objects { qps, cqs, .. } = objects;
        let Some(qp) = qps.get_mut(qpn).filter(|qp| qp.state == State::Rts) else {
            // An earlier WQE has failed, so this one will be flushed.
            return Step::Failed;
        };
        consume(qp, blocks);
        report.stats.wqes += 1;
        fail(qp, cqs, report, done, syndrome, vendor);
        if remote
            && let Some(target) = qps.get_mut(source.peer).filter(|target| target.attrs.remote_qpn == qpn)
        {
            // A NAK closes both halves of the connection.
            target.enter_error(report, syndrome);
        }
        Step::Failed
    }

    #[inline]
    fn finish(
        &mut self,
        qp: &mut Qp,
        cqs: &mut Table<Cq>,
        dma: &Dma,
        report: &mut Report,
        view: &View<'_>,
        mut done: Done,
    ) {
        consume(qp, view.n_blocks());
        (qp.progress, qp.stall, qp.rnr_tries) = (0, None, 0);
        report.stats.wqes += 1;
        report.stats.bytes += view.data_len();
        done.byte_cnt = wqe::returned_bytes(view);
        if report.injects_faults && fault_injection::holds(qp, view, done, report) {
            return;
        }
        if !view.flags().is_signaled() {
            report.lookout.note_landing(dma.has_landed(), || wqe::ends(qp.qpn, done, None));
            return;
        }
        // The CQE announces the data, so it waits for copies in flight, and for earlier CQEs.
        if self.finished.is_empty() && dma.has_landed() {
            complete(qp, cqs, report, done);
        } else {
            self.finished.push(done);
        }
    }
}

/// Returns when to try a silent peer again, or the error once its retry timeout has passed.
fn retry_silent(qp: &mut Qp, now: Instant) -> Result<Instant, (Syndrome, u8)> {
    let waited = wait(qp, now, RETRY);
    match qp.attrs.retry_timeout() {
        Some(timeout) if waited >= timeout => Err((Syndrome::TRANSPORT_RETRY_EXC_ERR, 0)),
        _ => Ok(qp.stall.map_or(now, |stall| stall.until)),
    }
}

/// Returns when to try again after an RNR NAK, or the error once the retry count is used up.
fn retry_not_ready(qp: &mut Qp, code: u8, now: Instant) -> Result<Instant, (Syndrome, u8)> {
    // A retry count of 7 means no limit.
    if qp.attrs.rnr_retry != 7 && qp.rnr_tries >= qp.attrs.rnr_retry {
        return Err((Syndrome::RNR_RETRY_EXC_ERR, 0));
    }
    qp.rnr_tries = qp.rnr_tries.saturating_add(1);
    let until = now + rnr_time(code);
    qp.stall = Some(Stall { since: now, until });
    Ok(until)
}

/// Records an attempt that the peer did not answer. Returns the time since the first one.
fn wait(qp: &mut Qp, now: Instant, again: Duration) -> Duration {
    let since = qp.stall.map_or(now, |stall| stall.since);
    qp.stall = Some(Stall { since, until: now + again });
    now - since
}

fn consume(qp: &mut Qp, blocks: u8) {
    if let Some(sq) = &mut qp.sq {
        sq.consumer = sq.consumer.wrapping_add(u16::from(blocks));
    }
}

#[inline]
fn execute(
    view: &View<'_>,
    source: &Source,
    objects: &mut Objects,
    report: &mut Report,
) -> Result<Outcome, Outcome> {
    match view.opcode() {
        Opcode::NOP => return Ok(Outcome::Done),
        Opcode::UMR => {
            return umr::execute(view, source.changer(), objects, report)
                .map(|()| Outcome::Done)
                .map_err(Outcome::from);
        }
        // The QP that changes keys has no peer.
        _ if source.is_umr_qp => return Err(LocalError::Operation.into()),
        Opcode::DUMP => return dump(view, source, objects),
        Opcode::WAIT if cq_reached(view, &objects.cqs)? => return Ok(Outcome::Done),
        Opcode::WAIT => return Ok(Outcome::Waits),
        _ => {}
    }
    check_request(view, source)?;
    let Objects { qps, cqs, mkeys, dma, .. } = objects;
    let len = view.data_len();
    let target = qps.get_mut(source.peer).filter(|target| source.is_expected_by(target));
    let Some(target) = target else { return Ok(Outcome::Silent) };
    // An unreliable connection accepts any PSN, and continues from it.
    target.recv_psn = source.psn;
    let moved = match (view.opcode(), view.remote()) {
        (Opcode::RDMA_WRITE, Some(at)) => write(view, source, target, mkeys, (dma, report), at)?,
        (Opcode::RDMA_WRITE_IMM, Some(at)) => {
            // Checked before any data moves, because the WQE may be tried again.
            if !target.has_receive() {
                return Err(no_receive(target));
            }
            let moved = write(view, source, target, mkeys, (dma, report), at)?;
            // Only the last part of a long message announces it.
            if moved == len {
                immediate(view, target, cqs, dma, report)?;
            }
            moved
        }
        (Opcode::RDMA_READ, Some(at)) => read(view, source, target, mkeys, dma, at)?,
        (Opcode::SEND | Opcode::SEND_IMM, None) => send(view, source, target, mkeys, dma, (cqs, report))?,
        (_, Some(at)) => {
            let old = atomic(view, source, target, mkeys, dma, at)?;
            match (old, qps.get_mut(source.user.qpn)) {
                (None, _) => {}
                // A late answer: keeps the old value until the answer is due.
                (Some(old), Some(own)) if source.late => own.faults.old = old,
                (Some(old), _) => give_old(view, mkeys, dma, source.user, old)?,
            }
            len
        }
        // SEND_INVAL, since peers cannot invalidate keys of this adapter.
        _ => return Err(RemoteError::Invalid.into()),
    };
    if let Some(target) = qps.get(source.peer) {
        report.note_change(target.owner);
    }
    if moved < len {
        return Ok(Outcome::Partly(moved));
    }
    Ok(advance_psns(qps, source, len))
}

/// Checks the properties of a request that do not depend on the peer.
#[inline]
fn check_request(view: &View<'_>, source: &Source) -> Result<(), Outcome> {
    if view.data_len() > 1 << source.attrs.log_msg_max {
        return Err(LocalError::Length.into());
    }
    match source.refusal {
        Some(Refusal::Local(error)) => return Err(error.into()),
        Some(Refusal::Remote(error)) => return Err(error.into()),
        None => {}
    }
    if !source.service.is_reliable() && (view.opcode() == Opcode::RDMA_READ || view.atomic().is_some()) {
        return Err(LocalError::Operation.into());
    }
    Ok(())
}

/// Advances the PSNs of both QPs past a message of `len` bytes, as if it had been sent in packets.
#[inline]
fn advance_psns(qps: &mut Table<Box<Qp>>, source: &Source, len: u64) -> Outcome {
    let packets = source.attrs.packets(len);
    let Some(target) = qps.get_mut(source.peer) else { return Outcome::Silent };
    target.recv_psn = target.recv_psn.plus(packets);
    target.msn = target.msn.wrapping_add(1);
    if let Some(own) = qps.get_mut(source.user.qpn) {
        own.send_psn = own.send_psn.plus(packets);
    }
    Outcome::Done
}

/// Returns the outcome of a message that needs a receive when none is posted.
fn no_receive(target: &Qp) -> Outcome {
    if target.has_receive_queue() {
        Outcome::NotReady(target.attrs.min_rnr_nak)
    } else {
        // Without a receive queue, none can ever be posted, so waiting would be pointless.
        RemoteError::Invalid.into()
    }
}

fn place(target: &Qp, at: RaddrSeg, len: u64) -> RemoteRange {
    RemoteRange { pd: target.pd, addr: at.addr.get(), rkey: at.rkey.get(), len }
}

/// Executes a step of a WRITE. Returns the number of bytes moved so far, which is the whole message if the data lands
/// late.
#[inline]
fn write(
    view: &View<'_>,
    source: &Source,
    target: &Qp,
    mkeys: &Mkeys,
    (dma, report): (&mut Dma, &mut Report),
    at: RaddrSeg,
) -> Result<u64, Outcome> {
    if source.late {
        // Checks now what the late landing will need, so the WQE can still fail in order.
        access::writable(target, mkeys, place(target, at, view.data_len()))?;
        check_keys(view, mkeys, source.user, Rights::LOCAL_READ, view.data_len())?;
        return Ok(view.data_len());
    }
    move_write(view, (source.user, source.part.clone()), target, mkeys, (dma, report), at)?;
    Ok(source.end_progress())
}

/// Copies part of the message of a WRITE that `user` posted.
#[inline]
fn move_write(
    view: &View<'_>,
    (user, part): (User, Range<u64>),
    target: &Qp,
    mkeys: &Mkeys,
    (dma, report): (&mut Dma, &mut Report),
    at: RaddrSeg,
) -> Result<(), Outcome> {
    // Resolves the range of the whole message, so an out-of-range WRITE fails before its first byte is written.
    let Some(to) = access::writable(target, mkeys, place(target, at, view.data_len()))? else {
        return Ok(());
    };
    let Range { start, end } = part;
    let due = fault_injection::posts(view, user, target, report);
    for_each_piece(view, mkeys, user, Rights::LOCAL_READ, start, end - start, |piece, at| {
        let to = to.part(start + at, u64::MAX);
        match (piece, due) {
            (Piece::Memory(from), None) => dma.copy(&to, &from)?,
            (Piece::Inline(bytes), None) => dma.write(&to, bytes)?,
            // A posted payload must be read now: the program may reuse the source after the completion.
            (Piece::Memory(from), Some(due)) => {
                let mut data = vec![0; from.len as usize].into_boxed_slice();
                dma.read(&from, &mut data)?;
                dma.post(&to, data, due, target.owner);
            }
            (Piece::Inline(bytes), Some(due)) => dma.post(&to, bytes.into(), due, target.owner),
        }
        Ok(())
    })
}

/// Executes a step of a READ. Returns the number of bytes moved so far, which is the whole message if the answer is
/// late.
#[inline]
fn read(
    view: &View<'_>,
    source: &Source,
    target: &Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    at: RaddrSeg,
) -> Result<u64, Outcome> {
    if source.late {
        access::readable(target, mkeys, place(target, at, view.data_len()))?;
        check_keys(view, mkeys, source.user, Rights::LOCAL_WRITE, view.data_len())?;
        return Ok(view.data_len());
    }
    move_read(view, (source.user, source.part.clone()), target, mkeys, dma, at)?;
    Ok(source.end_progress())
}

/// Copies part of the message of a READ that `user` posted.
fn move_read(
    view: &View<'_>,
    (user, part): (User, Range<u64>),
    target: &Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    at: RaddrSeg,
) -> Result<(), Outcome> {
    let Some(from) = access::readable(target, mkeys, place(target, at, view.data_len()))? else {
        return Ok(());
    };
    let Range { start, end } = part;
    for_each_piece(view, mkeys, user, Rights::LOCAL_WRITE, start, end - start, |piece, at| {
        if let Piece::Memory(to) = piece {
            dma.copy(&to, &from.part(start + at, to.len))?;
        }
        Ok::<(), Outcome>(())
    })
}

/// Executes an atomic. Returns the old value, or `None` if the responder's memory has already stored it at the
/// requester.
fn atomic(
    view: &View<'_>,
    source: &Source,
    target: &Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    at: RaddrSeg,
) -> Result<Option<u64>, Outcome> {
    let Some(operands) = view.atomic() else { return Err(RemoteError::Invalid.into()) };
    let (op, width, extended) = wqe::atomic(operands);
    let bytes = width.bytes();
    if view.data_len() < bytes {
        return Err(LocalError::Length.into());
    }
    // Checks the destination of the result first: the atomic cannot be undone.
    let mut result = None;
    for_each_piece(view, mkeys, source.user, Rights::LOCAL_WRITE, 0, bytes, |piece, _| {
        if let Piece::Memory(span) = piece {
            result.get_or_insert(span);
        }
        Ok::<(), LocalError>(())
    })?;
    let request = AtomicRequest { addr: at.addr.get(), rkey: at.rkey.get(), width, extended, op };
    let word = access::atomic_word(target, mkeys, &request)?;
    if !source.late
        && let Some(result) = result
        && dma.atomic_to(&word, width, op, &result).map_err(access::atomic_error)?
    {
        return Ok(None);
    }
    Ok(Some(dma.atomic(&word, width, op).map_err(access::atomic_error)?))
}

/// Writes the old value of an atomic to the requester's memory.
fn give_old(view: &View<'_>, mkeys: &Mkeys, dma: &mut Dma, user: User, old: u64) -> Result<(), Outcome> {
    let Some(operands) = view.atomic() else { return Err(RemoteError::Invalid.into()) };
    let (_, width, _) = wqe::atomic(operands);
    let (result, len) = wqe::atomic_result(old, width);
    for_each_piece(view, mkeys, user, Rights::LOCAL_WRITE, 0, width.bytes(), |piece, at| {
        if let Piece::Memory(to) = piece {
            dma.write(&to, &result[at as usize..len])?;
        }
        Ok::<(), Outcome>(())
    })
}

/// Executes a DUMP, whose completion guarantees that earlier writes of this adapter are visible.
fn dump(view: &View<'_>, source: &Source, objects: &mut Objects) -> Result<Outcome, Outcome> {
    check_keys(view, &objects.mkeys, source.user, Rights::LOCAL_READ, view.data_len())?;
    objects.dma.flush()?;
    Ok(Outcome::Done)
}
