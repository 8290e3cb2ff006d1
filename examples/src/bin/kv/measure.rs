//! Runs and times the KV cache transfers. PE 0 prints the results.

use std::cell::Cell;
use std::time::Instant;

use rushmem::Pe;
use rushmem_example_kernels::KvShape;
use rushmem_examples::{Result, largest, median};

use crate::args::{Args, CHUNK};
use crate::cache::Cache;

/// Verifies and measures the KV cache transfers, and prints the result on PE 0.
pub(crate) fn run(pe: &Pe, args: &Args, shape: KvShape) -> Result<()> {
    let cache = Cache::new(pe, shape, args.memory(pe.is_gpu()))?;
    let (stream, posts) = (pe.stream()?, pe.stream()?);
    let round = Cell::new(0);
    let next_round = || {
        round.set(round.get() + 1);
        round.get()
    };
    let wait = || -> Result<()> {
        stream.wait()?;
        Ok(posts.wait()?)
    };

    // Decode computes each layer while later ones are still arriving.
    let mut both = || {
        cache.attend(&stream, next_round())?;
        cache.send(&stream, &posts, round.get())?;
        wait()
    };
    both()?;
    pe.host_sync()?;
    verify(&cache, "a transfer by kernels")?;
    let both = measure(pe, args, &mut both)?;
    let send = measure(pe, args, &mut || {
        cache.send(&stream, &posts, next_round())?;
        wait()
    })?;
    let attend = measure(pe, args, &mut || {
        // All layers of the decode PE have already arrived.
        cache.attend(&stream, round.get())?;
        wait()
    })?;
    let copy = measure(pe, args, &mut || {
        cache.copy(&stream)?;
        wait()
    })?;

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
        print(&cache, &Seconds { send, both, attend, copy, put });
    }
    cache.end()
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
    put: f64,
}

fn print(cache: &Cache, seconds: &Seconds) {
    let shape = &cache.shape;
    let chunks = shape.layers as usize * shape.pages as usize * shape.page_chunks(0) as usize;
    let bytes = (chunks * shape.prefill as usize * CHUNK as usize) as f64;
    let rate = |seconds: f64| bytes / seconds / 1e9;
    let line = |what: &str, seconds: f64| println!("  {what:<34} {:10.3} ms", seconds * 1e3);
    line("transfer alone", seconds.send);
    line("reads of decode alone", seconds.attend);
    line("transfer, and reads of each layer", seconds.both);
    let page_bytes = |pe| shape.page_chunks(pe) * CHUNK;
    println!(
        "PASS kv: {} layers of {} pages, prefill {} x {} bytes, decode {} x {} bytes ({}, PE {} by {}), {:.2} MB in \
         {:.3} ms, {:.2} GB/s; puts of the host {:.2} GB/s, local copy {:.2} GB/s; every page verified",
        shape.layers,
        shape.pages,
        shape.prefill,
        page_bytes(0),
        shape.decode,
        page_bytes(shape.prefill),
        cache.pe.machine(),
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
