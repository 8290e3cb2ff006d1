//! Programs about contexts. Fence and `quiet` of one context do not cover the operations of another.

use rushmem::{Operations, Pe};
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "contexts",
    title: "Contexts",
    file: file!(),
    text: include_str!("contexts.rs"),
    programs: &[
        host("quiet_of_another_context", quiet_of_another_context).races(),
        host("quiet_of_the_same_context", quiet_of_the_same_context),
        host("fence_of_another_context", fence_of_another_context).races(),
        host("fence_of_the_same_context", fence_of_the_same_context),
        host("flag_in_another_context", flag_in_another_context).races(),
        host("flag_in_another_context_after_quiet", flag_in_another_context_after_quiet),
        host("strong_signal_after_puts_of_another_context", strong_signal_after_puts_of_another_context)
            .races(),
        device("quiet_beside_exclusive_queues", quiet_beside_exclusive_queues).races(),
        device("quiet_of_exclusive_queues", quiet_of_exclusive_queues),
        device("exclusive_queues_claimed_again", exclusive_queues_claimed_again),
        device("quiet_beside_queues_of_the_block", quiet_beside_queues_of_the_block).races(),
        device("quiet_of_queues_of_the_block", quiet_of_queues_of_the_block),
        host("stream_with_a_context_and_quiet_of_the_host", stream_with_a_context_and_quiet_of_the_host)
            .races(),
        host("stream_with_a_context_and_its_quiet", stream_with_a_context_and_its_quiet),
        host("kernel_in_a_stream_with_a_context", kernel_in_a_stream_with_a_context).races(),
        host("context_destroyed_before_reuse", context_destroyed_before_reuse),
    ],
};

/// Puts in a context, and calls `quiet` of the default context.
fn quiet_of_another_context(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_in_one_quiet_in_other(m, pe.context::<PerGpu>()?))
}

#[kernel]
fn put_in_one_quiet_in_other(ctx: &Ctx, m: Memory, context: Context) -> Result {
    let own = ctx.context(context)?;
    own.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1); // second
    own.quiet(Thread)
}

/// Puts in a context, and calls `quiet` of this context.
fn quiet_of_the_same_context(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_and_quiet_in_one(m, pe.context::<PerGpu>()?))?;
    pe.host_sync()?;
    assert_eq!(pe.read(m.inbox.slice(0..1))?, [if pe.my_pe() == 0 { 20 } else { 10 }]);
    Ok(())
}

#[kernel]
fn put_and_quiet_in_one(ctx: &Ctx, m: Memory, context: Context) -> Result {
    let own = ctx.context(context)?;
    own.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    own.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1);
    Ok(())
}

/// Puts data and flag in a context, with a fence of the default context in between.
fn fence_of_another_context(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, fence_in_other(m, pe.context::<PerGpu>()?))
}

#[kernel]
fn fence_in_other(ctx: &Ctx, m: Memory, context: Context) -> Result {
    if ctx.my_pe() == 0 {
        let own = ctx.context(context)?;
        own.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.fence()?;
        return own.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Puts data and flag in a context, with a fence of the same context in between.
fn fence_of_the_same_context(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, fence_in_one(m, pe.context::<PerGpu>()?))
}

#[kernel]
fn fence_in_one(ctx: &Ctx, m: Memory, context: Context) -> Result {
    if ctx.my_pe() == 0 {
        let own = ctx.context(context)?;
        own.put(Thread, m.inbox, m.outbox, 1)?;
        own.fence()?;
        return own.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Puts data in a context, fences there, and puts the flag in the default context.
fn flag_in_another_context(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, flag_in_other(m, pe.context::<PerGpu>()?))
}

#[kernel]
fn flag_in_other(ctx: &Ctx, m: Memory, context: Context) -> Result {
    if ctx.my_pe() == 0 {
        let own = ctx.context(context)?;
        own.put(Thread, m.inbox, m.outbox, 1)?; // first
        own.fence()?;
        return ctx.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Puts data in a context, completes it, and puts the flag in the default context.
fn flag_in_another_context_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, quiet_and_flag_in_other(m, pe.context::<PerGpu>()?))
}

#[kernel]
fn quiet_and_flag_in_other(ctx: &Ctx, m: Memory, context: Context) -> Result {
    if ctx.my_pe() == 0 {
        let own = ctx.context(context)?;
        own.put(Thread, m.inbox, m.outbox, 1)?;
        own.quiet(Thread)?;
        return ctx.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Puts in a context, and sends a strong signal in the default context, which does not cover the put.
fn strong_signal_after_puts_of_another_context(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, strong_signal_in_other(m, pe.context::<PerGpu>()?))
}

#[kernel]
fn strong_signal_in_other(ctx: &Ctx, m: Memory, context: Context) -> Result {
    if ctx.my_pe() == 0 {
        let own = ctx.context(context)?;
        own.put(Thread, m.inbox, m.outbox, 1)?; // first
        return ctx.signal_strong(Thread, m.flag.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Puts through exclusive queues, and calls `quiet` of the default context, which does not cover them.
#[kernel]
fn quiet_beside_exclusive_queues(ctx: &Ctx, m: Memory) -> Result {
    let own = ctx.exclusive(0)?;
    own.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1); // second
    own.quiet(Thread)?;
    own.release();
    Ok(())
}

/// Puts through exclusive queues, and completes the puts by their own `quiet`.
#[kernel]
fn quiet_of_exclusive_queues(ctx: &Ctx, m: Memory) -> Result {
    let own = ctx.exclusive(0)?;
    own.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    own.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1);
    own.release();
    Ok(())
}

/// Releases exclusive queues, claims them again, and completes the earlier put.
#[kernel]
fn exclusive_queues_claimed_again(ctx: &Ctx, m: Memory) -> Result {
    let own = ctx.exclusive(0)?;
    own.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    own.release();
    let again = ctx.exclusive(0)?;
    again.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1);
    again.release();
    Ok(())
}

/// Puts through the queues of its block, and calls `quiet` of the default context.
#[kernel(per_block)]
fn quiet_beside_queues_of_the_block(ctx: &Ctx, m: Memory) -> Result {
    let own = ctx.per_block()?;
    own.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1); // second
    own.quiet(Thread)
}

/// Puts through the queues of its block, and completes the puts by their own `quiet`.
#[kernel(per_block)]
fn quiet_of_queues_of_the_block(ctx: &Ctx, m: Memory) -> Result {
    let own = ctx.per_block()?;
    own.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    own.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1);
    Ok(())
}

/// Puts in a stream that has a separate context. The host calls `quiet` of the default context.
fn stream_with_a_context_and_quiet_of_the_host(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?.with_context(pe.context::<PerGpu>()?)?;
    stream.put_nbi(m.inbox, m.outbox, 1 - pe.my_pe())?; // first
    stream.wait()?;
    pe.quiet()?;
    pe.write(m.outbox, &[1; 8]) // second
}

/// Puts in a stream that has a separate context, and calls `quiet` of the stream.
fn stream_with_a_context_and_its_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?.with_context(pe.context::<PerGpu>()?)?;
    stream.put_nbi(m.inbox, m.outbox, 1 - pe.my_pe())?;
    stream.quiet()?;
    stream.wait()?;
    pe.write(m.outbox, &[1; 8])?;
    pe.host_sync()?;
    assert_eq!(pe.read(m.inbox.slice(0..1))?, [if pe.my_pe() == 0 { 20 } else { 10 }]);
    Ok(())
}

/// Puts in a stream that has a separate context. The stream's next kernel calls `quiet` of the default context.
fn kernel_in_a_stream_with_a_context(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?.with_context(pe.context::<PerGpu>()?)?;
    stream.put_nbi(m.inbox, m.outbox, 1 - pe.my_pe())?; // first
    stream.launch(ONE, quiet_and_reuse(m))?;
    stream.quiet()?;
    stream.wait()
}

#[kernel]
fn quiet_and_reuse(ctx: &Ctx, m: Memory) -> Result {
    ctx.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1); // second
    Ok(())
}

/// Destroys the context of a put, which completes the put, and writes to the source.
fn context_destroyed_before_reuse(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let context = pe.context::<PerGpu>()?;
    pe.run(ONE, post_in_context(m, context))?;
    pe.destroy_context(context)?;
    pe.write(m.outbox, &[1; 8])
}

#[kernel]
fn post_in_context(ctx: &Ctx, m: Memory, context: Context) -> Result {
    ctx.context(context)?.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))
}
