//! Tests of pending operations, flushes, batches, queue handles, and groups within a warp.

use rushmem_device::Signal;
use rushmem_test_kernels::{Free, QueueSharing, batched, held_back, part_ways, queue_handles, reuse_sources};
use rushmem_tests::{Setup, grid};

use super::setups;

#[test]
fn handles_and_flushes_release_sources() {
    let (blocks, row) = (3, 400);
    for setup in setups::all() {
        for how in [Free::Wait, Free::Test, Free::Flush, Free::FlushPe, Free::FlushAsync] {
            setup.run(|pe| {
                let len = blocks as usize * row;
                let (dst, src, back) = (pe.alloc::<u32>(len)?, pe.alloc::<u32>(len)?, pe.alloc::<u32>(len)?);
                let source = |pe: u32| (0..len as u32).map(|i| i * 7 + pe + 1).collect::<Vec<_>>();
                pe.write(src, &source(pe.my_pe()))?;
                pe.host_sync()?;
                pe.run(grid(blocks, 40), reuse_sources(how as u32, dst, src, back, row as u32))?;
                pe.host_sync()?;
                let before = (pe.my_pe() + pe.n_pes() - 1) % pe.n_pes();
                assert_eq!(pe.read(dst)?, source(before), "{setup}, {how:?}");
                assert_eq!(pe.read(back)?, source(pe.my_pe()), "{setup}, {how:?}");
                assert_eq!(pe.read(src)?, vec![0xdead_beef; len]);
                Ok(())
            });
        }
    }
}

#[test]
fn batch_changes_only_the_doorbells() {
    let times = 5;
    for setup in setups::all() {
        for (sharing, blocks, threads) in
            [(QueueSharing::Gpu, 2, 33), (QueueSharing::Block, 2, 33), (QueueSharing::Exclusive, 1, 3)]
        {
            let setup = setup.clone().with("block_qps", 2).with("exclusive_qps", 3);
            setup.run(|pe| {
                let all = (blocks * threads) as usize;
                let len = pe.n_pes() as usize * all * times as usize;
                let (dst, sums) = (pe.alloc::<u32>(len)?, pe.alloc::<u64>(2)?);
                let (arrived, wrong) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u64>()?);
                pe.run(grid(blocks, threads), batched(sharing as u32, dst, sums, arrived, wrong, times))?;
                pe.host_sync()?;
                assert_eq!(pe.read(dst)?, (1..=len as u32).collect::<Vec<_>>(), "{setup}, {sharing:?}");
                let each = u64::from(pe.n_pes()) * all as u64;
                assert_eq!(pe.read(sums)?, [3 * each + all as u64, 2 * each], "{setup}, {sharing:?}");
                assert_eq!((pe.read_one(arrived)?, pe.read_one(wrong)?), (each, 0), "{setup}, {sharing:?}");
                Ok(())
            });
        }
    }
}

#[test]
fn batch_delays_its_doorbell_until_closed() {
    let setup = Setup::new(1).with("peer_path", "nic").with("exclusive_qps", 1);
    let seen = setup.without_sanitizer("a batch holds back a put, which only a NIC does").run(|pe| {
        let (word, never, seen) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?, pe.alloc::<u64>(2)?);
        pe.run(grid(1, 32), held_back(word, never, seen, 50_000_000))?;
        pe.read(seen)
    });
    assert_eq!(seen, [[0, 7]]);
}

#[test]
fn queue_completes_independently() {
    for setup in setups::all() {
        let bad = setup.run(|pe| {
            let (len, n) = (600, pe.n_pes() as usize);
            let (dst, src) = (pe.alloc::<u32>(len * n)?, pe.alloc::<u32>(len)?);
            let (arrived, bad) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u64>()?);
            let source = |pe: u32| (0..len as u32).map(move |i| i * 5 + pe + 1);
            pe.write(src, &source(pe.my_pe()).collect::<Vec<_>>())?;
            pe.host_sync()?;
            pe.run(grid(4, 33), queue_handles(dst, src, arrived, bad))?;
            pe.host_sync()?;
            assert_eq!(pe.read(dst)?, (0..n as u32).flat_map(source).collect::<Vec<_>>(), "{setup}");
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn lanes_may_diverge_and_reconverge() {
    for setup in setups::all() {
        for lanes in [1, 4, 8, 32] {
            setup.run(|pe| {
                let n = 128;
                let (me, n_pes) = (pe.my_pe(), pe.n_pes());
                let (before, next) = ((me + n_pes - 1) % n_pes, (me + 1) % n_pes);
                let (dst, src, arrived) =
                    (pe.alloc::<u32>(4 * n)?, pe.alloc::<u32>(n)?, pe.alloc_one::<Signal>()?);
                let of = |pe: u32, i: usize| i as u32 * 11 + pe + 1;
                pe.write(src, &(0..n).map(|i| of(me, i)).collect::<Vec<_>>())?;
                pe.host_sync()?;
                pe.run(grid(2, 64), part_ways(dst, src, arrived, lanes))?;
                pe.host_sync()?;
                let odd_tile = |i: usize| (i % 64 / lanes as usize) % 2 == 1;
                let mut wanted: Vec<u32> =
                    (0..n).map(|i| of(if i % 2 == 1 { before } else { me }, i)).collect();
                wanted.extend((0..n).map(|i| of(before, i)));
                wanted.extend((0..n).map(|i| if odd_tile(i) { of(next, i) } else { 0 }));
                wanted.extend((0..n).map(|i| if odd_tile(i) { 0 } else { of(before, i) }));
                assert_eq!(pe.read(dst)?, wanted, "{setup}, {lanes} lanes");
                let tiles = (0..n).step_by(lanes as usize).filter(|&i| !odd_tile(i)).count();
                assert_eq!(pe.read_one(arrived)?, tiles as u64);
                Ok(())
            });
        }
    }
}
