//! Posts WQEs: from one thread, from converged lanes together, or from a whole group.

use rushmem_mlx5::{Flags, Wqe};

use crate::arch;
use crate::error::{Error, Result, Site};
use crate::group::Group;
use crate::sharing::Sharing;
use crate::sq::{EndIndex, Qp, Reservation};

/// The lanes of a warp that post to one QP together.
///
/// Lanes that reach a call converged and post to the same QP share one reservation, one signalled WQE and one doorbell.
/// The first lane acts for all of them.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    mask: u32,
    rank: u32,
    count: u32,
}

impl Lanes {
    pub(crate) const ALONE: Self = Self { mask: 0, rank: 0, count: 1 };

    /// Returns the converged lanes that each post `blocks` blocks to `qp` in the same call, as leaders of their groups.
    #[inline(always)]
    pub(crate) fn of<G: Group, S: Sharing>(_: G, qp: &Qp<'_, S>, blocks: u64, site: Site) -> Self {
        // Lanes that post to one DC initiator often have different peers, so joining them would rarely pay off.
        if G::TOGETHER && S::SHARED && !qp.is_dc() {
            // QP addresses are aligned, so the low bits of the key can hold the number of blocks. Lanes with different
            // numbers do not join.
            Self::together(qp.entry().addr() as u64 | blocks, site)
        } else {
            Self::ALONE
        }
    }

    /// Returns the lanes that are converged at `site` and pass the same `key`.
    #[inline(always)]
    fn together(key: u64, site: Site) -> Self {
        let here = arch::converged(site);
        // Without other lanes there is nothing to match.
        if here.is_power_of_two() {
            return Self::ALONE;
        }
        let mask = arch::match_any(here, key);
        // Lanes are ranked by their index.
        let below = mask & ((1u32 << (arch::thread() & 31)) - 1);
        Self { mask, rank: below.count_ones(), count: mask.count_ones() }
    }

    /// Returns the `value` that the first of the lanes passed.
    #[inline(always)]
    fn first(self, value: u64) -> u64 {
        if self.count == 1 { value } else { arch::shuffle(self.mask, value, self.mask.trailing_zeros()) }
    }

    #[inline(always)]
    pub(crate) fn is_first(self) -> bool {
        self.rank == 0
    }

    #[inline(always)]
    pub(crate) fn any(self, vote: bool) -> bool {
        if self.count == 1 { vote } else { arch::ballot(self.mask, vote) != 0 }
    }

    /// Synchronises the lanes, and orders memory among them.
    #[inline(always)]
    pub(crate) fn sync(self) {
        if self.count > 1 {
            arch::sync_warp(self.mask);
        }
    }
}

/// Blocks that the calling lane has reserved with [`begin`] and publishes with [`Posting::commit`].
#[derive(Clone, Copy)]
pub(crate) struct Posting {
    lanes: Lanes,
    all: Reservation,
    /// First of the blocks that belong to the calling lane.
    pub(crate) first: u64,
    /// Flags for the last WQE of the calling lane. All its other WQEs are unsignalled.
    pub(crate) last: Flags,
}

/// Reserves `blocks` blocks for each of `lanes`, with one reservation, one completion and one doorbell for all.
///
/// # Errors
/// - The errors of a full queue: see [`Ctx::put_nbi`](crate::Ctx::put_nbi).
#[inline(always)]
pub(crate) fn begin<S: Sharing>(qp: &Qp<'_, S>, lanes: Lanes, blocks: u64, site: Site) -> Result<Posting> {
    const FAILED: u64 = u64::MAX;
    let depth = qp.depth();
    // An exclusive queue has a single poster, so lanes never join.
    if !S::SHARED {
        let all = qp.reserve(blocks, depth, site)?;
        return Ok(Posting { lanes: Lanes::ALONE, all, first: all.first, last: Flags::SIGNALED });
    }
    // A reservation larger than the queue would wait forever for itself.
    let lanes = if lanes.count as u64 * blocks > depth { Lanes::ALONE } else { lanes };
    let all = lanes.count as u64 * blocks;

    let mut why = Ok(());
    let (mut first, mut uncontended) = (FAILED, false);
    // Only the first lane can fail with a recorded error. The others learn of it from the value it shares.
    if lanes.rank == 0 {
        match qp.reserve(all, depth, site) {
            Ok(r) => (first, uncontended) = (r.first, r.uncontended),
            Err(e) => why = Err(e),
        }
    }
    let first = lanes.first(first);
    if first == FAILED {
        why?;
        return Err(qp.poisoned());
    }
    // Only the WQE in the last block is signalled: completions are in order, so its CQE completes the others too.
    Ok(Posting {
        lanes,
        all: Reservation { first, end: first + all, uncontended },
        first: first + lanes.rank as u64 * blocks,
        last: if lanes.rank + 1 == lanes.count { Flags::SIGNALED } else { Flags::NONE },
    })
}

impl Posting {
    #[inline(always)]
    pub(crate) fn write<S: Sharing>(&self, qp: &Qp<'_, S>, index: u64, wqe: &Wqe, flags: Flags) -> u64 {
        qp.write(qp.send_queue(qp.depth()), index, wqe, flags)
    }

    /// Publishes the written blocks of all lanes. The returned index covers the WQEs of all lanes.
    #[inline(always)]
    pub(crate) fn commit<S: Sharing>(self, qp: &Qp<'_, S>) -> EndIndex {
        // The WQEs of all lanes must be ordered before the doorbell that the first lane rings.
        self.lanes.sync();
        if self.lanes.rank == 0 {
            qp.publish(self.all, || qp.send_queue(qp.depth()));
        }
        self.all.end_index()
    }

    /// Publishes like [`Posting::commit`], unless a lane failed to write its WQEs; `written` is the calling lane's
    /// result. A lane that failed has poisoned the QP, and nothing is published.
    #[inline(always)]
    pub(crate) fn commit_if<S: Sharing>(self, qp: &Qp<'_, S>, written: Result) -> Result<EndIndex> {
        if self.lanes.any(written.is_err()) {
            written?;
            return Err(qp.poisoned());
        }
        Ok(self.commit(qp))
    }
}

/// Maximum number of WQEs in one reservation of [`post_many`]. A reservation is also limited to half of the queue, so
/// one half can be written while the NIC executes the other.
const MAX_WQES_PER_RESERVATION: u64 = 256;

/// Posts `count` WQEs with all threads of the group. `wqe` returns the WQE for each index; each takes one block, plus
/// its address vector.
///
/// Each chunk of at most half the queue takes one reservation, one completion and one doorbell. The returned index
/// covers all WQEs.
///
/// # Errors
/// - The errors of a full queue: see [`Ctx::put_nbi`](crate::Ctx::put_nbi).
/// - [`Error::InGroup`]: another thread of the group encountered one of them.
#[inline(always)]
pub(crate) fn post_many<G: Group, S: Sharing>(
    group: G,
    qp: &Qp<'_, S>,
    count: u64,
    wqe: impl Fn(u64) -> Wqe,
    site: Site,
) -> Result<Option<EndIndex>> {
    const FAILED: u64 = u64::MAX;
    let (depth, of_one) = (qp.depth(), qp.blocks(1, 1));
    let room = (depth / (2 * of_one)).clamp(1, MAX_WQES_PER_RESERVATION);
    let mut last = None;
    let mut at = 0;
    while at < count {
        // At most half of the queue, so reserving the next chunk need not wait for all of this one.
        let n = room.min(count - at);
        let mut why = Error::InGroup;
        let (mut first, mut uncontended) = (FAILED, false);
        if group.leader() {
            // Only the leader has an error to report; the other threads return `InGroup`.
            match qp.reserve(n * of_one, depth, site) {
                Ok(r) => (first, uncontended) = (r.first, r.uncontended),
                Err(e) => why = e,
            }
        }
        let first = group.broadcast(first);
        if first == FAILED {
            return Err(why);
        }
        let link = qp.send_queue(depth);
        let mut k = group.rank() as u64;
        while k < n {
            // Completions are in order, so the CQE of the last WQE covers the chunk.
            let flags = if k + 1 == n { Flags::SIGNALED } else { Flags::NONE };
            qp.write(link, first + k * of_one, &wqe(at + k), flags);
            k += group.size() as u64;
        }
        // All WQEs of the chunk must be written before the leader publishes them.
        group.sync();
        let all = Reservation { first, end: first + n * of_one, uncontended };
        if group.leader() {
            qp.publish(all, || qp.send_queue(depth));
        }
        last = Some(all.end_index());
        at += n;
    }
    Ok(last)
}

/// Posts one WQE, from the leader of `group`. The WQE takes `blocks` blocks, not counting an address vector.
///
/// # Errors
/// - The errors of a full queue: see [`Ctx::put_nbi`](crate::Ctx::put_nbi).
#[inline(always)]
pub(crate) fn post<G: Group, S: Sharing>(
    group: G,
    qp: &Qp<'_, S>,
    blocks: u64,
    wqe: &Wqe,
    site: Site,
) -> Result<EndIndex> {
    let blocks = qp.blocks(1, blocks);
    let lanes = Lanes::of(group, qp, blocks, site);
    if lanes.count == 1 {
        let depth = qp.depth();
        let all = qp.reserve(blocks, depth, site)?;
        let link = qp.send_queue(depth);
        qp.write(link, all.first, wqe, Flags::SIGNALED);
        // Kernels whose blocks share queues are large; keeping the view alive until here would spill registers.
        qp.publish(all, || if S::SHARED && !G::TOGETHER { qp.send_queue(depth) } else { link });
        return Ok(all.end_index());
    }
    let posting = begin(qp, lanes, blocks, site)?;
    posting.write(qp, posting.first, wqe, posting.last);
    Ok(posting.commit(qp))
}
