//! Checks of the memory model for kernels together with the host: allocation, launches, job shutdown.

use rushmem::{Error, LaunchConfig, Operations, Pe};
use rushmem_litmus_kernels::{await_word, get_after, leave, meet_all, poke, poke_two};

use super::{Check, Verdict, must};

const ROUNDS: u64 = 30;

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["L73"], "memory is ready on all PEs when alloc returns", ready),
    Check::new(&["L74"], "an early put is not overwritten by zeros", zeroed),
    Check::new(&["L75"], "reallocated memory is zero", given_out_again),
    Check::new(&["L23", "L90"], "the quiet of a kernel completes its puts", completed).races(),
    Check::new(&["L62"], "barriers of host and kernels mix", barriers),
    Check::new(&["L105"], "a host that sees a flag sees the data before it", observed_by_host).races(),
    Check::new(
        &["L106"],
        "an operation on a stream publishes the stores of earlier kernels",
        published_by_stream,
    ),
];

/// Number of words that a kernel stores before a stream's signal.
const WORDS: usize = 64;

/// Checks that memory may be accessed on all PEs once `alloc` has returned on one.
fn ready(pe: &Pe) -> Result<Verdict, Error> {
    let mut seen = Vec::new();
    for round in 1..=ROUNDS {
        let x = pe.alloc::<u64>(500)?;
        if pe.my_pe() == 1 {
            pe.run(ONE, poke(x.at(499), round, 0, 1))?;
        }
        pe.host_sync()?;
        seen.push(pe.read_one(x.at(499))?);
    }
    Ok(must(pe.my_pe() != 0 || seen.iter().copied().eq(1..=ROUNDS), || format!("{seen:?}")))
}

/// Checks that no PE zeroes its memory any more once `alloc` has returned on one PE.
fn zeroed(pe: &Pe) -> Result<Verdict, Error> {
    let mut seen = Vec::new();
    for round in 1..=ROUNDS {
        let x = pe.alloc::<u64>(500)?;
        match pe.my_pe() {
            0 => pe.run(ONE, poke(x.at(250), round, 1, 0))?,
            1 => pe.run(ONE, await_word(x.at(250), round))?,
            _ => {}
        }
        pe.host_sync()?;
        seen.push(pe.read_one(x.at(250))?);
    }
    Ok(must(pe.my_pe() != 1 || seen.iter().copied().eq(1..=ROUNDS), || format!("{seen:?}")))
}

/// Checks that freed and reallocated memory is zero if the puts to it have completed.
fn given_out_again(pe: &Pe) -> Result<Verdict, Error> {
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
    Ok(must(dirty == 0, || format!("{dirty} times it was not zero")))
}

/// Checks that a kernel's quiet completes its puts. The return of a kernel alone need not complete a put, so reading
/// the data of the put without quiet races.
fn completed(pe: &Pe) -> Result<Verdict, Error> {
    let (x, y) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
    let mut seen = Vec::new();
    for round in 1..=ROUNDS {
        if pe.my_pe() == 0 {
            pe.run(ONE, poke(x, round, 1, 1))?;
            pe.run(ONE, poke(y, round, 1, 0))?;
        }
        pe.host_sync()?;
        seen.push((pe.read_one(x)?, pe.read_one(y)?));
        pe.host_sync()?;
    }
    let right = |(round, (x, y)): (u64, &(u64, u64))| *x == round && (*y == round || *y == round - 1);
    Ok(must(pe.my_pe() != 1 || (1..).zip(&seen).all(right), || format!("{seen:?}")))
}

/// Checks that barriers of kernels and of the host can be used alternately.
fn barriers(pe: &Pe) -> Result<Verdict, Error> {
    let n = pe.n_pes() as usize;
    let cells = pe.alloc::<u64>(n)?;
    let mut early = 0;
    for round in 1..=ROUNDS {
        pe.run(ONE, meet_all(cells, round))?;
        early += u32::from(pe.read(cells)? != vec![round; n]);
        pe.host_sync()?;
    }
    Ok(must(early == 0, || format!("{early} rounds were early")))
}

/// Checks that a host which reads a flag, while another PE's kernel is running, also reads the data stored before the
/// flag. The hardware guarantees that; in the memory model, a host and a running kernel race.
fn observed_by_host(pe: &Pe) -> Result<Verdict, Error> {
    let (data, flag) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
    let mut old = Vec::new();
    for round in 1..=ROUNDS {
        match pe.my_pe() {
            0 => pe.run(ONE, poke_two(data, flag, round, 1))?,
            1 => {
                while pe.read_one(flag)? < round {
                    std::thread::yield_now();
                }
                let found = pe.read_one(data)?;
                if found != round {
                    old.push((round, found));
                }
            }
            _ => {}
        }
        pe.host_sync()?;
    }
    Ok(must(old.is_empty(), || format!("old data: {old:?}")))
}

/// Checks that a signal which a stream sends after a kernel publishes the kernel's stores.
fn published_by_stream(pe: &Pe) -> Result<Verdict, Error> {
    let (data, copy) = (pe.alloc::<u64>(WORDS)?, pe.alloc::<u64>(WORDS)?);
    let flag = pe.alloc_one::<u64>()?;
    let stream = pe.stream()?;
    let mut old = Vec::new();
    for round in 1..=ROUNDS {
        match pe.my_pe() {
            0 => {
                stream.launch(LaunchConfig::new(1, 32), leave(data, round))?;
                stream.atomic_inc(flag, 1)?;
                stream.wait()?;
            }
            1 => {
                pe.run(LaunchConfig::new(1, 32), get_after(flag, round, copy, data, 0))?;
                old.extend(pe.read(copy)?.into_iter().filter(|&word| word != round));
            }
            _ => {}
        }
        pe.host_sync()?;
    }
    Ok(must(old.is_empty(), || format!("old data: {old:?}")))
}

/// Posts a put on PE 0 without completing it, and waits for it on PE 1.
///
/// Job shutdown must complete the put. Otherwise PE 1 waits until its deadline.
pub(super) fn leave_behind(pe: &Pe) -> Result<(), Error> {
    let x = pe.alloc_one::<u64>()?;
    match pe.my_pe() {
        0 => pe.run(ONE, poke(x, 1, 1, 0)),
        1 => pe.run(ONE, await_word(x, 1)),
        _ => Ok(()),
    }
}
