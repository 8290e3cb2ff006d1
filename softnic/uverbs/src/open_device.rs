//! State of an opened device: its context at the adapter, and the objects that the program has created.

use crate::attrs::Call;
use crate::command::execute_on;
use crate::device::{Device, Lease};
use crate::errno::Errno;
use crate::events::{Channel, Kind};
use crate::fault::Fault;
use crate::handles::Handles;
use crate::inventory::Inventory;
use crate::memory::{self, Region};
use crate::pages::Pages;
use crate::sys::{self, Identity};
use rushmem_mlx5::prm::Command;
use rushmem_softnic::Context;
use std::collections::BTreeMap;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

/// Number of event files below which closed ones are not yet removed from the table.
const MIN_PRUNE: usize = 64;

/// An opened device. Dropping it destroys its objects.
pub(crate) struct OpenDevice {
    pub(crate) handles: Handles,
    pub(crate) context: Option<Session>,
    pub(crate) device: Arc<Device>,
    pub(crate) pages: Pages,
    /// Event file for asynchronous events of the device.
    pub(crate) asynchronous: Option<Arc<Channel>>,
    /// Event files of this opened device, by the identity of the pipe that the program reads.
    channels: BTreeMap<Identity, Arc<Channel>>,
    /// Number of event files at which closed ones are removed from the table next.
    prune_at: usize,
    /// Faults that refuse only the first call of a kind and have already done so.
    refused: Vec<Fault>,
}

/// State of the context that a program has created by GET_CONTEXT.
pub(crate) struct Session {
    // Dropped before the adapter.
    pub(crate) context: Context,
    pub(crate) adapter: Lease,
    /// Whether the program has requested and obtained DevX.
    pub(crate) devx: bool,
    pub(crate) inventory: Inventory,
}

impl OpenDevice {
    /// Creates the state of an opened device. `file` is the memory file whose pages the program maps.
    pub(crate) fn new(device: Arc<Device>, file: OwnedFd) -> OpenDevice {
        OpenDevice {
            handles: Handles::default(),
            context: None,
            device,
            pages: Pages::new(file),
            asynchronous: None,
            channels: BTreeMap::new(),
            prune_at: 0,
            refused: Vec::new(),
        }
    }

    /// Returns the state created by GET_CONTEXT, or `EINVAL` if there is none yet.
    pub(crate) fn session(&self) -> Result<&Session, Errno> {
        self.context.as_ref().ok_or(Errno::EINVAL)
    }

    /// Whether a fault refuses this call, as the first of its kind.
    pub(crate) fn refuses_first(&mut self, fault: Fault) -> bool {
        let refuses = self.device.has(fault) && !self.refused.contains(&fault);
        self.refused.extend(refuses.then_some(fault));
        refuses
    }

    /// Executes a command in the program's context.
    pub(crate) fn execute<C: Command>(&self, command: &C) -> Result<C::Output, Errno> {
        execute_on(&self.session()?.context, command)
    }

    /// Registers memory with the adapter as a umem, and returns the umem's ID.
    pub(crate) fn umem(&self, region: Region, len: u64) -> Result<u32, Errno> {
        Ok(self.session()?.context.umem_reg(region.memory, region.offset, len)?)
    }

    /// Registers a queue's ring and doorbell record as umems.
    pub(crate) fn queue_umems(&self, ring: u64, bytes: u64, record: u64) -> Result<[u32; 2], Errno> {
        let ring = self.umem(memory::user(ring, bytes, true)?, bytes)?;
        let record = memory::user(record, 8, true).and_then(|region| self.umem(region, 8));
        Ok([ring, record.inspect_err(|_| self.forget_umems(&[ring]))?])
    }

    /// Deregisters umems that are no longer in use.
    pub(crate) fn forget_umems(&self, umems: &[u32]) {
        for umem in umems {
            let forgotten = self.session().map(|session| session.context.umem_dereg(*umem));
            if let Ok(Err(error)) = forgotten {
                tracing::warn!(%error, "cannot deregister a umem");
            }
        }
    }

    /// Creates an event file, and returns the descriptor that the program reads.
    pub(crate) fn new_channel(&mut self, kind: Kind) -> Result<RawFd, Errno> {
        if self.channels.len() >= self.prune_at {
            self.channels.retain(|_, channel| Arc::strong_count(channel) > 1 || !channel.is_closed());
            // Doubling keeps the amortized cost of a new file constant.
            self.prune_at = 2 * self.channels.len() + MIN_PRUNE;
        }
        let (channel, fd) = Channel::new(kind)?;
        self.channels.insert(channel.identity(), channel);
        Ok(fd)
    }

    /// Returns the file of asynchronous events in attribute `id`, or the device's if the attribute is absent.
    pub(crate) fn asynchronous(&self, call: &Call, id: u16) -> Result<Option<Arc<Channel>>, Errno> {
        match call.optional_fd(id)? {
            Some(fd) => self.channel(fd).map(Some),
            None => Ok(self.asynchronous.clone()),
        }
    }

    /// Returns the event file that the program reads by descriptor `fd`.
    pub(crate) fn channel(&self, fd: RawFd) -> Result<Arc<Channel>, Errno> {
        let identity = sys::identity(fd).ok_or(Errno::ENOENT)?;
        self.channels.get(&identity).cloned().ok_or(Errno::ENOENT)
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        if let Some(session) = &self.context {
            self.handles.forget(&session.adapter.registry);
        }
    }
}
