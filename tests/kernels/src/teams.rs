//! Test kernel of ranks in teams.

use rushmem_device::prelude::*;
use rushmem_device::shmem::*;

/// Stores this PE's rank in `from`, the size of `from`, and the translation to `to` of every member's rank and of one
/// rank past the last.
#[kernel]
pub fn team_numbers(ctx: &Ctx, from: Team, to: Team, numbers: SymSlice<i32>) {
    if Thread::index() != 0 {
        return;
    }
    let out = ctx.local(numbers);
    out.store(0, shmem_team_my_pe(ctx, from));
    out.store(1, shmem_team_n_pes(ctx, from));
    let mut index = 0;
    while index + 2 < out.len() {
        out.store(index + 2, shmem_team_translate_pe(ctx, from, index as u32, to));
        index += 1;
    }
}
