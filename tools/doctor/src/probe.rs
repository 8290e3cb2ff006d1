//! Probes: jobs of two PEs that transfer a few bytes. A working job proves more than the state of the system.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rushmem_device::{Cmp, Signal};

use super::check::{Check, Finding, Verdict};
use super::facts::commands::{Command, Cqe};
use super::facts::probes::{Choice, JobOutcome, JobPath, PairFacts, Probes};
use rushmem::config::{Config, DeviceKind, Gpus, PeerPath};
use rushmem::inspect::{NicChoice, Pair, ProbedPair, choose_nics, share_gpus};
use rushmem::{Error, Job, Operations, Pe};

pub(super) static CARRIER: Check = Check {
    id: "P1",
    about: "NICs of a job",
    why: "A job skips a ConnectX that does not open or has no port address. Without any, the software ConnectX carries all traffic.",
};
pub(super) static DOORBELL: Check = Check {
    id: "P2",
    about: "doorbells of kernels",
    why: "The probe creates a UAR page of each NIC and maps it for kernels, as a job does.",
};
pub(super) static LEVEL: Check = Check {
    id: "P5",
    about: "level of the NIC path",
    why: "The probe sets up the queues of each PE on its NICs as a job does. The CPU and a kernel post to them. A failure steps \
          down one level. PIX, PXB, PHB, NODE and SYS are distances, as in `nvidia-smi topo`.",
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

/// Which pairs of a PE and a NIC are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbedPairs {
    /// Those that a job would use.
    Used,
    /// All.
    All,
}

impl JobPath {
    fn check(self) -> &'static Check {
        match self {
            JobPath::Nic => &NIC,
            JobPath::P2p => &P2P,
        }
    }
}

/// Probes the NICs that a job would use, then runs two PEs as threads of this process: through the NIC and over P2P.
pub(super) fn gather(config: &Config, gpus: usize, which: ProbedPairs) -> Probes {
    let (choice, pairs) = match choose_nics(config) {
        Ok(nics) => (Ok(Choice::new(&nics)), probe_pairs(&nics, config, gpus, which).map_err(text_of)),
        Err(error) => (Err(text_of(error)), Ok(Vec::new())),
    };
    let jobs = [(JobPath::Nic, PeerPath::Nic), (JobPath::P2p, PeerPath::P2p)];
    let jobs = jobs.map(|(path, peer_path)| JobOutcome { path, outcome: run_job(config, peer_path, gpus) });
    Probes { choice, pairs, jobs: jobs.into() }
}

fn text_of(error: Error) -> String {
    error.to_string()
}

impl Choice {
    fn new(nics: &NicChoice) -> Choice {
        Choice {
            reason: nics.reason().to_owned(),
            is_device_unused: nics.is_device_unused(),
            devices: nics.devices(),
            refused: nics.refused(),
        }
    }
}

fn probe_pairs(
    nics: &NicChoice,
    config: &Config,
    gpus: usize,
    which: ProbedPairs,
) -> rushmem::Result<Vec<PairFacts>> {
    let (gpus, pes) = gpus_of_pes(config, gpus as u32)?;
    let mut pairs = nics.pairs(config, &gpus, pes)?;
    pairs.retain(|pair| pair.is_used || which == ProbedPairs::All);
    let mut seen = BTreeSet::new();
    // PEs that share a GPU and a NIC have the same outcome.
    pairs.retain(|pair| pair.gpu.is_none_or(|gpu| seen.insert((gpu, pair.nic))));
    pairs.sort_by_key(|pair| pair.gpu);
    let probed = nics.probe(config, &pairs);
    Ok(pairs.into_iter().zip(probed).map(|(pair, probed)| PairFacts::new(pair, probed)).collect())
}

/// Returns the GPU of each PE of this node, or none for native kernels, and the number of PEs. Without a launcher, a later
/// job may have a PE on each GPU.
fn gpus_of_pes(config: &Config, found: u32) -> rushmem::Result<(Vec<u32>, u32)> {
    let pes = config.pes_on_node();
    if config.device == DeviceKind::Native || found == 0 {
        return Ok((Vec::new(), pes));
    }
    let admitted = match &config.gpus {
        Gpus::Auto => found,
        Gpus::List(gpus) => gpus.len() as u32,
    };
    let pes = if config.local_pes.is_some() { pes } else { pes.max(admitted) };
    Ok((share_gpus(config, found, pes)?, pes))
}

impl PairFacts {
    fn new(pair: Pair, probed: ProbedPair) -> PairFacts {
        PairFacts {
            pe: pair.pe,
            gpu: pair.gpu,
            nic: pair.port,
            distance: pair.distance.map(|distance| distance.abbreviation().to_owned()),
            is_used: pair.is_used,
            doorbells: probed.doorbells,
            level: probed.level,
            commands: probed.recording.exchanges.iter().map(Command::new).collect(),
            completions: probed.recording.completions.iter().map(Cqe::new).collect(),
        }
    }

    /// Returns the findings about doorbells and level.
    fn judge(&self) -> Vec<Finding> {
        let of = match self.gpu {
            Some(gpu) => format!("GPU {gpu} and {}", self.nic),
            None => format!("PE {} and {}", self.pe, self.nic),
        };
        // A job may come to use another pair, with other settings or as a spare.
        let broken = if self.is_used { Verdict::Blocks } else { Verdict::Risk };
        let doorbells = self.doorbells.as_ref().map(|doorbells| match doorbells {
            Ok(how) => DOORBELL.good(&of, how),
            Err(error) => DOORBELL.fails(&of, broken, error),
        });
        let distance = self.distance.as_ref().map_or(String::new(), |distance| format!("{distance}, "));
        let level = match &self.level {
            Ok((level, steps)) if steps.is_empty() => LEVEL.good(&of, format!("{distance}{level}")),
            Ok((level, steps)) => {
                LEVEL.fails(&of, Verdict::Lesser, format!("{distance}{level}; {}", steps.join("; ")))
            }
            Err(error) => LEVEL.fails(&of, broken, error),
        };
        doorbells.into_iter().chain([level]).collect()
    }
}

/// Returns the findings about what probes found.
pub(super) fn judge(probes: &Probes) -> Vec<Finding> {
    let mut findings = match &probes.choice {
        Ok(choice) => carrier(choice),
        Err(error) => vec![CARRIER.fails("", Verdict::Blocks, error)],
    };
    match &probes.pairs {
        Ok(pairs) => findings.extend(pairs.iter().flat_map(PairFacts::judge)),
        Err(error) => findings.push(LEVEL.fails("", Verdict::Blocks, error)),
    }
    findings.extend(probes.jobs.iter().map(|job| match &job.outcome {
        Ok(times) => job.path.check().good("", times),
        Err(error) => job.path.check().fails("", Verdict::Blocks, error),
    }));
    findings
}

fn carrier(choice: &Choice) -> Vec<Finding> {
    match choice {
        Choice { devices, refused, .. } if !devices.is_empty() => {
            let used = devices.iter().map(|nic| CARRIER.good("", nic));
            let unused = refused.iter().map(|why| CARRIER.note("", format!("not used: {why}")));
            used.chain(unused).collect()
        }
        Choice { is_device_unused: true, reason, .. } => {
            vec![CARRIER.fails("", Verdict::Blocks, format!("the software ConnectX only: {reason}"))]
        }
        Choice { reason, .. } => vec![CARRIER.note("", format!("the software ConnectX ({reason})"))],
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

fn run_job(config: &Config, path: PeerPath, gpus: usize) -> Result<String, String> {
    let mut config = with_short_deadline(config, gpus);
    config.peer_path = path;
    config.pes = const { std::num::NonZeroU32::new(2).expect("2") };
    let texts = Job::with_config(config).run(exchange).map_err(text_of)?;
    Ok(texts.into_iter().next().unwrap_or_default())
}

/// Runs all operations from each PE to its right neighbour, and returns their times.
fn exchange(pe: &Pe) -> rushmem::Result<String> {
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

pub(super) fn compare_words(what: &'static str, wanted: &[u64], found: &[u64]) -> rushmem::Result<()> {
    match wanted.iter().zip(found).position(|(wanted, found)| wanted != found) {
        None => Ok(()),
        Some(i) => {
            let text = format!("{what}: word {i} is {:#x} and should be {:#x}", found[i], wanted[i]);
            Err(Error::App(text.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(is_used: bool, level: Result<(String, Vec<String>), String>) -> PairFacts {
        PairFacts {
            pe: 1,
            gpu: Some(3),
            nic: "mlx5_2 port 1".into(),
            distance: Some("PXB".into()),
            is_used,
            doorbells: None,
            level,
            commands: Vec::new(),
            completions: Vec::new(),
        }
    }

    #[test]
    fn a_broken_pair_blocks_only_jobs_that_use_it() {
        let broken = || Err("refused".to_owned());
        let stepped = || Ok(("RoCE".to_owned(), vec!["queues are in host memory".to_owned()]));
        for (pair, verdict) in [
            (pair(true, broken()), Verdict::Blocks),
            (pair(false, broken()), Verdict::Risk),
            (pair(true, stepped()), Verdict::Lesser),
            (pair(false, Ok(("RoCE".into(), Vec::new()))), Verdict::Good),
        ] {
            let findings = pair.judge();
            let rows: Vec<_> = findings.iter().map(|it| (it.check.id, &*it.of, it.verdict)).collect();
            assert_eq!(rows, [("P5", "GPU 3 and mlx5_2 port 1", verdict)]);
        }
    }

    #[test]
    fn unused_nics_are_notes_beside_used_ones() {
        let choice = |devices: &[&str], is_device_unused| Choice {
            reason: "mlx5_1: port 1 is down".into(),
            is_device_unused,
            devices: devices.iter().map(|&name| name.into()).collect(),
            refused: vec!["mlx5_1: port 1 is down".into()],
        };
        let verdicts = |choice: &Choice| carrier(choice).iter().map(|it| it.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&choice(&["mlx5_0"], true)), [Verdict::Good, Verdict::Note]);
        assert_eq!(verdicts(&choice(&[], true)), [Verdict::Blocks]);
        assert_eq!(verdicts(&choice(&[], false)), [Verdict::Note]);
    }
}
