//! Test kernels of every kind of access to every kind of memory: the initial heap, segments and windows.

use rushmem_device::prelude::*;

/// Accesses the next PE's memory in every way. The blocks of the grid share the work.
///
/// Each block puts its part of `src` to `dst` with a signal that adds its length to `arrived`, adds 1 to `word` with
/// each kind of atomic, and gets the next PE's part of `src` into `back`. The first thread puts a value into the last
/// element of `dst`, fetches the first element of `src`, and stores it in `seen`. The kernel returns once this PE has
/// also received all data.
#[kernel]
#[allow(clippy::too_many_arguments)] // one for each use of memory
pub fn reach(
    ctx: &Ctx,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    back: SymSlice<u64>,
    word: Sym<u64>,
    arrived: Sym<Signal>,
    seen: Sym<u64>,
) -> Result {
    let (block, right, len) = (Block::current(), ctx.pe_after(1), src.len());
    let part = block.share(len);
    let n = part.len() as u64;
    ctx.put_signal(block, dst.slice(part.clone()), src.slice(part.clone()), arrived.add(n), right)?;
    ctx.get_nbi(block, back.slice(part.clone()), src.slice(part), right)?;
    if block.leader() {
        ctx.atomic_add(word, 1, right)?;
        let _ = ctx.atomic_fetch_add(word, 1, right)?;
    }
    ctx.signal_wait_until(block, arrived, Cmp::Ge, len as u64)?;
    if Thread::index() == 0 {
        ctx.p(dst.at(len), 77, right)?;
        ctx.local_one(seen).store(0, ctx.g(src.at(0), right)?);
    }
    ctx.quiet(block)
}

/// Gets `src` of every PE into this PE's `into`, in PE order.
#[kernel]
pub fn gather(ctx: &Ctx, into: SymSlice<u64>, src: SymSlice<u64>) -> Result {
    let (block, len) = (Block::current(), src.len());
    let mut pe = 0;
    while pe < ctx.n_pes() {
        let at = pe as usize * len;
        ctx.get_nbi(block, into.slice(at..at + len), src, pe)?;
        pe += 1;
    }
    ctx.quiet(block)
}

/// Fills `object` on all PEs with `value`: its owner stores the even elements, and the previous PE puts the odd ones.
#[kernel]
pub fn fill(ctx: &Ctx, object: SymSlice<u64>, value: u64) -> Result {
    let mut i = Thread::index();
    while i < object.len() {
        if i & 1 == 0 {
            ctx.local(object).store(i, value);
        } else {
            ctx.p(object.at(i), value, ctx.pe_after(1))?;
        }
        i += Thread::count();
    }
    ctx.quiet(Thread)
}

/// Transfers between local buffers and the next PE's objects. The blocks share the work.
///
/// Each block puts its part of `mine` to `dst`, both blocking with a signal and nonblocking, and gets the next PE's
/// `theirs` into `back`. Afterwards it adds 1 to each element of `mine`.
#[kernel]
pub fn reach_from_own(
    ctx: &Ctx,
    dst: SymSlice<u64>,
    mine: Local<u64>,
    theirs: SymSlice<u64>,
    back: Local<u64>,
    arrived: Sym<Signal>,
) -> Result {
    let (block, right, len) = (Block::current(), ctx.pe_after(1), mine.len());
    let part = block.share(len);
    let n = part.len() as u64;
    let here = mine.slice(part.clone());
    ctx.put_signal(block, dst.slice(part.clone()), here, arrived.add(n), right)?;
    let second = dst.slice(len + part.start..len + part.end);
    ctx.put_nbi(block, second, here, right)?;
    ctx.get(block, back.slice(part.clone()), theirs.slice(part.clone()), right)?;
    ctx.signal_wait_until(block, arrived, Cmp::Ge, len as u64)?;
    ctx.quiet(block)?;
    let own = ctx.local(here);
    let mut i = block.rank() as usize;
    while i < own.len() {
        own.store(i, own.load(i) + 1);
        i += block.size() as usize;
    }
    Ok(())
}

/// Puts a part of `mine` that extends past the end of the buffer.
#[kernel]
pub fn put_beyond(ctx: &Ctx, dst: SymSlice<u64>, mine: Local<u64>) -> Result {
    ctx.put(Thread, dst, mine.slice(1..mine.len() + 1), ctx.pe_after(1))
}
