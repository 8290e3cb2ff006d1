//! A job in which every kind of operation runs while the ports of NICs go down and up: a part of `suite_pe` that a test runs with
//! failover.

use std::time::{Duration, Instant};

use rushmem::{Error, Pe};
use rushmem_device::Signal;
use rushmem_test_kernels::{
    CUT_WORDS, FIXED, FIXED_VALUE, LONGEST, LOST, PAIRS, Queues, TICKETS, WRONG, cross_cuts,
};

use crate::grid;

/// Number of blocks that exchange messages with each PE.
const LANES: usize = 2;

/// Runs kernels until `time` has passed, and checks after each that nothing was lost or applied twice. Prints the number of
/// rounds and the longest one.
pub(crate) fn cross(pe: &Pe, time: Duration) -> Result<(), Error> {
    const ROUNDS: u64 = 12;
    let n = pe.n_pes() as usize;
    let pairs = LANES * n;
    let messages = pe.alloc::<u64>(3 * pairs * CUT_WORDS)?;
    let (signals, counters) = (pe.alloc::<Signal>(pairs)?, pe.alloc::<u64>(PAIRS + 2 * pairs)?);
    let (begin, mut longest, mut lost, mut first) = (Instant::now(), 0, 0, 1);
    loop {
        for queues in [Queues::Shared, Queues::PerBlock, Queues::Exclusive] {
            let mut fresh = vec![0; PAIRS + 2 * pairs];
            fresh[FIXED] = FIXED_VALUE;
            pe.write(counters, &fresh)?;
            pe.host_sync()?;
            let threads = if queues == Queues::Exclusive { 1 } else { 32 };
            let end = first + ROUNDS;
            let kernel = cross_cuts(messages, signals, counters, first, end, queues as u32);
            pe.run(grid(pairs as u32, threads), kernel)?;
            pe.host_sync()?;
            let found = pe.read(counters)?;
            assert_eq!(found[WRONG], 0, "{queues:?}: {} wrong words", found[WRONG]);
            assert_eq!(found[TICKETS], ROUNDS * pairs as u64, "{queues:?}: tickets");
            for (pair, words) in found[PAIRS..].chunks_exact(2).enumerate() {
                assert_eq!(words, [ROUNDS * u64::from(threads), end - 1], "{queues:?}: pair {pair}");
            }
            longest = longest.max(found[LONGEST]);
            lost += found[LOST];
            first = end;
        }
        let over = pe.allgather(&[u8::from(begin.elapsed() >= time)])?;
        if over.iter().all(|over| over == &[1]) {
            break;
        }
    }
    println!(
        "PE {}: {} rounds, {lost} results lost, longest round {:?}",
        pe.my_pe(),
        first - 1,
        Duration::from_nanos(longest)
    );
    Ok(())
}
