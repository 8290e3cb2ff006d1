//! Tracks the threads of a kernel launch and their barriers for the sanitizer.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};

use rushmem_base::lock;
use rushmem_device::kernel::Call;
use rushmem_native::LaunchConfig;
use rushmem_sanitizer::{Accesses, Actor, ActorId, Call as Named, MeetingId, Request, Scope, Until, Wait};

use super::Addresses;
use super::pe::{PeWatch, Watched};

/// A kernel launch that the sanitizer observes.
#[derive(Debug)]
pub struct LaunchWatch {
    pub(super) watched: Arc<Watched>,
    /// The host or stream that launched the kernel.
    parent: ActorId,
    pub(super) number: u32,
    pub(super) addresses: Arc<Addresses>,
    /// ID of the grid barrier, at which all blocks meet.
    pub(super) grid: MeetingId,
    blocks: u32,
    /// Name and source line of the host operation that this kernel implements, if it is a kernel of the runtime.
    operation: Option<(&'static str, &'static Location<'static>)>,
    /// The threads and pending plain accesses of each block that has started, by block index.
    blocks_begun: Mutex<HashMap<u32, Arc<Accesses>>>,
    /// The operations covered by each completion ticket handed out to the kernel; ticket 1 is the first element.
    tickets: Mutex<Vec<Vec<ActorId>>>,
}

impl PeWatch {
    /// Starts observing a launch outside any stream. Returns `None` if the job runs without the sanitizer.
    pub fn launch(&self, grid: LaunchConfig, call: &Call) -> Option<Arc<LaunchWatch>> {
        let watched = self.0.as_ref()?;
        let (name, site) = call.operation().unwrap_or((call.name(), Location::caller()));
        watched.host_waits(watched.host, Named { name, site: site.into() });
        Some(LaunchWatch::new(Arc::clone(watched), watched.host, grid, call))
    }
}

impl LaunchWatch {
    pub(super) fn new(watched: Arc<Watched>, parent: ActorId, grid: LaunchConfig, call: &Call) -> Arc<Self> {
        let (number, addresses) = (watched.next_launch(), watched.addresses());
        let meeting = watched.link().add_grid(grid.blocks());
        Arc::new(Self {
            watched,
            parent,
            number,
            addresses,
            grid: meeting,
            operation: call.operation(),
            blocks: grid.blocks(),
            blocks_begun: Mutex::default(),
            tickets: Mutex::default(),
        })
    }

    fn blocks_begun(&self) -> MutexGuard<'_, HashMap<u32, Arc<Accesses>>> {
        lock(&self.blocks_begun)
    }

    /// Returns the threads and pending plain accesses of a block, or `None` if it has not started.
    pub(super) fn block(&self, block: u32) -> Option<Arc<Accesses>> {
        self.blocks_begun().get(&block).cloned()
    }

    fn lane(&self, block: u32, thread: u32) -> Option<ActorId> {
        self.block(block)?.lanes().get(thread as usize).copied()
    }

    /// Returns the first thread of each block that has not arrived at the grid barrier at which `block` waits.
    pub(super) fn missing_blocks(&self, block: u32) -> Vec<ActorId> {
        let missing = self.watched.link().missing(self.grid, block);
        missing.into_iter().filter_map(|block| self.lane(block, 0)).collect()
    }

    /// Returns the name and source line that a report shows for a device call: its own, or those of the host operation
    /// that the kernel implements.
    pub(super) fn name(&self, name: &'static str, site: &'static Location<'static>) -> Named {
        let (name, site) = self.operation.unwrap_or((name, site));
        Named { name, site: site.into() }
    }

    /// Returns a new ticket with which the kernel can complete `operations`. Tickets start at 1, and 0 means none.
    pub(super) fn add_ticket(&self, operations: Vec<ActorId>) -> u64 {
        let mut tickets = lock(&self.tickets);
        tickets.push(operations);
        tickets.len() as u64
    }

    /// Returns the operations covered by a ticket, or none if the ticket is 0.
    pub(super) fn ticket(&self, number: u64) -> Vec<ActorId> {
        let at = (number as usize).wrapping_sub(1);
        lock(&self.tickets).get(at).cloned().unwrap_or_default()
    }

    /// Registers the threads of a block that is starting.
    pub(super) fn begin(&self, block: u32, threads: u32) {
        let mut blocks = self.blocks_begun();
        let (pe, launch) = (self.watched.pe, self.number);
        let threads = (0..threads).map(|thread| Actor::Thread { pe, launch, block, thread });
        let lanes = self.watched.link().fork(self.parent, threads.collect());
        let operation = self.operation.map(|(name, site)| Named { name, site: site.into() });
        let accesses = Arc::new(Accesses::new(pe, lanes, Arc::clone(self.addresses.regions()), operation));
        self.watched.link().add_accesses(&accesses);
        if operation.is_some() {
            // A kernel of the runtime publishes what the host or the stream knows.
            let release = |&lane: &ActorId| Request::FenceRelease(lane, Scope::System);
            self.watched.tell_all(accesses.lanes().iter().map(release));
        }
        blocks.insert(block, accesses);
        if blocks.len() as u64 == u64::from(self.blocks) {
            let all: Vec<ActorId> = blocks.values().flat_map(|block| block.lanes()).copied().collect();
            self.watched.tell(Request::Awaits { parent: self.parent, children: all.clone() });
            self.watched.launch_runs(self.parent, all);
        }
    }

    /// Records that threads of a block have synchronized at a barrier.
    pub(super) fn sync(&self, block: u32, threads: &mut dyn Iterator<Item = u32>) {
        let Some(of_block) = self.block(block) else { return };
        let met = threads.filter_map(|thread| of_block.lanes().get(thread as usize).copied()).collect();
        self.watched.link().take_accesses(&of_block);
        self.watched.tell(Request::Sync(met));
    }

    /// Records that a thread waits at a block barrier for the threads in `missing`.
    pub(super) fn wait(&self, block: u32, thread: u32, site: &'static Location<'static>, missing: &[u32]) {
        let Some(of_block) = self.block(block) else { return };
        let lane = |thread: u32| of_block.lanes().get(thread as usize).copied();
        let actors: Vec<ActorId> = missing.iter().filter_map(|&thread| lane(thread)).collect();
        let Some(waiting) = lane(thread).filter(|_| !actors.is_empty()) else { return };
        let at = format!("the barrier of block {block}");
        let wait = Wait { call: self.name("sync", site), until: Until::Arrivals { at, actors } };
        self.watched.tell(Request::Wait { actor: waiting, wait });
    }

    /// Records that the launch has finished, so everything its threads did happens before the next step of the host or
    /// stream.
    pub fn end(&self) {
        let blocks = std::mem::take(&mut *self.blocks_begun());
        blocks.values().for_each(|block| self.watched.link().remove_accesses(block));
        self.watched.forget_complete_stores(self.number);
        self.watched.launch_ends(self.parent);
        let lanes: Vec<ActorId> = blocks.values().flat_map(|block| block.lanes()).copied().collect();
        // The host does not fence, so its kernels acquire what they have read on its behalf.
        let acquires = self.operation.map_or(&[][..], |_| &lanes[..]);
        let acquires: Vec<Request> =
            acquires.iter().map(|&lane| Request::FenceAcquire(lane, Scope::System)).collect();
        let ends: Vec<Request> = lanes.iter().map(|&lane| Request::End(lane)).collect();
        let join = Request::Join { parent: self.parent, children: lanes };
        self.watched.tell_all(acquires.into_iter().chain(ends).chain([join, Request::RemoveGrid(self.grid)]));
    }
}
