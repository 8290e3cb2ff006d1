//! Programs about operations of hosts and streams, which follow the same rules as those of kernels.

use rushmem::{Operations, Pe};
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "hosts",
    title: "Operations of hosts and streams",
    file: file!(),
    text: include_str!("hosts.rs"),
    programs: &[
        host("host_writes_source_before_quiet", host_writes_source_before_quiet).races(),
        host("host_writes_source_after_quiet", host_writes_source_after_quiet),
        host("host_writes_source_of_blocking_put", host_writes_source_of_blocking_put),
        host("host_reads_result_before_quiet", host_reads_result_before_quiet).races(),
        host("host_reads_result_after_quiet", host_reads_result_after_quiet),
        host("host_signal_without_fence", host_signal_without_fence).races(),
        host("host_signal_behind_fence", host_signal_behind_fence),
        host("host_put_with_signal", host_put_with_signal),
        host("host_reads_after_sync_all", host_reads_after_sync_all).races(),
        host("host_reads_after_barrier_all", host_reads_after_barrier_all),
        host("host_reads_after_host_sync", host_reads_after_host_sync).races(),
        host("host_reads_after_quiet_and_host_sync", host_reads_after_quiet_and_host_sync),
        host("host_atomics_of_two_pes", host_atomics_of_two_pes),
        host("host_write_beside_atomic", host_write_beside_atomic).races(),
        host("host_get_beside_write", host_get_beside_write).races(),
        host("host_get_after_write_and_sync", host_get_after_write_and_sync),
        host("host_completes_puts_of_a_kernel", host_completes_puts_of_a_kernel),
        host("host_barrier_completes_puts_of_kernels", host_barrier_completes_puts_of_kernels),
        host("quiet_of_another_stream", quiet_of_another_stream).races(),
        host("quiet_of_a_stream_that_follows", quiet_of_a_stream_that_follows),
        host("stream_put_then_kernel_stores", stream_put_then_kernel_stores).races(),
        host("stream_put_quiet_then_kernel_stores", stream_put_quiet_then_kernel_stores),
        host("stream_get_then_kernel_loads", stream_get_then_kernel_loads).races(),
        host("stream_get_quiet_then_kernel_loads", stream_get_quiet_then_kernel_loads),
        host("stream_waits_for_signal", stream_waits_for_signal),
        host("stream_waits_beside_kernel", stream_waits_beside_kernel).races(),
        host("broadcast_of_hosts", broadcast_of_hosts),
        host("broadcast_of_streams_read_early", broadcast_of_streams_read_early).races(),
        host("broadcast_of_streams", broadcast_of_streams),
    ],
};

fn other(pe: &Pe) -> u32 {
    1 - pe.my_pe()
}

/// Writes to the source of a host's put before `quiet`.
fn host_writes_source_before_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.put_nbi(m.inbox, m.outbox, other(pe))?; // first
    pe.write(m.outbox, &[1; 8])?; // second
    pe.quiet()
}

/// Writes to the source of a host's put after `quiet`.
fn host_writes_source_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.put_nbi(m.inbox, m.outbox, other(pe))?;
    pe.quiet()?;
    pe.write(m.outbox, &[1; 8])
}

/// Writes to the source of a host's blocking put, which returns once the source is free.
fn host_writes_source_of_blocking_put(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.put(m.inbox, m.outbox, other(pe))?;
    pe.write(m.outbox, &[1; 8])
}

/// Reads the destination of a host's get before `quiet`.
fn host_reads_result_before_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.get_nbi(m.inbox, m.outbox, other(pe))?; // first
    let _ = pe.read(m.inbox)?; // second
    pe.quiet()
}

/// Reads the destination of a host's get after `quiet`.
fn host_reads_result_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.get_nbi(m.inbox, m.outbox, 1)?;
    pe.quiet()?;
    assert_eq!(pe.read(m.inbox)?[0], 20);
    Ok(())
}

/// Puts data and then sends a signal, without a fence between them.
fn host_signal_without_fence(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        pe.put(m.inbox, m.outbox, 1)?; // first
        return pe.signal_op(m.flag.set(1), 1);
    }
    pe.signal_wait_until(m.flag, Cmp::Eq, 1)?;
    let _ = pe.read(m.inbox)?; // second
    Ok(())
}

/// Puts data, fences, and sends a signal.
fn host_signal_behind_fence(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        pe.put(m.inbox, m.outbox, 1)?;
        pe.fence()?;
        return pe.signal_op(m.flag.set(1), 1);
    }
    pe.signal_wait_until(m.flag, Cmp::Eq, 1)?;
    assert_eq!(pe.read(m.inbox)?[0], 10);
    Ok(())
}

/// Puts data with a signal from the host, and reads the data on the other host after waiting for the signal.
fn host_put_with_signal(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        return pe.put_signal(m.inbox, m.outbox, m.flag.set(1), 1);
    }
    pe.signal_wait_until(m.flag, Cmp::Eq, 1)?;
    assert_eq!(pe.read(m.inbox)?[0], 10);
    Ok(())
}

/// Puts from each of two hosts to the other, and reads what has arrived after `sync_all`, which completes no put.
fn host_reads_after_sync_all(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.put(m.inbox, m.outbox, other(pe))?; // first
    pe.sync_all()?;
    let _ = pe.read(m.inbox)?; // second
    Ok(())
}

/// Puts from each of two hosts to the other, and reads what has arrived after `barrier_all`, which completes the puts.
fn host_reads_after_barrier_all(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.put(m.inbox, m.outbox, other(pe))?;
    pe.barrier_all()?;
    assert_eq!(pe.read(m.inbox)?[0], if pe.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

/// Puts from each of two hosts to the other, and reads what has arrived after `host_sync`, which completes no put.
fn host_reads_after_host_sync(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.put(m.inbox, m.outbox, other(pe))?; // first
    pe.host_sync()?;
    let _ = pe.read(m.inbox)?; // second
    Ok(())
}

/// Puts from each of two hosts to the other, and reads what has arrived after `quiet` and `host_sync`.
fn host_reads_after_quiet_and_host_sync(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.put(m.inbox, m.outbox, other(pe))?;
    pe.quiet()?;
    pe.host_sync()?;
    assert_eq!(pe.read(m.inbox)?[0], if pe.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

/// Adds to one counter from the hosts of two PEs.
fn host_atomics_of_two_pes(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let before = pe.atomic_fetch_add(m.words.at(0), 1, 0)?;
    assert!(before < 2);
    Ok(())
}

/// Writes a counter while the host of the other PE adds to it.
fn host_write_beside_atomic(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        pe.atomic_fetch_add(m.words.at(0), 1, 1)?; // first
        return Ok(());
    }
    pe.write(m.words, &[5; 8]) // second
}

/// Gets from memory that the host of the other PE writes.
fn host_get_beside_write(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        return pe.get(m.inbox, m.words, 1); // first
    }
    pe.write(m.words, &[5; 8]) // second
}

/// Gets after the host of the other PE has written and both hosts have synchronised.
fn host_get_after_write_and_sync(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.write(m.words, &[5; 8])?;
    pe.host_sync()?;
    pe.get(m.inbox, m.words, other(pe))?;
    assert_eq!(pe.read(m.inbox)?[0], 5);
    Ok(())
}

/// Completes the puts of a kernel by `quiet` of the host, which uses the same context.
fn host_completes_puts_of_a_kernel(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, just_post(m))?;
    pe.quiet()?;
    pe.host_sync()?;
    assert_eq!(pe.read(m.inbox)?[0], if pe.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

#[kernel]
fn just_post(ctx: &Ctx, m: Memory) -> Result {
    ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))
}

/// Completes the puts of a kernel by `barrier_all` of the hosts.
fn host_barrier_completes_puts_of_kernels(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, post_before_barrier(m))?;
    pe.barrier_all()?;
    assert_eq!(pe.read(m.inbox)?[0], if pe.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

#[kernel]
fn post_before_barrier(ctx: &Ctx, m: Memory) -> Result {
    ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))
}

/// Puts in a stream. Another stream calls `quiet`, but is not ordered after the first one.
fn quiet_of_another_stream(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (a, b) = (pe.stream()?, pe.stream()?);
    a.put_nbi(m.inbox, m.outbox, other(pe))?; // first
    b.quiet()?;
    b.launch(ONE, store_in_other_stream(m))?;
    b.wait()?;
    a.wait()
}

#[kernel]
fn store_in_other_stream(ctx: &Ctx, m: Memory) {
    ctx.local(m.outbox).store(0, 7); // second
}

/// Puts in a stream. Another stream waits for an event recorded after the put, and calls `quiet`.
fn quiet_of_a_stream_that_follows(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (a, b) = (pe.stream()?, pe.stream()?);
    a.put_nbi(m.inbox, m.outbox, other(pe))?;
    b.follow(&a.record()?)?;
    b.quiet()?;
    b.launch(ONE, store_in_following_stream(m))?;
    b.wait()
}

#[kernel]
fn store_in_following_stream(ctx: &Ctx, m: Memory) {
    ctx.local(m.outbox).store(0, 7);
}

/// Puts in a stream. The next kernel of the stream stores to the source.
fn stream_put_then_kernel_stores(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.put_nbi(m.inbox, m.outbox, other(pe))?; // first
    stream.launch(ONE, store_early(m))?;
    stream.quiet()?;
    stream.wait()
}

#[kernel]
fn store_early(ctx: &Ctx, m: Memory) {
    ctx.local(m.outbox).store(0, 7); // second
}

/// Puts in a stream and calls `quiet` there. The next kernel stores to the source.
fn stream_put_quiet_then_kernel_stores(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.put_nbi(m.inbox, m.outbox, other(pe))?;
    stream.quiet()?;
    stream.launch(ONE, store_late(m))?;
    stream.wait()
}

#[kernel]
fn store_late(ctx: &Ctx, m: Memory) {
    ctx.local(m.outbox).store(0, 7);
}

/// Gets in a stream. The next kernel of the stream loads the result.
fn stream_get_then_kernel_loads(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.get_nbi(m.inbox, m.outbox, other(pe))?; // first
    stream.launch(ONE, load_early(m))?;
    stream.quiet()?;
    stream.wait()
}

#[kernel]
fn load_early(ctx: &Ctx, m: Memory) {
    let _ = ctx.local(m.inbox).load(0); // second
}

/// Gets in a stream and calls `quiet` there. The next kernel loads the result.
fn stream_get_quiet_then_kernel_loads(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.get_nbi(m.inbox, m.outbox, 1)?;
    stream.quiet()?;
    stream.launch(ONE, load_late(m))?;
    stream.wait()
}

#[kernel]
fn load_late(ctx: &Ctx, m: Memory) {
    assert_eq!(ctx.local(m.inbox).load(0), 20);
}

/// Waits for a signal in a stream. The next kernel of the stream loads the data.
fn stream_waits_for_signal(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        return pe.put_signal(m.inbox, m.outbox, m.flag.set(1), 1);
    }
    let stream = pe.stream()?;
    stream.signal_wait_until(m.flag, Cmp::Eq, 1)?;
    stream.launch(ONE, load_announced(m))?;
    stream.wait()
}

#[kernel]
fn load_announced(ctx: &Ctx, m: Memory) {
    assert_eq!(ctx.local(m.inbox).load(0), 10);
}

/// Waits for a signal in a stream, while a kernel outside the stream loads the data.
fn stream_waits_beside_kernel(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        return pe.put_signal(m.inbox, m.outbox, m.flag.set(1), 1); // first
    }
    let stream = pe.stream()?;
    stream.signal_wait_until(m.flag, Cmp::Eq, 1)?;
    pe.run(ONE, load_unannounced(m))?;
    stream.wait()
}

#[kernel]
fn load_unannounced(ctx: &Ctx, m: Memory) {
    let _ = ctx.local(m.inbox).load(0); // second
}

/// Broadcasts on the hosts, in a call that returns once the result is available.
fn broadcast_of_hosts(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.broadcast(Team::WORLD, m.inbox, m.outbox, 0)?;
    assert_eq!(pe.read(m.inbox)?[0], 10);
    pe.write(m.outbox, &[1; 8])
}

/// Broadcasts on streams, and reads the result before it waits for the stream.
fn broadcast_of_streams_read_early(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.broadcast(Team::WORLD, m.inbox, m.outbox, 0)?; // first
    let _ = pe.read(m.inbox)?; // second
    stream.wait()
}

/// Broadcasts on streams, and reads the result after it has waited for the stream.
fn broadcast_of_streams(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.broadcast(Team::WORLD, m.inbox, m.outbox, 0)?;
    stream.wait()?;
    assert_eq!(pe.read(m.inbox)?[0], 10);
    Ok(())
}
