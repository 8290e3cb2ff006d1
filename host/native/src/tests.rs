//! Tests the guarantees that kernels rely on, through [`Lane`], the interface of the device crate.
#![allow(unsafe_code, reason = "looks at the shared memory of a block")]

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use super::*;

fn run(grid: LaunchConfig, kernel: impl Fn(&dyn Lane) + Sync) -> Result<(), Error> {
    launch_lanes(grid, &Options::default(), &kernel)
}

/// Runs a kernel with a time limit, in case a bug in the emulator makes it hang.
fn run_briefly(grid: LaunchConfig, kernel: impl Fn(&dyn Lane) + Sync) -> Result<(), Error> {
    let options = Options { time_limit: Some(Duration::from_secs(20)), ..Options::default() };
    launch_lanes(grid, &options, &kernel)
}

#[track_caller]
fn barrier(lane: &dyn Lane) {
    lane.block_any(false, Location::caller());
}

#[track_caller]
fn gather(lane: &dyn Lane, mask: u32, value: u64) -> [u64; 32] {
    lane.warp_gather(mask, value, Location::caller())
}

#[track_caller]
fn converged(lane: &dyn Lane) -> u32 {
    lane.converged(Location::caller())
}

#[track_caller]
fn spin(lane: &dyn Lane) {
    lane.spin(Location::caller());
}

#[track_caller]
fn spin_until(lane: &dyn Lane, mut met: impl FnMut() -> bool) {
    let site = Location::caller();
    lane.wait_begins();
    while !met() {
        lane.spin(site);
    }
}

/// Formats an error, with this file's name and line numbers replaced by `HERE`.
fn text(error: &Error) -> String {
    let text = error.to_string();
    let mut parts = text.split(file!());
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += "HERE";
        out += part.trim_start_matches(':').trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out
}

#[test]
fn each_thread_of_the_grid_runs_once() {
    let seen: Vec<AtomicU32> = (0..7 * 45).map(|_| AtomicU32::new(0)).collect();
    run(LaunchConfig::new(7, 45), |lane| {
        assert_eq!((lane.blocks(), lane.threads()), (7, 45));
        seen[(lane.block() * 45 + lane.thread()) as usize].fetch_add(1, Relaxed);
    })
    .unwrap();
    assert!(seen.iter().all(|count| count.load(Relaxed) == 1));
}

#[test]
fn launch_calls_the_kernel_for_each_thread() {
    let calls = AtomicU32::new(0);
    launch(LaunchConfig::new(3, 33), &Options::default(), || {
        calls.fetch_add(1, Relaxed);
    })
    .unwrap();
    assert_eq!(calls.into_inner(), 99);
}

#[test]
fn lanes_that_pass_run_in_turn() {
    let steps = Mutex::new(Vec::new());
    let kernel = |lane: &dyn Lane| {
        for step in 0..3 {
            steps.lock().unwrap().push((step, lane.thread()));
            lane.pass(Location::caller());
        }
    };
    run(LaunchConfig::new(1, 2), kernel).unwrap();
    assert_eq!(steps.into_inner().unwrap(), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
}

#[test]
fn barrier_orders_accesses() {
    for threads in [1, 32, 33, 256, 1024] {
        let before = AtomicU32::new(0);
        run(LaunchConfig::new(1, threads), |lane| {
            for step in 1..=3 {
                before.fetch_add(1, Relaxed);
                barrier(lane);
                assert_eq!(before.load(Relaxed), step * threads);
                barrier(lane);
            }
        })
        .unwrap();
    }
}

#[test]
#[expect(clippy::if_same_then_else, reason = "two places are the point")]
fn lanes_may_enter_a_barrier_at_different_places() {
    run(LaunchConfig::new(1, 64), |lane| if lane.thread() % 2 == 0 { barrier(lane) } else { barrier(lane) })
        .unwrap();
}

#[test]
fn barrier_returns_the_or_of_all_votes() {
    run(LaunchConfig::new(2, 96), |lane| {
        let site = Location::caller();
        assert!(!lane.block_any(false, site));
        assert!(lane.block_any(lane.thread() == 95, site));
        assert!(!lane.block_any(false, site), "the vote of the last barrier is gone");
        assert!(lane.block_any(true, site));
    })
    .unwrap();
}

#[test]
fn blocks_sum_through_their_own_zeroed_shared_memory() {
    let sums: Vec<AtomicU64> = (0..5).map(|_| AtomicU64::new(0)).collect();
    let shape = LaunchConfig::new(5, 128).with_shared_bytes(128 * 8);
    run(shape, |lane| {
        let (start, bytes) = lane.shared();
        assert_eq!((bytes, start as usize % 16), (1024, 0));
        // SAFETY: the allocation holds 128 words, lives as long as the launch, and is accessed by atomics only.
        let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), 128) };
        let me = lane.thread() as usize;
        assert_eq!(words[me].load(Relaxed), 0);
        words[me].store(u64::from(lane.block()) * 1000 + me as u64, Relaxed);
        barrier(lane);
        let mut half = 64;
        while half > 0 {
            if me < half {
                words[me].fetch_add(words[me + half].load(Relaxed), Relaxed);
            }
            barrier(lane);
            half /= 2;
        }
        if me == 0 {
            sums[lane.block() as usize].store(words[0].load(Relaxed), Relaxed);
        }
    })
    .unwrap();
    for (block, sum) in sums.iter().enumerate() {
        assert_eq!(sum.load(Relaxed), block as u64 * 128_000 + 127 * 128 / 2);
    }
}

#[test]
fn exchange_returns_the_values_of_all_lanes_in_the_mask() {
    run(LaunchConfig::new(2, 64), |lane| {
        let me = lane.thread() % 32;
        let tag = u64::from(lane.block() * 1000 + lane.thread() / 32 * 100);
        let all = gather(lane, u32::MAX, tag + u64::from(me));
        assert_eq!(all, std::array::from_fn(|i| tag + i as u64));
        let mine = if me.is_multiple_of(3) { 0x4924_9249 } else { !0x4924_9249 };
        let some = gather(lane, mine, 7);
        assert_eq!(some, std::array::from_fn(|i| if mine >> i & 1 == 1 { 7 } else { 0 }));
    })
    .unwrap();
}

#[test]
fn faster_lane_does_not_change_the_values_of_others() {
    run(LaunchConfig::new(1, 32), |lane| {
        let me = lane.thread();
        for round in 0..10 {
            let all = gather(lane, u32::MAX, round * 100 + u64::from(me));
            assert_eq!(all[31], round * 100 + 31);
            gather(lane, 1 << me, u64::MAX);
        }
    })
    .unwrap();
}

#[test]
fn overlapping_masks_are_exchanged_in_turn() {
    run_briefly(LaunchConfig::new(1, 3), |lane| {
        // Lane 0 waits for lane 1, and lane 1 first exchanges with lane 2.
        let masks: &[u32] = match lane.thread() {
            0 => &[0b011],
            1 => &[0b110, 0b011],
            _ => &[0b110],
        };
        for &mask in masks {
            let values = gather(lane, mask, u64::from(lane.thread()) + 10);
            let expected =
                [10, 11, 12].iter().enumerate().map(|(i, v)| if mask >> i & 1 == 1 { *v } else { 0 });
            assert!(values.into_iter().take(3).eq(expected), "{mask:#b}: {values:?}");
        }
    })
    .unwrap();
}

#[test]
fn lanes_that_call_together_converge_with_a_full_mask() {
    run(LaunchConfig::new(1, 80), |lane| {
        let full = if lane.thread() < 64 { u32::MAX } else { 0xffff };
        for _ in 0..5 {
            assert_eq!(converged(lane), full);
        }
    })
    .unwrap();
}

#[test]
fn lanes_that_leave_a_spin_loop_together_converge_together() {
    let flag = AtomicBool::new(false);
    run_briefly(LaunchConfig::new(2, 32), |lane| {
        if lane.block() == 1 {
            if lane.thread() == 0 {
                flag.store(true, Release);
            }
            return;
        }
        spin_until(lane, || flag.load(Acquire));
        assert_eq!(converged(lane), u32::MAX);
    })
    .unwrap();
}

#[test]
#[expect(clippy::if_same_then_else, reason = "two places are the point")]
fn divergent_lanes_converge_by_location() {
    run(LaunchConfig::new(1, 32), |lane| {
        let me = lane.thread();
        let mask = if me < 8 { converged(lane) } else { converged(lane) };
        assert_eq!(mask, if me < 8 { 0xff } else { !0xff });
        // Convergence does not wait for lanes that have returned.
        if me < 16 {
            assert_eq!(converged(lane), 0xffff);
        }
    })
    .unwrap();
}

#[test]
fn convergence_waits_neither_for_blocked_nor_for_spinning_lanes() {
    let done = AtomicU32::new(0);
    run_briefly(LaunchConfig::new(1, 32), |lane| {
        match lane.thread() {
            0..4 => {
                assert_eq!(converged(lane), 0xf);
                done.fetch_add(1, Relaxed);
            }
            4..16 => spin_until(lane, || done.load(Relaxed) == 4),
            _ => {}
        }
        barrier(lane);
    })
    .unwrap();
}

#[test]
fn blocks_may_wait_for_each_other() {
    // There are more blocks than workers, and each waits for the next one, so all must be live.
    let flags: Vec<AtomicBool> = (0..101).map(|i| AtomicBool::new(i == 100)).collect();
    run_briefly(LaunchConfig::new(100, 2), |lane| {
        let block = lane.block() as usize;
        spin_until(lane, || flags[block + 1].load(Acquire));
        barrier(lane);
        flags[block].store(true, Release);
    })
    .unwrap();
    assert!(flags[0].load(Relaxed));
}

#[test]
fn spinning_block_does_not_starve_the_one_it_waits_for() {
    let flag = AtomicU32::new(0);
    let options = Options {
        workers: NonZeroUsize::new(1),
        time_limit: Some(Duration::from_secs(20)),
        ..Options::default()
    };
    launch_lanes(LaunchConfig::new(2, 1), &options, &|lane| {
        for step in 0..10_000 {
            if lane.block() == 0 {
                spin_until(lane, || flag.load(Acquire) == 2 * step + 1);
            } else {
                spin_until(lane, || flag.load(Acquire) == 2 * step);
            }
            flag.fetch_add(1, Release);
        }
    })
    .unwrap();
}

#[test]
fn launches_of_several_threads_wait_for_each_other() {
    let turn = AtomicU32::new(0);
    thread::scope(|scope| {
        for pe in 0..4 {
            let turn = &turn;
            scope.spawn(move || {
                run_briefly(LaunchConfig::new(2, 32), |lane| {
                    for step in 0..50 {
                        if lane.block() == 0 && lane.thread() == 0 {
                            spin_until(lane, || turn.load(Acquire) == step * 4 + pe);
                            turn.store(step * 4 + pe + 1, Release);
                        }
                        barrier(lane);
                    }
                })
                .unwrap();
            });
        }
    });
    assert_eq!(turn.into_inner(), 200);
}

#[test]
fn only_waiting_lanes_need_stacks() {
    let calls = AtomicU32::new(0);
    run(LaunchConfig::new(64, 1024), |_| {
        calls.fetch_add(1, Relaxed);
    })
    .unwrap();
    assert_eq!(calls.into_inner(), 65_536);
}

#[test]
fn blocks_that_wait_for_a_large_grid_take_few_turns_each() {
    const BLOCKS: u32 = 1000;
    let (started, turns) = (AtomicU32::new(0), AtomicU64::new(0));
    let options = Options { workers: std::num::NonZero::new(1), ..Options::default() };
    let kernel = |lane: &dyn Lane| {
        started.fetch_add(1, Relaxed);
        spin_until(lane, || {
            turns.fetch_add(1, Relaxed);
            started.load(Relaxed) == BLOCKS
        });
    };
    launch_lanes(LaunchConfig::new(BLOCKS, 1), &options, &kernel).unwrap();
    let turns = turns.into_inner();
    assert!(turns <= 4 * u64::from(BLOCKS), "{turns} turns");
}

#[test]
fn launches_do_not_leak_mappings() {
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let run_some = || (0..1000).for_each(|_| run(LaunchConfig::new(2, 32), barrier).unwrap());
    run_some();
    let before = mappings();
    run_some();
    // Concurrent tests keep a few thousand stacks of two mappings each. A leak would leave 128000.
    assert!(mappings() < before + 20_000, "{before} mappings before, {} after", mappings());
}

#[test]
fn exit_before_a_barrier_is_reported_as_a_deadlock() {
    let error = run(LaunchConfig::new(4, 64), |lane| {
        if lane.block() == 3 && lane.thread() < 32 {
            barrier(lane);
        }
    });
    // Another block may still run on another thread. The report lists it after this one.
    let expected = "kernel deadlock: lanes wait for others that will never arrive\n  \
                    block 3: lanes 0-31 at HERE (block barrier), lanes 32-63 exited";
    let report = text(&error.unwrap_err());
    assert!(report.starts_with(expected), "{report}");
}

#[test]
fn mutual_waits_are_reported_as_a_deadlock() {
    let error = run(LaunchConfig::new(1, 34), |lane| match lane.thread() {
        1 => {
            gather(lane, 0b11, 0);
        }
        _ => barrier(lane),
    });
    assert_eq!(
        text(&error.unwrap_err()),
        "kernel deadlock: lanes wait for others that will never arrive\n  \
         block 0: lanes 0,2-33 at HERE (block barrier), lane 1 at HERE (warp exchange of mask 0x00000003)"
    );
}

#[test]
fn missing_lane_of_an_exchange_is_reported_as_a_deadlock() {
    let error = run(LaunchConfig::new(1, 16), |lane| {
        gather(lane, u32::MAX, 0);
    });
    assert_eq!(
        text(&error.unwrap_err()),
        "kernel deadlock: lanes wait for others that will never arrive\n  \
         block 0: lanes 0-15 at HERE (warp exchange of mask 0xffffffff)"
    );
}

#[test]
fn deadlock_report_lists_other_blocks() {
    let waiting = AtomicU32::new(0);
    let error = run_briefly(LaunchConfig::new(3, 4), |lane| match (lane.block(), lane.thread()) {
        (2, thread) => {
            spin_until(lane, || waiting.load(Relaxed) == 4);
            if thread % 2 == 0 {
                barrier(lane);
            }
        }
        (1, _) => {
            waiting.fetch_add(1, Relaxed);
            spin_until(lane, || false);
        }
        _ => (),
    });
    assert_eq!(
        text(&error.unwrap_err()),
        "kernel deadlock: lanes wait for others that will never arrive\n  \
         block 2: lanes 0,2 at HERE (block barrier), lanes 1,3 exited\n  \
         block 1: lanes 0-3 at HERE (spin)"
    );
}

#[test]
fn exchange_from_two_places_is_reported_as_divergence() {
    let error = run(LaunchConfig::new(1, 32), |lane| {
        if lane.thread() < 16 {
            gather(lane, u32::MAX, 1)
        } else {
            gather(lane, u32::MAX, 2)
        };
    });
    assert_eq!(
        text(&error.unwrap_err()),
        "warp divergence in block 0: lane 16 at HERE exchanges values with the lanes of mask 0xffffffff, \
         but another of these lanes waits at HERE"
    );
}

#[test]
fn rejects_masks_without_the_caller() {
    let error = run(LaunchConfig::new(1, 32), |lane| {
        gather(lane, 2, 0);
    });
    assert_eq!(
        text(&error.unwrap_err()),
        "lane 0 of block 0 at HERE enters a warp exchange, but its mask 0x00000002 does not contain this lane"
    );
}

#[test]
fn panic_names_the_lane_and_unwinds_the_others() {
    struct Count<'a>(&'a AtomicU32);
    impl Drop for Count<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let (made, dropped) = (AtomicU32::new(0), AtomicU32::new(0));
    let error = run_briefly(LaunchConfig::new(4, 64), |lane| {
        made.fetch_add(1, Relaxed);
        let _count = Count(&dropped);
        spin(lane);
        if (lane.block(), lane.thread()) == (2, 5) {
            panic!("lane {} had enough", lane.thread());
        }
        barrier(lane);
        spin_until(lane, || false);
    });
    assert_eq!(error.unwrap_err().to_string(), "lane 5 of block 2 panicked: lane 5 had enough");
    assert_eq!(dropped.into_inner(), made.into_inner());
}

#[test]
fn unwinding_lane_does_not_wait() {
    struct Waits<'a>(&'a dyn Lane);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            barrier(self.0);
            spin(self.0);
            assert_eq!(converged(self.0), 1 << (self.0.thread() % 32));
        }
    }
    let error = run_briefly(LaunchConfig::new(2, 32), |lane| {
        let _waits = Waits(lane);
        if lane.thread() == 7 {
            panic!("seven");
        }
        spin_until(lane, || false);
    });
    assert!(matches!(error, Err(Error::Panicked { thread: 7, .. })), "{error:?}");
}

#[test]
fn launch_works_during_a_panic() {
    struct Launches<'a>(&'a AtomicU32);
    impl Drop for Launches<'_> {
        fn drop(&mut self) {
            let votes = run(LaunchConfig::new(2, 32), |lane| {
                if lane.block_any(lane.thread() == 9, Location::caller()) {
                    self.0.fetch_add(1, Relaxed);
                }
            });
            assert!(votes.is_ok());
        }
    }
    let calls = AtomicU32::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _launches = Launches(&calls);
        panic!("on purpose");
    }));
    assert!(outcome.is_err());
    assert_eq!(calls.into_inner(), 64);
}

#[test]
fn time_limit_fails_the_launch_with_a_report() {
    let options = Options { time_limit: Some(Duration::from_millis(30)), ..Options::default() };
    let begin = Instant::now();
    let error = launch_lanes(LaunchConfig::new(2, 64), &options, &|lane| {
        if lane.thread() < 40 {
            spin_until(lane, || false);
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(
        text(&error.unwrap_err()),
        "the kernel did not end within 30ms; check its loops, or raise RUSHMEM_KERNEL_LIMIT (none for kernels that run \
         on)\n  \
         block 0: lanes 0-39 at HERE (spin), lanes 40-63 exited\n  \
         block 1: lanes 0-39 at HERE (spin), lanes 40-63 exited"
    );
}

#[test]
fn workers_on_shared_cores_report_waits_and_sleep_until_a_wake() {
    let (channel, word, waits) = (Arc::new(WaitChannel::default()), AtomicU32::new(0), Arc::default());
    let counted: Arc<AtomicU32> = Arc::clone(&waits);
    channel.on_wait(move || {
        counted.fetch_add(1, Release);
    });
    // With so many sharers, a sleep without a wake would last for hours.
    let sharers = 1 << 30;
    let options = Options { sharers, channel: Some(Arc::clone(&channel)), ..Options::default() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while waits.load(Acquire) == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            word.store(1, Release);
            channel.wake();
        });
        launch_lanes(LaunchConfig::new(1, 32), &options, &|lane| {
            spin_until(lane, || word.load(Acquire) == 1)
        })
        .unwrap();
    });
    // One report for the wait, one for the return.
    assert!(waits.load(Acquire) >= 2);
}

#[test]
fn kernels_cannot_launch() {
    let errors = Mutex::new(Vec::new());
    run(LaunchConfig::new(2, 1), |_| errors.lock().unwrap().push(run(LaunchConfig::new(1, 1), |_| {})))
        .unwrap();
    let errors = errors.into_inner().unwrap();
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|error| matches!(error, Err(Error::Nested))), "{errors:?}");
    run(LaunchConfig::new(1, 1), |_| {}).unwrap();
}

#[test]
fn rejects_grids_beyond_the_limits_of_gpus() {
    for (blocks, threads, shared_bytes) in [(0, 1, 0), (1, 0, 0), (1, 1025, 0), (1, 1, 227 * 1024 + 1)] {
        let shape = LaunchConfig::new(blocks, threads).with_shared_bytes(shared_bytes);
        assert!(matches!(run(shape, |_| {}), Err(Error::LaunchConfig(wrong)) if wrong == shape));
    }
}
