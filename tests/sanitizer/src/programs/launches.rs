//! Programs about launches, streams, and a PE's own memory. A host is ordered after a launch once it has waited for it.

use rushmem::{Operations, Pe};
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "launches",
    title: "Launches and streams",
    file: file!(),
    text: include_str!("launches.rs"),
    programs: &[
        host("host_reads_before_wait", host_reads_before_wait).races().pes(1),
        host("host_reads_after_wait", host_reads_after_wait).pes(1),
        host("host_reads_after_drop", host_reads_after_drop).pes(1),
        host("host_writes_after_launch", host_writes_after_launch).races().pes(1),
        host("host_writes_before_launch", host_writes_before_launch).pes(1),
        host("host_reads_other_half", host_reads_other_half).pes(1),
        host("local_buffer_written_after_launch", local_buffer_written_after_launch).races().pes(1),
        host("launches_in_a_row", launches_in_a_row).pes(1),
        host("launch_beside_stream", launch_beside_stream).races().pes(1),
        host("stream_after_wait_for_launch", stream_after_wait_for_launch).pes(1),
        host("kernels_of_one_stream", kernels_of_one_stream).pes(1),
        host("kernels_of_two_streams", kernels_of_two_streams).races().pes(1),
        host("kernels_of_two_streams_with_event", kernels_of_two_streams_with_event).pes(1),
        host("event_recorded_too_early", event_recorded_too_early).races().pes(1),
        host("kernels_of_two_streams_with_wait", kernels_of_two_streams_with_wait).pes(1),
        host("host_reads_before_stream_wait", host_reads_before_stream_wait).races().pes(1),
        host("host_reads_after_stream_wait", host_reads_after_stream_wait).pes(1),
        host("next_kernel_stores_to_source", next_kernel_stores_to_source).races(),
        host("next_kernel_stores_to_source_after_quiet", next_kernel_stores_to_source_after_quiet),
        host("next_kernel_calls_quiet", next_kernel_calls_quiet),
        host("launches_of_two_pes_with_host_sync", launches_of_two_pes_with_host_sync),
        host("host_sync_before_wait", host_sync_before_wait).races(),
        host("host_sync_without_quiet", host_sync_without_quiet).races(),
        host("host_reads_after_wait_of_its_kernel", host_reads_after_wait_of_its_kernel),
        host("kernel_of_a_graph", kernel_of_a_graph).pes(1),
        host("graph_in_two_streams", graph_in_two_streams).pes(1),
        host("graph_beside_a_kernel", graph_beside_a_kernel).races().pes(1),
    ],
};

#[kernel]
fn store_seven(ctx: &Ctx, m: Memory) {
    ctx.local(m.words).store(0, 7);
}

#[kernel]
fn expect_seven(ctx: &Ctx, m: Memory) {
    assert_eq!(ctx.local(m.words).load(0), 7);
}

/// Reads the memory to which a kernel stores before waiting for the launch.
fn host_reads_before_wait(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let launch = pe.launch(ONE, store_beside_host(m))?;
    let _ = pe.read(m.words)?; // second
    launch.wait()
}

#[kernel]
fn store_beside_host(ctx: &Ctx, m: Memory) {
    ctx.local(m.words).store(0, 7); // first
}

/// Reads the memory to which a kernel has stored after waiting for the launch.
fn host_reads_after_wait(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.launch(ONE, store_seven(m))?.wait()?;
    assert_eq!(pe.read(m.words)?[0], 7);
    Ok(())
}

/// Drops a launch, and reads the memory to which its kernel stores. The read itself waits for the launch.
fn host_reads_after_drop(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    drop(pe.launch(ONE, store_seven(m))?);
    assert_eq!(pe.read(m.words)?[0], 7);
    Ok(())
}

/// Writes from the host to memory that a running kernel loads.
fn host_writes_after_launch(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let launch = pe.launch(ONE, load_beside_host(m))?;
    pe.write(m.words, &[7; 8])?; // second
    launch.wait()
}

#[kernel]
fn load_beside_host(ctx: &Ctx, m: Memory) {
    let _ = ctx.local(m.words).load(0); // first
}

/// Writes from the host to memory that a kernel loads, before launching the kernel.
fn host_writes_before_launch(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.write(m.words, &[7; 8])?;
    pe.launch(ONE, expect_seven(m))?.wait()
}

/// Reads one half of an array while a kernel stores to the other half.
fn host_reads_other_half(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let launch = pe.launch(ONE, store_seven(m))?;
    assert_eq!(pe.read(m.words.slice(4..8))?, [0; 4]);
    launch.wait()
}

/// Writes from the host to a local buffer while a kernel loads from it.
fn local_buffer_written_after_launch(pe: &Pe, _: Memory) -> rushmem::Result<()> {
    let buffer = pe.register(vec![0_u64; 8])?;
    let launch = pe.launch(ONE, load_local(buffer.handle()))?;
    pe.write(buffer.handle(), &[1; 8])?; // second
    launch.wait()
}

#[kernel]
fn load_local(ctx: &Ctx, buffer: Local<u64>) {
    let _ = ctx.local(buffer).load(0); // first
}

/// Launches two kernels, of which the second starts after the first has completed.
fn launches_in_a_row(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let first = pe.launch(ONE, store_seven(m))?;
    pe.launch(ONE, expect_seven(m))?.wait()?;
    first.wait()
}

/// Launches one kernel by itself and another one in a stream.
fn launch_beside_stream(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    let launch = pe.launch(ONE, store_of_launch(m))?;
    stream.launch(ONE, load_of_stream(m))?;
    launch.wait()?;
    stream.wait()
}

#[kernel]
fn store_of_launch(ctx: &Ctx, m: Memory) {
    ctx.local(m.words).store(0, 7); // first
}

#[kernel]
fn load_of_stream(ctx: &Ctx, m: Memory) {
    let _ = ctx.local(m.words).load(0); // second
}

/// Launches a kernel and waits for it, before it launches another one in a stream.
fn stream_after_wait_for_launch(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    pe.launch(ONE, store_seven(m))?.wait()?;
    stream.launch(ONE, expect_seven(m))?;
    stream.wait()
}

/// Launches two kernels in one stream.
fn kernels_of_one_stream(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.launch(ONE, store_seven(m))?;
    stream.launch(ONE, expect_seven(m))?;
    stream.wait()
}

/// Launches two kernels in two streams. Nothing orders the streams.
fn kernels_of_two_streams(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (a, b) = (pe.stream()?, pe.stream()?);
    a.launch(ONE, store_of_stream(m))?;
    b.launch(ONE, load_of_other_stream(m))?;
    a.wait()?;
    b.wait()
}

#[kernel]
fn store_of_stream(ctx: &Ctx, m: Memory) {
    ctx.local(m.words).store(0, 7); // first
}

#[kernel]
fn load_of_other_stream(ctx: &Ctx, m: Memory) {
    let _ = ctx.local(m.words).load(0); // second
}

/// Orders the second stream after an event that the first recorded after its kernel.
fn kernels_of_two_streams_with_event(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (a, b) = (pe.stream()?, pe.stream()?);
    a.launch(ONE, store_seven(m))?;
    b.follow(&a.record()?)?;
    b.launch(ONE, expect_seven(m))?;
    b.wait()
}

/// Orders the second stream after an event that the first recorded before its kernel.
fn event_recorded_too_early(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (a, b) = (pe.stream()?, pe.stream()?);
    let event = a.record()?;
    a.launch(ONE, store_behind_event(m))?;
    b.follow(&event)?;
    b.launch(ONE, load_behind_event(m))?;
    a.wait()?;
    b.wait()
}

#[kernel]
fn store_behind_event(ctx: &Ctx, m: Memory) {
    ctx.local(m.words).store(0, 7); // first
}

#[kernel]
fn load_behind_event(ctx: &Ctx, m: Memory) {
    let _ = ctx.local(m.words).load(0); // second
}

/// Waits for the first stream before it uses the second one.
fn kernels_of_two_streams_with_wait(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (a, b) = (pe.stream()?, pe.stream()?);
    a.launch(ONE, store_seven(m))?;
    a.wait()?;
    b.launch(ONE, expect_seven(m))?;
    b.wait()
}

/// Gets in a stream, and reads the result before it waits for the stream.
fn host_reads_before_stream_wait(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.get(m.inbox, m.outbox, 0)?; // first
    let _ = pe.read(m.inbox)?; // second
    stream.wait()
}

/// Gets in a stream, and reads the result after it has waited for the stream.
fn host_reads_after_stream_wait(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.get(m.inbox, m.outbox, 0)?;
    stream.wait()?;
    assert_eq!(pe.read(m.inbox)?[0], 10);
    Ok(())
}

/// Puts in one kernel, and stores to the source in the next. The completion of a kernel completes no put.
fn next_kernel_stores_to_source(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.launch(ONE, post_from_outbox(m))?;
    stream.launch(ONE, store_to_outbox(m))?;
    stream.quiet()?;
    stream.wait()
}

#[kernel]
fn post_from_outbox(ctx: &Ctx, m: Memory) -> Result {
    ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1)) // first
}

#[kernel]
fn store_to_outbox(ctx: &Ctx, m: Memory) {
    ctx.local(m.outbox).store(0, 7); // second
}

/// Calls `quiet` of the stream between the put of a kernel and the store of the next one.
fn next_kernel_stores_to_source_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.launch(ONE, only_post(m))?;
    stream.quiet()?;
    stream.launch(ONE, only_store(m))?;
    stream.wait()
}

#[kernel]
fn only_post(ctx: &Ctx, m: Memory) -> Result {
    ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))
}

#[kernel]
fn only_store(ctx: &Ctx, m: Memory) {
    ctx.local(m.outbox).store(0, 7);
}

/// Puts in one kernel. The next kernel calls `quiet` and stores to the source.
fn next_kernel_calls_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, only_post(m))?;
    pe.run(ONE, quiet_and_store(m))
}

#[kernel]
fn quiet_and_store(ctx: &Ctx, m: Memory) -> Result {
    ctx.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 7);
    Ok(())
}

/// Puts in a kernel that calls `quiet`, waits for it, and synchronises the hosts.
fn launches_of_two_pes_with_host_sync(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_and_quiet(m))?;
    pe.host_sync()?;
    assert_eq!(pe.read(m.inbox)?[0], if pe.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

#[kernel]
fn put_and_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.put(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    ctx.quiet(Thread)
}

/// Synchronises the hosts while the kernel that puts may still run.
fn host_sync_before_wait(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        let launch = pe.launch(ONE, put_beside_sync(m))?;
        pe.host_sync()?;
        return launch.wait();
    }
    pe.host_sync()?;
    let _ = pe.read(m.inbox)?; // second
    Ok(())
}

#[kernel]
fn put_beside_sync(ctx: &Ctx, m: Memory) -> Result {
    ctx.put(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.quiet(Thread)
}

/// Puts in a kernel that does not call `quiet`, waits for it, and synchronises the hosts.
fn host_sync_without_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_without_quiet(m))?;
    pe.host_sync()?;
    let _ = pe.read(m.inbox)?; // second
    Ok(())
}

#[kernel]
fn put_without_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.put(Thread, m.inbox, m.outbox, ctx.pe_after(1)) // first
}

/// Reads data after a kernel of the same PE has waited for its signal.
fn host_reads_after_wait_of_its_kernel(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_signal_and_wait(m))?;
    assert_eq!(pe.read(m.inbox)?[0], if pe.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

#[kernel]
fn put_signal_and_wait(ctx: &Ctx, m: Memory) -> Result {
    ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), ctx.pe_after(1))?;
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    Ok(())
}

/// Launches a graph of two kernels, and reads after the wait.
fn kernel_of_a_graph(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    let graph = stream.capture(|captured| {
        captured.launch(ONE, store_seven(m))?;
        captured.launch(ONE, expect_seven(m))
    })?;
    graph.launch(&stream)?;
    stream.wait()?;
    assert_eq!(pe.read(m.words)?[0], 7);
    Ok(())
}

/// Launches a graph in two streams. The second launch starts after the first has completed.
fn graph_in_two_streams(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (a, b) = (pe.stream()?, pe.stream()?);
    let graph = a.capture(|captured| captured.launch(ONE, count_launches(m)))?;
    graph.launch(&a)?;
    graph.launch(&b)?;
    a.wait()?;
    b.wait()?;
    assert_eq!(pe.read(m.words)?[0], 2);
    Ok(())
}

#[kernel]
fn count_launches(ctx: &Ctx, m: Memory) {
    let word = ctx.local(m.words);
    word.store(0, word.load(0) + 1);
}

/// Launches a graph in one stream, and a kernel that loads its result in another one.
fn graph_beside_a_kernel(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (a, b) = (pe.stream()?, pe.stream()?);
    let graph = a.capture(|captured| captured.launch(ONE, store_of_graph(m)))?;
    graph.launch(&a)?;
    b.launch(ONE, load_beside_graph(m))?;
    a.wait()?;
    b.wait()
}

#[kernel]
fn store_of_graph(ctx: &Ctx, m: Memory) {
    ctx.local(m.words).store(0, 7); // first
}

#[kernel]
fn load_beside_graph(ctx: &Ctx, m: Memory) {
    let _ = ctx.local(m.words).load(0); // second
}
