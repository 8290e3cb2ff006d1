//! Tests between kernels and the host: allocation, launches, the end of a job.

use rushmem::{Error, Grid, Job, Pe};
use rushmem_litmus::path::PATHS;
use rushmem_litmus_kernels::{await_word, meet_all, poke};

/// What these tests show.
pub(crate) const IDS: &[&str] = &["L23", "L62", "L73", "L74", "L75", "L78", "L90"];

/// Rounds of each test.
const ROUNDS: u64 = 30;

const ONE: Grid = Grid { blocks: 1, threads: 1, shared_bytes: 0 };

/// Runs `app` on three PEs whose NIC does its worst.
fn on_pes<R: Send>(app: impl Fn(&Pe) -> Result<R, Error> + Send + Sync) -> Vec<R> {
    let config = PATHS[3].with_adversary().config(5);
    let job = Job::with_config(config).kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    job.run(app).unwrap_or_else(|error| panic!("{error}"))
}

/// L73: memory is ready on all PEs once one has it.
#[test]
fn memory_is_ready_on_all_pes_when_alloc_returns() {
    let seen = on_pes(|pe| {
        let mut seen = Vec::new();
        for round in 1..=ROUNDS {
            let x = pe.alloc::<u64>(500)?;
            if pe.my_pe() == 1 {
                pe.run(ONE, poke(x.at(499), round, 0, 1))?;
            }
            pe.barrier()?;
            seen.push(pe.read_one(x.at(499))?);
        }
        Ok(seen)
    });
    assert!(seen[0].iter().copied().eq(1..=ROUNDS), "{seen:?}");
}

/// L74: what is zeroed is not zeroed later.
#[test]
fn an_early_put_is_not_overwritten_by_zeros() {
    let seen = on_pes(|pe| {
        let mut seen = Vec::new();
        for round in 1..=ROUNDS {
            let x = pe.alloc::<u64>(500)?;
            match pe.my_pe() {
                0 => pe.run(ONE, poke(x.at(250), round, 1, 0))?,
                1 => pe.run(ONE, await_word(x.at(250), round))?,
                _ => {}
            }
            pe.barrier()?;
            seen.push(pe.read_one(x.at(250))?);
        }
        Ok(seen)
    });
    assert!(seen[1].iter().copied().eq(1..=ROUNDS), "{seen:?}");
}

/// L75: memory that is given out again is zero, once the puts to it have been completed.
#[test]
fn memory_that_is_given_out_again_is_zero() {
    let seen = on_pes(|pe| {
        let mut dirty = 0;
        for _ in 0..ROUNDS {
            let x = pe.alloc::<u64>(100)?;
            if pe.my_pe() == 0 {
                pe.run(ONE, poke(x.at(50), u64::MAX, 1, 1))?;
            }
            pe.free(x)?;
            let y = pe.alloc::<u64>(100)?;
            dirty += u32::from(pe.read(y)?.iter().any(|word| *word != 0));
            pe.free(y)?;
        }
        Ok(dirty)
    });
    assert_eq!(seen, [0, 0, 0]);
}

/// L78: the end of a job completes what was posted before.
#[test]
fn the_end_of_a_job_completes_what_was_posted() {
    for _ in 0..5 {
        on_pes(|pe| {
            let x = pe.alloc_one::<u64>()?;
            match pe.my_pe() {
                0 => pe.run(ONE, poke(x, 1, 1, 0)),
                1 => pe.run(ONE, await_word(x, 1)),
                _ => Ok(()),
            }
        });
    }
}

/// L23, L90: a kernel's end completes nothing; its quiet does.
#[test]
fn the_quiet_of_a_kernel_completes_its_puts() {
    let seen = on_pes(|pe| {
        let (x, y) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
        let mut seen = Vec::new();
        for round in 1..=ROUNDS {
            if pe.my_pe() == 0 {
                pe.run(ONE, poke(x, round, 1, 1))?;
                pe.run(ONE, poke(y, round, 1, 0))?;
            }
            pe.barrier()?;
            seen.push((pe.read_one(x)?, pe.read_one(y)?));
            pe.barrier()?;
        }
        Ok(seen)
    });
    for (round, (x, y)) in (1..).zip(&seen[1]) {
        assert_eq!(*x, round);
        assert!(*y == round || *y == round - 1, "{y} in round {round}");
    }
}

/// L62: barriers of the host and of kernels in one order.
#[test]
fn barriers_of_host_and_kernels_mix() {
    let seen = on_pes(|pe| {
        let cell = pe.alloc::<u64>(3)?;
        let mut early = 0;
        for round in 1..=ROUNDS {
            pe.run(ONE, meet_all(cell, round))?;
            early += u32::from(pe.read(cell)? != [round; 3]);
            pe.barrier()?;
        }
        Ok(early)
    });
    assert_eq!(seen, [0, 0, 0]);
}
