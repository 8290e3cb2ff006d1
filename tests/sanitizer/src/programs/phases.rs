//! Programs with phases: each uses what an earlier one has written, through a team, a stream, a context or a block.

use rushmem::{Operations, Pe, TeamConfig};
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "phases",
    title: "Phases of an application",
    file: file!(),
    text: include_str!("phases.rs"),
    programs: &[
        host("barrier_of_the_row_after_put_in_the_column", barrier_of_the_row_after_put_in_the_column)
            .races()
            .pes(4),
        host("barrier_of_the_column_after_put_in_the_column", barrier_of_the_column_after_put_in_the_column)
            .pes(4),
        host("sums_of_rows_and_columns_in_mixed_order", sums_of_rows_and_columns_in_mixed_order)
            .hangs()
            .pes(4),
        host("sums_of_rows_before_sums_of_columns", sums_of_rows_before_sums_of_columns).pes(4),
        host("bucket_refilled_during_its_reduction", bucket_refilled_during_its_reduction).races(),
        host("bucket_refilled_after_its_reduction", bucket_refilled_after_its_reduction),
        host("object_freed_after_quiet_of_another_context", object_freed_after_quiet_of_another_context)
            .races(),
        host("object_freed_after_quiet_of_its_context", object_freed_after_quiet_of_its_context),
        device("exchange_with_overlapping_parts", exchange_with_overlapping_parts).races(),
        device("exchange_with_adjacent_parts", exchange_with_adjacent_parts),
        device("fence_before_the_threads_meet", fence_before_the_threads_meet).races().grid(1, 2),
        device("fence_after_the_threads_meet", fence_after_the_threads_meet).grid(1, 2),
    ],
};

/// Creates the team of this PE's row in a grid of 2 x 2 PEs, and the team of its column.
fn row_and_column(pe: &Pe) -> rushmem::Result<(Team, Team)> {
    let (row, column) = (pe.my_pe() / 2, pe.my_pe() % 2);
    let row = pe.team_from_pes(&[2 * row, 2 * row + 1], TeamConfig::new())?;
    let column = pe.team_from_pes(&[column, column + 2], TeamConfig::new())?;
    Ok((row, column))
}

/// Puts to the other PE of the column, and calls the barrier of the row before it reads what has arrived.
fn barrier_of_the_row_after_put_in_the_column(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (row, _) = row_and_column(pe)?;
    pe.run(ONE, shift_column_and_meet_row(m, row))
}

#[kernel]
fn shift_column_and_meet_row(ctx: &Ctx, m: Memory, row: Team) -> Result {
    ctx.put(Thread, m.inbox, m.outbox, ctx.pe_after(2))?; // first
    ctx.barrier(Thread, row)?;
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Puts to the other PE of the column, and calls the barrier of the column before it reads what has arrived.
fn barrier_of_the_column_after_put_in_the_column(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (_, column) = row_and_column(pe)?;
    pe.run(ONE, shift_column_and_meet_column(m, column))
}

#[kernel]
fn shift_column_and_meet_column(ctx: &Ctx, m: Memory, column: Team) -> Result {
    let other = ctx.pe_after(2);
    ctx.put(Thread, m.inbox, m.outbox, other)?;
    ctx.barrier(Thread, column)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10 * (u64::from(other) + 1));
    Ok(())
}

/// Sums over the rows and columns of a grid of PEs, which do not agree on whether rows or columns come first.
fn sums_of_rows_and_columns_in_mixed_order(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (row, column) = row_and_column(pe)?;
    let starts_with_row = pe.my_pe() == 0 || pe.my_pe() == 3;
    pe.run(ONE, if starts_with_row { two_sums(m, row, column) } else { two_sums(m, column, row) })
}

#[kernel]
fn two_sums(ctx: &Ctx, m: Memory, early: Team, late: Team) -> Result {
    ctx.reduce(Thread, early, Reduce::Sum, m.inbox, m.outbox)?; // waits
    ctx.reduce(Thread, late, Reduce::Sum, m.words, m.inbox)
}

/// Sums over the rows of a grid of PEs, and then over its columns.
fn sums_of_rows_before_sums_of_columns(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (row, column) = row_and_column(pe)?;
    pe.run(ONE, sum_of_rows_then_columns(m, row, column))
}

#[kernel]
fn sum_of_rows_then_columns(ctx: &Ctx, m: Memory, row: Team, column: Team) -> Result {
    ctx.reduce(Thread, row, Reduce::Sum, m.inbox, m.outbox)?;
    ctx.reduce(Thread, column, Reduce::Sum, m.words, m.inbox)?;
    assert_eq!(ctx.local(m.words).load(0), 100);
    Ok(())
}

/// Reduces a bucket in one stream, while the kernel of another stream refills it without an event in between.
fn bucket_refilled_during_its_reduction(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (compute, exchange) = (pe.stream()?, pe.stream()?);
    compute.launch(ONE, fill_early(m, 1))?;
    exchange.follow(&compute.record()?)?;
    exchange.reduce(Team::WORLD, Reduce::Sum, m.inbox, m.outbox)?; // first
    compute.launch(ONE, fill_early(m, 2))?;
    exchange.wait()?;
    compute.wait()
}

#[kernel]
fn fill_early(ctx: &Ctx, m: Memory, value: u64) {
    for i in 0..8 {
        ctx.local(m.outbox).store(i, value); // second
    }
}

/// Reduces a bucket in one stream, and refills it in another stream that follows the reduction by an event.
fn bucket_refilled_after_its_reduction(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (compute, exchange) = (pe.stream()?, pe.stream()?);
    compute.launch(ONE, fill_in_turn(m, 1))?;
    exchange.follow(&compute.record()?)?;
    exchange.reduce(Team::WORLD, Reduce::Sum, m.inbox, m.outbox)?;
    compute.follow(&exchange.record()?)?;
    compute.launch(ONE, fill_in_turn(m, 2))?;
    exchange.wait()?;
    compute.wait()?;
    assert_eq!(pe.read(m.inbox)?, [2; 8]);
    assert_eq!(pe.read(m.outbox)?, [2; 8]);
    Ok(())
}

#[kernel]
fn fill_in_turn(ctx: &Ctx, m: Memory, value: u64) {
    for i in 0..8 {
        ctx.local(m.outbox).store(i, value);
    }
}

/// Puts to an object in a context, and frees the object after a `quiet` of the host, which covers another context.
fn object_freed_after_quiet_of_another_context(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, put_in_context(m, object, pe.context::<PerGpu>()?))?;
    pe.quiet()?;
    pe.free(object) // second
}

#[kernel]
fn put_in_context(ctx: &Ctx, m: Memory, object: SymSlice<u64>, context: Context) -> Result {
    ctx.context(context)?.put_nbi(Thread, object, m.outbox, ctx.pe_after(1)) // first
}

/// Puts to an object in a context, and frees the object after the kernel's `quiet` of this context.
fn object_freed_after_quiet_of_its_context(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, put_in_context_and_quiet(m, object, pe.context::<PerGpu>()?))?;
    pe.host_sync()?;
    assert_eq!(pe.read(object)?[0], if pe.my_pe() == 0 { 20 } else { 10 });
    pe.free(object)
}

#[kernel]
fn put_in_context_and_quiet(ctx: &Ctx, m: Memory, object: SymSlice<u64>, context: Context) -> Result {
    let own = ctx.context(context)?;
    own.put_nbi(Thread, object, m.outbox, ctx.pe_after(1))?;
    own.quiet(Thread)
}

/// Stores the layout of an exchange of two words with each of two PEs, in which the part from PE 1 arrives at word
/// `second`. Returns the parts of the destination and of the source.
#[inline(always)]
fn parts_of_two(ctx: &Ctx, m: Memory, second: u64) -> (Parts, Parts) {
    let words = ctx.local(m.words);
    for (i, value) in [2, 2, 0, second, 0, 2].into_iter().enumerate() {
        words.store(i, value);
    }
    let parts = |offsets| Parts { counts: m.words.slice(0..2), offsets };
    (parts(m.words.slice(2..4)), parts(m.words.slice(4..6)))
}

/// Exchanges two words between all PEs, and has the part from PE 1 written over the last word of the part from PE 0.
#[kernel]
fn exchange_with_overlapping_parts(ctx: &Ctx, m: Memory) -> Result {
    let (to, from) = parts_of_two(ctx, m, 1);
    ctx.alltoallv(Thread, Team::WORLD, m.inbox, to, m.outbox, from) // first and second
}

/// Exchanges two words between all PEs, and has the part from PE 1 written next to the part from PE 0.
#[kernel]
fn exchange_with_adjacent_parts(ctx: &Ctx, m: Memory) -> Result {
    let (to, from) = parts_of_two(ctx, m, 2);
    ctx.alltoallv(Thread, Team::WORLD, m.inbox, to, m.outbox, from)?;
    let (inbox, first) = (ctx.local(m.inbox), if ctx.my_pe() == 0 { 10 } else { 12 });
    for (i, value) in [first, first + 1, first + 10, first + 11].into_iter().enumerate() {
        assert_eq!(inbox.load(i), value);
    }
    Ok(())
}

/// Puts one word in each thread, and fences in the leader before a barrier of the threads.
#[kernel]
fn fence_before_the_threads_meet(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(block.rank() as usize), 10, 1)?; // first
        if block.leader() {
            ctx.fence()?;
        }
        block.sync();
        if block.leader() {
            ctx.p(m.flag, 1, 1)?;
        }
    } else if block.leader() {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        for i in 0..2 {
            let _ = ctx.local(m.inbox).load(i); // second
        }
    }
    Ok(())
}

/// Puts one word in each thread, and fences in the leader after a barrier of the threads.
#[kernel]
fn fence_after_the_threads_meet(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(block.rank() as usize), 10, 1)?;
        block.sync();
        if block.leader() {
            ctx.fence()?;
            ctx.p(m.flag, 1, 1)?;
        }
    } else if block.leader() {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        for i in 0..2 {
            assert_eq!(ctx.local(m.inbox).load(i), 10);
        }
    }
    Ok(())
}
