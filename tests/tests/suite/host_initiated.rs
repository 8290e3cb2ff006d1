//! Tests of host-initiated operations: the same calls as in kernels, concurrent with kernels, and from many threads.

use std::sync::Mutex;

use rushmem::{Error, Operations, Pe, WaitSet};
use rushmem_device::{Cmp, Error as Code, Signal, Sym};
use rushmem_test_kernels::{add_often, expect, fill_with, meet, put_cells};
use rushmem_tests::{Setup, grid, without_line};

use super::setups;

fn next(pe: &Pe) -> u32 {
    (pe.my_pe() + 1) % pe.n_pes()
}

fn before(pe: &Pe) -> u32 {
    (pe.my_pe() + pe.n_pes() - 1) % pe.n_pes()
}

#[test]
fn host_puts_and_gets_of_every_length() {
    for setup in setups::all() {
        setup.run(|pe| {
            for len in [0, 1, 3, 1000, 70_001] {
                let (dst, src, back) = (pe.alloc::<u8>(len + 2)?, pe.alloc::<u8>(len)?, pe.alloc::<u8>(len)?);
                let data = |pe: u32| (0..len).map(|i| (i * 7 + pe as usize) as u8).collect::<Vec<_>>();
                let guarded = |pe: u32| [vec![0], data(pe), vec![0]].concat();
                let inner = dst.slice(1..len + 1);
                pe.write(src, &data(pe.my_pe()))?;
                pe.host_sync()?;
                pe.put(inner, src, next(pe))?;
                pe.barrier_all()?;
                assert!(pe.read(dst)? == guarded(before(pe)), "{setup}: put of {len}");
                pe.get(back, inner, next(pe))?;
                assert!(pe.read(back)? == data(pe.my_pe()), "{setup}: get of {len}");
                let mut mine = vec![0; len];
                pe.get_into(&mut mine, src, next(pe))?;
                assert!(mine == data(next(pe)), "{setup}: get_into of {len}");
                pe.host_sync()?;

                pe.put_from(inner, &data(pe.my_pe() + 9), next(pe))?;
                pe.barrier_all()?;
                assert!(pe.read(dst)? == guarded(before(pe) + 9), "{setup}: put_from of {len}");
                pe.host_sync()?;
                pe.put_nbi(inner, src, next(pe))?;
                pe.quiet()?;
                pe.host_sync()?;
                assert!(pe.read(dst)? == guarded(before(pe)), "{setup}: put_nbi of {len}");
                pe.write(back, &vec![0; len])?;
                pe.get_nbi(back, inner, next(pe))?;
                pe.quiet()?;
                assert!(pe.read(back)? == data(pe.my_pe()), "{setup}: get_nbi of {len}");
                for object in [dst, src, back] {
                    pe.free(object)?;
                }
            }
            Ok(())
        });
    }
}

/// Transfers more than 2^30 bytes, the maximum of one WQE.
#[test]
fn transfer_longer_than_one_message_is_complete() {
    const SEAM: usize = 1 << 30;
    const LONG: usize = SEAM + 70_001;
    let setup = Setup::new(2).with("peer_path", "nic").with("heap_bytes", "2200MiB");
    setup.run(|pe| {
        let (me, n) = (pe.my_pe(), pe.n_pes());
        let (dst, src) = (pe.alloc::<u8>(LONG)?, pe.alloc::<u8>(LONG)?);
        // Check only the beginning, the seam between the two messages, and the end.
        let parts = [0..1000, SEAM - 1000..SEAM + 1000, LONG - 1000..LONG];
        let data = |part: &std::ops::Range<usize>, pe: u32| {
            part.clone().map(|i| (i * 7 + i / 1000 + pe as usize) as u8).collect::<Vec<_>>()
        };
        for part in &parts {
            pe.write(src.slice(part.clone()), &data(part, me))?;
        }
        pe.host_sync()?;
        if me == 0 {
            pe.put(dst, src, 1)?;
            pe.quiet()?;
        }
        pe.host_sync()?;
        for part in parts.iter().filter(|_| me == n - 1) {
            assert!(pe.read(dst.slice(part.clone()))? == data(part, 0), "put: {part:?}");
        }
        // And back.
        pe.host_sync()?;
        if me == 0 {
            pe.get(dst, src, 1)?;
            for part in &parts {
                assert!(pe.read(dst.slice(part.clone()))? == data(part, 1), "get: {part:?}");
            }
        }
        pe.host_sync()
    });
}

#[test]
fn host_single_value_puts_leave_neighbours_unchanged() {
    fn cell<T: rushmem_device::Scalar + PartialEq + std::fmt::Debug>(pe: &Pe, value: T) -> Result<(), Error> {
        let cells = pe.alloc::<T>(3)?;
        pe.p(cells.at(1), value, next(pe))?;
        pe.barrier_all()?;
        assert_eq!(pe.read(cells)?, [T::zeroed(), value, T::zeroed()]);
        assert_eq!(pe.g(cells.at(1), next(pe))?, value);
        pe.host_sync()?;
        pe.free(cells)
    }
    for setup in setups::all() {
        setup.run(|pe| {
            cell(pe, 0xabu8)?;
            cell(pe, -2i8)?;
            cell(pe, 0x1234u16)?;
            cell(pe, -3i16)?;
            cell(pe, 0xdead_beefu32)?;
            cell(pe, -4i32)?;
            cell(pe, -0.5f32)?;
            cell(pe, u64::MAX - 1)?;
            cell(pe, i64::MIN)?;
            cell(pe, 1e300f64)
        });
    }
}

#[test]
fn kernel_reads_data_put_by_a_remote_host() {
    for setup in setups::all() {
        let bad = setup.run(|pe| {
            let (dst, src) = (pe.alloc::<u64>(500)?, pe.alloc::<u64>(500)?);
            let bad = pe.alloc_one::<u64>()?;
            for round in 1..4 {
                pe.write(src, &[round; 500])?;
                pe.put(dst, src, next(pe))?;
                // A blocking put allows its source to be overwritten on return.
                pe.write(src, &[99; 500])?;
                pe.quiet()?;
                pe.host_sync()?;
                pe.run(grid(2, 32), expect(dst, round, bad))?;
                pe.host_sync()?;
            }
            pe.quiet()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn host_fence_orders_host_puts() {
    for setup in setups::even() {
        setup.run(|pe| {
            let (data, flag) = (pe.alloc::<u64>(300)?, pe.alloc_one::<u64>()?);
            let partner = pe.my_pe() ^ 1;
            for round in 1..20 {
                if pe.my_pe() & 1 == 0 {
                    pe.put_from(data, &[round; 300], partner)?;
                    pe.fence()?;
                    pe.p(flag, round, partner)?;
                    pe.wait_until(flag, Cmp::Eq, round)?;
                } else {
                    pe.wait_until(flag, Cmp::Eq, round)?;
                    assert_eq!(pe.read(data)?, [round; 300], "{setup}");
                    pe.p(flag, round, partner)?;
                }
            }
            pe.quiet()
        });
    }
}

#[test]
fn host_quiet_covers_completed_kernels() {
    for setup in setups::all() {
        setup.run(|pe| {
            let cells = pe.alloc::<u64>(4)?;
            pe.host_sync()?;
            pe.run(grid(4, 32), put_cells(cells, 7))?;
            pe.quiet()?;
            pe.host_sync()?;
            assert_eq!(pe.read(cells)?, [7; 4], "{setup}");
            pe.host_sync()
        });
    }
}

#[test]
fn host_atomics_match_the_expected_results() {
    for setup in setups::all() {
        setup.run(|pe| {
            let (small, large) = (pe.alloc_one::<u32>()?, pe.alloc_one::<i64>()?);
            let to = next(pe);
            pe.atomic_set(small, u32::MAX, to)?;
            assert_eq!(pe.atomic_fetch(small, to)?, u32::MAX);
            assert_eq!(pe.atomic_fetch_add(small, 3, to)?, u32::MAX);
            pe.atomic_add(small, 8, to)?;
            assert_eq!(pe.atomic_fetch_and(small, 6, to)?, 10);
            pe.atomic_or(small, 5, to)?;
            assert_eq!(pe.atomic_fetch_xor(small, 2, to)?, 7);
            assert_eq!(pe.atomic_compare_swap(small, 4, 1, to)?, 5);
            assert_eq!(pe.atomic_compare_swap(small, 5, 1, to)?, 5);
            assert_eq!(pe.atomic_swap(small, 40, to)?, 1);
            pe.atomic_and(small, 8, to)?;
            assert_eq!(pe.atomic_fetch_or(small, 1, to)?, 8);
            pe.atomic_xor(small, 9, to)?;
            assert_eq!(pe.atomic_fetch(small, to)?, 0);

            pe.atomic_set(large, i64::MIN, to)?;
            assert_eq!(pe.atomic_fetch_add(large, -1, to)?, i64::MIN);
            assert_eq!(pe.atomic_swap(large, -7, to)?, i64::MAX);
            pe.atomic_and(large, 0xff, to)?;
            pe.atomic_or(large, 1 << 40, to)?;
            pe.atomic_xor(large, 1, to)?;
            assert_eq!(pe.atomic_compare_swap(large, (1 << 40) + 0xf8, 5, to)?, (1 << 40) + 0xf8);
            assert_eq!(pe.atomic_fetch(large, to)?, 5);
            pe.barrier_all()
        });
    }
}

#[test]
fn host_atomics_support_floats_and_nonblocking_fetches() {
    for setup in setups::all() {
        setup.run(|pe| {
            let (small, large) = (pe.alloc_one::<f32>()?, pe.alloc_one::<f64>()?);
            let (word, old) = (pe.alloc_one::<u64>()?, pe.alloc::<u64>(7)?);
            let to = next(pe);
            let strange = f32::from_bits(0x7fa0_1234);
            pe.atomic_set(small, strange, to)?;
            assert_eq!(pe.atomic_swap(small, -0.0, to)?.to_bits(), strange.to_bits());
            assert_eq!(pe.atomic_fetch(small, to)?.to_bits(), (-0.0f32).to_bits());
            pe.atomic_add(small, 1.5, to)?;
            assert_eq!(pe.atomic_fetch_add(small, 0.25, to)?, 1.5);
            assert_eq!(pe.atomic_fetch(small, to)?, 1.75);
            assert_eq!(pe.atomic_fetch_add(large, -1e-300, to)?, 0.0);
            assert_eq!(pe.atomic_fetch(large, to)?, -1e-300);

            pe.atomic_inc(word, to)?;
            assert_eq!(pe.atomic_fetch_inc(word, to)?, 1);
            pe.atomic_fetch_inc_nbi(old.at(0), word, to)?;
            pe.atomic_fetch_add_nbi(old.at(1), word, 5, to)?;
            pe.atomic_swap_nbi(old.at(2), word, 12, to)?;
            pe.atomic_compare_swap_nbi(old.at(3), word, 12, 7, to)?;
            pe.atomic_fetch_and_nbi(old.at(4), word, 6, to)?;
            pe.atomic_fetch_or_nbi(old.at(5), word, 9, to)?;
            pe.atomic_fetch_xor_nbi(old.at(6), word, 1, to)?;
            pe.quiet()?;
            assert_eq!(pe.read(old)?, [2, 3, 8, 12, 7, 6, 15], "{setup}");
            assert_eq!(pe.atomic_fetch(word, to)?, 14);
            pe.atomic_fetch_nbi(old.at(0), word, to)?;
            pe.quiet()?;
            assert_eq!(pe.read(old)?[0], 14);
            pe.barrier_all()
        });
    }
}

#[test]
fn host_strided_transfers() {
    for setup in setups::all() {
        setup.run(|pe| {
            let (dst, src) = (pe.alloc::<u16>(40)?, pe.alloc::<u16>(40)?);
            pe.write(src, &(0..40).collect::<Vec<_>>())?;
            pe.host_sync()?;
            pe.iput(dst.every(3).first(10), src.every(1).first(10), next(pe))?;
            pe.barrier_all()?;
            let spread = |i: u16| if i.is_multiple_of(3) && i < 30 { i / 3 } else { 0 };
            assert_eq!(pe.read(dst)?, (0..40).map(spread).collect::<Vec<_>>(), "{setup}");
            pe.host_sync()?;
            pe.write(dst, &[0; 40])?;
            pe.iget(dst.blocks(2, 4).first(5), src.blocks(2, 7).first(5), next(pe))?;
            let taken = |i: u16| if i % 4 < 2 && i < 20 { i / 4 * 7 + i % 4 } else { 0 };
            assert_eq!(pe.read(dst)?, (0..40).map(taken).collect::<Vec<_>>(), "{setup}");
            pe.host_sync()?;
            let stream = pe.stream()?;
            pe.write(dst, &[0; 40])?;
            pe.host_sync()?;
            stream.iput(dst.every(3).first(10), src.every(1).first(10), next(pe))?;
            stream.barrier_all()?;
            stream.iget(dst.blocks(1, 39), src.blocks(1, 39), next(pe))?;
            stream.wait()?;
            let both = |i: u16| if i == 39 { 39 } else { spread(i) };
            assert_eq!(pe.read(dst)?, (0..40).map(both).collect::<Vec<_>>(), "{setup}");

            let error = pe.iput(dst.every(3), src.every(1), next(pe)).expect_err("13 for 40");
            assert!(matches!(error, Error::Misuse { call: "iput", .. }), "{error}");
            pe.host_sync()
        });
    }
}

#[test]
fn host_waits_for_sets_of_words() {
    for setup in setups::all() {
        setup.run(|pe| {
            let (words, values) = (pe.alloc::<i32>(6)?, pe.alloc::<i32>(6)?);
            let status = pe.alloc::<i32>(6)?;
            pe.write(values, &[1, 2, 3, 4, 5, 6])?;
            pe.write(status, &[0, 0, 0, 1, 0, 0])?;
            pe.host_sync()?;
            let mut nonzero = WaitSet::new(words, Cmp::Ne, 0);
            assert!(!pe.test_all(&nonzero)?);
            assert_eq!(pe.test_any(&mut nonzero)?, None);
            assert!(pe.test_some(&mut nonzero)?.is_empty());
            pe.host_sync()?;

            for i in [4, 1] {
                pe.p(words.at(i), 9, next(pe))?;
            }
            let first = pe.wait_until_any(&mut nonzero)?.expect("there are words");
            assert!(first == 1 || first == 4);
            // The search resumes after the last word found, so the next call returns the other word.
            pe.barrier_all()?;
            let second = pe.wait_until_any(&mut nonzero)?.expect("there are words");
            assert_eq!(first + second, 5, "{setup}");
            let mut found = pe.wait_until_some(&mut nonzero)?;
            found.sort_unstable();
            assert_eq!(found, [1, 4]);
            assert_eq!(pe.test_some(&mut nonzero)?.len(), 2);
            pe.host_sync()?;

            for i in [0, 1, 2, 4, 5] {
                pe.p(words.at(i), i as i32 + 1, next(pe))?;
            }
            let mut each = WaitSet::each(words, Cmp::Eq, values);
            pe.wait_until_all(&each.except(status))?;
            assert!(pe.test_all(&each.except(status))? && !pe.test_all(&each)?);
            pe.quiet()?;
            let mut found = pe.test_some(&mut each)?;
            found.sort_unstable();
            assert_eq!(found, [0, 1, 2, 4, 5]);
            pe.quiet_pes(&[next(pe), before(pe)])?;
            let mut none = WaitSet::new(words.slice(0..0), Cmp::Eq, 1);
            assert!(pe.test_all(&none)? && pe.wait_until_any(&mut none)?.is_none());
            assert!(pe.wait_until_some(&mut none)?.is_empty());
            pe.host_sync()
        });
    }
}

#[test]
fn concurrent_host_and_kernel_adds_are_exact() {
    const TIMES: u32 = 20;
    for setup in setups::all() {
        let totals = setup.run(|pe| {
            let word = pe.alloc_one::<u64>()?;
            let seen = Mutex::new(Vec::new());
            pe.host_sync()?;
            let kernel = pe.launch(grid(2, 32), add_often(word, TIMES, 0))?;
            std::thread::scope(|scope| {
                let add = || {
                    for _ in 0..TIMES {
                        let old = pe.atomic_fetch_add(word, 1, 0)?;
                        seen.lock().unwrap().push(old);
                    }
                    Ok::<(), Error>(())
                };
                let threads = [0; 3].map(|_| scope.spawn(add));
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
            kernel.wait()?;
            pe.barrier_all()?;
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{setup}: a number was given twice");
            pe.read_one(word)
        });
        let pes = u64::from(setup.pes());
        assert_eq!(totals[0], pes * u64::from(TIMES) * (64 + 3), "{setup}");
    }
}

#[test]
fn eight_host_threads_put_concurrently() {
    const LEN: usize = 200;
    for setup in setups::all() {
        setup.run(|pe| {
            let (data, count) = (pe.alloc::<u32>(8 * LEN)?, pe.alloc_one::<u64>()?);
            pe.host_sync()?;
            std::thread::scope(|scope| {
                let put = |thread: usize| {
                    let part = data.slice(thread * LEN..(thread + 1) * LEN);
                    for round in 0..5 {
                        pe.put_from(part, &[(thread * 10 + round) as u32; LEN], next(pe))?;
                        pe.atomic_add(count, 1, next(pe))?;
                        pe.fence()?;
                    }
                    pe.quiet()
                };
                let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || put(thread))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
            pe.barrier_all()?;
            assert_eq!(pe.read_one(count)?, 40, "{setup}");
            for (thread, part) in pe.read(data)?.chunks(LEN).enumerate() {
                assert_eq!(part, [(thread * 10 + 4) as u32; LEN], "{setup}");
            }
            pe.host_sync()
        });
    }
}

#[test]
fn host_waits_for_signals_of_another_host() {
    for setup in setups::even() {
        setup.run(|pe| {
            let (data, source) = (pe.alloc::<u64>(400)?, pe.alloc::<u64>(400)?);
            let (signal, words) = (pe.alloc_one::<Signal>()?, pe.alloc::<i32>(3)?);
            let values = pe.alloc::<i32>(3)?;
            let partner = pe.my_pe() ^ 1;
            assert_eq!(pe.signal_fetch(signal)?, 0);
            assert!(!pe.test(signal, Cmp::Ne, 0)?);
            pe.write(values, &[-1, 5, -9])?;
            pe.host_sync()?;
            if pe.my_pe() & 1 == 0 {
                for round in 1..10 {
                    pe.write(source, &[round; 400])?;
                    if round % 2 == 0 {
                        pe.put_signal(data, source, signal.add(1), partner)?;
                    } else {
                        pe.put_signal_nbi(data, source, signal.set(round), partner)?;
                    }
                    assert_eq!(pe.signal_wait_until(signal, Cmp::Ge, round)?, round);
                    pe.quiet()?;
                }
                for (i, value) in [-1, 5, -9].into_iter().enumerate() {
                    pe.p(words.at(i), value, partner)?;
                }
            } else {
                for round in 1..10 {
                    assert_eq!(pe.signal_wait_until(signal, Cmp::Gt, round - 1)?, round);
                    assert_eq!(pe.read(data)?, [round; 400], "{setup}");
                    pe.signal_op(signal.set(round), partner)?;
                }
                while !pe.test(words.at(0), Cmp::Lt, 0)? {}
                pe.wait_until_all(&WaitSet::new(words, Cmp::Ne, 0))?;
                pe.wait_until_all(&WaitSet::each(words, Cmp::Eq, values))?;
                assert_eq!(pe.read(words)?, [-1, 5, -9]);
            }
            pe.wait_until_all(&WaitSet::new(words.slice(1..1), Cmp::Eq, 77))?;
            pe.barrier_all()
        });
    }
}

#[test]
fn host_kernel_and_stream_barriers_interoperate() {
    const ROUNDS: u32 = 1000;
    let bad = Setup::new(2).run(|pe| {
        let (data, bad) = (pe.alloc::<u64>(1)?, pe.alloc_one::<u64>()?);
        let stream = pe.stream()?;
        for round in 0..ROUNDS {
            let value = u64::from(round) + 1;
            // A barrier completes earlier puts, no matter whether the host, a kernel or a stream calls it.
            match round % 3 {
                0 => {
                    pe.p(data.at(0), value, next(pe))?;
                    pe.barrier_all()?;
                }
                1 => {
                    pe.p(data.at(0), value, next(pe))?;
                    pe.run(grid(1, 1), meet(1))?;
                }
                _ => {
                    stream.p(data.at(0), value, next(pe))?;
                    stream.barrier_all()?;
                    stream.wait()?;
                }
            }
            pe.run(grid(1, 1), expect(data, value, bad))?;
            pe.sync_all()?;
        }
        // Many back-to-back barriers.
        for _ in 0..20 {
            pe.run(grid(1, 1), meet(400))?;
            (0..20).try_for_each(|_| pe.barrier_all())?;
        }
        pe.read_one(bad)
    });
    assert_eq!(bad, [0, 0]);
}

#[test]
fn host_error_names_its_operation() {
    let setup = Setup::new(2).with("timeout", "1s").with("peer_path", "nic");
    setup.without_sanitizer("a wrong key ends QPs").run(|pe| {
        let (data, signal) = (pe.alloc::<u64>(4)?, pe.alloc_one::<Signal>()?);
        let told = |outcome: Result<(), Error>| without_line(&outcome.expect_err("it cannot be done"));
        assert_eq!(told(pe.put(data, data, 2)), "put: there is no PE 2: the job has 2");
        assert_eq!(told(pe.put(data, data.slice(0..3), 1)), "put: 3 elements for 4");
        assert_eq!(told(pe.put_from(data, &[1; 5], 1)), "put_from: 5 elements for an object of 4");
        assert_eq!(
            told(pe.p(data.at(4), 1, 1)),
            "p: SymSlice(elements 4..5 of an object of 4 elements) is not inside its object"
        );

        let error = pe.signal_wait_until(signal, Cmp::Ge, 3).expect_err("nobody signals");
        let text = error.to_string();
        assert!(text.starts_with("signal_wait_until: PE "), "{text}");
        // The error names the line of this test, not a line of the runtime's kernels.
        assert!(
            text.contains(", at tests/tests/suite/host_initiated.rs:") && !text.contains("kernels/src"),
            "{text}"
        );
        let Error::Operation { what: "signal_wait_until", cause, .. } = error else { panic!("{error}") };
        let Error::Device { first, .. } = *cause else { panic!("{cause}") };
        assert_eq!(first.code(), Some(Code::WaitTimeout));
        assert_eq!((first.record().found, first.record().wanted), (0, 3));

        // The next operation is not affected.
        pe.put(data, data, pe.my_pe() ^ 1)?;
        pe.barrier_all()?;
        pe.host_sync()?;
        if pe.my_pe() == 0 {
            pe.corrupt_rkey(1)?;
            let error = pe.put(data, data, 1).expect_err("a wrong key");
            assert!(matches!(&error, Error::Operation { what: "put", .. }), "{error}");
        }
        pe.host_sync()
    });
}

#[test]
fn failing_kernel_does_not_fail_host_operations() {
    Setup::new(2).with("timeout", "2s").run(|pe| {
        let (data, word) = (pe.alloc::<u64>(4)?, pe.alloc_one::<u64>()?);
        let signal: Sym<Signal> = pe.alloc_one()?;
        let stream = pe.stream()?;
        stream.signal_wait_until(signal, Cmp::Ge, 1)?;
        for i in 0..50 {
            pe.atomic_fetch_add(word, 1, next(pe))?;
            pe.run(grid(1, 32), fill_with(data, i))?;
        }
        let error = stream.wait().expect_err("nobody signals");
        let name = "signal_wait_until";
        assert!(matches!(&error, Error::Operation { what, .. } if *what == name), "{error}");
        pe.barrier_all()?;
        assert_eq!(pe.read_one(word)?, 50);
        pe.host_sync()
    });
}
