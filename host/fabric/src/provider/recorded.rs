//! Records the commands that a NIC executes, for reports about it.

use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_error::NicError;
use rushmem_machine::{Machine, Region};
use rushmem_mlx5::prm::Response;
use rushmem_mlx5::prm::caps::{CapType, QueryHcaCap, QueryHcaCapOut};
use rushmem_mlx5::prm::qp::{AddressPath, Mtu};

use super::{NicEvent, Object, Pd, PortAddress, Provider, Uar, Umem, WantedUars};

/// The mailboxes of a command, as it was sent and answered.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub input: Vec<u8>,
    pub output: Vec<u8>,
    /// Why the command did not reach the NIC, or its answer not this process.
    pub error: Option<String>,
}

/// A CQE of a QP, as the NIC wrote it.
#[derive(Clone, Debug)]
pub struct Completion {
    pub qpn: u32,
    pub entry: Vec<u8>,
}

/// The commands and CQEs of a NIC, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub exchanges: Vec<Exchange>,
    pub completions: Vec<Completion>,
}

/// Collects a [`Recording`].
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Recording>>);

impl Recorder {
    pub(crate) fn completion(&self, qpn: u32, entry: &[u8]) {
        lock(&self.0).completions.push(Completion { qpn, entry: entry.into() });
    }

    /// Returns what was recorded so far.
    pub fn take(&self) -> Recording {
        std::mem::take(&mut *lock(&self.0))
    }

    /// Calls `execute` and records the command. Its output mailbox is still empty if it fails.
    fn record<T>(
        &self,
        input: &[u8],
        output: &mut [u8],
        execute: impl FnOnce(&mut [u8]) -> Result<T, NicError>,
    ) -> Result<T, NicError> {
        let outcome = execute(output);
        let error = outcome.as_ref().err().map(ToString::to_string);
        lock(&self.0).exchanges.push(Exchange { input: input.into(), output: output.into(), error });
        outcome
    }
}

/// A NIC whose commands are recorded. What libibverbs and libmlx5 send on their own is not.
pub struct Recorded {
    nic: Box<dyn Provider>,
    recorder: Recorder,
}

impl Recorded {
    pub fn new(nic: Box<dyn Provider>, recorder: &Recorder) -> Self {
        Self { nic, recorder: recorder.clone() }
    }

    /// Queries all known capability pages, with the values in effect and the maximum ones. Only the recording has the
    /// answers.
    pub fn query_capabilities(&self) {
        let pages = CapType::ALL.iter().flat_map(|page| [(page, true), (page, false)]);
        for (&cap_type, current) in pages {
            let command = QueryHcaCap { uid: 0, cap_type, current };
            let mut answer = Box::new(<QueryHcaCapOut as Response>::EMPTY);
            if let Err(error) = self.execute(command.encode().as_ref(), answer.as_mut_slice()) {
                tracing::debug!("capability page {cap_type}: {error}");
            }
        }
    }
}

impl Provider for Recorded {
    fn name(&self) -> String {
        self.nic.name()
    }

    fn port(&self) -> PortAddress {
        self.nic.port()
    }

    fn gbps(&self) -> Option<u32> {
        self.nic.gbps()
    }

    fn acks_early(&self) -> bool {
        self.nic.acks_early()
    }

    fn counter_set(&self) -> u8 {
        self.nic.counter_set()
    }

    fn events(&self) -> Vec<NicEvent> {
        self.nic.events()
    }

    fn path(&self, peer: &PortAddress) -> Result<(AddressPath, Mtu), NicError> {
        self.nic.path(peer)
    }

    fn commands(&self) -> u64 {
        self.nic.commands()
    }

    fn recorder(&self) -> Option<&Recorder> {
        Some(&self.recorder)
    }

    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError> {
        self.recorder.record(input, output, |output| self.nic.execute(input, output))
    }

    fn create(&self, input: &[u8], output: &mut [u8]) -> Result<Box<dyn Object>, NicError> {
        let object = self.recorder.record(input, output, |output| self.nic.create(input, output))?;
        Ok(Box::new(RecordedObject { object, recorder: self.recorder.clone() }))
    }

    fn eqn(&self) -> Result<u8, NicError> {
        self.nic.eqn()
    }

    fn alloc_pd(&self) -> Result<Box<dyn Pd>, NicError> {
        self.nic.alloc_pd()
    }

    fn umem_reg(&self, memory: &Region) -> Result<Box<dyn Umem>, NicError> {
        self.nic.umem_reg(memory)
    }

    fn alloc_uars(
        &self,
        machine: &dyn Machine,
        wanted: &WantedUars,
    ) -> rushmem_error::Result<Vec<Box<dyn Uar>>> {
        self.nic.alloc_uars(machine, wanted)
    }
}

struct RecordedObject {
    object: Box<dyn Object>,
    recorder: Recorder,
}

impl Object for RecordedObject {
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError> {
        self.recorder.record(input, output, |output| self.object.execute(input, output))
    }
}
