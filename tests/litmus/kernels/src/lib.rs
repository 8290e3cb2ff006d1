//! The kernel of the litmus tests: an interpreter of programs that the host encodes as data. Each actor is a block.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

mod code;
mod collect;
mod each;
mod host;
mod memory;
mod one;
mod rare;

pub use code::{Code, MAX_OPS, OP_WORDS, PLAN_WORDS, PROGRAM_WORDS, Who};
pub use collect::{CHECKS, nothing_together, on_its_own, one_after_another, two_teams};
pub use host::{await_word, get_after, leave, meet_all, poke, poke_two};
pub use memory::{BYTES, HALVES, KEPT, REG, REGS, WORDS};

use rushmem_device::prelude::*;
use rushmem_device::{Lock, arch};

use crate::code::{Op, Plan};
use crate::memory::Memory;

/// Number of turns after which a polling loop of plain loads gives up. Such a loop calls no function that has a
/// deadline.
const MAX_TURNS: u32 = 1 << 24;

/// Runs the program of each actor once per round, and stores the results in the actor's registers.
///
/// Block `i` is actor `i` on the PE that its program names, and does nothing on other PEs. Each round has separate
/// memory, except for `kept`. The actors synchronize only every few rounds, so their rounds overlap.
#[kernel]
#[allow(clippy::too_many_arguments)] // one per kind of memory
pub fn litmus(
    ctx: &Ctx,
    plan: SymSlice<u64>,
    programs: SymSlice<u64>,
    words: SymSlice<u64>,
    kept: SymSlice<u64>,
    halves: SymSlice<u32>,
    bytes: SymSlice<u8>,
    floats: SymSlice<f32>,
    lock: Sym<Lock>,
    regs: SymSlice<u64>,
    gate: Sym<Signal>,
) -> Result {
    let plan = Plan::read(ctx.local(plan));
    let block = Block::current();
    let start = block.id() as usize * PROGRAM_WORDS;
    let program = programs.slice(start..start + PROGRAM_WORDS);
    if block.id() as u64 >= plan.actors || ctx.local(program).load(0) != ctx.my_pe() as u64 {
        return Ok(());
    }
    let memory = Memory {
        words,
        kept,
        halves,
        bytes,
        floats,
        lock,
        regs,
        round: 0,
        actor: block.id() as u64,
        actors: plan.actors,
    };
    if plan.who == Who::Thread as u64 {
        rounds(ctx, Thread, plan, program, memory, gate)
    } else if plan.who == Who::Warp as u64 {
        rounds(ctx, Warp::current(), plan, program, memory, gate)
    } else {
        rounds(ctx, block, plan, program, memory, gate)
    }
}

#[inline(always)]
fn rounds<G: Group>(
    ctx: &Ctx,
    group: G,
    plan: Plan,
    program: SymSlice<u64>,
    mut memory: Memory,
    gate: Sym<Signal>,
) -> Result {
    let mut meetings = 0;
    while memory.round < plan.rounds {
        if memory.round & (plan.every - 1) == 0 {
            meetings += 1;
            let met = if group.leader() { meet(ctx, gate, plan.actors * meetings) } else { Ok(()) };
            agreed(group, met)?;
        }
        let mut dice = plan.seed ^ (memory.round << 20 | memory.actor);
        let mut at = 0;
        while at < MAX_OPS {
            let op = Op::read(ctx.local(program), at);
            if op.code == Code::End as u64 {
                break;
            }
            maybe_pause(&mut dice, plan.jitter);
            each::step(ctx, group, &memory, &op, &mut dice)?;
            at += 1;
        }
        memory.round += 1;
    }
    ctx.quiet(group)
}

/// Calls `done` until it returns true. Returns 0, or 1 if `done` has not returned true after the given number of turns.
#[inline(always)]
fn never(mut turns: u32, mut done: impl FnMut() -> Result<bool>) -> Result<u64> {
    while !done()? {
        arch::spin();
        turns -= 1;
        if turns == 0 {
            return Ok(1);
        }
    }
    Ok(0)
}

/// Returns an error on all threads of the group if `mine` is an error on any of them.
#[inline(always)]
fn agreed<G: Group>(group: G, mine: Result) -> Result {
    if group.any(mine.is_err()) { mine.and(Err(Error::InGroup)) } else { Ok(()) }
}

/// Synchronizes all actors. `gate` on every PE counts their arrivals.
#[inline(never)]
fn meet(ctx: &Ctx, gate: Sym<Signal>, arrivals: u64) -> Result {
    let mut pe = 0;
    while pe < ctx.n_pes() {
        ctx.signal_op(gate.add(1), pe)?;
        pe += 1;
    }
    ctx.signal_wait_until(Thread, gate, Cmp::Ge, arrivals).map(|_| ())
}

/// Pauses with probability 1/4, for up to `longest` turns of a spin loop.
#[inline(always)]
fn maybe_pause(dice: &mut u64, longest: u64) {
    let roll = random(dice);
    if roll & 3 == 0 {
        pause(roll, longest);
    }
}

/// Pauses for a random number of spin-loop turns, up to `longest`.
#[inline(always)]
fn pause(roll: u64, longest: u64) {
    let mut turns = ((roll >> 8 & 0xff) * longest) >> 8;
    while turns > 0 {
        arch::spin();
        turns -= 1;
    }
}

/// Returns the next pseudo-random number of SplitMix64 (Steele, Lea and Flood, 2014).
#[inline(always)]
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
