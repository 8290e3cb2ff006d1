//! The settings that the test suite runs with. Each value of a setting is combined with most values of the others.
//!
//! Unless `SUITE_VARIATIONS` is `all` or a list like `0,3,7`, tests run with representative settings and fewer
//! repetitions. Every third job has weakly ordered QPs: the NIC and PCIe may reorder the data of puts.

use std::collections::HashSet;
use std::process::Command;
use std::sync::OnceLock;

use rushmem::config::{Config, PeerPath, Switch};
use rushmem_tests::Setup;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Peers {
    /// The runtime chooses how PEs reach each other.
    Auto,
    Nic,
    P2p,
    /// PEs 0 and 1, 2 and 3, and so on are P2P peers. Other pairs use the NIC.
    Mixed,
    /// Two DC initiators serve all peers of a PE.
    Dc,
}

#[derive(Clone, Copy)]
struct Variation {
    pes: u32,
    sq_depth: u32,
    cq: &'static str,
    qps_per_peer: u32,
    peers: Peers,
    nics_per_pe: u32,
    connect: &'static str,
}

#[rustfmt::skip] // one line each
const VARIATIONS: &[Variation] = {
    use Peers::{Auto, Dc, Mixed, Nic, P2p};
    &[
        Variation { pes: 1, sq_depth: 1024, cq: "ring", qps_per_peer: 1, peers: Auto, nics_per_pe: 1, connect: "lazy" },
        Variation { pes: 1, sq_depth: 2, cq: "collapsed", qps_per_peer: 3, peers: Nic, nics_per_pe: 2, connect: "lazy" },
        Variation { pes: 2, sq_depth: 2, cq: "ring", qps_per_peer: 1, peers: Auto, nics_per_pe: 1, connect: "eager" },
        Variation { pes: 2, sq_depth: 8, cq: "collapsed", qps_per_peer: 1, peers: Nic, nics_per_pe: 2, connect: "lazy" },
        Variation { pes: 3, sq_depth: 8, cq: "ring", qps_per_peer: 3, peers: Auto, nics_per_pe: 1, connect: "lazy" },
        Variation { pes: 3, sq_depth: 1024, cq: "collapsed", qps_per_peer: 3, peers: Auto, nics_per_pe: 1, connect: "eager" },
        Variation { pes: 4, sq_depth: 2, cq: "collapsed", qps_per_peer: 1, peers: Auto, nics_per_pe: 1, connect: "lazy" },
        Variation { pes: 4, sq_depth: 1024, cq: "ring", qps_per_peer: 1, peers: Nic, nics_per_pe: 1, connect: "lazy" },
        Variation { pes: 5, sq_depth: 2, cq: "ring", qps_per_peer: 3, peers: Nic, nics_per_pe: 1, connect: "eager" },
        Variation { pes: 5, sq_depth: 8, cq: "collapsed", qps_per_peer: 1, peers: Auto, nics_per_pe: 2, connect: "lazy" },
        Variation { pes: 2, sq_depth: 8, cq: "ring", qps_per_peer: 1, peers: P2p, nics_per_pe: 1, connect: "eager" },
        Variation { pes: 3, sq_depth: 2, cq: "collapsed", qps_per_peer: 3, peers: P2p, nics_per_pe: 2, connect: "lazy" },
        Variation { pes: 4, sq_depth: 8, cq: "ring", qps_per_peer: 1, peers: Mixed, nics_per_pe: 1, connect: "lazy" },
        Variation { pes: 5, sq_depth: 2, cq: "collapsed", qps_per_peer: 1, peers: Mixed, nics_per_pe: 2, connect: "eager" },
        Variation { pes: 5, sq_depth: 8, cq: "ring", qps_per_peer: 1, peers: Dc, nics_per_pe: 2, connect: "lazy" },
        Variation { pes: 4, sq_depth: 2, cq: "collapsed", qps_per_peer: 3, peers: Dc, nics_per_pe: 1, connect: "eager" },
    ]
};

/// Indices of variations that together contain most values of each setting.
const REPRESENTATIVE: &[usize] = &[1, 2, 11, 12, 15];

/// Returns the jobs that each test of the suite runs. Under the sanitizer all PEs are P2P peers, so jobs that differ
/// only in their use of NICs are left out.
pub(crate) fn all() -> impl Iterator<Item = Setup> {
    let mut seen = HashSet::new();
    chosen().filter(move |setup| {
        let Config { sanitize, p2p_group, .. } = setup.config();
        seen.insert((setup.pes(), *p2p_group)) || *sanitize == Switch::Off
    })
}

/// Whether kernels can post to DC initiators: native ones always, PTX if it was built for DC.
pub(crate) fn has_dc() -> bool {
    static NATIVE: OnceLock<bool> = OnceLock::new();
    let is_native = || Setup::new(1).run(|pe| Ok(pe.gpu().is_none()))[0];
    option_env!("RUSHMEM_PTX_DC") == Some("1") || *NATIVE.get_or_init(is_native)
}

const CHOICE: &str = "SUITE_VARIATIONS";

/// Returns how often a test repeats its work: `n` times with chosen variations, otherwise a fifth of it.
pub(crate) fn repetitions(n: u32) -> u32 {
    if std::env::var_os(CHOICE).is_some() { n } else { n.div_ceil(5) }
}

fn chosen() -> impl Iterator<Item = Setup> {
    let indices: Vec<usize> = match std::env::var(CHOICE).as_deref() {
        Ok("all") => (0..VARIATIONS.len()).collect(),
        Ok(list) => list.split(',').map(|i| i.parse().expect("`all` or a list of indices")).collect(),
        Err(_) => REPRESENTATIVE.to_vec(),
    };
    let can_run = |i: &usize| VARIATIONS[*i].peers != Peers::Dc || has_dc();
    indices.into_iter().filter(can_run).map(setup)
}

fn setup(i: usize) -> Setup {
    let Variation { pes, sq_depth, cq, qps_per_peer, peers, nics_per_pe, connect } = VARIATIONS[i];
    let (ordering, relaxed) = if i.is_multiple_of(3) { ("out_of_order", "on") } else { ("auto", "auto") };
    let record = if i % 4 == 1 { "off" } else { "auto" };
    let path = match peers {
        Peers::Auto => "auto",
        Peers::Nic | Peers::Dc => "nic",
        Peers::P2p | Peers::Mixed => "p2p",
    };
    Setup::new(pes)
        .with("sq_depth", sq_depth)
        .with("cq", cq)
        .with("qps_per_peer", qps_per_peer)
        .with("peer_path", path)
        .with("p2p_group", if peers == Peers::Mixed { 2 } else { 0 })
        .with("nics_per_pe", nics_per_pe)
        .with("dc_above", if peers == Peers::Dc { "0" } else { "auto" })
        .with("dcis", 2)
        .with("connect", connect)
        .with("ordering", ordering)
        .with("relaxed_ordering", relaxed)
        .with("doorbell_record", record)
}

/// Returns the jobs with an even number of PEs.
pub(crate) fn even() -> impl Iterator<Item = Setup> {
    all().filter(|setup| setup.pes() % 2 == 0)
}

/// Returns the jobs in which peers can reach windows in host memory. PEs on several GPUs need the NIC for that.
pub(crate) fn with_host_windows() -> impl Iterator<Item = Setup> {
    let gpus = Setup::new(2).run(|pe| Ok(pe.gpu()));
    let several = gpus[0] != gpus[1];
    all().filter(move |setup| !(several && setup.config().peer_path == PeerPath::P2p))
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn all_tests_pass_with_all_settings() {
    let program = std::env::current_exe().unwrap();
    let variations = std::env::var(CHOICE).unwrap_or_else(|_| "all".into());
    let output = Command::new(program).env(CHOICE, variations).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ... ok")).count();
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && passed > 200, "{}: {passed} tests passed", output.status);
}
