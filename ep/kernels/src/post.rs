//! Announcements of rows.

use rushmem_device::prelude::*;

/// Rows that a signal announces, and the signal.
#[derive(Clone, Copy)]
pub(crate) struct Announcement {
    /// The place of the rows at the peer.
    pub(crate) dst: SymSlice<u128>,
    /// The buffer of the rows here, for NIC peers.
    pub(crate) src: SymSlice<u128>,
    /// The chunk of that buffer where they begin.
    pub(crate) first: usize,
    /// Whether the peer can load and store the rows by P2P.
    pub(crate) is_p2p: bool,
    pub(crate) word: Sym<Signal>,
    pub(crate) value: u64,
}

/// Announces rows to `pe`. Earlier kernels have stored the rows for P2P peers. A NIC peer gets them now.
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
