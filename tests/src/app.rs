//! What the PEs of the tests with several processes do.

use std::process::ExitCode;

use rushmem::{Error, Job, Pe};
use rushmem_device::Signal;
use rushmem_test_kernels::{
    add_everywhere, send_to_all, small_puts, store_everywhere, store_marks, wait_for_ever,
};

use tracing_subscriber::EnvFilter;

use crate::{grid, kernels};

/// Threads that send, in all.
const THREADS: usize = 128;

/// The program `WHAT [PE]`: does `ring` on all PEs, or `direct`; or lets all wait for a signal in a kernel (`wait`), and
/// store to each other's memory afterwards (`store`), but for the given PE, which exits with code 3 (`exit`).
pub fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let who = args.next().and_then(|pe| pe.parse().ok());
    let run = || {
        let job = Job::new()?;
        let filter = EnvFilter::new(&job.config().log);
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
        job.kernels(kernels()).run(|pe| act(pe, &what, who))
    };
    match run() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

fn act(pe: &Pe, what: &str, who: Option<u32>) -> Result<(), Error> {
    match what {
        "ring" => ring(pe),
        "direct" => direct(pe),
        "store" => store(pe),
        "wait" | "exit" => {
            let (signal, seen) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u32>()?);
            pe.barrier()?;
            println!("ready {} {}", pe.my_pe(), std::process::id());
            if what == "exit" && who == Some(pe.my_pe()) {
                std::process::exit(3);
            }
            pe.run(grid(2, 32), wait_for_ever(signal, 1, seen))
        }
        other => Err(Error::Misuse { call: "suite_pe", what: format!("no such thing to do: {other:?}") }),
    }
}

/// Every PE stores its mark where it can, and all add to the same words everywhere.
fn direct(pe: &Pe) -> Result<(), Error> {
    const ROUNDS: u32 = 3;
    let (me, n) = (pe.my_pe(), pe.n_pes());
    let (object, before) = (pe.alloc::<u64>(n as usize)?, pe.alloc::<u64>(n as usize)?);
    let reached = pe.alloc::<u32>(n as usize)?;
    pe.run(grid(1, 32), store_marks(object, reached, before))?;
    let numbers = |them: Vec<bool>| {
        let pes = (0..n).zip(them).filter(|(_, is)| *is).map(|(pe, _)| pe.to_string());
        pes.collect::<Vec<_>>().join(" ")
    };
    let mapped = numbers(pe.read(reached)?.iter().map(|&reached| reached == 2).collect());
    let marks = pe.read(object)?.into_iter().zip(0..n);
    let marked = numbers(marks.map(|(mark, by)| mark == u64::from(by + 1) << 32 | u64::from(me)).collect());

    let (wide, narrow) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u32>()?);
    let (signal, data) = (pe.alloc_one::<Signal>()?, pe.alloc::<u32>(5)?);
    pe.run(grid(2, 32), add_everywhere(wide, narrow, signal, data, ROUNDS))?;
    pe.barrier()?;
    let all = u64::from(64 * ROUNDS * n);
    let exact = [pe.read_one(wide)?, pe.read_one(narrow)?.into(), pe.read_one(signal)?] == [all; 3];
    let sums = if exact { "right" } else { "wrong" };
    println!("PE {me} reaches {mapped}, has marks of {marked}, sums are {sums}, {} QPs", pe.connected_qps());
    for path in pe.paths() {
        println!("PE {me} -> {}: {}, {}", path.pe, path.via, path.why);
    }
    Ok(())
}

/// Waits in a kernel until the job ends, and then stores to everybody, whoever is left.
fn store(pe: &Pe) -> Result<(), Error> {
    // Larger than what a process holds in its caches, and untouched so far.
    let cells = pe.alloc::<u32>(1 << 18)?;
    let outcome = act(pe, "wait", None);
    // That this kernel cannot end well, since the job has not, is not what is asked.
    let _ = pe.run(grid(1, 32), store_everywhere(cells, 1));
    println!("PE {} has stored", pe.my_pe());
    outcome
}

/// Every PE sends to the next one, then to all, and says what it got.
fn ring(pe: &Pe) -> Result<(), Error> {
    let (n, me) = (pe.n_pes(), pe.my_pe());
    let (dst, src) = (pe.alloc::<u32>(THREADS)?, pe.alloc::<u32>(THREADS)?);
    // Wireshark guesses what is in a payload: a word with a zero half looks like Ethernet in InfiniBand to it.
    let array = |pe: u32| (0..THREADS as u32).map(|i| 0x5a5a_0101 + i * 1009 + pe).collect::<Vec<_>>();
    pe.write(src, &array(me))?;
    pe.barrier()?;
    pe.run(grid(2, THREADS as u32 / 2), small_puts(dst, src, 20, 1))?;
    pe.barrier()?;
    let before = (me + n - 1) % n;
    let verdict = if pe.read(dst)? == array(before) { "all" } else { "not" };
    println!("PE {me} of {n} has {verdict} that PE {before} sent");
    pe.write(src, &array(7))?;
    pe.barrier()?;
    pe.run(grid(2, THREADS as u32 / 2), send_to_all(dst, src))?;
    pe.barrier()?;
    let verdict = if pe.read(dst)? == array(7) { "all" } else { "not" };
    println!("PE {me} has {verdict} that all sent");
    Ok(())
}
