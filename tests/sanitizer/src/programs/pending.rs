//! Programs about transfers with a handle. Waiting for a handle completes that transfer only.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "pending",
    title: "Transfers with a handle",
    file: file!(),
    text: include_str!("pending.rs"),
    programs: &[
        device("source_stored_before_wait", source_stored_before_wait).races(),
        device("source_stored_after_wait", source_stored_after_wait),
        device("source_stored_after_test", source_stored_after_test),
        device("second_source_stored_after_first_wait", second_source_stored_after_first_wait).races(),
        device("first_source_stored_after_first_wait", first_source_stored_after_first_wait),
        device("result_loaded_before_wait", result_loaded_before_wait).races(),
        device("result_loaded_after_wait", result_loaded_after_wait),
        device("flag_after_wait", flag_after_wait),
        device("flag_before_wait", flag_before_wait).races(),
        device("quiet_instead_of_wait", quiet_instead_of_wait),
        device("put_before_flush_async", put_before_flush_async),
        device("put_after_flush_async", put_after_flush_async).races(),
    ],
};

/// Stores to the source of a put before the wait for its handle.
#[kernel]
fn source_stored_before_wait(ctx: &Ctx, m: Memory) -> Result {
    let put = ctx.put_async(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.local(m.outbox).store(0, 1); // second
    put.wait(Thread)
}

/// Stores to the source of a put after the wait for its handle.
#[kernel]
fn source_stored_after_wait(ctx: &Ctx, m: Memory) -> Result {
    let put = ctx.put_async(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    put.wait(Thread)?;
    ctx.local(m.outbox).store(0, 1);
    ctx.sync_all(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(0), if ctx.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

/// Stores to the source of a put after a test has found the put complete.
#[kernel]
fn source_stored_after_test(ctx: &Ctx, m: Memory) -> Result {
    let put = ctx.put_async(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    while !put.test()? {
        arch::spin();
    }
    ctx.local(m.outbox).store(0, 1);
    ctx.sync_all(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(0), if ctx.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

/// Starts two puts, waits for the first one, and stores to the source of the second one.
#[kernel]
fn second_source_stored_after_first_wait(ctx: &Ctx, m: Memory) -> Result {
    let to = ctx.pe_after(1);
    let first = ctx.put_async(Thread, m.inbox.slice(0..4), m.outbox.slice(0..4), to)?;
    let second = ctx.put_async(Thread, m.inbox.slice(4..8), m.outbox.slice(4..8), to)?; // first
    first.wait(Thread)?;
    ctx.local(m.outbox).store(4, 1); // second
    second.wait(Thread)
}

/// Starts two puts, waits for the first one, and stores to its source.
#[kernel]
fn first_source_stored_after_first_wait(ctx: &Ctx, m: Memory) -> Result {
    let to = ctx.pe_after(1);
    let first = ctx.put_async(Thread, m.inbox.slice(0..4), m.outbox.slice(0..4), to)?;
    let second = ctx.put_async(Thread, m.inbox.slice(4..8), m.outbox.slice(4..8), to)?;
    first.wait(Thread)?;
    ctx.local(m.outbox).store(0, 1);
    second.wait(Thread)
}

/// Loads the result of a get before the wait for its handle.
#[kernel]
fn result_loaded_before_wait(ctx: &Ctx, m: Memory) -> Result {
    let get = ctx.get_async(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    let _ = ctx.local(m.inbox).load(0); // second
    get.wait(Thread)
}

/// Loads the result of a get after the wait for its handle.
#[kernel]
fn result_loaded_after_wait(ctx: &Ctx, m: Memory) -> Result {
    let get = ctx.get_async(Thread, m.inbox, m.outbox, 1)?;
    get.wait(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(0), 20);
    Ok(())
}

/// Puts data, waits for the handle of the put, and puts a flag.
#[kernel]
fn flag_after_wait(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_async(Thread, m.inbox, m.outbox, 1)?.wait(Thread)?;
        return ctx.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Puts data, and puts a flag before waiting for the handle of the data.
#[kernel]
fn flag_before_wait(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        let put = ctx.put_async(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.p(m.flag, 1, 1)?;
        return put.wait(Thread);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Completes a put with a handle by `quiet`.
#[kernel]
fn quiet_instead_of_wait(ctx: &Ctx, m: Memory) -> Result {
    let _put = ctx.put_async(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    ctx.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1);
    ctx.sync_all(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(0), if ctx.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

/// Puts data, and waits for a handle by `flush_async`, which covers all earlier operations to the PE.
#[kernel]
fn put_before_flush_async(ctx: &Ctx, m: Memory) -> Result {
    ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    ctx.flush_async(ctx.pe_after(1))?.wait(Thread)?;
    ctx.local(m.outbox).store(0, 1);
    Ok(())
}

/// Puts data after creating a handle by `flush_async`, which covers only earlier operations.
#[kernel]
fn put_after_flush_async(ctx: &Ctx, m: Memory) -> Result {
    let earlier = ctx.flush_async(ctx.pe_after(1))?;
    ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    earlier.wait(Thread)?;
    ctx.local(m.outbox).store(0, 1); // second
    ctx.quiet(Thread)
}
