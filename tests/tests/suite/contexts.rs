//! Tests of contexts with separate queues, views, shared memory, and the OpenSHMEM names.

use rushmem::{Comm, CommRequirements, Error, Operations, Pe};
use rushmem_device::prelude::{Cmp, Exclusive, Fetched, Lock, PerBlock, PerGpu, Signal};
use rushmem_test_kernels::{
    MORE_NAMES, NAMES, exchange_by, exclusive_turns, hold_context, hold_per_block, more_names, names,
    private_puts, reverse, swap_neighbours, take_context_twice, three_contexts, undeclared_per_block,
};
use rushmem_tests::{Setup, grid};

use super::setups;

#[test]
fn every_block_has_its_own_queues() {
    for (pes, depth, cq) in [(1, 2, "ring"), (3, 8, "collapsed"), (4, 1024, "ring")] {
        let setup = Setup::new(pes).with("sq_depth", depth).with("cq", cq).with("block_qps", 5);
        let len = 1000;
        let source = |pe: u32| (0..len).map(move |i| (i as u32 * 7 + pe * 1009) as u16);
        let found = setup.run(|pe| {
            let (dst, src) = (pe.alloc::<u16>(len * pes as usize)?, pe.alloc::<u16>(len)?);
            pe.write(src, &source(pe.my_pe()).collect::<Vec<_>>())?;
            pe.host_sync()?;
            pe.run(grid(5, 33), private_puts(dst, src))?;
            pe.host_sync()?;
            pe.read(dst)
        });
        let wanted: Vec<u16> = (0..pes).flat_map(source).collect();
        assert!(found.iter().all(|found| *found == wanted), "{setup}");
    }
}

#[test]
fn exclusive_queues_are_acquired_and_released() {
    for (pes, depth) in [(1, 2), (2, 8), (3, 2)] {
        let setup = Setup::new(pes).with("sq_depth", depth).with("exclusive_qps", 8);
        let found = setup.run(|pe| {
            let (words, wrong) = (pe.alloc::<u64>(8)?, pe.alloc::<u32>(8)?);
            pe.run(grid(2, 4), exclusive_turns(words, wrong, 10))?;
            pe.host_sync()?;
            Ok((pe.read(words)?, pe.read(wrong)?))
        });
        assert_eq!(found, vec![(vec![10; 8], vec![0; 8]); pes as usize], "{setup}");
    }
}

#[test]
fn threads_of_a_block_share_memory() {
    Setup::new(2).run(|pe| {
        for threads in [1usize, 32, 33, 256] {
            let data = pe.alloc::<u64>(3 * threads)?;
            let before: Vec<u64> = (0..3 * threads as u64).collect();
            pe.write(data, &before)?;
            let shape = grid(3, threads as u32).with_shared_bytes(8 * threads as u32);
            pe.run(shape, reverse(data))?;
            let wanted: Vec<u64> =
                before.chunks(threads).flat_map(|block| block.iter().rev().copied()).collect();
            assert_eq!(pe.read(data)?, wanted);
            pe.free(data)?;
        }
        Ok(())
    });
}

#[test]
fn views_load_and_store() {
    Setup::new(1).run(|pe| {
        let (data, one, lens) = (pe.alloc::<u8>(1001)?, pe.alloc_one::<f64>()?, pe.alloc::<u64>(4)?);
        let before: Vec<u8> = (0..1001).map(|i| i as u8).collect();
        pe.write(data, &before)?;
        pe.write(one.as_slice(), &[0.75])?;
        pe.run(grid(2, 33).with_shared_bytes(48), swap_neighbours(data, one, lens))?;
        let mut wanted = before;
        wanted.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
        assert_eq!(pe.read(data)?, wanted);
        assert_eq!(pe.read_one(one)?, 1.5);
        assert_eq!(pe.read(lens)?, [1001, 1, 12, 1]);
        Ok(())
    });
}

#[test]
fn openshmem_names_work() {
    for setup in setups::all() {
        setup.run(|pe| {
            let (n, me) = (pe.n_pes(), pe.my_pe());
            let data = pe.alloc::<i32>(16)?;
            let (words, signal) = (pe.alloc::<u64>(2)?, pe.alloc_one::<Signal>()?);
            let results = pe.alloc::<u64>(NAMES)?;
            let mut own = vec![0; 16];
            own[..4].copy_from_slice(&[1, 2, 3, 4].map(|i| i * 10 + me as i32));
            pe.write(data, &own)?;
            pe.host_sync()?;
            pe.run(grid(1, 32), names(data, words, signal, results))?;
            pe.host_sync()?;
            let of = |pe: u32| [1, 2, 3, 4].map(|i| i * 10 + pe as i32);
            let (before, after) = (of((me + n - 1) % n), of((me + 1) % n));
            assert_eq!(pe.read(data)?, [of(me), before, after, before].concat(), "{setup}");
            let wanted = [me.into(), n.into(), 11, 5, 1, 14, 14, 15, 26, 25, 15, 0, 70, 71, 71, 5];
            assert_eq!(pe.read(results)?, wanted, "{setup}, PE {me}");
            Ok(())
        });
    }
}

#[test]
fn newer_openshmem_names_work() {
    for setup in setups::all() {
        setup.run(|pe| {
            let (n, me) = (pe.n_pes(), pe.my_pe());
            let (data, words, wanted) = (pe.alloc::<i32>(24)?, pe.alloc::<u64>(4)?, pe.alloc::<u64>(4)?);
            let (status, sum) = (pe.alloc::<i32>(4)?, pe.alloc_one::<u64>()?);
            let (fetched, pes) = (pe.alloc::<Fetched<u64>>(8)?, pe.alloc::<u32>(1)?);
            let (lock, results) = (pe.alloc_one::<Lock>()?, pe.alloc::<u64>(MORE_NAMES)?);
            let of = |pe: u32| (1..9).map(|i| i * 10 + pe as i32).collect::<Vec<_>>();
            pe.write(data.slice(0..8), &of(me))?;
            // Word 3 is excluded from the waits: its value satisfies none of them.
            pe.write(words.slice(3..4), &[1000])?;
            pe.write(wanted, &[0, 6, 0, 2000])?;
            pe.write(status, &[0, 0, 0, 1])?;
            pe.write(pes, &[(me + 1) % n])?;
            pe.host_sync()?;
            let call = more_names(data, words, wanted, status, sum, fetched, pes, lock, results);
            pe.run(grid(1, 32), call)?;
            pe.host_sync()?;
            let (from, next) = (of((me + n - 1) % n), of((me + 1) % n));
            let put = [0, 2, 4, 6, 0, 1, 4, 5].map(|i| from[i]);
            let got = [0, 4, 1, 5, 2, 6, 3].map(|i| next[i]);
            assert_eq!(pe.read(data)?, [of(me), put.to_vec(), got.to_vec(), vec![0]].concat(), "{setup}");
            let found = pe.read(results)?;
            assert_eq!(found[..10], [1, 1, 1, 3, 0, 1, u64::MAX, 1, 1, 0], "{setup}");
            assert_eq!(found[10..18], [12, 12, 13, 29, 25, 31, 0, 70], "{setup}");
            assert_eq!(found[18], u64::from(me != 0), "{setup}");
            Ok(())
        });
    }
}

#[test]
fn host_contexts_order_and_complete_independently() {
    for setup in [
        Setup::new(1).with("sq_depth", 2),
        Setup::new(2).with("sq_depth", 8).with("cq", "collapsed"),
        Setup::new(3).with("sq_depth", 1024).with("nics_per_pe", 2),
    ] {
        let setup = setup.with("context_qps", 3).with("peer_path", "nic").with("block_qps", 1);
        let setup = setup.without_sanitizer("a batch holds back a put, which only a NIC does");
        setup.run(|pe| {
            let (dst, src, seen) = (pe.alloc::<u64>(100)?, pe.alloc::<u64>(100)?, pe.alloc::<u64>(2)?);
            pe.write(src, &(0..100).collect::<Vec<u64>>())?;
            let (quick, together) = (pe.context::<PerGpu>()?, pe.context::<PerBlock>()?);
            // Run twice, each time with a new context on the same queues, which continue where the first context
            // stopped.
            for more in [30, 5] {
                pe.write(dst, &[0; 100])?;
                pe.host_sync()?;
                let slow = pe.context::<Exclusive>()?;
                pe.run(grid(2, 40), three_contexts(slow, quick, together, dst, src, seen, more))?;
                // Destroying the context completes the operations that the kernel left pending.
                pe.destroy_context(slow)?;
                pe.host_sync()?;
                assert_eq!(pe.read(seen)?, [0, 8], "{setup}");
                let wanted: Vec<u64> = [7, 8, 2, 9].into_iter().chain(4..100).collect();
                assert_eq!(pe.read(dst)?, wanted, "{setup}");
                let again = pe.destroy_context(slow).unwrap_err();
                assert!(matches!(again, Error::Misuse { call: "destroy_context", .. }), "{again}");
            }
            Ok(())
        });
    }
}

#[test]
fn unavailable_context_is_a_recoverable_error() {
    let told = Setup::new(1).with("context_qps", 1).run(|pe| {
        let one = pe.context::<Exclusive>()?;
        let none = pe.context::<Exclusive>().unwrap_err();
        let busy = pe.run(grid(1, 32), take_context_twice(one)).unwrap_err();
        assert!(busy.to_string().contains("another thread, block or kernel has the context"), "{busy}");
        pe.destroy_context(one)?;
        // The queue set is in exclusive mode, so it cannot serve all threads.
        assert!(pe.context::<PerGpu>().is_err());
        let one = pe.context::<Exclusive>()?;
        pe.destroy_context(one)?;
        Ok(none.to_string())
    });
    assert!(told[0].contains("raise RUSHMEM_CONTEXT_QPS"), "{}", told[0]);
}

#[test]
fn concurrent_kernels_do_not_share_a_block_context() {
    Setup::new(1).with("context_qps", 1).run(|pe| {
        let context = pe.context::<PerBlock>()?;
        let (held, go) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<Signal>()?);
        let (one, other) = (pe.stream()?, pe.stream()?);
        one.launch(grid(1, 32), hold_context(context, held, go))?;
        pe.signal_wait_until(held, Cmp::Eq, 1)?;
        // Both kernels have a block 0.
        other.launch(grid(1, 32), hold_context(context, held, go))?;
        let busy = other.wait().unwrap_err();
        assert!(busy.to_string().contains("another thread, block or kernel has the context"), "{busy}");
        pe.p(go, 1, 0)?;
        one.wait()?;
        // The first kernel has released the context.
        other.launch(grid(1, 32), hold_context(context, held, go))?;
        other.wait()
    });
}

#[test]
fn concurrent_kernels_do_not_share_block_queues() {
    Setup::new(1).with("block_qps", 1).run(|pe| {
        let (held, go) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<Signal>()?);
        let (one, other) = (pe.stream()?, pe.stream()?);
        let hold = || hold_per_block(held, go);
        let refused = |launched: Result<(), Error>| {
            let told = launched.unwrap_err().to_string();
            assert!(told.contains("which may still run, both use the queues of their blocks"), "{told}");
        };
        let graph = other.capture(|stream| stream.launch(grid(1, 32), hold()))?;
        one.launch(grid(1, 32), hold())?;
        pe.signal_wait_until(held, Cmp::Eq, 1)?;
        refused(other.launch(grid(1, 32), hold()));
        refused(pe.run(grid(1, 32), hold()));
        refused(graph.launch(&other));
        // These launches are in streams that follow the first launch.
        one.launch(grid(1, 32), hold())?;
        other.follow(&one.record()?)?;
        other.launch(grid(1, 32), hold())?;
        graph.launch(&other)?;
        refused(one.launch(grid(1, 32), hold()));
        pe.p(go, 1, 0)?;
        other.wait()?;
        // All earlier launches have completed.
        one.launch(grid(1, 32), hold())?;
        one.wait()
    });
}

#[test]
fn block_queues_require_the_per_block_attribute() {
    let told = Setup::new(1).with("block_qps", 1).run(|pe| {
        let error = pe.run(grid(1, 32), undeclared_per_block()).unwrap_err();
        Ok(error.to_string())
    });
    assert!(told[0].contains("the kernel is not declared to use the queues of its blocks"), "{}", told[0]);
    assert!(told[0].contains("write #[kernel(per_block)]"), "{}", told[0]);
}

/// Sends a message through the first context of `comm` to PE `to`, and receives one from PE `from`.
fn round(pe: &Pe, comm: &Comm<PerGpu>, to: u32, from: u32, round: u64) -> Result<(), Error> {
    let (dst, src) = (pe.alloc::<u64>(64)?, pe.alloc::<u64>(64)?);
    let of = |pe: u32| (0..64).map(|i| u64::from(pe) << 32 | round << 16 | i).collect::<Vec<_>>();
    pe.write(src, &of(pe.my_pe()))?;
    pe.host_sync()?;
    let (context, teams) = (comm.contexts()[0], comm.barriers());
    pe.run(grid(2, 32), exchange_by(context, teams[0], teams[1], comm.signals(), dst, src, to, round))?;
    assert_eq!(pe.read(dst)?, of(from));
    pe.free(dst)?;
    pe.free(src)
}

#[test]
fn communicator_allocates_and_releases_its_requirements() {
    for setup in setups::all() {
        setup.with("context_qps", 2).with("peer_path", "nic").with("connect", "lazy").run(|pe| {
            let (n, me) = (pe.n_pes(), pe.my_pe());
            let (next, before) = ((me + 1) % n, (me + n - 1) % n);
            let ring = CommRequirements::new().signals(5).barriers(2).contexts(1).peers(&[next]);
            let free = pe.heap_free();
            // A new communicator starts in the initial state.
            for times in 1..=3 {
                let comm = pe.comm::<PerGpu>(&ring)?;
                assert_eq!((comm.signals().len(), comm.barriers().len(), comm.contexts().len()), (5, 2, 1));
                assert_eq!(pe.read(comm.signals())?, [0; 5]);
                round(pe, &comm, next, before, times)?;
                pe.destroy_comm(comm)?;
                assert_eq!(pe.heap_free(), free);
            }
            // If one member asks for too much, no member gets anything, and nothing leaks.
            let greedy = CommRequirements::new().signals(1).barriers(1).contexts(if me == 0 { 3 } else { 1 });
            let refused = pe.comm::<PerGpu>(&greedy).unwrap_err();
            assert!(matches!(refused, Error::Unavailable { .. } | Error::Elsewhere { .. }), "{refused}");
            assert_eq!(pe.heap_free(), free);
            let nowhere = pe.context_to::<PerGpu>(&[n]).unwrap_err();
            assert!(matches!(nowhere, Error::Misuse { call: "context_to", .. }), "{nowhere}");
            Ok(())
        });
    }
}

#[test]
fn limited_context_rejects_other_pes() {
    let setup =
        Setup::new(3).with("context_qps", 1).with("peer_path", "nic").without_sanitizer("it looks at QPs");
    let told = setup.run(|pe| {
        let (next, before) = ((pe.my_pe() + 1) % 3, (pe.my_pe() + 2) % 3);
        let ring = CommRequirements::new().signals(2).barriers(2).contexts(1).peers(&[next]);
        let comm = pe.comm::<PerGpu>(&ring)?;
        round(pe, &comm, next, before, 1)?;
        // One default queue, for the barrier, and one queue of the context to the next PE. The previous PE has also
        // connected to its set.
        let mut peers: Vec<u32> = pe.qps()?.iter().map(|qp| qp.peer).collect();
        peers.sort_unstable();
        let mut wanted = [before, next, next];
        wanted.sort_unstable();
        assert_eq!(peers, wanted);
        pe.host_sync()?;
        let error = round(pe, &comm, before, next, 2).unwrap_err();
        pe.host_sync()?;
        Ok(error.to_string())
    });
    for (me, told) in told.into_iter().enumerate() {
        let wanted = format!(
            "PE {me} cannot be connected to PE {}: the context is limited to other PEs",
            (me + 2) % 3
        );
        assert!(told.contains(&wanted), "{told}");
    }
    setup.with("connect", "eager").run(|pe| {
        let late = pe.context_to::<PerGpu>(&[0]).unwrap_err();
        assert!(late.to_string().contains("set RUSHMEM_CONNECT=lazy"), "{late}");
        assert!(pe.context::<PerGpu>().is_ok());
        Ok(())
    });
}
