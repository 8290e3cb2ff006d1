//! The probe: checks at start that a NIC moves bytes for this PE in time.
//!
//! A QP connected to itself, or else one of two QPs, executes the operations that kernels need: a put, an atomic with a checked result, and a
//! signal. The CPU posts them. `kernel_probe` lets a kernel post afterwards.

use std::time::{Duration, Instant};

use rushmem_base::shared_deadline;
use rushmem_device::abi::{qp_flags, reserved};
use rushmem_mlx5::doorbell::{Doorbell, Record, record_word};
use rushmem_mlx5::prm::CmdOpcode;
use rushmem_mlx5::{CqeOpcode, CqeWord, Flags, Syndrome, Wqe};

use super::rail::{Qp, Rail, RetryPolicy};
use super::shape::{CQE_BYTES, QueueLayout, WQEBB_BYTES};
use crate::machine::Region;
use crate::nic_error::NicError;
use crate::{Error, Result};

/// The deadline of the operations of a PE that does not share its processors.
const DEADLINE: Duration = Duration::from_secs(1);
/// Number of attempts with a slow NIC: a software ConnectX may have to wait for a processor.
const ATTEMPTS: usize = 3;

/// Unused words of the heap.
const SOURCE: u64 = reserved::FETCH;
const TARGET: u64 = SOURCE + 8;
const RESULT: u64 = SOURCE + 16;

/// The QPs of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    /// One QP, connected to itself.
    OneQp,
    /// Two QPs of the same port, connected to each other.
    TwoQps,
}

/// The result of a probe of a NIC that executes commands and WQEs.
pub(super) enum Loopback {
    Works(Loop),
    /// The NIC does not carry packets from its port to the same port.
    Refused(String),
}

/// Checks that the NIC of `rail` can access `heap`. `local_pes` PEs of this machine start at the same time.
///
/// If the NIC refuses a QP that is connected to itself, two QPs are tried. The port may refuse loopback altogether, as a
/// virtual function, a bond or a switch may do. Such a NIC still reaches other nodes, so this is no error.
///
/// # Errors
/// - [`Error::Probe`] if an operation fails, is late or has a wrong result.
/// - The errors of the NIC.
pub(super) fn probe(rail: &Rail, heap: &Region, local_pes: u32) -> Result<Loopback> {
    let one_qp = attempts(local_pes, |within| once(rail, heap, within, Loop::OneQp))?;
    let Loopback::Refused(why) = one_qp else { return Ok(one_qp) };
    tracing::info!("{}: no QP connects to itself ({why}); probing with two QPs", rail.nic().name());
    attempts(local_pes, |within| once(rail, heap, within, Loop::TwoQps))
}

/// Calls `once` with the deadline of a probe, and again if it has failed late.
pub(super) fn attempts<T>(local_pes: u32, once: impl Fn(Duration) -> Result<T>) -> Result<T> {
    let within = shared_deadline(DEADLINE, local_pes);
    for _ in 1..ATTEMPTS {
        let begin = Instant::now();
        match once(within) {
            Err(error) if begin.elapsed() > within => tracing::info!("{error}; the probe runs again"),
            outcome => return outcome,
        }
    }
    once(within)
}

fn once(rail: &Rail, heap: &Region, within: Duration, qps: Loop) -> Result<Loopback> {
    let begin = Instant::now();
    let (pair, receiver) = make(rail, qps)?;
    if let Err(error) = connect(rail, &pair, receiver.as_ref(), within) {
        return match error {
            NicError::Refused { command: CmdOpcode::INIT2RTR_QP, .. } => {
                Ok(Loopback::Refused(error.to_string()))
            }
            error => Err(error.into()),
        };
    }
    let at = rail.shape().place(0);
    let mut probe = Probe { rail, heap, pair, at, posted: 0, completed: 0, begin, within, unanswered: false };
    let outcome = probe.run();
    let unanswered = probe.unanswered;
    drop((probe, receiver));
    rail.clear_ahead(0..2)?;
    heap.write(SOURCE, &[0; 24])?;
    let [put, atomic, signal] = match outcome {
        Err(error) if unanswered => return Ok(Loopback::Refused(error.to_string())),
        outcome => outcome?,
    };
    let nic = rail.nic().name();
    tracing::info!(
        "{nic}: loopback from doorbell to completion: put {put:.1?}, atomic {atomic:.1?}, signal {signal:.1?}"
    );
    Ok(Loopback::Works(qps))
}

/// Creates the QPs: the sender, and the receiver if that is another one.
pub(super) fn make(rail: &Rail, qps: Loop) -> Result<(Qp, Option<Qp>)> {
    let receiver = if qps == Loop::TwoQps { Some(rail.make(1, 1)?) } else { None };
    Ok((rail.make(0, 0)?, receiver))
}

/// Connects the QP to `receiver`, or to itself.
pub(super) fn connect(
    rail: &Rail,
    pair: &Qp,
    receiver: Option<&Qp>,
    within: Duration,
) -> Result<(), NicError> {
    let (port, retries) = (rail.nic().port(), RetryPolicy::within(within, 7));
    rail.connect(pair, &port, receiver.unwrap_or(pair).address, retries)?;
    receiver.map_or(Ok(()), |receiver| rail.connect(receiver, &port, pair.address, retries))
}

struct Probe<'a> {
    rail: &'a Rail,
    heap: &'a Region,
    pair: Qp,
    at: QueueLayout,
    /// Basic blocks posted.
    posted: u64,
    /// CQEs consumed.
    completed: u64,
    begin: Instant,
    within: Duration,
    /// Whether an operation failed because no acknowledgement came back.
    unanswered: bool,
}

impl Probe<'_> {
    /// Runs the operations. Returns their times from doorbell to completion.
    fn run(&mut self) -> Result<[Duration; 3]> {
        const PATTERN: u64 = 0x5275_7368_6d65_6d21;
        const SIGNAL: u64 = 0x0123_4567_89ab_cdef;
        let key = self.rail.keys().strict();
        let (raddr, rkey, laddr, lkey) = (TARGET, key.rkey(), RESULT, key.lkey());

        self.set(SOURCE, PATTERN)?;
        let put = self.post("put", &Wqe::Write { raddr, rkey, laddr: SOURCE, lkey, len: 8 })?;
        self.expect("put", "wrote", TARGET, PATTERN)?;

        let atomic =
            self.post("atomic fetch-and-add", &Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 5 })?;
        self.expect("atomic fetch-and-add", "returned", RESULT, self.result(PATTERN))?;
        self.expect("atomic fetch-and-add", "left", TARGET, PATTERN + 5)?;

        let (compare_mask, swap_mask) = (0, u64::MAX);
        let set = Wqe::MaskedCompareSwap64 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare: 0,
            swap: SIGNAL,
            compare_mask,
            swap_mask,
        };
        let signal = self.post("signal", &set)?;
        self.expect("signal", "left", TARGET, SIGNAL)?;
        Ok([put, atomic, signal])
    }

    /// Returns `value` in the byte order of the NIC's atomic results.
    fn result(&self, value: u64) -> u64 {
        if self.rail.flags() & qp_flags::BIG_ENDIAN_8 == 0 { value } else { value.swap_bytes() }
    }

    fn set(&self, offset: u64, value: u64) -> Result<()> {
        self.heap.write(offset, &value.to_le_bytes())
    }

    fn expect(&self, what: &str, verb: &str, offset: u64, wanted: u64) -> Result<()> {
        let mut found = [0; 8];
        self.heap.read(offset, &mut found)?;
        let found = u64::from_le_bytes(found);
        if found == wanted {
            return Ok(());
        }
        Err(self.failed(format!("the {what} {verb} {found:#x} instead of {wanted:#x}")))
    }

    fn failed(&self, why: String) -> Error {
        Error::Probe { nic: self.rail.nic().name(), why }
    }

    /// Posts one WQE and waits for its completion. Returns the time from doorbell to completion.
    fn post(&mut self, what: &str, wqe: &Wqe) -> Result<Duration> {
        let (queues, depth) = (self.rail.queues(), self.rail.shape().depth);
        let index = self.posted as u16;
        let entry = wqe.emit(index, self.pair.address.qpn, Flags::SIGNALED);
        for block in &entry.blocks[..entry.n_blocks().into()] {
            let slot = self.posted & (depth - 1);
            queues.write(self.at.sq + slot * WQEBB_BYTES, bytemuck::bytes_of(block))?;
            self.posted += 1;
        }
        let producer = self.posted as u16;
        let record = self.at.sq_record + Record::SND_OFFSET as u64;
        queues.write(record, &record_word(producer).to_le_bytes())?;
        let rung = Instant::now();
        self.rail.uar(0).ring(Doorbell::producer(self.pair.address.qpn, producer).raw())?;
        loop {
            if let Some(outcome) = self.poll(what, index)? {
                return outcome.map(|()| rung.elapsed());
            }
            if self.begin.elapsed() > self.within {
                return Err(self.failed(format!("the {what} did not complete within {:?}", self.within)));
            }
            std::thread::yield_now();
        }
    }

    /// Returns the outcome of the WQE at `index`, if it has completed.
    fn poll(&mut self, what: &str, index: u16) -> Result<Option<Result<()>>> {
        let (depth, collapsed) = (self.rail.shape().depth, self.rail.shape().collapsed);
        let slot = if collapsed { 0 } else { self.completed & (depth - 1) };
        let mut entry = [0u8; CQE_BYTES as usize];
        self.rail.queues().read(self.at.cq + slot * CQE_BYTES, &mut entry)?;
        let [.., vendor, syndrome, a, b, c, d, e, f, g, h] = entry;
        let word = CqeWord(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        let kind = word.op_own();
        let fresh = if collapsed {
            kind.opcode() != CqeOpcode::INVALID && word.wqe_counter() == index
        } else {
            kind.is_ready(self.completed as u32, depth as u32)
        };
        if !fresh {
            return Ok(None);
        }
        self.completed += 1;
        if kind.opcode() == CqeOpcode::REQ {
            return Ok(Some(Ok(())));
        }
        let syndrome = Syndrome(syndrome);
        self.unanswered = syndrome == Syndrome::TRANSPORT_RETRY_EXC_ERR;
        let name = syndrome.name().unwrap_or("unknown syndrome");
        let why = format!(
            "the {what} failed: {name} (syndrome {:#04x}, vendor {vendor:#04x}): {}",
            syndrome.0,
            syndrome.meaning()
        );
        Ok(Some(Err(self.failed(why))))
    }
}
