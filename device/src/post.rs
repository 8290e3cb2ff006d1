//! From WQEs to the queue, for one thread and for lanes that call at once.

use rushmem_mlx5::{Flags, Wqe};

use crate::arch;
use crate::error::{Error, Result, Site};
use crate::group::Group;
use crate::qp::{Qp, Reservation, Ticket};
use crate::sharing::Sharing;

/// The lanes of a warp that post to one QP together.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    mask: u32,
    rank: u32,
    count: u32,
}

impl Lanes {
    /// The calling thread by itself.
    pub(crate) const ALONE: Self = Self { mask: 0, rank: 0, count: 1 };

    /// Who posts `blocks` blocks to `qp` with the leader of `group`.
    #[inline(always)]
    pub(crate) fn of<G: Group, S: Sharing>(_: G, qp: &Qp<'_, S>, blocks: u64, site: Site) -> Self {
        if G::TOGETHER && S::SHARED {
            Self::together(qp.entry().addr() as u64 | blocks, site)
        } else {
            Self::ALONE
        }
    }

    /// The lanes that are here together with the same `key`.
    #[inline(always)]
    fn together(key: u64, site: Site) -> Self {
        let here = arch::converged(site);
        let mask = if here.is_power_of_two() { here } else { arch::match_any(here, key) };
        let below = mask & ((1u32 << (arch::thread() & 31)) - 1);
        Self { mask, rank: below.count_ones(), count: mask.count_ones() }
    }

    /// What the first of them gave.
    #[inline(always)]
    fn first(self, value: u64) -> u64 {
        if self.count == 1 { value } else { arch::shuffle(self.mask, value, self.mask.trailing_zeros()) }
    }

    /// True if any of them voted so; orders memory among them.
    #[inline(always)]
    fn any(self, vote: bool) -> bool {
        if self.count == 1 {
            return vote;
        }
        let any = arch::ballot(self.mask, vote) != 0;
        arch::sync_warp(self.mask);
        any
    }
}

/// Blocks that are the calling lane's to write: between [`begin`] and [`Posting::commit`].
#[derive(Clone, Copy)]
pub(crate) struct Posting {
    lanes: Lanes,
    all: Reservation,
    /// The calling lane's first block.
    pub(crate) first: u64,
    /// The flags of the calling lane's last WQE; all others are unsignalled.
    pub(crate) last: Flags,
}

/// Reserves `blocks` blocks for each lane of `lanes`: one reservation, one completion and one doorbell for all.
///
/// # Errors
/// Those of a full queue.
#[inline(always)]
pub(crate) fn begin<S: Sharing>(qp: &Qp<'_, S>, lanes: Lanes, blocks: u64, site: Site) -> Result<Posting> {
    const FAILED: u64 = u64::MAX;
    let lanes = if lanes.count as u64 * blocks > qp.depth() { Lanes::ALONE } else { lanes };
    let all = lanes.count as u64 * blocks;

    let mut why = Ok(());
    let mut first = FAILED;
    if lanes.rank == 0 {
        match qp.reserve(all, site) {
            Ok(r) => first = r.first,
            Err(e) => why = Err(e),
        }
    }
    let first = lanes.first(first);
    if first == FAILED {
        why?;
        return Err(Error::Poisoned);
    }
    Ok(Posting {
        lanes,
        all: Reservation { first, end: first + all },
        first: first + lanes.rank as u64 * blocks,
        last: if lanes.rank + 1 == lanes.count { Flags::SIGNALED } else { Flags::NONE },
    })
}

impl Posting {
    /// Makes the blocks the NIC's. `written` says whether the calling lane could write its own; if one could not, it
    /// has poisoned the QP, and nothing is posted. The ticket covers the WQEs of all the lanes.
    #[inline(always)]
    pub(crate) fn commit<S: Sharing>(self, qp: &Qp<'_, S>, written: Result) -> Result<Ticket> {
        if self.lanes.any(written.is_err()) {
            written?;
            return Err(Error::Poisoned);
        }
        if self.lanes.rank == 0 {
            qp.publish(self.all);
        }
        Ok(self.all.ticket())
    }
}

/// Posts one WQE of `blocks` blocks with the leader of `group`.
///
/// # Errors
/// Those of a full queue.
#[inline(always)]
pub(crate) fn post<G: Group, S: Sharing>(
    group: G,
    qp: &Qp<'_, S>,
    blocks: u64,
    wqe: &Wqe,
    site: Site,
) -> Result<Ticket> {
    let posting = begin(qp, Lanes::of(group, qp, blocks, site), blocks, site)?;
    qp.write(posting.first, wqe, posting.last);
    posting.commit(qp, Ok(()))
}
