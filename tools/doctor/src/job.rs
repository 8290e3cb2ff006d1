//! Checks of a whole job: differences between its nodes, and transfers between all PEs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rushmem_device::{Cmp, Signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::check::{Check, Finding, Verdict};
use super::facts::job::{JobFacts, NodeReport, Row};
use super::host::Host;
use super::probe::{WORDS, compare_words, with_short_deadline};
use super::{CHECKS, examine, gpu, nic};
use rushmem::config::Config;
use rushmem::{Error, Job, Operations, Pe, Result};

pub(super) static LOCATIONS: Check =
    Check { id: "J1", about: "PEs", why: "Launchers differ in the way they place PEs." };
pub(super) static ALIKE: Check = Check {
    id: "J2",
    about: "on all PEs",
    why: "A node with another driver, kernel or NIC firmware may be slower than the others, or fail alone. PEs of other \
          partitions or subnets do not reach each other.",
};
pub(super) static PAIRS: Check = Check {
    id: "J3",
    about: "every PE to every other",
    why: "Each PE puts to each other PE (in a large job, to some) with a signal, and every byte is compared.",
};

/// Largest number of PEs for which each PE puts to every other PE. In larger jobs, each puts to some PEs only.
const ALL_PAIRS: u32 = 64;

impl NodeReport {
    /// Sends the report of this PE to all PEs, and returns the reports of all PEs. Collective.
    fn exchange(&self, pe: &Pe) -> Result<Vec<NodeReport>> {
        let mut mine = self.clone();
        if pe.config().local_pe.unwrap_or(pe.my_pe()) != 0 {
            mine.rows.clear();
        }
        exchange(pe, &mine)
    }
}

/// Sends a value of this PE to all PEs, and returns the values of all PEs. Collective.
fn exchange<T: Serialize + DeserializeOwned>(pe: &Pe, mine: &T) -> Result<Vec<T>> {
    let all = pe.allgather(&serde_json::to_vec(mine).map_err(undecodable)?)?;
    all.iter().map(|value| serde_json::from_slice(value).map_err(undecodable)).collect()
}

/// Runs the job of this process, and returns what its PEs report. Collective among its processes.
pub(super) fn gather(host: &Host, config: &Config) -> JobFacts {
    let config = with_short_deadline(config, host.gpus());
    let mine = NodeReport {
        node: host.text("/proc/sys/kernel/hostname").unwrap_or_default(),
        facts: facts(host),
        rows: problems(host, &config).iter().map(Row::of).collect(),
    };
    let nodes: Mutex<Option<Vec<NodeReport>>> = Mutex::default();
    let add = |all: Vec<NodeReport>| {
        nodes.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().extend(all);
    };
    let done = Job::with_config(config).run(|pe| {
        let all = mine.exchange(pe)?;
        add(if pe.my_pe() == 0 { all } else { Vec::new() });
        let times = pe.allgather(bytemuck::cast_slice(&put_to_all(pe)?))?;
        let qps: Vec<String> = pe.qps()?.iter().map(|qp| format!("{qp:?}")).collect();
        let qps = exchange(pe, &qps)?;
        Ok::<_, Error>((pe.my_pe() == 0).then(|| (qps, pairs(pe, &times))))
    });
    let nodes = nodes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (qps, outcome) = match done {
        Ok(of_pes) => of_pes.into_iter().flatten().next().map(|(qps, times)| (qps, Ok(times))),
        Err(error) => Some((Vec::new(), Err(error.to_string()))),
    }
    .unwrap_or_else(|| (Vec::new(), Ok(String::new())));
    JobFacts { nodes, qps, outcome }
}

/// Returns the problems of a host.
fn problems(host: &Host, config: &Config) -> Vec<Finding> {
    examine(host, config).into_iter().filter(|check| check.verdict >= Verdict::Slow).collect()
}

/// Returns the findings about a job on PE 0, and none on other PEs. If the job did not start, each process returns its own
/// findings.
pub(super) fn judge(host: &Host, config: &Config, facts: &JobFacts) -> Vec<Finding> {
    let mut checks = match &facts.nodes {
        // Once a PE has joined the others, PE 0 reports for it.
        Some(nodes) if nodes.is_empty() => return Vec::new(),
        Some(nodes) => compare(nodes),
        None => problems(host, &with_short_deadline(config, host.gpus())),
    };
    checks.push(match &facts.outcome {
        Ok(times) => PAIRS.good("", times),
        Err(error) => PAIRS.fails("", Verdict::Blocks, error),
    });
    checks
}

fn undecodable(error: serde_json::Error) -> Error {
    Error::App(format!("cannot decode the report of a PE: {error}").into())
}

impl Row {
    fn of(finding: &Finding) -> Row {
        let Finding { check, of, verdict, found, remedy } = finding.clone();
        Row { id: check.id.into(), of, verdict, found, remedy }
    }
}

/// Returns facts that should be equal on all nodes.
fn facts(host: &Host) -> BTreeMap<String, String> {
    let text = |path: &str| host.text(path).unwrap_or_else(|_| "unknown".into());
    let driver = match &host.cuda {
        Ok(driver) => {
            let names: Vec<_> = driver.gpus.iter().map(|gpu| gpu.attributes.name.as_str()).collect();
            format!("CUDA {}.{} with {}", driver.version.0, driver.version.1, names.join(", "))
        }
        Err(_) => "none".into(),
    };
    let nics: Vec<_> = nic::devices(host).iter().map(|device| device.describe(host)).collect();
    [
        ("Rushmem", env!("CARGO_PKG_VERSION").into()),
        ("Linux", text("/proc/sys/kernel/osrelease")),
        ("CUDA driver", driver),
        ("GPU kernel modules", gpu::modules(host).unwrap_or_else(|| "none".into())),
        ("NICs", if nics.is_empty() { "none".into() } else { nics.join(", ") }),
        ("MTU", list(nic::mtus(host))),
        ("partitions", list(nic::partitions(host))),
        ("InfiniBand subnets", list(nic::subnets(host))),
    ]
    .map(|(name, value): (&str, String)| (name.to_owned(), value))
    .into()
}

/// Formats different values of NICs.
fn list(values: BTreeSet<String>) -> String {
    if values.is_empty() { "none".into() } else { values.into_iter().collect::<Vec<_>>().join(", ") }
}

fn compare(all: &[NodeReport]) -> Vec<Finding> {
    let mut checks = vec![locations(all)];
    for name in all.first().into_iter().flat_map(|first| first.facts.keys()) {
        let mut by_value: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (pe, report) in all.iter().enumerate() {
            let value = report.facts.get(name).map_or("not reported", String::as_str);
            by_value.entry(value).or_default().push(pe.to_string());
        }
        let mut values: Vec<_> = by_value.into_iter().collect();
        // The most frequent value comes first: the others are the likely mistakes.
        values.sort_by_key(|(_, pes)| std::cmp::Reverse(pes.len()));
        if let [(value, _)] = &values[..] {
            checks.push(ALIKE.good(name, *value));
        } else {
            let list = values.iter().map(|(value, pes)| format!("{value} (PE {})", pes.join(", ")));
            let remedy = "install the same version on all nodes, or exclude the nodes that differ";
            checks.push(ALIKE.bad(name, Verdict::Risk, list.collect::<Vec<_>>().join("; "), remedy));
        }
    }
    checks.extend(of_nodes(all));
    checks
}

fn locations(all: &[NodeReport]) -> Finding {
    let mut nodes: Vec<(&str, u32)> = Vec::new();
    for report in all {
        match nodes.iter_mut().find(|(node, _)| *node == report.node) {
            Some((_, pes)) => *pes += 1,
            None => nodes.push((&report.node, 1)),
        }
    }
    let list: Vec<_> = nodes.iter().map(|(node, pes)| format!("{pes} on {node}")).collect();
    LOCATIONS.note("", list.join(", "))
}

/// Merges equal problems of several nodes into one finding, which lists the nodes.
fn of_nodes(all: &[NodeReport]) -> Vec<Finding> {
    let mut by_row: BTreeMap<&Row, Vec<&str>> = BTreeMap::new();
    for report in all {
        for row in &report.rows {
            by_row.entry(row).or_default().push(&report.node);
        }
    }
    let check = |(row, nodes): (&Row, Vec<&str>)| {
        // All PEs have the same build, so they know the same checks.
        let check = CHECKS.into_iter().find(|check| check.id == row.id)?;
        let of =
            if row.of.is_empty() { nodes.join(", ") } else { format!("{} {}", nodes.join(", "), row.of) };
        Some(Finding {
            check,
            of,
            verdict: row.verdict,
            found: row.found.clone(),
            remedy: row.remedy.clone(),
        })
    };
    by_row.into_iter().filter_map(check).collect()
}

/// Returns the distances between ranks over which each PE puts: all of them or, in a large job, the powers of two.
fn distances(n_pes: u32) -> Vec<u32> {
    match n_pes <= ALL_PAIRS {
        true => (1..n_pes).collect(),
        false => (0..u32::BITS).map(|log| 1 << log).take_while(|&far| far < n_pes).collect(),
    }
}

/// Puts to the PE at each of the [`distances`] in turn, while another PE puts to this one. Returns the duration of each
/// put in nanoseconds.
fn put_to_all(pe: &Pe) -> Result<Vec<u64>> {
    let (me, n) = (pe.my_pe(), pe.n_pes());
    let (sent, there) = (pe.alloc::<u64>(WORDS)?, pe.alloc::<u64>(WORDS)?);
    let signal = pe.alloc_one::<Signal>()?;
    let of = |pe: u32, far: u32| -> Vec<u64> {
        (0..WORDS as u64).map(|i| i << 40 | u64::from(pe) << 20 | u64::from(far)).collect()
    };
    let mut times = Vec::new();
    for (turn, far) in distances(n).into_iter().enumerate() {
        let (to, from) = ((me + far) % n, (me + n - far) % n);
        pe.write(sent, &of(me, far))?;
        // The first put to a peer also connects to it, so do not measure that one.
        pe.put(there, sent, to)?;
        pe.host_sync()?;
        let begin = Instant::now();
        pe.put_signal(there, sent, signal.add(1), to)?;
        pe.quiet()?;
        times.push(begin.elapsed().as_nanos() as u64);
        pe.signal_wait_until(signal, Cmp::Ge, turn as u64 + 1)?;
        compare_words("put", &of(from, far), &pe.read(there)?)?;
        pe.host_sync()?;
    }
    Ok(times)
}

/// Formats the median and the slowest time of the puts of all PEs.
fn pairs(pe: &Pe, times: &[Vec<u8>]) -> String {
    let n = pe.n_pes();
    let far = distances(n);
    let of = |(from, bytes): (usize, &Vec<u8>)| -> Vec<(u64, u32, u32)> {
        let times =
            bytes.chunks_exact(8).filter_map(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?)));
        times.zip(&far).map(|(time, far)| (time, from as u32, (from as u32 + far) % n)).collect()
    };
    let mut all: Vec<_> = times.iter().enumerate().flat_map(of).collect();
    all.sort_unstable();
    let us = |time: u64| Duration::from_nanos(time).as_secs_f64() * 1e6;
    match (all.get(all.len() / 2), all.last()) {
        (Some((median, ..)), Some((slowest, from, to))) => format!(
            "{} pairs; a put of {} bytes with signal takes {:.0} us, {:.0} us from PE {from} to PE {to}",
            all.len(),
            WORDS * 8,
            us(*median),
            us(*slowest)
        ),
        _ => "the job has only one PE".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(node: &str, linux: &str, rows: &[&str]) -> NodeReport {
        let facts = [("Linux".to_owned(), linux.to_owned())].into();
        let row = |found: &&str| Row {
            id: "N4".into(),
            of: "mlx5_0 port 1".into(),
            verdict: Verdict::Blocks,
            found: (*found).into(),
            remedy: None,
        };
        NodeReport { node: node.into(), facts, rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn reports_the_node_that_differs() {
        let all = [
            report("a", "6.1", &["DOWN"]),
            report("a", "6.1", &[]),
            report("b", "5.4", &["DOWN"]),
            report("c", "6.1", &["INIT"]),
        ];
        let findings: Vec<_> = compare(&all)
            .iter()
            .map(|check| (check.check.id, check.verdict, format!("{}: {}", check.of, check.found)))
            .collect();
        let wanted = [
            ("J1", Verdict::Note, ": 2 on a, 1 on b, 1 on c"),
            ("J2", Verdict::Risk, "Linux: 6.1 (PE 0, 1, 3); 5.4 (PE 2)"),
            ("N4", Verdict::Blocks, "a, b mlx5_0 port 1: DOWN"),
            ("N4", Verdict::Blocks, "c mlx5_0 port 1: INIT"),
        ];
        assert_eq!(findings, wanted.map(|(id, verdict, text)| (id, verdict, text.to_owned())));
        assert_eq!(compare(&all[..2])[1].verdict, Verdict::Good);
    }

    #[test]
    fn large_jobs_use_distances_of_powers_of_two() {
        assert!(distances(1).is_empty());
        assert_eq!(distances(4), [1, 2, 3]);
        assert_eq!(distances(64).len(), 63);
        assert_eq!(distances(100), [1, 2, 4, 8, 16, 32, 64]);
    }
}
