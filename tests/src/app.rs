//! What the PEs of the tests with several processes do.

use std::process::ExitCode;

use rushmem::{Error, Job, Pe};
use rushmem_device::Signal;
use rushmem_test_kernels::{send_to_all, small_puts, wait_for_ever};

use tracing_subscriber::EnvFilter;

use crate::{grid, kernels};

/// Threads that send, in all.
const THREADS: usize = 128;

/// The program `WHAT [PE]`: does `ring` on all PEs; or lets all wait for a signal in a kernel (`wait`), but for the given
/// PE, which exits with code 3 (`exit`).
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
