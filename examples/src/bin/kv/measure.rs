//! Runs and times the KV cache transfers. PE 0 prints the results.

use std::cell::Cell;
use std::time::Instant;

use rushmem::{Pe, Stream};
use rushmem_example_kernels::KvShape;
use rushmem_examples::{Result, largest, median};

use crate::args::{Args, CHUNK};
use crate::cache::Cache;
use crate::gpu_memory::Copies;

/// Verifies and measures the KV cache transfers, and prints the result on PE 0.
pub(crate) fn run(pe: &Pe, args: &Args, shape: KvShape) -> Result<()> {
    let cache = Cache::new(pe, shape, args.memory(pe.is_gpu()))?;
    let (stream, stores, posts) = (pe.stream()?, [pe.stream()?, pe.stream()?], pe.stream()?);
    let stores = stores.each_ref();
    let rounds = args.rounds(pe.is_gpu());
    let round = Cell::new(0);
    let next_round = || {
        round.set(round.get() + 1);
        round.get()
    };
    let wait = || -> Result<()> {
        stores.into_iter().chain([&stream, &posts]).try_for_each(Stream::wait)?;
        Ok(())
    };

    // Decode computes each layer while later ones are still arriving.
    let mut both = || {
        cache.attend(&stream, next_round())?;
        cache.send(stores, &posts, round.get())?;
        wait()
    };
    both()?;
    pe.host_sync()?;
    verify(&cache, "a transfer by kernels")?;
    let both = measure(pe, args, &mut both)?;
    let send = measure(pe, args, &mut || {
        (0..rounds).try_for_each(|_| cache.send(stores, &posts, next_round()))?;
        wait()
    })? / f64::from(rounds);
    let attend = measure(pe, args, &mut || {
        // All layers of the decode PE have already arrived.
        cache.attend(&stream, round.get())?;
        wait()
    })?;
    let copy = measure(pe, args, &mut || {
        (0..rounds).try_for_each(|_| cache.copy(&stream))?;
        wait()
    })? / f64::from(rounds);
    let peer_copy = measure_peer_copy(&cache, args, rounds)?;

    cache.reset()?;
    let mut put = || {
        cache.put(&stream, next_round())?;
        wait()
    };
    put()?;
    pe.host_sync()?;
    verify(&cache, "puts of the host")?;
    let put = measure(pe, args, &mut put)?;
    if pe.my_pe() == 0 {
        print(&cache, args, &Seconds { send, both, attend, copy, peer_copy, put });
    }
    cache.end()
}

/// Returns the duration of plain copies of the same bytes to the same peers, or `None` if there are no such copies.
/// Overwrites pages. Collective.
fn measure_peer_copy(cache: &Cache, args: &Args, rounds: u32) -> Result<Option<f64>> {
    let pe = cache.pe;
    let Some(copies) = Copies::new(pe)? else { return Ok(None) };
    let copied = cache.peer_copy(&copies)?;
    copies.stream.wait()?;
    if largest(pe, f64::from(u8::from(!copied)))? > 0.0 {
        return Ok(None);
    }
    let seconds = measure(pe, args, &mut || {
        for _ in 0..rounds {
            cache.peer_copy(&copies)?;
        }
        Ok(copies.stream.wait()?)
    })?;
    Ok(Some(seconds / f64::from(rounds)))
}

/// Verifies a transfer on every PE: the pages, and the checksums that decode PEs computed. Collective.
fn verify(cache: &Cache, how: &str) -> Result<()> {
    cache.verify_pages(how)?;
    if !cache.is_prefill() {
        cache.verify_sums()?;
    }
    Ok(cache.pe.host_sync()?)
}

/// Duration of each kind of transfer on the slowest PE, in seconds.
struct Seconds {
    send: f64,
    both: f64,
    attend: f64,
    copy: f64,
    peer_copy: Option<f64>,
    put: f64,
}

fn print(cache: &Cache, args: &Args, seconds: &Seconds) {
    let shape = &cache.shape;
    let chunks = shape.layers as usize * shape.pages as usize * shape.page_chunks(0) as usize;
    let bytes = (chunks * shape.prefill as usize * CHUNK as usize) as f64;
    let rate = |seconds: f64| bytes / seconds / 1e9;
    let line = |what: &str, seconds: f64| println!("  {what:<34} {:10.3} ms", seconds * 1e3);
    line("transfer alone", seconds.send);
    line("reads of decode alone", seconds.attend);
    line("transfer, and reads of each layer", seconds.both);
    let page_bytes = |pe| shape.page_chunks(pe) * CHUNK;
    let peer_copy = seconds.peer_copy.map_or(String::new(), |copy| {
        format!("{:.2} of the peer copy's {:.2} GB/s; ", copy / seconds.send, rate(copy))
    });
    println!(
        "PASS kv: {} layers of {} pages, prefill {} x {} bytes, decode {} x {} bytes ({}, {} memory, PE {} by {}), {:.2} \
         MB in {:.3} ms, {:.2} GB/s; {peer_copy}puts of the host {:.2} GB/s, local copy {:.2} GB/s; every page verified",
        shape.layers,
        shape.pages,
        shape.prefill,
        page_bytes(0),
        shape.decode,
        page_bytes(shape.prefill),
        cache.pe.machine(),
        args.memory(cache.pe.is_gpu()).name(),
        shape.prefill,
        cache.route(shape.prefill),
        bytes / 1e6,
        seconds.send * 1e3,
        rate(seconds.send),
        rate(seconds.put),
        rate(seconds.copy)
    );
}

/// Returns the median duration of `step` on the slowest PE, in seconds. Collective.
fn measure(pe: &Pe, args: &Args, step: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    let mut all = Vec::new();
    for _ in 0..args.repetitions {
        pe.host_sync()?;
        let start = Instant::now();
        step()?;
        // Avoid a division by zero when a step takes no measurable time.
        all.push(largest(pe, start.elapsed().as_secs_f64().max(1e-9))?);
    }
    Ok(median(all))
}
