//! Finds the collective calls that are small enough to travel in the LL slots of a P2P team, and checks their arguments.

use rushmem_device::abi::{CtxParts, call_kind, ctx_flags};
use rushmem_device::{SmallCall, SymSlice, Team};
use rushmem_runtime_kernels::code::Collective;

use crate::Pe;
use crate::teams::Channels;

/// Destination and source of a collective call.
type Objects = (SymSlice<u8>, SymSlice<u8>);

impl Pe {
    /// Returns the call as a small one, made by `blocks` blocks. Returns `None` if it is none, or if its arguments are
    /// wrong, which is then found by the kernel. Members that make the same call may get different answers.
    ///
    /// The arguments are those of [`rushmem_collective`](rushmem_runtime_kernels::rushmem_collective).
    pub(super) fn small_collective(
        &self,
        what: Collective,
        team: Team,
        (op, element): (u32, u32),
        (dst, src): Objects,
        extra: u32,
        (blocks, channels): (u32, Channels),
    ) -> Option<SmallCall> {
        let (parts, _) = self.memory().current();
        if !is_near(&parts, (dst, src)) || dst.is_empty() {
            return None;
        }
        let (kind, root_or_op) = match what {
            Collective::Broadcast => (call_kind::BROADCAST, extra),
            Collective::Fcollect => (call_kind::FCOLLECT, 0),
            Collective::Alltoall => (call_kind::ALLTOALL, 0),
            Collective::Reduce => (call_kind::REDUCE, op),
            Collective::ReduceScatter => (call_kind::REDUCE_SCATTER, op),
            _ => return None,
        };
        let (me, n) = (self.team_my_pe(team)?, self.team_n_pes(team)?);
        let block = block_of(kind, (dst, src), (me, n), extra)?;
        if matches!(kind, call_kind::REDUCE | call_kind::REDUCE_SCATTER) {
            let places = dst.offset() | dst.bytes() | src.offset();
            if !rushmem_device::is_defined_for(op, element, places) {
                return None;
            }
        }
        let reduction = u64::from(op) << 32 | u64::from(element);
        let is_own = dst.offset() == src.offset() + u64::from(me) * block;
        let arguments = match kind {
            call_kind::BROADCAST => [dst.offset(), dst.bytes(), extra.into(), 0],
            call_kind::FCOLLECT => [dst.offset(), dst.bytes(), 0, 0],
            // Kernels distinguish these element sizes.
            call_kind::ALLTOALL if matches!(extra, 2 | 4 | 8) => [dst.offset(), dst.bytes(), extra.into(), 0],
            call_kind::ALLTOALL => [dst.offset(), dst.bytes(), 1, 0],
            call_kind::REDUCE_SCATTER if is_own => [u64::MAX, dst.bytes(), src.offset(), reduction],
            _ => [dst.offset(), dst.bytes(), src.offset(), reduction],
        };
        let hash = call_kind::hash(blocks, team.generation(), kind, arguments);
        let (dst, src) = ([dst.offset(), dst.bytes()], [src.offset(), src.bytes()]);
        let call = SmallCall { dst, src, block, hash, kind, root_or_op, element };
        let of_others = if blocks > 1 { channels.more.bytes() } else { parts.team_bytes };
        call.fits(n, blocks, &[parts.team_bytes, of_others], self.n_pes()).then_some(call)
    }
}

/// Returns whether all PEs are P2P peers, and both objects are in the heap, where these map them.
fn is_near(parts: &CtxParts, (dst, src): Objects) -> bool {
    let in_heap = |object: SymSlice<u8>| parts.has(object.offset(), object.bytes());
    let is_p2p = parts.p2p_count == parts.n_pes && parts.flags & ctx_flags::P2P_ATOMICS != 0;
    is_p2p && in_heap(dst) && in_heap(src)
}

/// Returns the length of the block of member `me` of `n`, in bytes, if both objects have the right lengths and overlap at
/// most where they may.
fn block_of(kind: u32, (dst, src): Objects, (me, n): (u32, u32), extra: u32) -> Option<u64> {
    let (me, n) = (u64::from(me), u64::from(n));
    let (to, from) = (dst.offset(), src.offset());
    let is_apart = to + dst.bytes() <= from || from + src.bytes() <= to;
    let (block, is_right, may_overlap) = match kind {
        call_kind::BROADCAST => (dst.bytes(), src.bytes() == dst.bytes() && u64::from(extra) < n, to == from),
        call_kind::FCOLLECT => {
            let block = src.bytes();
            (block, dst.bytes() == block * n, from == to + me * block)
        }
        call_kind::ALLTOALL => {
            let block = src.bytes() / n;
            let is_whole = block * n == src.bytes() && block.checked_rem(extra.into()) == Some(0);
            (block, is_whole && dst.bytes() == src.bytes(), false)
        }
        call_kind::REDUCE => (dst.bytes(), src.bytes() == dst.bytes(), to == from),
        _ => {
            let block = dst.bytes();
            (block, src.bytes() == block * n, to == from + me * block)
        }
    };
    (is_right && (is_apart || may_overlap)).then_some(block)
}
