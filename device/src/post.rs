//! From WQEs to the queue, for one thread and for lanes that call at once.

use rushmem_mlx5::Flags;

use crate::arch;
use crate::error::{Error, Result};
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
    #[track_caller]
    pub(crate) fn of<G: Group, S: Sharing>(_: G, qp: &Qp<'_, S>, blocks: u64) -> Self {
        if G::TOGETHER && S::SHARED {
            Self::together(qp.desc().qpn as u64 | blocks << 32)
        } else {
            Self::ALONE
        }
    }

    /// The lanes that are here together with the same `key`.
    #[inline(always)]
    #[track_caller]
    fn together(key: u64) -> Self {
        let here = arch::converged();
        let mask = if here.is_power_of_two() { here } else { arch::match_any(here, key) };
        let below = mask & ((1u32 << (arch::thread() & 31)) - 1);
        Self { mask, rank: below.count_ones(), count: mask.count_ones() }
    }

    /// What the first of them gave.
    #[inline(always)]
    #[track_caller]
    fn first(self, value: u64) -> u64 {
        if self.count == 1 { value } else { arch::shuffle(self.mask, value, self.mask.trailing_zeros()) }
    }

    /// True if any of them voted so; orders memory among them.
    #[inline(always)]
    #[track_caller]
    fn any(self, vote: bool) -> bool {
        if self.count == 1 {
            return vote;
        }
        let any = arch::ballot(self.mask, vote) != 0;
        arch::sync_warp(self.mask);
        any
    }
}

/// Posts `blocks` blocks for each lane of `lanes`: one reservation, one completion and one doorbell for all.
///
/// `fill(first, last)` writes the calling lane's WQEs from block `first` on, the last of them with the flags `last`,
/// all others unsignalled. The ticket covers the WQEs of all the lanes.
///
/// # Errors
/// Those of a full queue, and those of `fill`; the QP is poisoned then.
#[inline(always)]
#[track_caller]
pub(crate) fn post<S: Sharing>(
    qp: &Qp<'_, S>,
    lanes: Lanes,
    blocks: u64,
    fill: impl FnOnce(u64, Flags) -> Result,
) -> Result<Ticket> {
    const FAILED: u64 = u64::MAX;
    let lanes = if lanes.count as u64 * blocks > qp.depth() { Lanes::ALONE } else { lanes };
    let all = lanes.count as u64 * blocks;

    let mut why = Ok(());
    let mut first = FAILED;
    if lanes.rank == 0 {
        match qp.reserve(all) {
            Ok(r) => first = r.first,
            Err(e) => why = Err(e),
        }
    }
    let first = lanes.first(first);
    if first == FAILED {
        why?;
        return Err(Error::Poisoned);
    }

    let last = if lanes.rank + 1 == lanes.count { Flags::SIGNALED } else { Flags::NONE };
    let filled = fill(first + lanes.rank as u64 * blocks, last);
    if lanes.any(filled.is_err()) {
        filled?;
        return Err(Error::Poisoned);
    }
    let r = Reservation { first, end: first + all };
    if lanes.rank == 0 {
        qp.publish(r);
    }
    Ok(r.ticket())
}
