//! Test kernels that access memory of P2P peers and of NIC peers.

use rushmem_device::prelude::*;
use rushmem_device::shmem::shmem_ptr;

/// Stores a mark at this PE's index in `object` on each P2P peer.
///
/// Stores the previous value of that element in `before`, and in `reached` 2 if `Ctx::reaches` agrees, otherwise 1. A
/// final barrier makes all marks visible.
#[kernel]
pub fn store_marks(
    ctx: &Ctx,
    object: SymSlice<u64>,
    reached: SymSlice<u32>,
    before: SymSlice<u64>,
) -> Result {
    let (reached, before, me) = (ctx.local(reached), ctx.local(before), ctx.my_pe());
    let mut pe = 0;
    while pe < ctx.n_pes() && Thread::index() == 0 {
        if let Some(there) = shmem_ptr(ctx, object, pe) {
            before.store(pe as usize, there.load(me as usize));
            there.store(me as usize, (me as u64 + 1) << 32 | pe as u64);
            reached.store(pe as usize, 1 + ctx.reaches(pe) as u32);
        }
        pe += 1;
    }
    let beyond = ctx.ptr(object, ctx.n_pes()).is_some() || ctx.reaches(ctx.n_pes());
    let outside = ctx.ptr(object.slice(0..object.len() + 1), 0).is_some();
    if beyond || outside {
        // A value that the host does not accept: these pointers must not exist.
        reached.store(0, 77);
    }
    if Block::current().id() == 0 { ctx.barrier_all(Block::current()) } else { Ok(()) }
}

/// Adds 1, from every thread and `rounds` times, to both words of every PE and, with a put, to the signal of every PE.
/// `dst` has an element per round for each thread of all PEs, and `src` has one for each thread of this PE.
#[kernel]
pub fn add_everywhere(
    ctx: &Ctx,
    wide: Sym<u64>,
    narrow: Sym<u32>,
    signal: Sym<Signal>,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    rounds: u32,
) -> Result {
    let (i, row) = (Thread::index(), ctx.my_pe() as usize * Thread::count());
    let (mine, all) = (src.slice(i..i + 1), ctx.n_pes() as usize * Thread::count());
    let mut round = 0;
    while round < rounds {
        let at = round as usize * all + row + i;
        let mut pe = 0;
        while pe < ctx.n_pes() {
            let to = ctx.pe_after(pe);
            ctx.atomic_add(wide, 1, to)?;
            let _ = ctx.atomic_fetch_inc(narrow, to)?;
            ctx.put_signal_nbi(Thread, dst.slice(at..at + 1), mine, signal.add(1), to)?;
            pe += 1;
        }
        round += 1;
    }
    ctx.quiet(Thread)
}

/// Adds to a counter on the next PE, fences, and stores a flag there. Each PE counts in `bad` how often it saw the flag
/// before the new counter.
#[kernel]
pub fn atomic_then_flag(
    ctx: &Ctx,
    counter: Sym<u64>,
    flag: Sym<u64>,
    ack: Sym<u64>,
    bad: Sym<u64>,
    rounds: u32,
) -> Result {
    let (me, n) = (ctx.my_pe(), ctx.n_pes());
    let (right, left) = (ctx.pe_after(1), ctx.pe_after(n - 1));
    let mut round = 1;
    while round <= rounds as u64 && Thread::index() == 0 {
        ctx.atomic_add(counter, 1, right)?;
        ctx.fence()?;
        ctx.p(flag, round, right)?;
        ctx.wait_until(Thread, flag, Cmp::Ge, round)?;
        if ctx.local_one(counter).load(0) < round {
            ctx.atomic_add(bad, 1, me)?;
        }
        ctx.fence()?;
        ctx.atomic_set(ack, round, left)?;
        ctx.wait_until(Thread, ack, Cmp::Ge, round)?;
        round += 1;
    }
    ctx.quiet(Thread)
}

/// Adds `value` to the elements of `cells` on every P2P peer, by plain loads and stores.
#[kernel]
pub fn store_everywhere(ctx: &Ctx, cells: SymSlice<u32>, value: u32) {
    let mut pe = 0;
    while pe < ctx.n_pes() {
        if let Some(there) = ctx.ptr(cells, pe) {
            let mut i = Thread::index();
            while i < there.len() {
                there.store(i, value + there.load(i));
                i += Thread::count();
            }
        }
        pe += 1;
    }
}

/// Stores 100 plus this PE's rank in `cells` of each team member that is a P2P peer, at this PE's index in `team`.
#[kernel]
pub fn store_to_members(ctx: &Ctx, team: Team, cells: SymSlice<u32>) -> Result {
    let Some(members) = ctx.team_n_pes(team) else { return Ok(()) };
    let mine = ctx.team_my_pe(team).unwrap_or(0) as usize;
    let mut member = 0;
    // One index past the last member, which must be rejected.
    while member <= members && Thread::index() == 0 {
        if let Some(there) = ctx.team_ptr(team, cells, member) {
            there.store(mine, 100 + ctx.my_pe());
        }
        member += 1;
    }
    ctx.quiet(Thread)
}

/// Updates words of all members of `team` from the first thread of each member, `rounds` times: adds to both words and
/// announces the round with a signal of each kind. `announced` has one signal per PE. Returns once this PE has received
/// all rounds.
#[kernel]
pub fn update_node(
    ctx: &Ctx,
    team: Team,
    wide: Sym<u64>,
    narrow: Sym<u32>,
    counted: Sym<Signal>,
    announced: SymSlice<Signal>,
    rounds: u32,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let (ctx, me) = (ctx.for_node_words(), ctx.my_pe() as usize);
    let (mut round, mut member) = (1, 0);
    while round <= rounds as u64 {
        let Some(pe) = ctx.translate_pe(team, member, Team::WORLD) else {
            (round, member) = (round + 1, 0);
            continue;
        };
        ctx.atomic_add(wide, 1, pe)?;
        let _ = ctx.atomic_fetch_inc(narrow, pe)?;
        ctx.put_signal_nbi(
            Thread,
            wide.as_slice().slice(0..0),
            wide.as_slice().slice(0..0),
            counted.add(1),
            pe,
        )?;
        ctx.signal_op(announced.at(me).set(round), pe)?;
        member += 1;
    }
    ctx.quiet(Thread)?;
    member = 0;
    while let Some(pe) = ctx.translate_pe(team, member, Team::WORLD) {
        ctx.signal_wait_until(Thread, announced.at(pe as usize), Cmp::Eq, rounds as u64)?;
        member += 1;
    }
    Ok(())
}
