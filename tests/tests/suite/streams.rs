//! Tests of operations on streams: in order, concurrent, and captured into graphs.

use std::thread;
use std::time::Duration;

use rushmem::{Error, Operations, Pe, Stream, WaitSet};
use rushmem_device::{Cmp, Error as Code, PerGpu, Signal, Team};
use rushmem_test_kernels::{
    await_round, expect, fill_with, look_up, next_round, put_cells, put_nowhere, wait_in_all_blocks,
};
use rushmem_tests::{Setup, grid};

use super::setups;

fn next(pe: &Pe) -> u32 {
    (pe.my_pe() + 1) % pe.n_pes()
}

#[test]
fn stream_put_reads_its_source_in_stream_order() {
    for setup in setups::all() {
        setup.run(|pe| {
            let (dst, src) = (pe.alloc::<u64>(3000)?, pe.alloc::<u64>(3000)?);
            let stream = pe.stream()?;
            for round in [1, 3, 5] {
                stream.launch(grid(2, 32), fill_with(src, round))?;
                stream.put(dst, src, next(pe))?;
                stream.launch(grid(2, 32), fill_with(src, round + 1))?;
                stream.quiet()?;
                stream.wait()?;
                pe.host_sync()?;
                assert_eq!(pe.read(dst)?, vec![round; 3000], "{setup}");
                pe.host_sync()?;
            }
            Ok(())
        });
    }
}

/// A driver could make the creation and destruction of streams wait for running kernels, which in turn wait for this
/// PE.
#[test]
fn streams_are_created_and_destroyed_while_other_pes_wait() {
    const MANY: usize = 20;
    Setup::new(3).run(|pe| {
        for _ in 0..6 {
            let mut streams = Vec::new();
            for _ in 0..MANY {
                let stream = pe.stream()?;
                stream.barrier_all()?;
                stream.wait()?;
                streams.push(stream);
            }
        }
        Ok(())
    });
}

/// A driver may map streams of different threads to the same hardware queue. Then one PE's kernel would wait for
/// another PE's kernel to complete, while that one waits for the first.
#[test]
fn simultaneous_launches_start_on_all_pes() {
    const STREAMS: usize = 20;
    Setup::new(4).run(|pe| {
        let streams = (0..STREAMS).map(|_| pe.stream()).collect::<Result<Vec<_>, _>>()?;
        for round in 0..4 * STREAMS {
            let stream = &streams[(7 * round + pe.my_pe() as usize) % STREAMS];
            pe.host_sync()?;
            for _ in 0..20 {
                stream.team_sync(Team::WORLD)?;
            }
            stream.wait()?;
        }
        Ok(())
    });
}

/// A GPU's stream holds about 1000 pending operations. A PE that queues more blocks, but must not block other PEs.
#[test]
fn full_stream_does_not_block_other_pes() {
    Setup::new(2).run(|pe| {
        let (word, stream) = (pe.alloc_one::<u64>()?, pe.stream()?);
        pe.host_sync()?;
        if pe.my_pe() == 0 {
            stream.wait_until(word, Cmp::Eq, 1)?;
            for _ in 0..1500 {
                stream.fence()?;
            }
        } else {
            // By then the stream of PE 0 is full.
            thread::sleep(Duration::from_millis(300));
            stream.p(word, 1, 0)?;
            stream.quiet()?;
        }
        stream.wait()?;
        pe.host_sync()
    });
}

/// If the driver had to enlarge the local memory before it starts a kernel, it would wait for the waiting kernel.
#[test]
fn kernel_with_large_local_memory_starts_beside_a_waiting_kernel() {
    Setup::new(1).run(|pe| {
        let word = pe.alloc_one::<u64>()?;
        let (held, free) = (pe.stream()?, pe.stream()?);
        held.wait_until(word, Cmp::Eq, 77)?;
        free.launch(grid(1, 32), look_up(word, 77, 5))?;
        free.wait()?;
        held.wait()
    });
}

/// A busy multiprocessor cannot start a kernel that needs much shared memory, so the runtime's kernels need little.
#[test]
fn kernels_start_beside_a_kernel_that_waits_on_every_multiprocessor() {
    Setup::new(1).run(|pe| {
        let (word, signal) = (pe.alloc_one::<u64>()?, pe.alloc_one::<Signal>()?);
        let (dst, src) = (pe.alloc::<u64>(64)?, pe.alloc::<u64>(64)?);
        let (held, free) = (pe.stream()?, pe.stream()?);
        held.launch(pe.grid(), wait_in_all_blocks(word, 1))?;
        free.launch(grid(1, 32), fill_with(src, 5))?;
        free.put_signal(dst, src, signal.set(1), 0)?;
        free.signal_wait_until(signal, Cmp::Eq, 1)?;
        free.barrier_all()?;
        free.p(word, 1, 0)?;
        free.wait()?;
        held.wait()
    });
}

#[test]
fn stream_kernel_sees_data_of_earlier_gets() {
    for setup in setups::all() {
        let bad = setup.run(|pe| {
            let (theirs, mine) = (pe.alloc::<u64>(3000)?, pe.alloc::<u64>(3000)?);
            let (one, bad) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
            pe.write(theirs, &vec![7 + u64::from(pe.my_pe()); 3000])?;
            pe.host_sync()?;
            let (stream, wanted) = (pe.stream()?, 7 + u64::from(next(pe)));
            stream.get(mine, theirs, next(pe))?;
            stream.launch(grid(2, 32), expect(mine, wanted, bad))?;
            stream.launch(grid(2, 32), fill_with(mine, 0))?;
            stream.get_nbi(mine, theirs, next(pe))?;
            stream.quiet()?;
            stream.launch(grid(2, 32), expect(mine, wanted, bad))?;
            stream.g(one, theirs.at(2999), next(pe))?;
            stream.launch(grid(1, 1), expect(one.as_slice(), wanted, bad))?;
            stream.quiet()?;
            stream.wait()?;
            assert_eq!(pe.read_one(one)?, wanted);
            pe.host_sync()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn stream_wait_blocks_only_its_own_stream() {
    for setup in setups::even() {
        let bad = setup.run(|pe| {
            let (data, src) = (pe.alloc::<u64>(600)?, pe.alloc::<u64>(600)?);
            let (signal, bad) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u64>()?);
            let (held, free) = (pe.stream()?, pe.stream()?);
            held.signal_wait_until(signal, Cmp::Eq, 4)?;
            held.launch(grid(2, 32), expect(data, 9, bad))?;
            free.launch(grid(1, 32), fill_with(src, 9))?;
            free.wait()?;
            // All `held` streams are waiting, and all `free` streams are idle.
            pe.host_sync()?;
            free.put_signal(data, src, signal.set(4), pe.my_pe() ^ 1)?;
            // A later operation on the stream may overwrite the source.
            free.launch(grid(1, 32), fill_with(src, 0))?;
            free.wait()?;
            held.quiet()?;
            held.wait()?;
            pe.host_sync()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

/// Queues every stream operation with the next PE as the target, and checks the results.
fn every_operation(pe: &Pe, stream: &Stream<'_>) -> rushmem::Result<()> {
    let (words, old) = (pe.alloc::<u32>(8)?, pe.alloc::<u32>(8)?);
    let (signals, data) = (pe.alloc::<Signal>(4)?, pe.alloc::<u64>(2)?);
    let (flags, wanted) = (pe.alloc::<i64>(3)?, pe.alloc::<i64>(3)?);
    let to = next(pe);
    pe.write(wanted, &[-1, -2, -3])?;
    pe.host_sync()?;
    let word = words.at(0);
    stream.atomic_set(word, 12, to)?;
    stream.atomic_add(word, 1, to)?;
    stream.atomic_and(word, 9, to)?;
    stream.atomic_or(word, 2, to)?;
    stream.atomic_xor(word, 1, to)?;
    stream.atomic_fetch_nbi(old.at(0), word, to)?;
    stream.atomic_swap_nbi(old.at(1), word, 100, to)?;
    stream.atomic_fetch_add_nbi(old.at(2), word, 5, to)?;
    stream.atomic_fetch_and_nbi(old.at(3), word, 0x6f, to)?;
    stream.atomic_fetch_or_nbi(old.at(4), word, 0x10, to)?;
    stream.atomic_fetch_xor_nbi(old.at(5), word, 0x01, to)?;
    stream.atomic_compare_swap_nbi(old.at(6), word, 0x79, 1, to)?;
    stream.atomic_compare_swap_nbi(old.at(7), word, 0x78, 1, to)?;

    stream.p(data.at(0), 77, to)?;
    stream.fence()?;
    stream.signal_op(signals.at(0).set(5), to)?;
    stream.signal_op(signals.at(0).add(6), to)?;
    stream.put_signal_nbi(signals.slice(2..3), signals.slice(3..4), signals.at(1).add(8), to)?;
    for (i, value) in [-1, -2, -3].into_iter().enumerate() {
        stream.p(flags.at(i), value, to)?;
    }
    stream.quiet()?;
    stream.signal_wait_until(signals.at(0), Cmp::Eq, 11)?;
    stream.wait_until(signals.at(1), Cmp::Ge, 8)?;
    stream.wait_until_all(&WaitSet::new(flags, Cmp::Lt, 0))?;
    stream.wait_until_all(&WaitSet::each(flags, Cmp::Eq, wanted))?;
    stream.sync_all()?;
    stream.wait()?;
    assert_eq!(pe.read(old)?, [10, 10, 100, 0x69, 0x69, 0x79, 0x78, 0x78]);
    assert_eq!(pe.read(words.slice(0..1))?, [1]);
    assert_eq!(pe.read(data)?, [77, 0]);
    pe.host_sync()
}

#[test]
fn every_operation_works_on_a_stream() {
    for setup in setups::all() {
        setup.run(|pe| every_operation(pe, &pe.stream()?));
    }
}

#[test]
fn every_operation_works_on_a_host_context() {
    for setup in setups::all() {
        setup.with("context_qps", 1).run(|pe| {
            let context = pe.context::<PerGpu>()?;
            let stream = pe.stream()?.with_context(context)?;
            every_operation(pe, &stream)?;
            pe.destroy_context(context)?;
            let gone = stream.quiet().unwrap_err();
            assert!(matches!(gone, Error::Misuse { call: "quiet", .. }), "{gone}");
            drop(stream);
            let gone = pe.stream()?.with_context(context).err().unwrap();
            assert!(matches!(gone, Error::Misuse { call: "Stream::with_context", .. }), "{gone}");
            Ok(())
        });
    }
}

/// Operations of a context must use only that context's queues, whether captured or not.
#[test]
fn host_context_has_separate_queues() {
    let setup = Setup::new(2).with("peer_path", "nic").with("nic", "soft").with("context_qps", 1);
    setup.without_sanitizer("it looks at QPs").run(|pe| {
        let (dst, src) = (pe.alloc::<u64>(8)?, pe.alloc::<u64>(8)?);
        let executed =
            || -> rushmem::Result<Vec<u16>> { Ok(pe.qps()?.iter().map(|qp| qp.executed).collect()) };
        let context = pe.context::<PerGpu>()?;
        let (plain, own) = (pe.stream()?, pe.stream()?.with_context(context)?);
        own.put_nbi(dst, src, next(pe))?;
        own.quiet()?;
        own.wait()?;
        pe.host_sync()?;
        let [first] = executed()?[..] else { panic!("{:?}", pe.qps()) };
        // The faster PE would otherwise already connect its default queues.
        pe.host_sync()?;

        plain.put_nbi(dst, src, next(pe))?;
        plain.quiet()?;
        plain.wait()?;
        pe.host_sync()?;
        let [default, still] = executed()?[..] else { panic!("{:?}", pe.qps()) };
        assert!(default > 0 && still == first, "{default} {still} {first}");

        let graph = own.capture(|own| {
            own.put_nbi(dst, src, next(pe))?;
            own.quiet()
        })?;
        graph.launch(&plain)?;
        plain.wait()?;
        let [unused, more] = executed()?[..] else { panic!("{:?}", pe.qps()) };
        assert!(unused == default && more > first, "{unused} {default} {more} {first}");
        pe.host_sync()
    });
}

#[test]
fn stream_barrier_makes_puts_visible_to_the_next_kernel_of_the_peer() {
    for setup in setups::all() {
        let bad = setup.run(|pe| {
            let (cells, bad) = (pe.alloc::<u64>(4)?, pe.alloc_one::<u64>()?);
            let stream = pe.stream()?;
            pe.host_sync()?;
            for round in 1..15 {
                stream.launch(grid(4, 32), put_cells(cells, round))?;
                stream.barrier_all()?;
                stream.launch(grid(1, 32), expect(cells, round, bad))?;
                stream.barrier_all()?;
            }
            stream.wait()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn stream_waits_for_an_event_of_another_stream() {
    let bad = Setup::new(2).run(|pe| {
        let (data, bad) = (pe.alloc::<u64>(200)?, pe.alloc_one::<u64>()?);
        let signal = pe.alloc_one::<Signal>()?;
        let (first, second) = (pe.stream()?, pe.stream()?);
        first.signal_wait_until(signal, Cmp::Ge, 1)?;
        first.launch(grid(2, 32), fill_with(data, 3))?;
        let filled = first.record()?;
        second.follow(&filled)?;
        second.launch(grid(2, 32), expect(data, 3, bad))?;
        pe.host_sync()?;
        pe.signal_op(signal.add(1), next(pe))?;
        second.wait()?;
        first.wait()?;
        pe.barrier_all()?;
        pe.read_one(bad)
    });
    assert_eq!(bad, [0, 0]);
}

/// Each PE has two streams, each with a separate ring of signals. The PEs queue their operations in different orders.
#[test]
fn two_streams_work_independently() {
    for setup in setups::all() {
        setup.run(|pe| {
            let (signals, data) = (pe.alloc::<Signal>(2)?, pe.alloc::<u64>(2 * 50)?);
            let src = pe.alloc::<u64>(2 * 50)?;
            let streams = [pe.stream()?, pe.stream()?];
            let mut order = [0, 1];
            if pe.my_pe() & 1 == 1 {
                order.reverse();
            }
            for ring in order {
                let part = ring * 50..(ring + 1) * 50;
                let stream: &Stream<'_> = &streams[ring];
                stream.launch(grid(1, 32), fill_with(src.slice(part.clone()), 60 + ring as u64))?;
                for round in 1..6 {
                    let (dst, src) = (data.slice(part.clone()), src.slice(part.clone()));
                    stream.put_signal(dst, src, signals.at(ring).add(1), next(pe))?;
                    stream.fence()?;
                    stream.signal_wait_until(signals.at(ring), Cmp::Ge, round)?;
                }
            }
            for stream in &streams {
                stream.quiet()?;
                stream.wait()?;
            }
            assert_eq!(pe.read(data)?, [[60; 50], [61; 50]].concat(), "{setup}");
            pe.host_sync()
        });
    }
}

#[test]
fn stream_stops_at_an_error_until_it_is_reported() {
    Setup::new(2).with("timeout", "1s").run(|pe| {
        let (data, signal) = (pe.alloc::<u64>(40)?, pe.alloc_one::<Signal>()?);
        let beside = pe.alloc::<u64>(4)?;
        let (failing, other) = (pe.stream()?, pe.stream()?);
        failing.launch(grid(1, 32), fill_with(data, 1))?;
        failing.signal_wait_until(signal, Cmp::Ge, 5)?;
        failing.launch(grid(1, 32), fill_with(data, 2))?;
        failing.put(data, data, next(pe))?;
        other.launch(grid(1, 32), fill_with(beside, 8))?;
        let error = failing.wait().expect_err("nobody signals");
        let Error::Operation { what, cause, .. } = &error else { panic!("{error}") };
        assert_eq!(*what, "signal_wait_until");
        let Error::Device { first, others: 0 } = &**cause else { panic!("{error}") };
        assert_eq!(first.code(), Some(Code::WaitTimeout));
        other.wait()?;
        assert_eq!(pe.read(beside)?, [8; 4]);
        assert_eq!(pe.read(data)?, [1; 40], "an operation after the error ran");

        failing.launch(grid(1, 32), put_nowhere(data.at(0)))?;
        let error = failing.wait().expect_err("there is no such PE");
        assert!(matches!(&error, Error::Operation { what: "put_nowhere", .. }), "{error}");
        failing.launch(grid(1, 32), fill_with(data, 3))?;
        failing.wait()?;
        assert_eq!(pe.read(data)?, [3; 40]);
        let error = failing.put(data, data, 2).expect_err("there is no PE 2");
        assert!(matches!(error, Error::Misuse { .. }), "{error}");
        pe.host_sync()
    });
}

/// A small call locks its team before it knows whether an earlier launch of the stream has failed.
#[test]
fn small_collective_call_after_an_error_leaves_its_team_usable() {
    Setup::new(2).with("peer_path", "p2p").with("timeout", "1s").run(|pe| {
        let (signal, stream) = (pe.alloc_one::<Signal>()?, pe.stream()?);
        // By one block, and by several.
        for len in [8, 4096] {
            let (dst, src) = (pe.alloc::<u32>(len)?, pe.alloc::<u32>(len)?);
            pe.write(src, &vec![pe.my_pe() + 1; len])?;
            stream.signal_wait_until(signal, Cmp::Ge, 5)?;
            stream.broadcast(Team::WORLD, dst, src, 1)?;
            stream.wait().expect_err("nobody signals");
            assert_eq!(pe.read(dst)?, vec![0; len]);
            stream.broadcast(Team::WORLD, dst, src, 1)?;
            stream.wait()?;
            assert_eq!(pe.read(dst)?, vec![2; len]);
            pe.host_sync()?;
        }
        Ok(())
    });
}

#[test]
fn graph_is_correct_at_each_of_a_thousand_launches() {
    const LAUNCHES: u64 = 1000;
    let bad = Setup::new(2).run(|pe| {
        let (data, src) = (pe.alloc::<u64>(64)?, pe.alloc::<u64>(64)?);
        let (sent, received) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
        let (signal, bad) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u64>()?);
        let stream = pe.stream()?;
        let graph = stream.capture(|stream| {
            stream.launch(grid(1, 32), next_round(sent, src))?;
            stream.put_signal(data, src, signal.add(1), next(pe))?;
            stream.launch(grid(1, 32), await_round(received, signal, data, bad))?;
            stream.barrier_all()
        })?;
        assert_eq!(graph.len(), 4);
        assert_eq!(pe.read_one(signal)?, 0, "a recording runs nothing");
        pe.host_sync()?;
        for launch in 0..LAUNCHES {
            graph.launch(&stream)?;
            if launch % 100 == 0 {
                stream.wait()?;
            }
        }
        stream.wait()?;
        assert_eq!((pe.read_one(sent)?, pe.read_one(received)?), (LAUNCHES, LAUNCHES));
        assert_eq!(pe.read_one(signal)?, LAUNCHES);
        pe.read_one(bad)
    });
    assert_eq!(bad, [0, 0]);
}

#[test]
fn failing_graph_stops_and_names_its_operation() {
    Setup::new(1).with("timeout", "1s").run(|pe| {
        let (data, signal) = (pe.alloc::<u64>(4)?, pe.alloc_one::<Signal>()?);
        let count = pe.alloc_one::<u64>()?;
        let stream = pe.stream()?;
        let graph = stream.capture(|stream| {
            stream.atomic_add(count, 1, 0)?;
            stream.quiet()?;
            stream.signal_wait_until(signal, Cmp::Ge, 1)?;
            stream.launch(grid(1, 1), fill_with(data, 6))
        })?;
        // Only the first launch runs. If the others did, each would wait until its deadline.
        for _ in 0..100 {
            graph.launch(&stream)?;
        }
        let error = stream.wait().expect_err("nobody signals");
        assert!(error.to_string().starts_with("signal_wait_until: "), "{error}");
        assert_eq!((pe.read_one(count)?, pe.read(data)?), (1, vec![0; 4]));
        pe.signal_op(signal.set(1), 0)?;
        pe.quiet()?;
        graph.launch(&stream)?;
        stream.wait()?;
        assert_eq!((pe.read_one(count)?, pe.read(data)?), (2, vec![6; 4]));
        Ok(())
    });
}

#[test]
fn recording_rejects_waits_and_nested_recordings() {
    Setup::new(1).run(|pe| {
        let stream = pe.stream()?;
        let graph = stream.capture(|stream| {
            for outcome in [stream.wait(), stream.record().map(drop), stream.capture(|_| Ok(())).map(drop)] {
                assert!(matches!(outcome, Err(Error::Misuse { .. })));
            }
            Ok(())
        })?;
        assert!(graph.is_empty());
        graph.launch(&stream)?;
        stream.wait()
    });
}

#[test]
fn next_call_waits_for_a_dropped_stream() {
    Setup::new(2).run(|pe| {
        let data = pe.alloc::<u64>(500)?;
        for round in 0..20 {
            let stream = pe.stream()?;
            stream.launch(grid(2, 32), fill_with(data, round))?;
            drop(stream);
            assert_eq!(pe.read(data)?, [round; 500]);
        }
        Ok(())
    });
}
