//! Tests of signals, waits and ordering.

use rushmem_device::{Shadowed, Signal};
use rushmem_test_kernels::{
    Announcement, GroupKind, announce_all, await_all, barriers, compare_all, fence_then_flag, grid_barriers,
    hand_over, ping_pong, shadows,
};
use rushmem_tests::{Setup, grid};

use super::setups;

#[test]
fn gpu_scope_fences_hand_a_source_between_blocks() {
    for setup in setups::all() {
        let stale = |fences: u32| {
            let setup = setup.clone();
            let setup = if fences == 0 { setup.without_sanitizer("it lacks its fences") } else { setup };
            let told = setup.run(|pe| {
                let (dst, src, back) = (pe.alloc::<u64>(48)?, pe.alloc::<u64>(48)?, pe.alloc::<u64>(48)?);
                let (asked, written, stale) = (pe.alloc_one()?, pe.alloc_one()?, pe.alloc_one()?);
                let rounds = 40;
                let call = hand_over(dst, src, back, asked, written, stale, fences, rounds, 10_000_000);
                pe.run(grid(2, 32), call)?;
                pe.host_sync()?;
                let last: Vec<u64> = (0..48).map(|i| u64::from(rounds) << 32 | i).collect();
                assert!(fences == 0 || pe.read(dst)? == last, "{setup}");
                pe.read_one(stale)
            });
            told.into_iter().sum::<u64>()
        };
        assert_eq!(stale(1), 0, "{setup}");
        // Without fences, a GPU returns some stale values.
        println!("{setup}: {} stale values without fences", stale(0));
    }
}

/// Parameters of [`signal_arrives_after_its_data`].
struct Messages {
    set: u32,
    nbi: u32,
    len: usize,
    threads: u32,
}

#[test]
fn signal_arrives_after_its_data() {
    let cases = [
        Messages { set: 0, nbi: 1, len: 300, threads: 64 },
        Messages { set: 1, nbi: 0, len: 1, threads: 1 },
        Messages { set: 1, nbi: 1, len: 2000, threads: 33 },
        Messages { set: 0, nbi: 0, len: 40, threads: 32 },
    ];
    for setup in setups::even() {
        for &Messages { set, nbi, len, threads } in &cases {
            let bad = setup.run(|pe| {
                let (inbox, outbox) = (pe.alloc::<u64>(len)?, pe.alloc::<u64>(len)?);
                let (signal, bad) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u64>()?);
                pe.run(grid(1, threads), ping_pong(inbox, outbox, signal, bad, 20, set, nbi))?;
                pe.host_sync()?;
                Ok((pe.read_one(signal)?, pe.read_one(bad)?))
            });
            assert_eq!(bad, vec![(20, 0); bad.len()], "{setup}, set {set}, nbi {nbi}");
        }
    }
}

#[test]
fn fence_orders_a_put_before_a_flag() {
    for setup in setups::even() {
        let bad = setup.run(|pe| {
            let (inbox, outbox) = (pe.alloc::<u64>(500)?, pe.alloc::<u64>(500)?);
            let (flag, ack, bad) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
            pe.run(grid(1, 64), fence_then_flag(inbox, outbox, flag, ack, bad, 30))?;
            pe.host_sync()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn comparisons_respect_the_signedness_of_the_type() {
    let words = [-1, 0, 1];
    let truth = Setup::new(1).run(|pe| {
        let (signed, unsigned) = (pe.alloc::<i32>(3)?, pe.alloc::<u64>(3)?);
        let truth = pe.alloc::<u8>(3 * 3 * 6 * 2)?;
        pe.write(signed, &words)?;
        pe.write(unsigned, &words.map(|w| w as u64))?;
        pe.run(grid(1, 32), compare_all(signed, unsigned, truth))?;
        pe.read(truth)
    });
    fn holds<T: PartialOrd>(found: T, wanted: T) -> [bool; 6] {
        [found == wanted, found != wanted, found > wanted, found >= wanted, found < wanted, found <= wanted]
    }
    let mut expected = Vec::new();
    for word in words {
        for value in [-1, 0, 1] {
            for (s, u) in holds(word, value).into_iter().zip(holds(word as u64, value as u64)) {
                expected.extend([u8::from(s), u8::from(u)]);
            }
        }
    }
    assert_eq!(truth, [expected]);
}

#[test]
fn waits_return_for_every_comparison_and_group() {
    for setup in setups::all() {
        let seen = setup.run(|pe| {
            let (words, signals) = (pe.alloc::<i32>(6)?, pe.alloc::<Signal>(3)?);
            let seen = pe.alloc::<u64>(4 * 40)?;
            pe.run(grid(1, 40), await_all(words, signals, seen))?;
            pe.read(seen)
        });
        let wanted = [7, u64::MAX, 1 << 40, 7].repeat(40);
        assert!(seen.iter().all(|seen| *seen == wanted), "{setup}: {seen:?}");
    }
}

#[test]
fn no_pe_leaves_a_barrier_early() {
    for setup in setups::all() {
        for (group_kind, threads) in [(GroupKind::Thread, 1), (GroupKind::Warp, 32), (GroupKind::Block, 70)] {
            let bad = setup.run(|pe| {
                let (cells, bad) = (pe.alloc::<u32>(pe.n_pes() as usize)?, pe.alloc_one::<u32>()?);
                pe.run(grid(1, threads), barriers(group_kind as u32, cells, bad, 12))?;
                // A second launch continues where the first one stopped.
                pe.write(cells, &vec![0; cells.len()])?;
                pe.host_sync()?;
                pe.run(grid(1, threads), barriers(group_kind as u32, cells, bad, 3))?;
                pe.host_sync()?;
                pe.read_one(bad)
            });
            assert_eq!(bad, vec![0; bad.len()], "{setup}, {group_kind:?}");
        }
    }
}

#[test]
fn grid_barrier_synchronises_all_blocks() {
    for (pes, blocks, threads) in [(1, 1, 32), (1, 5, 33), (3, 4, 64)] {
        let bad = Setup::new(pes).run(|pe| {
            let (cells, bad) = (pe.alloc::<u32>((blocks * threads) as usize)?, pe.alloc_one::<u32>()?);
            pe.run(grid(blocks, threads), grid_barriers(cells, bad, 20))?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()]);
    }
}

#[test]
fn strong_signal_covers_puts_of_all_blocks() {
    use Announcement::*;
    for setup in setups::even() {
        for how in [Signal, PutSignal, FenceGroup, FencePe, QuietPe, QuietPes] {
            let bad = setup.run(|pe| {
                let (inbox, outbox) = (pe.alloc::<u64>(700)?, pe.alloc::<u64>(700)?);
                let (last, pes) = (pe.alloc::<u64>(2)?, pe.alloc::<u32>(1)?);
                let (signal, ack) = (pe.alloc_one()?, pe.alloc_one()?);
                let bad = pe.alloc_one::<u64>()?;
                let call = announce_all(how as u32, inbox, outbox, last, pes, signal, ack, bad, 12);
                pe.run(grid(4, 33), call)?;
                pe.host_sync()?;
                pe.read_one(bad)
            });
            assert_eq!(bad, vec![0; bad.len()], "{setup}, {how:?}");
        }
    }
}

#[test]
fn shadow_follows_its_signal() {
    let (blocks, threads, rounds) = (2, 33, 5);
    for setup in setups::all() {
        let seen = setup.run(|pe| {
            let (words, seen) = (pe.alloc::<Shadowed>(3)?, pe.alloc::<u64>(4)?);
            // The second signal wraps around.
            let start = Shadowed { signal: u64::MAX - 40, shadow: u64::MAX - 40 };
            pe.write(words.slice(1..2), &[start])?;
            pe.host_sync()?;
            pe.run(grid(blocks, threads), shadows(words, seen, rounds))?;
            pe.read(seen)
        });
        let all = u64::from(blocks * threads * rounds);
        assert!(seen.iter().all(|seen| *seen == [all, 2 * all, all, 0]), "{setup}: {seen:?}");
    }
}
