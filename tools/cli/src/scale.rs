//! The command `rushmem scale`, which measures the cost of jobs with many PEs.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rushmem::config::Config;
use rushmem::{ControlCosts, Job, LaunchConfig, Pe, bootstrap};
use rushmem_base::status_bytes;
use rushmem_bench_kernels::first_contact;

use crate::error::Error;
use crate::print;

/// Print the cost of jobs with many PEs: time, commands, bootstrap messages and memory of each PE
///
/// Each job runs its PEs as threads of this process, with native kernels and the software ConnectX. Each PE puts one
/// word to its peers, which connects the QPs. Times depend on this machine. Counts are the same on every machine.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Numbers of PEs
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "16,64,256",
          value_parser = clap::value_parser!(u32).range(2..))]
    pes: Vec<u32>,

    /// Peers that each PE contacts [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    peers: Option<u32>,

    /// Threads of each PE that contact peers
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
}

/// Heap size of each PE, in bytes, unless it is set.
const HEAP_BYTES: u64 = 1 << 20;

pub(crate) fn execute(args: &Args, mut config: Config) -> Result<ExitCode, Error> {
    if bootstrap::is_launched(&config)? {
        return Err(Error::Usage("PEs are threads here; start the command without a launcher".into()));
    }
    for (key, value) in [("device", "native"), ("peer_path", "nic"), ("nic", "soft")] {
        config.set(key, value)?;
    }
    if config.is_default("heap_bytes") {
        config.heap_bytes.0 = HEAP_BYTES;
    }
    print(HEAD)?;
    for &pes in &args.pes {
        config.set("pes", &pes.to_string())?;
        let peers = args.peers.unwrap_or(u32::MAX).min(pes - 1);
        print(&measure(&config, (pes, peers), args.threads)?.row())?;
    }
    Ok(ExitCode::SUCCESS)
}

const HEAD: &str = "\
| PEs | peers of each | bring-up | first contact | teardown | commands at start | commands per QP | \
collective calls | KiB received in them | messages per QP | bytes per message | KiB per QP | MiB reserved | \
MiB touched at start | MiB touched |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// Times and costs that one PE has measured.
struct Seen {
    up: Duration,
    contact: Duration,
    /// When the PEs started to shut down.
    end: Instant,
    started: ControlCosts,
    costs: ControlCosts,
    qps: u64,
    /// Resident memory of the process, in bytes: when the PEs start, and after the first contact.
    touched: [u64; 2],
}

/// Times and costs of a whole job.
struct Costs {
    pes: u32,
    peers: u32,
    /// Times and costs of each PE, in PE order.
    all: Vec<Seen>,
    teardown: Duration,
    /// Resident memory of the process before the job, in bytes.
    before: u64,
}

fn measure(config: &Config, (pes, peers): (u32, u32), threads: u32) -> Result<Costs, Error> {
    let (before, begin) = (touched(), Instant::now());
    let all = Job::with_config(config.clone()).run(|pe| contact(pe, peers, threads, begin))?;
    let teardown = all.iter().map(|seen| seen.end).max().map_or(Duration::ZERO, |end| end.elapsed());
    Ok(Costs { pes, peers, all, teardown, before })
}

/// Contacts the peers of a PE, and verifies that its peers have contacted it.
fn contact(
    pe: &Pe,
    peers: u32,
    threads: u32,
    begin: Instant,
) -> Result<Seen, Box<dyn std::error::Error + Send + Sync>> {
    pe.host_sync()?;
    let (up, at_start, started) = (begin.elapsed(), touched(), pe.control_costs());
    let words = pe.alloc::<u32>(pe.n_pes() as usize)?;
    pe.write(words, &vec![0; words.len()])?;
    pe.host_sync()?;
    let begin = Instant::now();
    let grid = LaunchConfig::new(1, threads.min(peers));
    pe.run(grid, first_contact(words, peers))?;
    pe.host_sync()?;
    let contact = begin.elapsed();
    let (me, n) = (pe.my_pe(), pe.n_pes());
    let wanted = |i: u32| if (1..=peers).contains(&((me + n - i) % n)) { i + 1 } else { 0 };
    if let Some(i) = (0..n).zip(pe.read(words)?).find_map(|(i, word)| (word != wanted(i)).then_some(i)) {
        return Err(format!("PE {me} has a wrong word of PE {i}").into());
    }
    let costs = pe.control_costs();
    let (qps, touched) = (pe.connected_qps() as u64, [at_start, touched()]);
    pe.host_sync()?;
    Ok(Seen { up, contact, end: Instant::now(), started, costs, qps, touched })
}

impl Costs {
    fn row(&self) -> String {
        let Some(first) = self.all.first() else { return String::new() };
        let n = self.all.len() as f64;
        let mean = |of: &dyn Fn(&Seen) -> u64| self.all.iter().map(of).sum::<u64>() as f64 / n;
        let longest = |of: fn(&Seen) -> Duration| self.all.iter().map(of).max().unwrap_or_default();
        let qps = mean(&|seen| seen.qps);
        let (start, end) = (|seen: &Seen| seen.started, |seen: &Seen| seen.costs);
        let messages = mean(&|seen| end(seen).bootstrap.messages - start(seen).bootstrap.messages);
        let bytes = mean(&|seen| end(seen).bootstrap.message_bytes - start(seen).bootstrap.message_bytes);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let most = |i: usize| {
            let most = self.all.iter().map(|seen| seen.touched[i]).max().unwrap_or(0);
            mib(most.saturating_sub(self.before)) / n
        };
        format!(
            "| {} | {} | {:.2} s | {:.2} s | {:.2} s | {:.0} | {:.1} | {} | {:.0} | {:.2} | {:.0} | {:.1} | {:.1} | {:.2} | {:.2} |\n",
            self.pes,
            self.peers,
            longest(|seen| seen.up).as_secs_f64(),
            longest(|seen| seen.contact).as_secs_f64(),
            self.teardown.as_secs_f64(),
            mean(&|seen| start(seen).commands),
            mean(&|seen| end(seen).commands - start(seen).commands) / qps,
            first.started.bootstrap.calls,
            mean(&|seen| start(seen).bootstrap.call_bytes) / 1024.0,
            messages / qps,
            if messages > 0.0 { bytes / messages } else { 0.0 },
            first.costs.qp_bytes as f64 / 1024.0,
            mib(first.costs.reserved_bytes),
            most(0),
            most(1),
        )
    }
}

/// Returns the resident anonymous memory of this process, in bytes, or 0 if the system does not report it.
fn touched() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ["RssAnon", "RssShmem"].iter().filter_map(|name| status_bytes(&status, name)).sum()
}
