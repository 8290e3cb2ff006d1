//! The lanes of a launch, and their barriers.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};

use rushmem_base::lock;
use rushmem_device::kernel::Call;
use rushmem_device::watch::Watcher;
use rushmem_sanitizer::{Actor, ActorId, Call as Named, MeetingId, Until, Wait};

use super::Addresses;
use super::lane::LaneWatch;
use super::pe::Watched;
use super::request::Request;
use crate::native::{Grid, Observer};

/// A launch that the sanitizer watches.
#[derive(Debug)]
pub(crate) struct LaunchWatch {
    pub(super) watched: Arc<Watched>,
    /// The host or the stream that launches.
    parent: ActorId,
    number: u32,
    pub(super) addresses: Arc<Addresses>,
    /// The meeting of all blocks.
    pub(super) grid: MeetingId,
    blocks: u32,
    /// The name and line of the host's operation that the kernel performs.
    operation: Option<(&'static str, &'static Location<'static>)>,
    /// The lanes of each block that has begun.
    lanes: Mutex<HashMap<u32, Vec<ActorId>>>,
    /// The operations of each ticket.
    tickets: Mutex<Vec<Vec<ActorId>>>,
}

impl LaunchWatch {
    pub(super) fn new(watched: Arc<Watched>, parent: ActorId, grid: Grid, call: &Call) -> Arc<Self> {
        let (number, addresses) = (watched.next_launch(), watched.addresses());
        let meeting = watched.link().add_grid(grid.blocks);
        Arc::new(Self {
            watched,
            parent,
            number,
            addresses,
            grid: meeting,
            operation: call.operation(),
            blocks: grid.blocks,
            lanes: Mutex::default(),
            tickets: Mutex::default(),
        })
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<u32, Vec<ActorId>>> {
        lock(&self.lanes)
    }

    fn lane(&self, block: u32, thread: u32) -> Option<ActorId> {
        self.lanes().get(&block)?.get(thread as usize).copied()
    }

    /// Returns the leaders of the blocks that have not come to the barrier of the grid that `block` is in.
    pub(super) fn missing_blocks(&self, block: u32) -> Vec<ActorId> {
        let missing = self.watched.link().missing(self.grid, block);
        missing.into_iter().filter_map(|block| self.lane(block, 0)).collect()
    }

    /// Returns a call as a report names it: a call of the kernel, or the host's operation.
    pub(super) fn name(&self, name: &'static str, site: &'static Location<'static>) -> Named {
        let (name, site) = self.operation.unwrap_or((name, site));
        Named { name, site: site.into() }
    }

    /// Adds a ticket for operations. Tickets count from 1.
    pub(super) fn add_ticket(&self, operations: Vec<ActorId>) -> u64 {
        let mut tickets = lock(&self.tickets);
        tickets.push(operations);
        tickets.len() as u64
    }

    /// Returns the operations that a ticket stands for.
    pub(super) fn ticket(&self, number: u64) -> Vec<ActorId> {
        let at = (number as usize).wrapping_sub(1);
        lock(&self.tickets).get(at).cloned().unwrap_or_default()
    }

    /// Adds the lanes of a block.
    fn begin(&self, block: u32, threads: u32) {
        let mut lanes = self.lanes();
        let (pe, launch) = (self.watched.pe, self.number);
        let threads = (0..threads).map(|thread| Actor::Thread { pe, launch, block, thread });
        lanes.insert(block, self.watched.link().fork(self.parent, threads.collect()));
        if lanes.len() as u64 == u64::from(self.blocks) {
            let all: Vec<ActorId> = lanes.values().flatten().copied().collect();
            self.watched.tell(Request::Awaits { parent: self.parent, children: all.clone() });
            self.watched.launch_runs(self.parent, all);
        }
    }

    /// Synchronises lanes of a block.
    fn sync(&self, block: u32, threads: &mut dyn Iterator<Item = u32>) {
        let lanes = self.lanes();
        let Some(of_block) = lanes.get(&block) else { return };
        let met: Vec<ActorId> = threads.filter_map(|thread| of_block.get(thread as usize).copied()).collect();
        drop(lanes);
        self.watched.tell(Request::Sync(met));
    }

    /// Notes that a lane waits for others of its block.
    fn wait(&self, block: u32, thread: u32, site: &'static Location<'static>, missing: &[u32]) {
        let lanes = self.lanes();
        let Some(of_block) = lanes.get(&block) else { return };
        let lane = |thread: u32| of_block.get(thread as usize).copied();
        let actors: Vec<ActorId> = missing.iter().filter_map(|&thread| lane(thread)).collect();
        let Some(waiting) = lane(thread).filter(|_| !actors.is_empty()) else { return };
        drop(lanes);
        let at = format!("the barrier of block {block}");
        let wait = Wait { call: self.name("sync", site), until: Until::Arrivals { at, actors } };
        self.watched.tell(Request::Wait { actor: waiting, wait });
    }

    /// Lets the host or the stream know that the launch has ended.
    pub(crate) fn end(&self) {
        let lanes = std::mem::take(&mut *self.lanes());
        self.watched.launch_ends(self.parent);
        let lanes: Vec<ActorId> = lanes.into_values().flatten().collect();
        let ends: Vec<Request> = lanes.iter().map(|&lane| Request::End(lane)).collect();
        let join = Request::Join { parent: self.parent, children: lanes };
        self.watched.tell_all(ends.into_iter().chain([join, Request::RemoveGrid(self.grid)]));
    }
}

/// The observer of a launch.
#[derive(Debug)]
pub(crate) struct LaunchObserver(pub(crate) Arc<LaunchWatch>);

impl Observer for LaunchObserver {
    fn block_begins(&self, block: u32, threads: u32) {
        self.0.begin(block, threads);
    }

    #[allow(clippy::expect_used, reason = "a block begins before its lanes")]
    fn watcher(&self, block: u32, thread: u32) -> Box<dyn Watcher> {
        let actor = self.0.lane(block, thread).expect("the block has begun");
        Box::new(LaneWatch::new(Arc::clone(&self.0), actor, block))
    }

    fn lane_ends(&self, block: u32, thread: u32) {
        if let Some(lane) = self.0.lane(block, thread) {
            self.0.watched.tell(Request::End(lane));
        }
    }

    fn sync(&self, block: u32, threads: &mut dyn Iterator<Item = u32>) {
        self.0.sync(block, threads);
    }

    fn waits(&self, block: u32, thread: u32, site: &'static Location<'static>, missing: Vec<u32>) {
        self.0.wait(block, thread, site, &missing);
    }
}
