//! QPs of the host whose queues are in private memory of the process.
//!
//! The host may be unable to access GPU memory while kernels run, and allocating memory that kernels can access may have to
//! wait until they exit.

use std::time::Instant;

use rushmem_error::{NicError, Result};
use rushmem_machine::Region;
use rushmem_mlx5::Wqe;
use rushmem_mlx5::prm::qp::ServiceType;

use super::host_queue::{self, HostQueue, Outcome};
use super::queue_memory::QueueMemory;
use super::rail::{Loop, QpAddress, Rail, RetryPolicy};
use crate::provider::{DoorbellForm, Keys, PortAddress};

/// The wire address and rkey of memory that peers write to.
pub type RemoteEnd = (u64, u32);

/// A QP through which the host READs memory, or two QPs for loopback. Fields drop in order.
pub(super) struct PrivateQueue {
    queue: HostQueue,
    /// Keys of the memory that holds the queues and the results of READs.
    keys: Keys,
    memory: QueueMemory,
    /// Wire address to which READs return their data.
    result: u64,
}

impl PrivateQueue {
    /// Creates the QPs, which are not connected.
    ///
    /// # Errors
    /// Fails if the NIC refuses a registration or a command.
    pub(super) fn new(rail: &Rail, qps: Loop) -> Result<Self> {
        let shape = rail.shape().of_flush();
        let result = shape.rail_bytes();
        let region = Region::host(rail.shape().flush_bytes())?;
        let keys = rail.register(&region)?;
        let result = keys.strict().base() + result;
        let memory = QueueMemory::new(rail.nic(), region, shape)?;
        let pair = host_queue::make(qps, |slot| {
            memory.clear(rail.nic(), slot)?;
            rail.make_in(&memory, (slot, 0), ServiceType::RC, DoorbellForm::Record)
        })?;
        Ok(Self { queue: HostQueue::new(pair), keys, memory, result })
    }

    pub(super) fn address(&self) -> QpAddress {
        self.queue.qps().0.address
    }

    /// Connects the QP to itself, or the two QPs to each other.
    ///
    /// # Errors
    /// Fails if the NIC refuses a command.
    pub(super) fn connect_loop(&self, rail: &Rail, retries: RetryPolicy) -> Result<(), NicError> {
        let (pair, receiver) = self.queue.qps();
        host_queue::connect(rail, pair, receiver, retries)
    }

    /// Connects the QP to the QP `remote` at port `peer`.
    ///
    /// # Errors
    /// Fails if the NIC refuses a command.
    pub(super) fn connect(
        &self,
        rail: &Rail,
        peer: &PortAddress,
        remote: QpAddress,
        retries: RetryPolicy,
    ) -> Result<(), NicError> {
        rail.connect(self.queue.qps().0, peer, remote, retries)
    }

    /// READs one byte at `from`, and waits until `until` for the result. The error is the reason for a failure.
    pub(super) fn read(&mut self, rail: &Rail, from: RemoteEnd, until: Instant) -> Result<(), String> {
        let (raddr, rkey) = from;
        let wqe = Wqe::Read { raddr, rkey, laddr: self.result, lkey: self.keys.strict().lkey(), len: 1 };
        match self.queue.post(rail, &self.memory, &wqe, until).map_err(|error| error.to_string())? {
            Outcome::Completed(_) => Ok(()),
            Outcome::Failed { syndrome, vendor } => Err(host_queue::describe(syndrome, vendor)),
            Outcome::Late => Err("the READ did not complete before the deadline".into()),
        }
    }
}
