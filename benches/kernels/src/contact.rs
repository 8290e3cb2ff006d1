//! Benchmark of a PE's first contact with its peers, which connects the QPs.

use rushmem_device::prelude::*;

/// Puts this PE's number plus 1, which is never 0, to element `my_pe` of `words` on each of the `peers` PEs that follow
/// it. The threads divide the peers.
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
