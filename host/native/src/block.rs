//! Tracks what each lane of a block is waiting for, and decides when it may continue.
//!
//! The worker passes in the request of each lane that suspends. The block stores an answer for every lane that may
//! continue, and appends the lane to the worker's queue. It knows nothing about coroutines.

use std::collections::VecDeque;
use std::mem;
use std::panic::Location;
use std::rc::Rc;

use crate::Error;
use crate::lane::{Answer, Request};
use crate::report::{Activity, BlockReport};

/// A lane in its worker's queue, ready to run.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) slot: u32,
    pub(crate) thread: u32,
}

pub(crate) type Queue = VecDeque<Turn>;

type Site = &'static Location<'static>;

struct LaneState {
    doing: Activity,
    /// The lane's operand for the warp exchange in which it is waiting.
    value: u64,
    answer: Answer,
}

/// The states of the lanes in one warp, as bit masks.
#[derive(Default)]
struct Warp {
    live: u32,
    /// Lanes that are waiting at a block barrier or in an exchange.
    blocked: u32,
    converging: u32,
    /// Lanes that have spun since the first lane in `converging` arrived.
    spun: u32,
    /// Exchanges for which some lanes are still missing, at most one for each mask.
    exchanges: Vec<Exchange>,
}

struct Exchange {
    mask: u32,
    arrived: u32,
    site: Site,
}

pub(crate) struct Block {
    index: u32,
    slot: u32,
    lanes: Vec<LaneState>,
    warps: Vec<Warp>,
    /// Number of lanes that are waiting at the block barrier.
    arrived: u32,
    /// OR of the votes of the lanes at the block barrier.
    vote: bool,
    /// Number of lanes that are running or in the queue.
    runnable: u32,
    exited: u32,
    /// Whether some lane waits for one that has returned, so it can never continue.
    hopeless: bool,
    /// The lanes whose barrier or exchange has just completed. The worker reports them to the observer.
    met: Option<Met>,
}

/// The set of lanes that took part in a completed barrier or exchange.
pub(crate) enum Met {
    /// All lanes of the block, whose number is given.
    Block(u32),
    /// Some lanes of a warp: the index of its first lane in the block, and a mask relative to that lane.
    Warp(u32, u32),
}

impl Met {
    /// Iterates over the lanes in the set, as indices in the block.
    pub(crate) fn threads(self) -> impl Iterator<Item = u32> {
        let (first, count, mask) = match self {
            Self::Block(count) => (0, count, None),
            Self::Warp(first, mask) => (first, 32, Some(mask)),
        };
        (0..count)
            .filter(move |lane| mask.is_none_or(|mask| mask >> lane & 1 == 1))
            .map(move |lane| first + lane)
    }
}

impl Block {
    /// Creates a block and appends all its lanes to the queue.
    pub(crate) fn new(index: u32, slot: u32, threads: u32, queue: &mut Queue) -> Self {
        let lane = |thread| {
            queue.push_back(Turn { slot, thread });
            LaneState { doing: Activity::Running, value: 0, answer: Answer::Turn }
        };
        let lanes = (0..threads).map(lane).collect();
        let live = |first: u32| u32::MAX >> (32 - (threads - first).min(32));
        let warps = (0..threads).step_by(32).map(|first| Warp { live: live(first), ..Warp::default() });
        Self {
            index,
            slot,
            lanes,
            warps: warps.collect(),
            arrived: 0,
            vote: false,
            runnable: threads,
            exited: 0,
            hopeless: false,
            met: None,
        }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the lanes of the barrier or exchange that has completed since the last call, if any.
    pub(crate) fn take_met(&mut self) -> Option<Met> {
        self.met.take()
    }

    /// Iterates over the lanes that are waiting at a barrier or in an exchange. Yields each with its source location,
    /// and the lanes that are still missing there.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u32, Site, Vec<u32>)> {
        let at = |lane: u32| self.lanes.get(lane as usize).map(|lane| lane.doing);
        (0..self.lanes.len() as u32).filter_map(move |thread| match at(thread)? {
            Activity::Barrier(site) => {
                let all = 0..self.lanes.len() as u32;
                Some((thread, site, all.filter(|&l| !matches!(at(l), Some(Activity::Barrier(_)))).collect()))
            }
            Activity::Exchange(site, mask) => {
                let first = thread & !31;
                let is_there = |l: u32| matches!(at(l), Some(Activity::Exchange(_, other)) if other == mask);
                let others = bits(mask).map(|lane| first + lane);
                Some((thread, site, others.filter(|&l| !is_there(l)).collect()))
            }
            _ => None,
        })
    }

    /// Takes the answer for lane `thread`, which is about to resume.
    pub(crate) fn answer(&mut self, thread: u32) -> Answer {
        mem::take(&mut self.lanes[thread as usize].answer)
    }

    /// Handles the request with which lane `thread` has suspended. Returns whether the lane has made progress since its
    /// last request. A lane that spins again at the same place has not.
    pub(crate) fn arrive(
        &mut self,
        thread: u32,
        (request, site): (Request, Site),
        queue: &mut Queue,
    ) -> Result<bool, Error> {
        let warp = thread as usize / 32;
        match request {
            Request::Spin => return Ok(self.spin(thread, site, queue)),
            Request::Pass => {
                queue.push_back(Turn { slot: self.slot, thread });
                return Ok(true);
            }
            Request::Barrier { vote } => self.barrier(thread, vote, site, queue),
            Request::Exchange { mask, value } => self.exchange(thread, mask, value, site, queue)?,
            Request::Converge => self.converge(thread, site),
        }
        self.settle(warp, queue);
        Ok(true)
    }

    fn spin(&mut self, thread: u32, site: Site, queue: &mut Queue) -> bool {
        let index = thread as usize;
        let doing = mem::replace(&mut self.lanes[index].doing, Activity::Spinning(site));
        queue.push_back(Turn { slot: self.slot, thread });
        let warp = index / 32;
        // This lane has had a turn and is still spinning, so converging lanes need not wait for it any longer.
        if self.warps[warp].converging != 0 {
            self.warps[warp].spun |= 1 << (thread % 32);
            self.settle(warp, queue);
        }
        !matches!(doing, Activity::Spinning(before) if std::ptr::eq(before, site))
    }

    fn barrier(&mut self, thread: u32, vote: bool, site: Site, queue: &mut Queue) {
        self.lanes[thread as usize].doing = Activity::Barrier(site);
        self.warps[thread as usize / 32].blocked |= 1 << (thread % 32);
        self.runnable -= 1;
        self.arrived += 1;
        self.vote |= vote;
        // A lane that has returned can never arrive. CUDA leaves this undefined; here it is a deadlock.
        self.hopeless |= self.exited > 0;
        if self.arrived as usize == self.lanes.len() {
            let any = mem::take(&mut self.vote);
            self.met = Some(Met::Block(self.arrived));
            self.arrived = 0;
            for warp in &mut self.warps {
                warp.blocked = 0;
            }
            for thread in 0..self.lanes.len() as u32 {
                self.wake(thread, Answer::Vote(any), queue);
            }
        }
    }

    // Exchanges are matched by mask: lanes that call with the same mask, from the same place, meet.
    fn exchange(
        &mut self,
        thread: u32,
        mask: u32,
        value: u64,
        site: Site,
        queue: &mut Queue,
    ) -> Result<(), Error> {
        let (block, bit) = (self.index, 1 << (thread % 32));
        if mask & bit == 0 {
            return Err(Error::WarpMask { block, thread, mask, site });
        }
        let lane = &mut self.lanes[thread as usize];
        lane.doing = Activity::Exchange(site, mask);
        lane.value = value;
        self.runnable -= 1;
        let warp = &mut self.warps[thread as usize / 32];
        warp.blocked |= bit;
        self.hopeless |= mask & !warp.live != 0;
        let open = match warp.exchanges.iter().position(|open| open.mask == mask) {
            Some(open) => open,
            None => {
                warp.exchanges.push(Exchange { mask, arrived: 0, site });
                warp.exchanges.len() - 1
            }
        };
        let exchange = &mut warp.exchanges[open];
        // Two lanes that pass the same mask at different places have diverged, which CUDA leaves undefined.
        if !same_site(exchange.site, site) {
            return Err(Error::Divergence { block, thread, mask, here: site, there: exchange.site });
        }
        exchange.arrived |= bit;
        if exchange.arrived == mask {
            warp.exchanges.swap_remove(open);
            warp.blocked &= !mask;
            let first = thread & !31;
            self.met = Some(Met::Warp(first, mask));
            let mut values = [0; 32];
            for lane in bits(mask) {
                values[lane as usize] = self.lanes[(first + lane) as usize].value;
            }
            let values = Rc::new(values);
            for lane in bits(mask) {
                self.wake(first + lane, Answer::Values(Rc::clone(&values)), queue);
            }
        }
        Ok(())
    }

    fn converge(&mut self, thread: u32, site: Site) {
        self.lanes[thread as usize].doing = Activity::Converging(site);
        self.runnable -= 1;
        let warp = &mut self.warps[thread as usize / 32];
        if warp.converging == 0 {
            warp.spun = 0;
        }
        warp.converging |= 1 << (thread % 32);
    }

    /// Releases the converging lanes of a warp if no other lane can join them soon: every other live lane is blocked,
    /// or has run since and is still spinning. Lanes at the same source location form one group.
    fn settle(&mut self, warp: usize, queue: &mut Queue) {
        let sets = &mut self.warps[warp];
        if sets.converging == 0 || sets.live & !(sets.converging | sets.blocked | sets.spun) != 0 {
            return;
        }
        let mut left = mem::take(&mut sets.converging);
        let first = warp as u32 * 32;
        while left != 0 {
            let at = |lane: u32| match self.lanes[(first + lane) as usize].doing {
                Activity::Converging(site) => site,
                _ => unreachable!("a lane in the set of converging lanes is converging"),
            };
            let site = at(left.trailing_zeros());
            let group =
                bits(left).filter(|&lane| same_site(at(lane), site)).fold(0, |set, lane| set | 1 << lane);
            left &= !group;
            for lane in bits(group) {
                self.wake(first + lane, Answer::Mask(group), queue);
            }
        }
    }

    /// Handles the return of lane `thread` from the kernel.
    pub(crate) fn exit(&mut self, thread: u32, queue: &mut Queue) {
        self.lanes[thread as usize].doing = Activity::Exited;
        self.runnable -= 1;
        self.exited += 1;
        let bit = 1 << (thread % 32);
        let warp = &mut self.warps[thread as usize / 32];
        warp.live &= !bit;
        self.hopeless |= self.arrived > 0 || warp.exchanges.iter().any(|open| open.mask & bit != 0);
        self.settle(thread as usize / 32, queue);
    }

    fn wake(&mut self, thread: u32, answer: Answer, queue: &mut Queue) {
        let lane = &mut self.lanes[thread as usize];
        lane.doing = Activity::Running;
        lane.answer = answer;
        self.runnable += 1;
        queue.push_back(Turn { slot: self.slot, thread });
    }

    pub(crate) fn ended(&self) -> bool {
        self.exited as usize == self.lanes.len()
    }

    /// Returns whether some lane can never continue: it waits for a lane that has returned, or all remaining lanes are
    /// blocked on each other. A spinning lane counts as runnable, since other blocks may release it.
    pub(crate) fn deadlocked(&self) -> bool {
        self.hopeless || (self.runnable == 0 && !self.ended())
    }

    pub(crate) fn report(&self) -> BlockReport {
        BlockReport::new(self.index, self.deadlocked(), self.lanes.iter().map(|lane| lane.doing))
    }
}

/// Returns whether two source locations are equal. The compiler may emit several copies of a location, so comparing
/// addresses is only the fast path.
fn same_site(a: Site, b: Site) -> bool {
    std::ptr::eq(a, b) || a == b
}

fn bits(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lane = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(lane)
    })
}
