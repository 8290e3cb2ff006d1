//! Test kernels that wait for or test sets of words.

use rushmem_device::prelude::*;

#[inline(always)]
fn cmp_of(cmp: u32) -> Cmp {
    match cmp {
        0 => Cmp::Eq,
        1 => Cmp::Ne,
        2 => Cmp::Gt,
        3 => Cmp::Ge,
        4 => Cmp::Lt,
        5 => Cmp::Le,
        _ => Cmp::Reached,
    }
}

/// Tests this PE's words. `out` receives the result of `test_all`, the index from `test_any` (or `u64::MAX`), and the
/// count and the indices from `test_some`. Without `vector`, all words are compared with `value`.
#[kernel]
#[allow(clippy::too_many_arguments)] // what to compare, and how
pub fn test_sets(
    ctx: &Ctx,
    words: SymSlice<i32>,
    values: SymSlice<i32>,
    status: SymSlice<i32>,
    cmp: u32,
    value: i32,
    vector: u32,
    masked: u32,
    out: SymSlice<u64>,
) -> Result {
    let block = Block::current();
    let cmp = cmp_of(cmp);
    let values = ctx.local(values);
    let set =
        if vector != 0 { WaitWords::each(words, cmp, values) } else { WaitWords::new(words, cmp, value) };
    let mut set = if masked != 0 { set.except(ctx.local(status)) } else { set };
    let (indices, out) = (ctx.local(out.slice(3..out.len())), ctx.local(out));
    let all = ctx.test_all(block, &set)?;
    let any = ctx.test_any(block, &mut set)?;
    let some = ctx.test_some(block, &mut set.starting_at(0), indices)?;
    if block.leader() {
        out.store(0, all as u64);
        out.store(1, any.map_or(u64::MAX, |i| i as u64));
        out.store(2, some as u64);
    }
    Ok(())
}

/// Which call waits for the words that other PEs write, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WaitKind {
    /// Calls `wait_until_all` once.
    All,
    /// Calls `wait_until_any` until it has returned every word.
    Any,
    /// Calls `wait_until_some` until it has returned every word.
    Some,
}

/// Exchanges words between all PEs. Each word announces a payload.
///
/// Every PE writes the round number to its words on every PE. Each PE then waits for all words with a block, for any
/// word with a thread, or for some words with a warp. Words are compared with one value, or with one each. `told`
/// counts how often each index was returned, and `bad` counts missing payloads.
#[kernel]
#[allow(clippy::too_many_arguments)] // what to wait for, and how
pub fn collect(
    ctx: &Ctx,
    how: u32,
    vector: u32,
    words: SymSlice<u64>,
    payload: SymSlice<u64>,
    values: SymSlice<u64>,
    status: SymSlice<i32>,
    indices: SymSlice<u64>,
    told: SymSlice<u32>,
    bad: Sym<u64>,
    rounds: u32,
) -> Result {
    let what = Set { vector, words, payload, values, status, indices, told, bad, rounds };
    if Block::current().id() != 0 {
        return Ok(());
    }
    if how == WaitKind::All as u32 {
        what.collect(ctx, Block::current(), Set::receive_all)
    } else if how == WaitKind::Some as u32 && Warp::current().id() == 0 {
        what.collect(ctx, Warp::current(), Set::receive_some)
    } else if how == WaitKind::Any as u32 && Thread::index() == 0 {
        what.collect(ctx, Thread, Set::receive_any)
    } else {
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Set {
    vector: u32,
    words: SymSlice<u64>,
    payload: SymSlice<u64>,
    values: SymSlice<u64>,
    status: SymSlice<i32>,
    indices: SymSlice<u64>,
    told: SymSlice<u32>,
    bad: Sym<u64>,
    rounds: u32,
}

impl Set {
    #[inline(always)]
    fn collect<G: Group>(
        self,
        ctx: &Ctx,
        group: G,
        receive: impl Fn(&Self, &Ctx, G, WaitWords<u64>, u64) -> Result,
    ) -> Result {
        let per_pe = self.words.len().checked_div(ctx.n_pes() as usize).unwrap_or(0);
        let (values, status) = (ctx.local(self.values), ctx.local(self.status));
        let mut round = 1;
        while round <= self.rounds as u64 {
            if group.leader() {
                let mut i = 0;
                while i < values.len() {
                    values.store(i, round);
                    status.store(i, 0);
                    i += 1;
                }
                self.send(ctx, round, per_pe)?;
            }
            group.sync();
            let set = if self.vector != 0 {
                WaitWords::each(self.words, Cmp::Ge, values)
            } else {
                WaitWords::new(self.words, Cmp::Eq, round)
            };
            receive(&self, ctx, group, set.except(status), round)?;
            ctx.barrier_all(group)?;
            round += 1;
        }
        Ok(())
    }

    /// Puts this PE's payloads of a round to every PE, each followed by the word that announces it.
    #[inline(always)]
    fn send(&self, ctx: &Ctx, round: u64, per_pe: usize) -> Result {
        let mut k = 0;
        while k < per_pe {
            let mut pe = 0;
            while pe < ctx.n_pes() {
                let at = ctx.my_pe() as usize * per_pe + k;
                ctx.p(self.payload.at(at), round << 8, pe)?;
                ctx.fence_pe(pe)?;
                ctx.p(self.words.at(at), round, pe)?;
                pe += 1;
            }
            k += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn receive_all<G: Group>(&self, ctx: &Ctx, group: G, set: WaitWords<u64>, round: u64) -> Result {
        ctx.wait_until_all(group, &set)?;
        let mut i = 0;
        while i < self.words.len() {
            self.tell(ctx, group, i, round)?;
            i += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn receive_any<G: Group>(&self, ctx: &Ctx, group: G, mut set: WaitWords<u64>, round: u64) -> Result {
        while let Some(i) = ctx.wait_until_any(group, &mut set)? {
            self.tell(ctx, group, i, round)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn receive_some<G: Group>(&self, ctx: &Ctx, group: G, mut set: WaitWords<u64>, round: u64) -> Result {
        let indices = ctx.local(self.indices);
        loop {
            let count = ctx.wait_until_some(group, &mut set, indices)?;
            let mut k = 0;
            while k < count {
                self.tell(ctx, group, indices.load(k) as usize, round)?;
                k += 1;
            }
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// Checks the payload of word `i`, which a wait has returned, and excludes the word from later waits.
    #[inline(always)]
    fn tell<G: Group>(&self, ctx: &Ctx, group: G, i: usize, round: u64) -> Result {
        if ctx.local(self.payload).load(i) != round << 8 {
            ctx.atomic_add(self.bad, 1, ctx.my_pe())?;
        }
        group.sync();
        if group.leader() {
            ctx.local(self.status).store(i, 1);
            let told = ctx.local(self.told);
            told.store(i, told.load(i) + 1);
        }
        group.sync();
        Ok(())
    }
}

/// Calls `wait_until_any` `calls` times with words that are all satisfied, and counts the returned indices in `told`.
#[kernel]
pub fn any_in_turn(ctx: &Ctx, words: SymSlice<u32>, told: SymSlice<u32>, calls: u32) -> Result {
    let (block, told) = (Block::current(), ctx.local(told));
    let mut set = WaitWords::new(words, Cmp::Eq, 0);
    let mut call = 0;
    while call < calls {
        if let Some(i) = ctx.wait_until_any(block, &mut set)?
            && block.leader()
        {
            told.store(i, told.load(i) + 1);
        }
        call += 1;
    }
    Ok(())
}

/// Waits twice with a limit of `timeout_ns`: until the word differs from 5, which never happens, and until it exceeds
/// 4. Each thread stores whether each wait succeeded, and the value from the second.
#[kernel]
pub fn wait_in_vain(ctx: &Ctx, word: Sym<u64>, timeout_ns: u64, out: SymSlice<u64>) -> Result {
    let (block, out) = (Block::current(), ctx.local(out));
    let first = ctx.wait_until_for(block, word, Cmp::Ne, 5, timeout_ns)?;
    let second = ctx.wait_until_for(block, word, Cmp::Gt, 4, timeout_ns)?;
    let i = Thread::index() * 3;
    out.store(i, first.is_some() as u64);
    out.store(i + 1, second.is_some() as u64);
    out.store(i + 2, second.unwrap_or(0));
    Ok(())
}

/// Flips the partner's signal between 1 and 2 on even PEs until `stop` is set. The partner waits for 1, `rounds` times.
/// Each of its threads counts in `bad` how often the wait returned another value.
#[kernel]
pub fn flicker(ctx: &Ctx, signal: Sym<Signal>, stop: Sym<u64>, bad: Sym<u64>, rounds: u32) -> Result {
    let (block, me) = (Block::current(), ctx.my_pe());
    let partner = me ^ 1;
    if partner >= ctx.n_pes() {
        return Ok(());
    }
    if me & 1 == 0 {
        let mut value = 1;
        while block.leader() && !ctx.test(stop, Cmp::Ne, 0)? {
            ctx.signal_op(signal.set(value), partner)?;
            ctx.quiet(Thread)?;
            value = 3 - value;
        }
        return Ok(());
    }
    let mut round = 0;
    while round < rounds {
        let seen = ctx.signal_wait_until(block, signal, Cmp::Eq, 1)?;
        if seen != 1 {
            ctx.atomic_add(bad, 1, me)?;
        }
        round += 1;
    }
    if block.leader() {
        ctx.atomic_set(stop, 1, partner)?;
    }
    ctx.quiet(block)
}

/// Moves the next PE's counter past its wraparound in steps of 3, and waits for each step. Counts waits that returned
/// early in `bad`.
#[kernel]
pub fn wrap_around(ctx: &Ctx, counter: Sym<u32>, bad: Sym<u64>, steps: u32) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let start = u32::MAX - 10;
    let (pe, mine) = (ctx.pe_after(1), ctx.local_one(counter));
    mine.store(0, start);
    ctx.sync_all(Thread)?;
    let mut step = 1;
    while step <= steps {
        let wanted = start.wrapping_add(step * 3);
        // No PE adds before all have tested, so the test must fail.
        let early = ctx.test(counter, Cmp::Reached, wanted)?;
        ctx.sync_all(Thread)?;
        ctx.atomic_add(counter, 3, pe)?;
        ctx.wait_until(Thread, counter, Cmp::Reached, wanted)?;
        if early || mine.load(0) != wanted {
            ctx.atomic_add(bad, 1, ctx.my_pe())?;
        }
        ctx.barrier_all(Thread)?;
        step += 1;
    }
    Ok(())
}

/// The test that a loop repeats in vain, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum VainTest {
    /// Calls `test`.
    One,
    /// Calls `test_all`.
    All,
    /// Calls `test_any`.
    Any,
    /// Calls `test_some`.
    Some,
    /// Calls `test_lock`.
    Lock,
}

/// Tests words that nobody writes, or a lock that another PE holds, until the test returns an error. `kind` is a
/// [`VainTest`].
#[kernel]
pub fn test_in_vain(ctx: &Ctx, kind: u32, words: SymSlice<u64>, lock: Sym<Lock>) -> Result {
    let block = Block::current();
    let mut set = WaitWords::new(words, Cmp::Eq, 7);
    loop {
        let passed = if kind == VainTest::All as u32 {
            ctx.test_all(block, &set)?
        } else if kind == VainTest::Any as u32 {
            ctx.test_any(block, &mut set)?.is_some()
        } else if kind == VainTest::Some as u32 {
            ctx.test_some(block, &mut set, ctx.shared())? != 0
        } else if kind == VainTest::Lock as u32 {
            ctx.test_lock(lock)?
        } else {
            ctx.test(words.at(0), Cmp::Eq, 7)?
        };
        if passed {
            return Ok(());
        }
    }
}

/// Acquires a lock in one thread.
#[kernel]
pub fn take_lock(ctx: &Ctx, lock: Sym<Lock>) -> Result {
    if Thread::index() == 0 { ctx.set_lock(lock) } else { Ok(()) }
}
