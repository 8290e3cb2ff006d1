//! Test kernels that make failing calls, and store the errors that they get.

use rushmem_device::prelude::*;

/// A call with an error, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Misuse {
    /// Calls `put` with a PE that does not exist.
    PutToMissingPe,
    /// Performs an atomic on a PE that does not exist.
    AtomicOnMissingPe,
    /// Puts from a range that exceeds its object.
    BeyondTheEnd,
    /// Gets into an element that does not exist.
    GetOutside,
    /// Puts from a source that is shorter than its destination.
    LengthMismatch,
    /// Loads an element that does not exist.
    LoadBeyond,
    /// Stores to an element that does not exist.
    StoreBeyond,
    /// Acquires an exclusive context that is already acquired.
    TakeTwice,
    /// Uses the queues of a block in a job without per-block queues.
    NoBlockQueues,
    /// Uses exclusive queues in a job without them.
    NoExclusiveQueues,
    /// Calls a strided put with a stride of 0.
    ZeroStride,
    /// Calls a strided get with a stride shorter than its block.
    ShortStride,
    /// Calls a strided put with fewer source blocks than destination blocks.
    UnequalBlocks,
    /// Calls a strided get with more blocks than the source has.
    TooManyBlocks,
    /// Waits for words with a status array that is too short.
    FewStatuses,
    /// Tests words with no space for the index of a word that satisfies the condition.
    NoRoom,
    /// Calls `clear_lock` on a lock that is not held.
    ClearUnheld,
    /// Calls `set_lock` on a lock that is already held.
    SetHeld,
    /// Uses a queue that the job does not have.
    NoQueue,
    /// Calls `quiet_pe` with a PE that does not exist.
    QuietMissingPe,
    /// Performs a masked atomic on a word that does not exist.
    MaskedOutside,
}

/// Makes the call that `which` (a [`Misuse`]) selects in thread 0, and stores its error code, or 1000 for success.
#[kernel]
pub fn misuse(ctx: &Ctx, which: u32, data: SymSlice<u32>, lock: Sym<Lock>, code: Sym<u32>) {
    if Thread::index() != 0 {
        return;
    }
    let result = do_wrong(ctx, which, data, lock);
    ctx.local_one(code).store(0, code_of(result));
}

#[inline(always)]
fn code_of(result: Result) -> u32 {
    match result {
        Ok(()) => 1000,
        Err(error) => error as u32,
    }
}

#[inline(always)]
fn do_wrong(ctx: &Ctx, which: u32, data: SymSlice<u32>, lock: Sym<Lock>) -> Result {
    let (len, half) = (data.len(), data.slice(0..data.len() / 2));
    if which == Misuse::PutToMissingPe as u32 {
        ctx.put(Thread, half, half, ctx.n_pes())
    } else if which == Misuse::AtomicOnMissingPe as u32 {
        ctx.atomic_fetch_add(data.at(0), 1, 1 << 20).map(|_| ())
    } else if which == Misuse::BeyondTheEnd as u32 {
        ctx.put_nbi(Thread, data.slice(1..len + 1), data.slice(1..len + 1), ctx.pe_after(1))
    } else if which == Misuse::GetOutside as u32 {
        ctx.g(data.at(len), ctx.pe_after(1)).map(|_| ())
    } else if which == Misuse::LengthMismatch as u32 {
        ctx.put(Thread, data, half, ctx.pe_after(1))
    } else if which == Misuse::LoadBeyond as u32 {
        ctx.local(data).store(0, ctx.local(half).load(len));
        Ok(())
    } else if which == Misuse::StoreBeyond as u32 {
        ctx.local(half).store(len / 2, 77);
        Ok(())
    } else if which == Misuse::TakeTwice as u32 {
        let first = ctx.exclusive(0)?;
        let second = ctx.exclusive(0).map(|_| ());
        first.release();
        second
    } else if which == Misuse::NoBlockQueues as u32 {
        ctx.per_block().map(|_| ())
    } else if which == Misuse::NoExclusiveQueues as u32 {
        ctx.exclusive(0).map(|_| ())
    } else {
        do_wrong_with_sets(ctx, which, data, lock)
    }
}

#[inline(always)]
fn do_wrong_with_sets(ctx: &Ctx, which: u32, data: SymSlice<u32>, lock: Sym<Lock>) -> Result {
    let (pe, half) = (ctx.pe_after(1), data.slice(0..data.len() / 2));
    if which == Misuse::ZeroStride as u32 {
        ctx.iput(Thread, data.every(0), data.every(1), pe)
    } else if which == Misuse::ShortStride as u32 {
        ctx.iget(Thread, data.blocks(3, 3), data.blocks(3, 2), pe)
    } else if which == Misuse::UnequalBlocks as u32 {
        ctx.iput_nbi(Thread, data.every(1), half.every(2), pe)
    } else if which == Misuse::TooManyBlocks as u32 {
        ctx.iget_nbi(Thread, data.every(3).first(4), data.every(1).first(4), pe)
    } else if which == Misuse::FewStatuses as u32 {
        let status = ctx.shared::<i32>();
        ctx.wait_until_all(Thread, &WaitWords::new(data, Cmp::Eq, 0).except(status))
    } else if which == Misuse::NoRoom as u32 {
        ctx.test_some(Thread, &mut WaitWords::new(data, Cmp::Eq, 0), ctx.shared()).map(|_| ())
    } else if which == Misuse::ClearUnheld as u32 {
        ctx.clear_lock(lock)
    } else if which == Misuse::SetHeld as u32 {
        ctx.set_lock(lock)?;
        let again = ctx.set_lock(lock);
        ctx.clear_lock(lock)?;
        again
    } else if which == Misuse::NoQueue as u32 {
        ctx.queue(ctx.queues()).map(|_| ())
    } else if which == Misuse::QuietMissingPe as u32 {
        ctx.quiet_pe(ctx.n_pes())
    } else {
        ctx.atomic_masked_fetch_add(data.at(data.len()), 1, 0, pe).map(|_| ())
    }
}

/// Puts part `b` of `src` from block `b` to PE `b` and waits for completion, three times. Stores three error codes per
/// block in `codes`.
#[kernel]
pub fn report_puts(ctx: &Ctx, dst: SymSlice<u64>, src: SymSlice<u64>, codes: SymSlice<u32>) {
    let block = Block::current();
    let (pe, me, len) = (block.id(), ctx.my_pe() as usize, src.len());
    if pe >= ctx.n_pes() {
        return;
    }
    let codes = ctx.local(codes);
    let mut turn = 0;
    while turn < 3 {
        let result = ctx.put(block, dst.slice(me * len..(me + 1) * len), src, pe);
        if block.leader() {
            codes.store(pe as usize * 3 + turn, code_of(result));
        }
        turn += 1;
    }
}

/// Puts every thread's element to every PE and waits for delivery. `dst` has one row per PE.
#[kernel]
pub fn send_to_all(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>) -> Result {
    let i = Thread::index();
    let at = ctx.my_pe() as usize * src.len() + i;
    let mut pe = 0;
    while pe < ctx.n_pes() {
        ctx.put(Thread, dst.slice(at..at + 1), src.slice(i..i + 1), pe)?;
        pe += 1;
    }
    ctx.quiet(Thread)
}

/// Waits until `signal` is `value`, and stores the error code of the wait in `code`.
#[kernel]
pub fn wait_for_ever(ctx: &Ctx, signal: Sym<Signal>, value: u64, code: Sym<u32>) {
    let block = Block::current();
    let result = ctx.signal_wait_until(block, signal, Cmp::Eq, value).map(|_| ());
    if block.leader() {
        ctx.local_one(code).store(0, code_of(result));
    }
}

/// Enters a block barrier in all threads of each block except the first one.
#[kernel]
pub fn stray_barrier(_ctx: &Ctx) {
    let block = Block::current();
    if block.rank() != 0 {
        block.sync();
    }
}

/// Enters a grid barrier in all blocks except the first one. Stores the error code of the call in `code`.
#[kernel]
pub fn stray_block(ctx: &Ctx, code: Sym<u32>) {
    let block = Block::current();
    if block.id() != 0 {
        let result = ctx.sync_grid(block);
        if block.leader() {
            ctx.local_one(code).store(0, code_of(result));
        }
    }
}

/// Allocates a slot of `slots` on `pe` for each warp, in which every lane stores its thread index plus 1. Stores the
/// error code of each thread in `codes`.
#[kernel]
pub fn fill_slots(ctx: &Ctx, slots: SymSlice<u32>, used: Sym<u64>, pe: u32, codes: SymSlice<u32>) {
    let warp = Warp::current();
    let result = fill_slot(ctx, warp, slots, used, pe);
    ctx.local(codes).store(Thread::index(), code_of(result));
}

#[inline(always)]
fn fill_slot(ctx: &Ctx, warp: Warp, slots: SymSlice<u32>, used: Sym<u64>, pe: u32) -> Result {
    let slot = warp.leader_result(|| ctx.atomic_fetch_inc(used, pe))?;
    let at = slot as usize * warp.size() as usize + warp.rank() as usize;
    warp.agree(ctx.p(slots.at(at), Thread::index() as u32 + 1, pe))?;
    ctx.quiet(warp)
}

/// Makes thread `failing` of each block fail. Stores the error code that each thread gets from [`Group::agree`] in
/// `codes`.
#[kernel]
pub fn fail_in_one_thread(ctx: &Ctx, failing: u32, codes: SymSlice<u32>) {
    let block = Block::current();
    let mine = if block.rank() == failing { Err(Error::Busy) } else { Ok(()) };
    let result = block.agree(mine);
    ctx.local(codes).store(Thread::index(), code_of(result));
}
