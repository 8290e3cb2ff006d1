//! Probes: jobs of two PEs that transfer a few bytes. A working job proves more than the state of the system.

use std::time::{Duration, Instant};

use rushmem_device::{Cmp, Signal};

use super::check::{Check, Finding, Verdict};
use rushmem::config::{Config, DeviceKind, PeerPath};
use rushmem::inspect::choose_nics;
use rushmem::{Error, Job, Operations, Pe, Result};

pub(super) static CARRIER: Check = Check {
    id: "P1",
    about: "NICs of a job",
    why: "A job skips a ConnectX that does not open or has no port address. Without any, the software ConnectX carries all traffic.",
};
pub(super) static DOORBELL: Check = Check {
    id: "P2",
    about: "doorbells of kernels",
    why: "The probe creates a UAR page of the NIC and maps it for kernels, as a job does.",
};
pub(super) static LEVEL: Check = Check {
    id: "P5",
    about: "level of the NIC path",
    why: "The probe sets up the queues of a PE as a job does. The CPU and a kernel post to them. A failure steps down one level.",
};
pub(super) static NIC: Check = Check {
    id: "P3",
    about: "a job through the NIC",
    why: "Kernels of two PEs put, get, add and signal, and every byte is compared.",
};
pub(super) static P2P: Check = Check {
    id: "P4",
    about: "a job over P2P",
    why: "Kernels of two PEs do the same by loads and stores to the peer's memory.",
};

/// Deadline of each operation of a probe.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Length of each put and get, in words.
pub(super) const WORDS: usize = 512;
/// Number of repetitions of each operation. The fastest one is reported.
const ROUNDS: usize = 16;

/// Checks the NICs that a job would use, then runs two PEs as threads of this process: through the NIC and over P2P.
pub(super) fn check(config: &Config, gpus: usize) -> Vec<Finding> {
    let mut checks = nics(config, gpus);
    for (check, path) in [(&NIC, PeerPath::Nic), (&P2P, PeerPath::P2p)] {
        checks.push(run_job(config, check, path, gpus));
    }
    checks
}

fn nics(config: &Config, gpus: usize) -> Vec<Finding> {
    let choice = match choose_nics(config) {
        Ok(choice) => choice,
        Err(error) => return vec![CARRIER.fails("", Verdict::Blocks, error.to_string())],
    };
    let on_gpu = config.device != DeviceKind::Native && gpus > 0;
    let gpu = if on_gpu { config.gpus.of(0, gpus as u32) } else { None };
    match choice.try_doorbells(config, gpu) {
        Some(doorbells) => {
            let used = choice.devices().into_iter().map(|nic| CARRIER.good("", nic));
            let refused = choice.refused().into_iter().map(|why| CARRIER.fails("", Verdict::Lesser, why));
            let doorbells = match doorbells {
                Ok(how) => DOORBELL.good("", how),
                Err(error) => DOORBELL.fails("", Verdict::Blocks, error.to_string()),
            };
            used.chain(refused).chain([doorbells]).chain(choice.try_level(config, gpu).map(level)).collect()
        }
        None if choice.is_device_unused() => {
            vec![CARRIER.fails(
                "",
                Verdict::Blocks,
                format!("the software ConnectX only: {}", choice.reason()),
            )]
        }
        None => vec![CARRIER.note("", format!("the software ConnectX ({})", choice.reason()))],
    }
}

/// Returns the finding about the level of features that a job would use.
fn level(outcome: Result<(String, Vec<String>)>) -> Finding {
    match outcome {
        Ok((level, steps)) if steps.is_empty() => LEVEL.good("", level),
        Ok((level, steps)) => LEVEL.fails("", Verdict::Lesser, format!("{level}; {}", steps.join("; "))),
        Err(error) => LEVEL.fails("", Verdict::Blocks, error.to_string()),
    }
}

/// Returns the settings with a short deadline. Selects GPUs if there are any: the job has no kernels, so `auto` might
/// not.
pub(super) fn with_short_deadline(config: &Config, gpus: usize) -> Config {
    let mut config = config.clone();
    config.timeout = config.timeout.min(OPERATION_TIMEOUT);
    if config.device == DeviceKind::Auto && gpus > 0 {
        config.device = DeviceKind::Gpu;
    }
    config
}

fn run_job(config: &Config, check: &'static Check, path: PeerPath, gpus: usize) -> Finding {
    let mut config = with_short_deadline(config, gpus);
    config.peer_path = path;
    config.pes = const { std::num::NonZeroU32::new(2).expect("2") };
    match Job::with_config(config).run(exchange) {
        Ok(texts) => check.good("", texts.into_iter().next().unwrap_or_default()),
        Err(error) => check.fails("", Verdict::Blocks, error.to_string()),
    }
}

/// Runs all operations from each PE to its right neighbour, and returns their times.
fn exchange(pe: &Pe) -> Result<String> {
    let right = (pe.my_pe() + 1) % pe.n_pes();
    let left = (pe.my_pe() + pe.n_pes() - 1) % pe.n_pes();
    let (sent, there, back) = (pe.alloc::<u64>(WORDS)?, pe.alloc::<u64>(WORDS)?, pe.alloc::<u64>(WORDS)?);
    let (count, signal) = (pe.alloc_one::<u64>()?, pe.alloc_one::<Signal>()?);
    let of = |pe: u32, round: usize| -> Vec<u64> {
        (0..WORDS as u64).map(|i| i << 32 | u64::from(pe) << 16 | round as u64).collect()
    };
    let (mut put, mut got, mut added) = (Duration::MAX, Duration::MAX, Duration::MAX);
    pe.host_sync()?;
    for round in 1..=ROUNDS {
        pe.write(sent, &of(pe.my_pe(), round))?;
        let begin = Instant::now();
        pe.put_signal(there, sent, signal.add(1), right)?;
        pe.quiet()?;
        put = put.min(begin.elapsed());
        pe.signal_wait_until(signal, Cmp::Ge, round as u64)?;
        compare_words("put", &of(left, round), &pe.read(there)?)?;
        let begin = Instant::now();
        pe.get(back, there, right)?;
        got = got.min(begin.elapsed());
        compare_words("get", &of(pe.my_pe(), round), &pe.read(back)?)?;
        let begin = Instant::now();
        let old = pe.atomic_fetch_add(count, 1u64, right)?;
        added = added.min(begin.elapsed());
        compare_words("fetch_add", &[round as u64 - 1], &[old])?;
        pe.host_sync()?;
    }
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let way =
        pe.peer_routes().into_iter().find(|path| path.pe == right).map_or(String::new(), |path| path.via);
    Ok(format!(
        "{} by {way}: put and signal {:.0} us, get {:.0} us, fetch_add {:.0} us, each as a call of the host",
        pe.machine(),
        us(put),
        us(got),
        us(added)
    ))
}

pub(super) fn compare_words(what: &'static str, wanted: &[u64], found: &[u64]) -> Result<()> {
    match wanted.iter().zip(found).position(|(wanted, found)| wanted != found) {
        None => Ok(()),
        Some(i) => {
            let text = format!("{what}: word {i} is {:#x} and should be {:#x}", found[i], wanted[i]);
            Err(Error::App(text.into()))
        }
    }
}
