//! Tests of mixed jobs, in which PEs of a node are P2P peers and PEs on other nodes are reached through the NIC.

use rushmem::{Operations, Pe};
use rushmem_device::{Signal, Team};
use rushmem_test_kernels::update_node;
use rushmem_tests::{Setup, grid};

/// Returns a job with `node` PEs per node. Its NICs are slow, and NIC atomics are not atomic with processors.
fn mixed(pes: u32, node: u32) -> Setup {
    Setup::new(pes)
        .with("peer_path", "p2p")
        .with("p2p_group", node)
        .with("softnic_fault", "loose_atomic=0.5 skip_qp=0.3 completion_delay=0.3")
}

/// Updates words on all PEs of the node, then returns the number of connected queues.
fn update(pe: &Pe, rounds: u32) -> Result<u32, rushmem::Error> {
    let (wide, narrow) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u32>()?);
    let (counted, announced) = (pe.alloc_one::<Signal>()?, pe.alloc::<Signal>(pe.n_pes() as usize)?);
    pe.run(grid(1, 32), update_node(Team::SHARED, wide, narrow, counted, announced, rounds))?;
    pe.host_sync()?;
    let members = pe.team_pes(Team::SHARED).unwrap_or_default().len() as u32;
    let all = u64::from(rounds * members);
    let found = (pe.read_one(wide)?, u64::from(pe.read_one(narrow)?), pe.read_one(counted)?);
    assert_eq!(found, (all, all, all));
    Ok(pe.connected_qps() as u32)
}

#[test]
fn atomics_within_a_node_need_no_queues() {
    for (pes, node) in [(4, 2), (6, 3)] {
        assert_eq!(mixed(pes, node).run(|pe| update(pe, 5)), vec![0; pes as usize]);
        let setup = mixed(pes, node).with("p2p_atomics", "node");
        assert_eq!(setup.run(|pe| update(pe, 5)), vec![0; pes as usize]);
    }
    // A PE without P2P peers uses its NIC.
    assert_eq!(mixed(3, 2).run(|pe| update(pe, 5)), [0, 0, 1]);
}

#[test]
fn barrier_all_connects_only_node_leaders() {
    let sync = |pe: &Pe| {
        pe.barrier_all()?;
        Ok(pe.connected_qps())
    };
    // The leaders of the three nodes have a queue to each other.
    assert_eq!(mixed(6, 2).run(sync), [2, 0, 2, 0, 2, 0]);
    assert_eq!(mixed(3, 2).run(sync), [1, 0, 1]);
    assert_eq!(mixed(4, 4).run(sync), [0; 4]);
}
