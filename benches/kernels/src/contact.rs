//! The first contact of a PE with its peers.

use rushmem_device::prelude::*;

/// Puts this PE's number to element `my_pe` of `words` on the `peers` PEs after it. Its threads take the peers in turn.
#[kernel]
pub fn first_contact(ctx: &Ctx, words: SymSlice<u32>, peers: u32) -> Result {
    let me = ctx.my_pe();
    let word = words.at(me as usize);
    let mut ahead = 1 + Block::current().rank();
    while ahead <= peers {
        ctx.p(word, me + 1, ctx.pe_after(ahead))?;
        ahead += Block::current().size();
    }
    ctx.quiet(Block::current())
}
