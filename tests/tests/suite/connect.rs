//! QPs that are made when they are needed, and what happens when they cannot be.

use std::time::{Duration, Instant};

use rushmem::{Error, Pe};
use rushmem_test_kernels::{send_to_all, small_puts};
use rushmem_tests::{Setup, grid};

/// Waits until the PE has `wanted` QPs; the last letter of a peer may still be on its way.
fn await_qps(pe: &Pe, wanted: usize) {
    let begin = Instant::now();
    while pe.connected_qps() < wanted && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(pe.connected_qps(), wanted, "PE {}", pe.my_pe());
}

#[test]
fn only_qps_that_kernels_use_are_made() {
    for rails in [1, 2] {
        let setup = Setup::new(4).with("qps_per_peer", 2).with("nics_per_pe", rails).with("block_qps", 3);
        setup.run(|pe| {
            let (dst, src) = (pe.alloc::<u32>(32)?, pe.alloc::<u32>(32)?);
            assert_eq!(pe.connected_qps(), 0);
            // Nobody begins before all have looked.
            pe.barrier()?;
            pe.run(grid(1, 32), small_puts(dst, src, 1, 1))?;
            // One block uses one QP towards its right neighbour, and the left neighbour has one towards this PE.
            await_qps(pe, 2);
            pe.run(grid(1, 32), small_puts(dst, src, 1, 1))?;
            await_qps(pe, 2);
            pe.barrier()
        });
    }
}

#[test]
fn all_qps_are_made_at_start_if_the_settings_say_so() {
    let setup = Setup::new(3).with("connect", "eager").with("qps_per_peer", 2).with("exclusive_qps", 1);
    assert_eq!(setup.run(|pe| Ok(pe.connected_qps())), [9; 3]);
}

#[test]
fn a_connection_without_memory_for_it_is_an_error_that_says_so() {
    let begin = Instant::now();
    let setup = Setup::new(3).with("queue_memory", 1).with("timeout", "20s");
    let error = setup
        .try_run(|pe| {
            let (dst, src) = (pe.alloc::<u32>(32)?, pe.alloc::<u32>(32)?);
            pe.run(grid(1, 32), send_to_all(dst, src))
        })
        .map(|_: Vec<()>| ())
        .expect_err("one QP for three PEs");
    assert!(matches!(error, Error::NoConnection { .. }), "{error}");
    assert!(error.to_string().contains("raise RUSHMEM_QUEUE_MEMORY"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(15), "the kernels waited for their deadline");
}
