//! Checks during start-up that a NIC moves bytes for this PE in time.
//!
//! A QP connected to itself, or else one of two QPs, executes the operations that kernels need: a put, an atomic with a
//! checked result, and a signal. The CPU posts them. `kernel_probe` then has a kernel post.

use std::fmt;
use std::time::{Duration, Instant};

use rushmem_base::shared_deadline;
use rushmem_device::abi::{qp_flags, reserved};
use rushmem_error::{Error, NicError, Result};
use rushmem_machine::Region;
use rushmem_mlx5::prm::CmdOpcode;
use rushmem_mlx5::prm::qp::{Mtu, ServiceType};
use rushmem_mlx5::{Syndrome, Wqe};

use super::evidence::record_qp;
use super::host_queue::{HostQueue, Outcome, connect, describe, make};
use super::rail::{Loop, Rail, RetryPolicy};
use crate::provider::Provider;

/// Time limit for all operations of the probe together, for a PE that does not share its CPUs.
const DEADLINE: Duration = Duration::from_secs(1);
/// Number of attempts before the probe fails. A software ConnectX may be slow because it has to wait for a CPU.
const ATTEMPTS: usize = 3;

/// Heap offset of the word that the probe's put copies. No QP uses this part of the heap yet.
const SOURCE: u64 = reserved::FETCH;
const TARGET: u64 = SOURCE + 8;
const RESULT: u64 = SOURCE + 16;

/// The result of probing a NIC over loopback.
pub(super) enum Loopback {
    Works(Loop),
    /// The NIC does not deliver packets from its port to the same port, for this reason.
    Refused(Refusal),
}

/// How a NIC refuses loopback.
#[derive(Debug)]
pub(super) enum Refusal {
    /// INIT2RTR_QP, which names the path, was refused. [`probe`] returns this only if another path is accepted.
    Path(NicError),
    /// Packets are sent and never acknowledged: something between port and port drops them.
    Lost(Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(error) => write!(f, "{error}; it accepts a path to another port"),
            Self::Lost(error) => error.fmt(f),
        }
    }
}

/// Checks that the NIC of `rail` can access `heap`. `local_pes` is the number of PEs that start on this machine at the
/// same time.
///
/// If the NIC refuses a QP connected to itself, two QPs are tried. The port may refuse loopback altogether, as virtual
/// functions, bonds and switches do. Such a NIC still reaches other nodes, so this is not an error.
///
/// # Errors
/// - [`Error::Probe`] if an operation fails, is late, or returns a wrong result, or if the NIC refuses all paths.
/// - The error of a command that the NIC refuses.
pub(super) fn probe(rail: &Rail, heap: &Region, local_pes: u32) -> Result<Loopback> {
    let one_qp = attempts(local_pes, |within| once(rail, heap, within, Loop::OneQp))?;
    let Loopback::Refused(why) = one_qp else { return Ok(one_qp) };
    tracing::info!("{}: no QP connects to itself ({why}); probing with two QPs", rail.nic().name());
    match attempts(local_pes, |within| once(rail, heap, within, Loop::TwoQps))? {
        Loopback::Refused(Refusal::Path(error)) => {
            find_another_path(rail, &error)?;
            Ok(Loopback::Refused(Refusal::Path(error)))
        }
        outcome => Ok(outcome),
    }
}

/// Checks that a NIC which refused a path to itself with `refused` accepts one to another port. Otherwise it is not
/// loopback that it refuses.
///
/// # Errors
/// - [`Error::Probe`] if it refuses that path, too.
/// - The error of another command that the NIC refuses.
fn find_another_path(rail: &Rail, refused: &NicError) -> Result<()> {
    let pair = rail.make(0, 0, ServiceType::RC)?;
    let outcome = rail.connect_elsewhere(&pair);
    drop(pair);
    rail.clear_ahead(0..1)?;
    match outcome {
        Err(error) if is_path_refused(&error) => {
            let path = describe_path(rail.nic())?;
            let why = format!(
                "{refused}; it refuses the path to another port as well, so something in it is wrong: {path}; change \
                 RUSHMEM_GID_INDEX, RUSHMEM_PARTITION, RUSHMEM_TRAFFIC_CLASS or RUSHMEM_SERVICE_LEVEL"
            );
            Err(Error::Probe { nic: rail.nic().name(), why })
        }
        outcome => Ok(outcome?),
    }
}

/// Describes a NIC's path to its own port, as INIT2RTR_QP names it.
fn describe_path(nic: &dyn Provider) -> Result<String> {
    let (path, Mtu(mtu)) = nic.path(&nic.port())?;
    Ok(format!(
        "MTU code {mtu}, source GID {}, partition key {}, hop limit {}, UDP source port {}, service level {}, traffic class {}",
        path.src_addr_index,
        path.pkey_index,
        path.hop_limit,
        path.udp_sport,
        path.sl.max(path.eth_prio),
        path.tclass.max(path.dscp << 2 | path.ecn),
    ))
}

fn is_path_refused(error: &NicError) -> bool {
    error.refused_command() == Some(CmdOpcode::INIT2RTR_QP)
}

/// Calls `once` with the time limit of a probe. Calls it again if it failed after the limit, up to [`ATTEMPTS`] times
/// in all.
pub(super) fn attempts<T>(local_pes: u32, once: impl Fn(Duration) -> Result<T>) -> Result<T> {
    let within = shared_deadline(DEADLINE, local_pes);
    for _ in 1..ATTEMPTS {
        let begin = Instant::now();
        match once(within) {
            // Only a late failure may be bad luck. A fast one would repeat itself.
            Err(error) if begin.elapsed() > within => tracing::info!("{error}; the probe runs again"),
            outcome => return outcome,
        }
    }
    once(within)
}

fn once(rail: &Rail, heap: &Region, within: Duration, qps: Loop) -> Result<Loopback> {
    let begin = Instant::now();
    let pair = make(qps, |slot| rail.make(slot, slot, ServiceType::RC))?;
    if let Err(error) = connect(rail, &pair.0, pair.1.as_ref(), RetryPolicy::within(within, 7)) {
        record_qp(rail, &pair.0)?;
        return if is_path_refused(&error) {
            Ok(Loopback::Refused(Refusal::Path(error)))
        } else {
            Err(error.into())
        };
    }
    let mut probe = Probe { rail, heap, queue: HostQueue::new(pair), begin, within, unanswered: false };
    let outcome = probe.run();
    let unanswered = probe.unanswered;
    record_qp(rail, probe.queue.qps().0)?;
    drop(probe);
    // Whatever the outcome, leave no trace: the slots and words are used again.
    rail.clear_ahead(0..2)?;
    heap.write(SOURCE, &[0; 24])?;
    let [put, atomic, signal] = match outcome {
        Err(error) if unanswered => return Ok(Loopback::Refused(Refusal::Lost(error))),
        outcome => outcome?,
    };
    let nic = rail.nic().name();
    tracing::info!(
        "{nic}: loopback from doorbell to completion: put {put:.1?}, atomic {atomic:.1?}, signal {signal:.1?}"
    );
    Ok(Loopback::Works(qps))
}

struct Probe<'a> {
    rail: &'a Rail,
    heap: &'a Region,
    queue: HostQueue,
    begin: Instant,
    within: Duration,
    /// Whether an operation failed because the NIC received no acknowledgement.
    unanswered: bool,
}

impl Probe<'_> {
    /// Runs the probe's put, atomic and signal. Returns the time of each from doorbell to completion.
    fn run(&mut self) -> Result<[Duration; 3]> {
        const PATTERN: u64 = 0x5275_7368_6d65_6d21;
        const SIGNAL: u64 = 0x0123_4567_89ab_cdef;
        let key = self.rail.keys().strict();
        // With a strict key, the NIC writes the data to memory before the CQE, so the CPU may check it on completion.
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
        if self.rail.shape().failover {
            self.check_count(3)?;
        }
        Ok([put, atomic, signal])
    }

    /// Checks that the NIC tells how many `messages` it has executed, on which failover depends.
    fn check_count(&self, messages: u32) -> Result<()> {
        let (pair, receiver) = self.queue.qps();
        let counted = self.rail.context(receiver.unwrap_or(pair))?.rmsn;
        if counted == messages {
            return Ok(());
        }
        let why = format!(
            "it counts {counted} executed messages instead of {messages} (rmsn); RUSHMEM_FAILOVER needs that"
        );
        Err(self.failed(why))
    }

    /// Returns `value` in the byte order in which the NIC returns results of atomics.
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
        let until = self.begin + self.within;
        match self.queue.post(self.rail, self.rail.memory(), wqe, until)? {
            Outcome::Completed(took) => Ok(took),
            Outcome::Late => {
                Err(self.failed(format!("the {what} did not complete within {:?}", self.within)))
            }
            Outcome::Failed { syndrome, vendor } => {
                self.unanswered = syndrome == Syndrome::TRANSPORT_RETRY_EXC_ERR;
                Err(self.failed(format!("the {what} failed: {}", describe(syndrome, vendor))))
            }
        }
    }
}
