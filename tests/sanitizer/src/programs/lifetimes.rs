//! Programs about the lifetimes of memory. Nobody may use an object after its `free`.

use rushmem::{Operations, Pages, Pe};
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "lifetimes",
    title: "The life of memory",
    file: file!(),
    text: include_str!("lifetimes.rs"),
    programs: &[
        host("destination_freed_during_put", destination_freed_during_put).races(),
        host("destination_freed_after_quiet", destination_freed_after_quiet),
        host("destination_freed_after_quiet_of_the_host", destination_freed_after_quiet_of_the_host),
        host("destination_freed_after_barrier", destination_freed_after_barrier),
        host("source_freed_during_put", source_freed_during_put).races(),
        host("source_freed_after_flush", source_freed_after_flush),
        host("result_freed_during_get", result_freed_during_get).races(),
        host("result_freed_after_quiet", result_freed_after_quiet),
        host("object_freed_under_a_kernel", object_freed_under_a_kernel).races(),
        host("object_freed_after_its_kernel", object_freed_after_its_kernel),
        host("memory_given_out_again", memory_given_out_again),
        host("object_resized_after_quiet", object_resized_after_quiet),
        host("object_resized_during_put", object_resized_during_put).races(),
        host("local_buffer_unregistered_during_put", local_buffer_unregistered_during_put).races(),
        host("local_buffer_unregistered_after_quiet", local_buffer_unregistered_after_quiet),
        host("window_unregistered_during_put", window_unregistered_during_put).races(),
        host("window_unregistered_after_quiet", window_unregistered_after_quiet),
    ],
};

/// Frees the destination of a put that no `quiet` has completed.
fn destination_freed_during_put(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, put_to_object(m, object))?;
    pe.free(object) // second
}

#[kernel]
fn put_to_object(ctx: &Ctx, m: Memory, object: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, object, m.outbox, ctx.pe_after(1)) // first
}

/// Frees the destination of a put after the kernel that made the put has called `quiet`.
fn destination_freed_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, put_to_object_and_quiet(m, object))?;
    pe.free(object)
}

#[kernel]
fn put_to_object_and_quiet(ctx: &Ctx, m: Memory, object: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, object, m.outbox, ctx.pe_after(1))?;
    ctx.quiet(Thread)
}

/// Frees the destination of a put after the host has called `quiet`.
fn destination_freed_after_quiet_of_the_host(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, only_put_to_object(m, object))?;
    pe.quiet()?;
    pe.free(object)
}

#[kernel]
fn only_put_to_object(ctx: &Ctx, m: Memory, object: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, object, m.outbox, ctx.pe_after(1))
}

/// Frees the destination of a put after a barrier of the kernels.
fn destination_freed_after_barrier(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, put_to_object_and_barrier(m, object))?;
    pe.free(object)
}

#[kernel]
fn put_to_object_and_barrier(ctx: &Ctx, m: Memory, object: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, object, m.outbox, ctx.pe_after(1))?;
    ctx.barrier_all(Thread)
}

/// Frees the source of a put that no `quiet` has completed.
fn source_freed_during_put(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, put_from_object(m, object))?;
    pe.free(object) // second
}

#[kernel]
fn put_from_object(ctx: &Ctx, m: Memory, object: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, m.inbox, object, ctx.pe_after(1)) // first
}

/// Frees the source of a put after `flush`.
fn source_freed_after_flush(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, put_from_object_and_flush(m, object))?;
    pe.free(object)
}

#[kernel]
fn put_from_object_and_flush(ctx: &Ctx, m: Memory, object: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, m.inbox, object, ctx.pe_after(1))?;
    ctx.flush(Thread)
}

/// Frees the destination of a get that no `quiet` has completed.
fn result_freed_during_get(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, get_to_object(m, object))?;
    pe.free(object) // second
}

#[kernel]
fn get_to_object(ctx: &Ctx, m: Memory, object: SymSlice<u64>) -> Result {
    ctx.get_nbi(Thread, object, m.outbox, ctx.pe_after(1)) // first
}

/// Frees the destination of a get after `quiet`.
fn result_freed_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.run(ONE, get_to_object_and_quiet(m, object))?;
    assert_eq!(pe.read(object)?[0], 20);
    pe.free(object)
}

#[kernel]
fn get_to_object_and_quiet(ctx: &Ctx, m: Memory, object: SymSlice<u64>) -> Result {
    ctx.get_nbi(Thread, object, m.outbox, 1)?;
    ctx.quiet(Thread)
}

/// Frees an object that a kernel of this PE may still load.
fn object_freed_under_a_kernel(pe: &Pe, _: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    let launch = pe.launch(ONE, load_object(object))?;
    pe.free(object)?; // second
    launch.wait()
}

#[kernel]
fn load_object(ctx: &Ctx, object: SymSlice<u64>) {
    let _ = ctx.local(object).load(0); // first
}

/// Frees an object after waiting for the kernel that loads it.
fn object_freed_after_its_kernel(pe: &Pe, _: Memory) -> rushmem::Result<()> {
    let object = pe.alloc::<u64>(8)?;
    pe.launch(ONE, load_zero(object))?.wait()?;
    pe.free(object)
}

#[kernel]
fn load_zero(ctx: &Ctx, object: SymSlice<u64>) {
    assert_eq!(ctx.local(object).load(0), 0);
}

/// Allocates a second object in the same memory. Accesses to the two objects do not conflict.
fn memory_given_out_again(pe: &Pe, _: Memory) -> rushmem::Result<()> {
    for round in 1..=2 {
        let object = pe.alloc::<u64>(8)?;
        assert_eq!(pe.read(object)?, [0; 8]);
        pe.host_sync()?;
        pe.run(ONE, put_value_and_quiet(object, round))?;
        pe.free(object)?;
    }
    Ok(())
}

#[kernel]
fn put_value_and_quiet(ctx: &Ctx, object: SymSlice<u64>, value: u64) -> Result {
    ctx.p(object.at(0), value, ctx.pe_after(1))?;
    ctx.quiet(Thread)
}

/// Changes the length of an object after `quiet`, and uses it again.
fn object_resized_after_quiet(pe: &Pe, _: Memory) -> rushmem::Result<()> {
    let small = pe.alloc::<u64>(8)?;
    pe.run(ONE, put_value_and_quiet(small, 1))?;
    pe.host_sync()?;
    let large = pe.realloc(small, 1024)?;
    assert_eq!(pe.read_one(large.at(0))?, 1);
    pe.host_sync()?;
    pe.run(ONE, put_value_and_quiet(large, 2))
}

/// Changes the length of an object to which a put may still write.
fn object_resized_during_put(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let small = pe.alloc::<u64>(8)?;
    pe.run(ONE, put_to_small_object(m, small))?;
    pe.realloc(small, 1024)?; // second
    Ok(())
}

#[kernel]
fn put_to_small_object(ctx: &Ctx, m: Memory, object: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, object, m.outbox, ctx.pe_after(1)) // first
}

/// Unregisters a local buffer while a put still reads from it.
fn local_buffer_unregistered_during_put(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let buffer = pe.register(vec![1_u64; 8])?;
    pe.run(ONE, put_from_local(m, buffer.handle()))?;
    pe.unregister(buffer)?; // second
    Ok(())
}

#[kernel]
fn put_from_local(ctx: &Ctx, m: Memory, buffer: Local<u64>) -> Result {
    ctx.put_nbi(Thread, m.inbox, buffer, ctx.pe_after(1)) // first
}

/// Unregisters a local buffer after `quiet`.
fn local_buffer_unregistered_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let buffer = pe.register(vec![1_u64; 8])?;
    pe.run(ONE, put_from_local_and_quiet(m, buffer.handle()))?;
    assert_eq!(pe.unregister(buffer)?, [1; 8]);
    Ok(())
}

#[kernel]
fn put_from_local_and_quiet(ctx: &Ctx, m: Memory, buffer: Local<u64>) -> Result {
    ctx.put_nbi(Thread, m.inbox, buffer, ctx.pe_after(1))?;
    ctx.quiet(Thread)
}

/// Unregisters a window while a put of another PE may still write to it.
fn window_unregistered_during_put(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let window = pe.register_symmetric(Pages::zeroed(8))?;
    pe.run(ONE, put_to_window(m, window.handle()))?;
    pe.unregister_symmetric(window)?; // second
    Ok(())
}

#[kernel]
fn put_to_window(ctx: &Ctx, m: Memory, window: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, window, m.outbox, ctx.pe_after(1)) // first
}

/// Unregisters a window after `quiet`, and reads the buffer.
fn window_unregistered_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let window = pe.register_symmetric(Pages::zeroed(8))?;
    pe.run(ONE, put_to_window_and_quiet(m, window.handle()))?;
    let buffer = pe.unregister_symmetric(window)?;
    assert_eq!(buffer[0], if pe.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

#[kernel]
fn put_to_window_and_quiet(ctx: &Ctx, m: Memory, window: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, window, m.outbox, ctx.pe_after(1))?;
    ctx.quiet(Thread)
}
