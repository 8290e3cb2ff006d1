//! The application that a new user might write in the first hour. Its argument selects a step or a mistake.
#![forbid(unsafe_code)]

mod kernels;

use rushmem::prelude::*;
use rushmem::{Error, Ptx};

const KERNELS: Ptx = rushmem::ptx!("kernels");

const ONE_BLOCK: LaunchConfig = LaunchConfig::new(1, 32);

fn main() -> Result<(), Error> {
    let step = std::env::args().nth(1).unwrap_or_default();
    Job::new()?.kernels(KERNELS).run(|pe| run(pe, &step))?;
    Ok(())
}

fn run(pe: &Pe, step: &str) -> Result<(), Error> {
    let (words, signal) = (pe.alloc::<u64>(3)?, pe.alloc_one::<Signal>()?);
    match step {
        "structure" => {
            let fill = kernels::Fill { words, first: 1, enabled: true };
            pe.run(ONE_BLOCK, kernels::fill(fill))?;
            println!("{:?}", pe.read(words)?);
            Ok(())
        }
        "order" => add_in_one_order(pe, words),
        "leader" => pe.run(ONE_BLOCK, kernels::fail_in_leader(words.at(0), 99)),
        "wait" => {
            println!("ready");
            pe.run(ONE_BLOCK, kernels::wait_in_vain(signal))
        }
        "dropped" => {
            let _ = pe.launch(ONE_BLOCK, kernels::wait_in_vain(signal))?;
            Ok(())
        }
        "slice" => pe.run(ONE_BLOCK, kernels::use_missing_words(words, 2)),
        "panic" => pe.run(ONE_BLOCK, kernels::no_panic_reduce(words, 8)),
        "loop" => pe.run(ONE_BLOCK, kernels::loop_for_ever(words)),
        "recursion" => pe.run(ONE_BLOCK, kernels::recurse(words, 1_000_000)),
        _ => panic!("no step is named {step:?}"),
    }
}

fn add_in_one_order(pe: &Pe, words: SymSlice<u64>) -> Result<(), Error> {
    let (old, word) = (pe.alloc_one()?, words.at(0));
    pe.run(ONE_BLOCK, kernels::add(old, word, pe.my_pe()))?;
    pe.atomic_fetch_add_nbi(words.at(1), word, 5, pe.my_pe())?;
    let stream = pe.stream()?;
    pe.quiet()?;
    stream.atomic_fetch_add_nbi(words.at(2), word, 5, pe.my_pe())?;
    stream.quiet()?;
    stream.wait()?;
    pe.barrier_all()?;
    println!("{:?}", pe.read(words)?);
    Ok(())
}
