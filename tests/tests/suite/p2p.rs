//! Tests of P2P peers: pointers to their memory, and a common path for all atomics.

use rushmem::Pe;
use rushmem_device::{Signal, Team};
use rushmem_test_kernels::{add_everywhere, atomic_then_flag, contend, store_marks, store_to_members};
use rushmem_tests::{Setup, grid};

use super::setups;

/// Why some jobs run without the sanitizer, which needs P2P peers.
const BY_NIC: &str = "it looks at paths by NIC";

/// Whether PEs `a` and `b` are in the same P2P group of `group` PEs. If `group` is 0, all PEs form one group.
fn together(a: u32, b: u32, group: u32) -> bool {
    group == 0 || a / group == b / group
}

/// Whether PEs of a group map each other's heaps, given the setting `peer_path`. With `auto` they do on GPUs only.
fn mapped(pe: &Pe, path: &str) -> bool {
    path == "p2p" || path == "auto" && pe.is_gpu()
}

#[test]
fn exactly_the_p2p_peers_have_pointers() {
    for (pes, path, group) in
        [(1, "p2p", 0), (3, "p2p", 0), (5, "p2p", 2), (3, "auto", 0), (2, "nic", 0), (4, "p2p", 1)]
    {
        let setup = Setup::new(pes).with("peer_path", path).with("p2p_group", group);
        let setup = if path == "p2p" { setup } else { setup.without_sanitizer(BY_NIC) };
        setup.run(|pe| {
            let (me, n) = (pe.my_pe(), pe.n_pes() as usize);
            let is_p2p = |other: u32| other == me || mapped(pe, path) && together(me, other, group);
            let (object, before) = (pe.alloc::<u64>(n)?, pe.alloc::<u64>(n)?);
            let reached = pe.alloc::<u32>(n)?;
            pe.write(object, &vec![u64::from(me) + 100; n])?;
            pe.host_sync()?;
            pe.run(grid(2, 32), store_marks(object, reached, before))?;
            let pes = || 0..n as u32;
            let wanted: Vec<u32> = pes().map(|other| if is_p2p(other) { 2 } else { 0 }).collect();
            assert_eq!(pe.read(reached)?, wanted, "PE {me}, {path}, groups of {group}");
            let wanted: Vec<u64> =
                pes().map(|other| if is_p2p(other) { u64::from(other) + 100 } else { 0 }).collect();
            assert_eq!(pe.read(before)?, wanted);
            let mark = |other: u32| {
                if is_p2p(other) { u64::from(other + 1) << 32 | u64::from(me) } else { u64::from(me) + 100 }
            };
            assert_eq!(pe.read(object)?, pes().map(mark).collect::<Vec<_>>());

            // The host must report the same.
            for other in pes() {
                assert_eq!(pe.ptr(object, other).is_some(), is_p2p(other));
                assert!(pe.pe_accessible(other));
                let via = &pe.peer_routes()[other as usize].via;
                assert_eq!(via == "p2p", is_p2p(other) && path != "nic", "{via}");
            }
            assert!(pe.ptr(object, n as u32).is_none() && !pe.pe_accessible(n as u32));
            let (first, last) = (pe.ptr(object, me), pe.ptr(object.slice(n - 1..n), me));
            assert_eq!(first.map(|at| at.wrapping_add(n - 1)), last);
            pe.free(object)?;
            assert!(pe.ptr(object, me).is_none());
            Ok(())
        });
    }
}

#[test]
fn all_members_of_the_shared_team_have_pointers() {
    for (pes, path, group) in [(3, "p2p", 0), (5, "p2p", 2), (3, "auto", 0)] {
        let setup = Setup::new(pes).with("peer_path", path).with("p2p_group", group);
        let setup = if path == "p2p" { setup } else { setup.without_sanitizer(BY_NIC) };
        setup.run(|pe| {
            let me = pe.my_pe();
            let members: Vec<u32> = (0..pes)
                .filter(|&other| other == me || mapped(pe, path) && together(me, other, group))
                .collect();
            assert_eq!(pe.team_pes(Team::SHARED), Some(members.clone()), "{setup}");
            let [shared, world] = [pe.alloc::<u32>(pes as usize)?, pe.alloc::<u32>(pes as usize)?];
            for index in 0..=members.len() as u32 {
                let pointer = members.get(index as usize).and_then(|&other| pe.ptr(shared, other));
                assert_eq!(pe.team_ptr(Team::SHARED, shared, index), pointer);
                assert_eq!(pointer.is_some(), index < members.len() as u32);
            }
            assert_eq!(pe.team_ptr(Team::INVALID, shared, 0), None);
            pe.run(grid(1, 32), store_to_members(Team::SHARED, shared))?;
            pe.run(grid(1, 32), store_to_members(Team::WORLD, world))?;
            pe.host_sync()?;
            let mut wanted: Vec<u32> = members.iter().map(|other| 100 + other).collect();
            wanted.resize(pes as usize, 0);
            assert_eq!(pe.read(shared)?, wanted);
            let by = |other| if members.contains(&other) { 100 + other } else { 0 };
            assert_eq!(pe.read(world)?, (0..pes).map(by).collect::<Vec<_>>());
            Ok(())
        });
    }
}

/// Returns jobs with P2P peers only, with both kinds of peers, and with NIC peers only.
fn domains() -> impl Iterator<Item = Setup> {
    [(4, 0), (4, 2), (5, 3), (3, 1)].into_iter().map(|(pes, group)| {
        Setup::new(pes).with("peer_path", "p2p").with("p2p_group", group).with("sq_depth", 8)
    })
}

#[test]
fn concurrent_atomics_over_all_paths_are_exact() {
    const ROUNDS: u32 = 5;
    for setup in domains() {
        setup.run(|pe| {
            let (wide, narrow) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u32>()?);
            let all = 2 * 40 * ROUNDS * pe.n_pes();
            let (signal, src) = (pe.alloc_one::<Signal>()?, pe.alloc::<u32>(2 * 40)?);
            let dst = pe.alloc::<u32>(all as usize)?;
            pe.run(grid(2, 40), add_everywhere(wide, narrow, signal, dst, src, ROUNDS))?;
            pe.host_sync()?;
            let all = u64::from(all);
            let found = (pe.read_one(wide)?, u64::from(pe.read_one(narrow)?), pe.read_one(signal)?);
            assert_eq!(found, (all, all, all), "{setup}");
            Ok(())
        });
    }
}

#[test]
fn tickets_are_unique_in_a_mixed_job() {
    const ROUNDS: u32 = 3;
    for setup in domains() {
        let all = 2 * 40 * setup.pes();
        setup.run(|pe| {
            let (tickets, drawn) = (pe.alloc_one::<u64>()?, pe.alloc::<u32>((all * ROUNDS) as usize)?);
            let (wide, narrow) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u32>()?);
            let (bits, swapped) = (pe.alloc::<u64>(all.div_ceil(64) as usize)?, pe.alloc_one::<u32>()?);
            pe.run(grid(2, 40), contend(tickets, drawn, wide, narrow, bits, swapped, ROUNDS))?;
            pe.host_sync()?;
            if pe.my_pe() == 0 {
                assert_eq!(pe.read_one(tickets)?, u64::from(ROUNDS * all), "{setup}");
                assert!(pe.read(drawn)?.iter().all(|&n| n == 1), "a ticket was drawn twice: {setup}");
                assert_eq!(pe.read_one(swapped)?, ROUNDS * 2 * pe.n_pes(), "{setup}");
            }
            Ok(())
        });
    }
}

#[test]
fn fence_orders_an_atomic_before_a_store() {
    // With a slow NIC, the store could overtake the atomic.
    for setup in domains().chain(setups::all().filter(|setup| setup.pes() > 1)) {
        let setup = setup.with("softnic_fault", "skip_qp=0.3,completion_delay=0.3");
        let bad = setup.run(|pe| {
            let [counter, flag, ack, bad] =
                [pe.alloc_one::<u64>()?, pe.alloc_one()?, pe.alloc_one()?, pe.alloc_one()?];
            pe.run(grid(1, 32), atomic_then_flag(counter, flag, ack, bad, 30))?;
            pe.host_sync()?;
            assert_eq!(pe.read_one(counter)?, 30);
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn p2p_peers_need_no_queues() {
    let add = |pe: &Pe| {
        let (wide, narrow) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u32>()?);
        let (signal, src) = (pe.alloc_one::<Signal>()?, pe.alloc::<u32>(32)?);
        let dst = pe.alloc::<u32>(2 * 32 * pe.n_pes() as usize)?;
        pe.run(grid(1, 32), add_everywhere(wide, narrow, signal, dst, src, 2))?;
        pe.host_sync()?;
        Ok(pe.connected_qps())
    };
    for connect in ["lazy", "eager"] {
        let setup = Setup::new(3).with("peer_path", "p2p").with("connect", connect);
        assert_eq!(setup.run(add), [0; 3], "{setup}");
    }
    // In a mixed job, atomics go through the NIC even to P2P peers.
    let setup = Setup::new(3).with("peer_path", "p2p").with("p2p_group", 2);
    assert_eq!(setup.run(add), [3; 3], "{setup}");
}

#[test]
fn path_report_gives_a_reason_for_each_peer() {
    let whys = |path: &str, group: u32| {
        let setup = Setup::new(3).with("peer_path", path).with("p2p_group", group);
        let setup = if path == "p2p" { setup } else { setup.without_sanitizer(BY_NIC) };
        let paths = setup.run(|pe| Ok(pe.peer_routes()));
        paths[0].iter().map(|path| format!("{}: {}", path.via, path.why)).collect::<Vec<_>>()
    };
    let mixed = whys("p2p", 2);
    assert_eq!(mixed[0], "p2p: its own memory; atomics through the NIC, like the atomics of its peers");
    assert!(
        mixed[1].starts_with("p2p: a thread of the same process; atomics through the NIC"),
        "{}",
        mixed[1]
    );
    assert_eq!(mixed[2], "software ConnectX: it belongs to another group (RUSHMEM_P2P_GROUP)");
    assert_eq!(whys("p2p", 0)[1..], ["p2p: a thread of the same process"; 2]);
    assert_eq!(whys("nic", 0), ["software ConnectX: RUSHMEM_PEER_PATH=nic"; 3]);
    if !Setup::on_gpu() {
        assert!(whys("auto", 0)[1].ends_with("RUSHMEM_PEER_PATH=p2p maps the node's heaps"));
    }
}
