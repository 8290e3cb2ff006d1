//! A job of two PEs that moves a few bytes: what works is the proof, and what the files say only explains.

use std::time::{Duration, Instant};

use rushmem_device::{Cmp, Signal, SignalOp};

use super::check::{Check, Kind, Verdict};
use crate::Operations;
use crate::config::{Config, DeviceKind, PeerPath};
use crate::nics::{Decision, decide};
use crate::{Error, Job, Pe, Result};

pub(super) static CARRIER: Kind = Kind {
    id: "P1",
    about: "NICs of a job",
    why: "A ConnectX that does not open, or whose port has no address, is left out; without any, the software ConnectX carries all.",
};
pub(super) static DOORBELL: Kind = Kind {
    id: "P2",
    about: "doorbells of kernels",
    why: "A page of the NIC's registers is made and mapped for kernels, as for a job.",
};
pub(super) static NIC: Kind = Kind {
    id: "P3",
    about: "a job through the NIC",
    why: "Kernels of two PEs put, get, add and signal, and every byte is compared.",
};
pub(super) static DIRECT: Kind = Kind {
    id: "P4",
    about: "a job of direct peers",
    why: "The same by loads and stores to the peer's memory.",
};

/// No operation of a probe takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(5);
/// Words that are put and got.
pub(super) const WORDS: usize = 512;
/// Each operation is done so often, and the fastest is told.
const ROUNDS: usize = 16;

/// What a job would use here, and two PEs as threads of this process, through the NIC and directly.
pub(super) fn check(config: &Config, gpus: usize) -> Vec<Check> {
    let mut checks = carriers(config, gpus);
    for (kind, path) in [(&NIC, PeerPath::Nic), (&DIRECT, PeerPath::Direct)] {
        checks.push(one(config, kind, path, gpus));
    }
    checks
}

fn carriers(config: &Config, gpus: usize) -> Vec<Check> {
    match decide(config) {
        Err(error) => vec![CARRIER.fails("", Verdict::Blocks, error.to_string())],
        Ok(Decision { hardware: None, why, left_out: true }) => {
            vec![CARRIER.fails("", Verdict::Blocks, format!("the software ConnectX only: {why}"))]
        }
        Ok(Decision { hardware: None, why, .. }) => {
            vec![CARRIER.note("", format!("the software ConnectX ({why})"))]
        }
        Ok(Decision { hardware: Some(hardware), .. }) => of_hardware(&hardware, config, gpus),
    }
}

#[cfg(feature = "rdma")]
fn of_hardware(hardware: &crate::nics::Hardware, config: &Config, gpus: usize) -> Vec<Check> {
    let used = hardware.describe().into_iter().map(|nic| CARRIER.good("", nic));
    let refused = hardware.refused().iter().map(|why| CARRIER.fails("", Verdict::Lesser, why));
    let mut checks: Vec<_> = used.chain(refused).collect();
    let on_gpu = config.device != DeviceKind::Native && gpus > 0;
    let gpu = if on_gpu { config.gpus.of(0, gpus as u32) } else { None };
    checks.push(match hardware.doorbells(config, gpu) {
        Ok(how) => DOORBELL.good("", how),
        Err(error) => DOORBELL.fails("", Verdict::Blocks, error.to_string()),
    });
    checks
}

#[cfg(not(feature = "rdma"))]
fn of_hardware(hardware: &crate::nics::Hardware, _: &Config, _: usize) -> Vec<Check> {
    match *hardware {}
}

/// These settings, for a job that soon knows: on GPUs, where there are any, though it brings no kernels of its own.
pub(super) fn patient(config: &Config, gpus: usize) -> Config {
    let mut config = config.clone();
    config.timeout = config.timeout.min(PATIENCE);
    if config.device == DeviceKind::Auto && gpus > 0 {
        config.device = DeviceKind::Gpu;
    }
    config
}

fn one(config: &Config, kind: &'static Kind, path: PeerPath, gpus: usize) -> Check {
    let mut config = patient(config, gpus);
    config.peer_path = path;
    config.pes = const { std::num::NonZeroU32::new(2).expect("2") };
    match Job::with_config(config).run(talk) {
        Ok(said) => kind.good("", said.into_iter().next().unwrap_or_default()),
        Err(error) => kind.fails("", Verdict::Blocks, error.to_string()),
    }
}

/// What every PE does: all to its right neighbour. Tells how it went.
fn talk(pe: &Pe) -> Result<String> {
    let right = (pe.my_pe() + 1) % pe.n_pes();
    let left = (pe.my_pe() + pe.n_pes() - 1) % pe.n_pes();
    let (sent, there, back) = (pe.alloc::<u64>(WORDS)?, pe.alloc::<u64>(WORDS)?, pe.alloc::<u64>(WORDS)?);
    let (count, bell) = (pe.alloc_one::<u64>()?, pe.alloc_one::<Signal>()?);
    let of = |pe: u32, round: usize| -> Vec<u64> {
        (0..WORDS as u64).map(|i| i << 32 | u64::from(pe) << 16 | round as u64).collect()
    };
    let (mut put, mut got, mut added) = (Duration::MAX, Duration::MAX, Duration::MAX);
    pe.host_sync()?;
    for round in 1..=ROUNDS {
        pe.write(sent, &of(pe.my_pe(), round))?;
        let begin = Instant::now();
        pe.put_signal(there, sent, bell, SignalOp::Add, 1, right)?;
        pe.quiet()?;
        put = put.min(begin.elapsed());
        pe.signal_wait_until(bell, Cmp::Ge, round as u64)?;
        agree("put", &of(left, round), &pe.read(there)?)?;
        let begin = Instant::now();
        pe.get(back, there, right)?;
        got = got.min(begin.elapsed());
        agree("get", &of(pe.my_pe(), round), &pe.read(back)?)?;
        let begin = Instant::now();
        let old = pe.atomic_fetch_add(count, 1u64, right)?;
        added = added.min(begin.elapsed());
        agree("fetch_add", &[round as u64 - 1], &[old])?;
        pe.host_sync()?;
    }
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let way = pe.paths().into_iter().find(|path| path.pe == right).map_or(String::new(), |path| path.via);
    Ok(format!(
        "{} by {way}: put and signal {:.0} us, get {:.0} us, fetch_add {:.0} us, each as a call of the host",
        pe.machine(),
        us(put),
        us(got),
        us(added)
    ))
}

pub(super) fn agree(what: &'static str, wanted: &[u64], found: &[u64]) -> Result<()> {
    match wanted.iter().zip(found).position(|(wanted, found)| wanted != found) {
        None => Ok(()),
        Some(i) => {
            let text = format!("{what}: word {i} is {:#x} and should be {:#x}", found[i], wanted[i]);
            Err(Error::App(text.into()))
        }
    }
}
