//! Tests of locks.

use std::time::{Duration, Instant};

use rushmem_device::Lock;
use rushmem_test_kernels::{locked_sum, sign_in};
use rushmem_tests::{Setup, grid};

use super::setups;

#[test]
fn lock_protects_plain_gets_and_puts() {
    let rounds = 12;
    for setup in setups::all() {
        let sums = setup.run(|pe| {
            // Two locks, with different home PEs.
            let (locks, counter) = (pe.alloc::<Lock>(5)?, pe.alloc_one::<u64>()?);
            let tried = pe.alloc_one::<u64>()?;
            pe.run(grid(1, 32), locked_sum(locks.at(0), counter, tried, rounds))?;
            pe.host_sync()?;
            pe.run(grid(1, 32), locked_sum(locks.at(4), counter, tried, rounds))?;
            pe.host_sync()?;
            assert!(pe.read_one(tried)? <= 2 * u64::from(rounds).div_ceil(3));
            Ok((pe.read_one(counter)?, pe.read_one(tried)?))
        });
        assert_eq!(sums[0].0, 2 * u64::from(rounds) * sums.len() as u64, "{setup}");
        if let [(_, tried)] = sums[..] {
            assert_eq!(tried, 8, "a lock that no other PE wants is free");
        }
    }
}

#[test]
fn lock_is_granted_in_request_order() {
    // The PEs request the lock in this order. Its word on the home PE shows the last PE that did.
    let order = [0, 2, 1, 3];
    let setup = Setup::new(4).without_sanitizer("it reads the words of a lock while others ask for it");
    let lists = setup.run(|pe| {
        let (lock, go, count) = (pe.alloc_one::<Lock>()?, pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
        let list = pe.alloc::<u32>(4)?;
        let mut launch = None;
        for (index, &asking) in order.iter().enumerate() {
            if asking == pe.my_pe() {
                let wait = u32::from(index == 0);
                launch = Some(pe.launch(grid(1, 32), sign_in(lock, go, wait, count, list))?);
            }
            let begin = Instant::now();
            loop {
                let last = pe.read_one(lock)?.last_to_ask();
                let asked = pe.allgather(&[last.map_or(0xff, |pe| pe as u8)])?;
                if asked.iter().any(|last| **last == [asking as u8]) {
                    break;
                }
                assert!(begin.elapsed() < Duration::from_secs(60), "PE {asking} does not ask");
            }
        }
        if pe.my_pe() == order[0] {
            pe.write(go.as_slice(), &[1])?;
        }
        if let Some(launch) = launch {
            launch.wait()?;
        }
        pe.host_sync()?;
        pe.read(list)
    });
    assert_eq!(lists[0], order.map(|pe| pe + 1));
}
