//! Announces dispatched or returned rows to a peer, which also sends them if the peer is reached by NIC.

use rushmem_device::prelude::*;

/// Rows for a peer, and the signal that announces them.
#[derive(Clone, Copy)]
pub(crate) struct Announcement {
    /// Destination of the rows on the peer.
    pub(crate) dst: SymSlice<u128>,
    /// This PE's buffer that contains the rows, for NIC peers.
    pub(crate) src: SymSlice<u128>,
    /// Index of the rows' first 16-byte chunk in `src`.
    pub(crate) first: usize,
    /// Whether the peer can load and store the rows by P2P.
    pub(crate) is_p2p: bool,
    pub(crate) word: Sym<Signal>,
    pub(crate) value: u64,
}

/// Announces rows to `pe`. For P2P peers, earlier kernels have stored the rows. A NIC peer gets them now.
///
/// The lanes of a warp that post to one peer share a doorbell.
#[inline(always)]
pub(crate) fn announce_to(ctx: &Ctx, pe: u32, what: Announcement) -> Result {
    let Announcement { dst, src, first, is_p2p, word, value } = what;
    if pe == ctx.my_pe() {
        ctx.fence_release(FenceScope::System);
        ctx.local_one(word).store_relaxed(0, value);
        return Ok(());
    }
    if is_p2p {
        ctx.fence_release(FenceScope::System);
    }
    if is_p2p || dst.is_empty() {
        return ctx.signal_op(word.set(value), pe);
    }
    let src = src.slice(first..first + dst.len());
    ctx.put_signal_nbi(Thread, dst, src, word.set(value), pe)
}
