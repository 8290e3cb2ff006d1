//! Measures how long a thread waits for a core on which a program polls. On machines with few cores, this bounds the
//! latency of the software ConnectX, whose engine thread shares cores with polling programs.
//!
//! Run `cargo bench -p rushmem-softnic --bench waits` on Linux, with at least two cores. Without permission to use
//! real-time priority, the thread waits for the program's time slice to expire, and the results are milliseconds.
#![allow(unsafe_code, reason = "system calls that choose cores, priorities and sleeps")]

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of measurements per row of the printed tables.
const TURNS: usize = 5_000;

fn bind(core: usize) {
    // SAFETY: a zeroed set is empty, and `core` is below its size.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(done, 0, "core {core}: {}", io::Error::last_os_error());
}

/// Sets real-time priority and precise timers for the calling thread, like those of an engine thread.
fn hurry() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: changes properties of the calling thread, from a live parameter.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) != 0
    };
    if refused {
        println!("no real-time priority: {}", io::Error::last_os_error());
    }
}

/// Waits until `fd` is readable, for at most `time`, by the system call that an engine thread uses.
fn wait(fd: RawFd, time: Option<Duration>) {
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let time = time
        .map(|time| libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(time.subsec_nanos() as i32) });
    let limit = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one valid entry, and a valid timeout or none.
    unsafe { libc::ppoll(&raw mut entry, 1, limit, std::ptr::null()) };
}

/// Formats the median, or a dash if there are no values.
fn median(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).map_or_else(|| "-".into(), |value| format!("{value:.1}"))
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Time at which the polling thread last ran, in nanoseconds since the benchmark started.
static RAN: AtomicU64 = AtomicU64::new(0);
/// Asks the polling thread to store the time of its next iteration in `RAN_FIRST`.
static ASKED: AtomicBool = AtomicBool::new(false);
static RAN_FIRST: AtomicU64 = AtomicU64::new(0);

/// Polls on `core` like a program until `stop` is set, and records in [`RAN`] when the thread last ran.
fn poll(core: usize, start: Instant, stop: &AtomicBool) {
    bind(core);
    let now = || start.elapsed().as_nanos() as u64;
    while !stop.load(Ordering::Relaxed) {
        if ASKED.swap(false, Ordering::Relaxed) {
            RAN_FIRST.store(now(), Ordering::Relaxed);
        }
        RAN.store(now(), Ordering::Relaxed);
    }
}

/// Measures sleeps on the core of a polling thread. Prints how long a sleep takes, and how much of it passes before,
/// while and after the polling thread runs.
fn sleeps(start: Instant) {
    println!(
        "sleep on the core of a polling program, medians in us; the parts are of sleeps in which it ran"
    );
    println!(
        "{:>6} {:>8} {:>10} {:>14} {:>12} {:>13}",
        "wanted", "took", "it ran in", "before it ran", "it ran for", "after it ran"
    );
    for wanted in [0, 2, 5, 8, 10, 12, 16, 32] {
        let (mut took, mut before, mut during, mut after) = (vec![], vec![], vec![], vec![]);
        for _ in 0..TURNS {
            let work = Instant::now();
            while work.elapsed() < Duration::from_micros(3) {}
            ASKED.store(true, Ordering::Relaxed);
            let begin = start.elapsed();
            wait(-1, Some(Duration::from_micros(wanted) + Duration::from_nanos(1)));
            let end = start.elapsed();
            took.push(micros(end - begin));
            if !ASKED.swap(false, Ordering::Relaxed) {
                let first = Duration::from_nanos(RAN_FIRST.load(Ordering::Relaxed));
                let last = Duration::from_nanos(RAN.load(Ordering::Relaxed));
                before.push(micros(first.saturating_sub(begin)));
                during.push(micros(last.saturating_sub(first)));
                after.push(micros(end.saturating_sub(last)));
            }
        }
        let ran = format!("{:.0} %", 100.0 * before.len() as f64 / TURNS as f64);
        let parts = [before, during, after].map(median);
        println!(
            "{wanted:>6} {:>8} {ran:>10} {:>14} {:>12} {:>13}",
            median(took),
            parts[0],
            parts[1],
            parts[2]
        );
    }
}

/// Measures how quickly a thread on core 0 wakes a sleeping one on `core`, where another thread polls. Prints the
/// latency, and how long the waking system call takes.
fn wakes(start: Instant, what: &str, core: usize) {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(fd >= 0, "eventfd: {}", io::Error::last_os_error());
    let (rang, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut latencies, mut calls) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bind(core);
            hurry();
            for _ in 0..TURNS {
                wait(fd, None);
                let now = start.elapsed().as_nanos() as u64;
                let mut count = 0u64;
                // SAFETY: 8 writable bytes.
                unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
                seen.store(now, Ordering::Release);
            }
        });
        for _ in 0..TURNS {
            let work = Instant::now();
            while work.elapsed() < Duration::from_micros(40) {}
            seen.store(0, Ordering::Relaxed);
            rang.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            let (one, call) = (1u64, Instant::now());
            // SAFETY: 8 readable bytes.
            unsafe { libc::write(fd, (&raw const one).cast(), size_of::<u64>()) };
            calls.push(micros(call.elapsed()));
            while seen.load(Ordering::Acquire) == 0 {}
            let latency = seen.load(Ordering::Acquire).saturating_sub(rang.load(Ordering::Relaxed));
            latencies.push(latency as f64 / 1e3);
        }
    });
    // SAFETY: this function owns the descriptor.
    unsafe { libc::close(fd) };
    println!("wake {what}: {} us, of which the call takes {} us", median(latencies), median(calls));
}

fn main() {
    let start = Instant::now();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| poll(1, start, &stop));
        scope
            .spawn(|| {
                bind(1);
                hurry();
                sleeps(start);
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        bind(0);
        wakes(start, "on another core, where a program polls", 1);
        wakes(start, "on the core of the waker", 0);
        stop.store(true, Ordering::Relaxed);
    });
}
