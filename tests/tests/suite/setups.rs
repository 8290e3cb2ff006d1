//! The settings of the suite: each value of each setting is combined with most of the others.
//!
//! Every third job has weak QPs: NIC and PCIe may reorder the data of puts.

use std::collections::HashSet;
use std::sync::OnceLock;

use rushmem::config::{Config, PeerPath, Switch};
use rushmem_tests::Setup;

/// PEs, depth of the send queues, form of the CQs, QPs a peer, path to peers, NICs a PE, when QPs are connected. In a
/// `mixed` job only PEs 0 and 1, 2 and 3, ... are P2P peers. In a `dc` job two DC initiators serve all peers.
type Variation = (u32, u32, &'static str, u32, &'static str, u32, &'static str);

const VARIATIONS: &[Variation] = &[
    (1, 1024, "ring", 1, "auto", 1, "lazy"),
    (1, 2, "collapsed", 3, "nic", 2, "lazy"),
    (2, 2, "ring", 1, "auto", 1, "eager"),
    (2, 8, "collapsed", 1, "nic", 2, "lazy"),
    (3, 8, "ring", 3, "auto", 1, "lazy"),
    (3, 1024, "collapsed", 3, "auto", 1, "eager"),
    (4, 2, "collapsed", 1, "auto", 1, "lazy"),
    (4, 1024, "ring", 1, "nic", 1, "lazy"),
    (5, 2, "ring", 3, "nic", 1, "eager"),
    (5, 8, "collapsed", 1, "auto", 2, "lazy"),
    (2, 8, "ring", 1, "p2p", 1, "eager"),
    (3, 2, "collapsed", 3, "p2p", 2, "lazy"),
    (4, 8, "ring", 1, "mixed", 1, "lazy"),
    (5, 2, "collapsed", 1, "mixed", 2, "eager"),
    (5, 8, "ring", 1, "dc", 2, "lazy"),
    (4, 2, "collapsed", 3, "dc", 1, "eager"),
];

/// Returns all of the suite's settings. Under the sanitizer, all PEs are P2P peers. It then leaves out those that differ in
/// the use of NICs only.
pub(crate) fn all() -> impl Iterator<Item = Setup> {
    let mut seen = HashSet::new();
    every().filter(move |setup| {
        let Config { sanitize, p2p_group, .. } = setup.config();
        seen.insert((setup.pes(), *p2p_group)) || *sanitize == Switch::Off
    })
}

/// Returns whether kernels can post to DC initiators: natively, or if they are built so.
pub(crate) fn has_dc() -> bool {
    static NATIVE: OnceLock<bool> = OnceLock::new();
    let is_native = || Setup::new(1).run(|pe| Ok(pe.gpu().is_none()))[0];
    option_env!("RUSHMEM_PTX_DC") == Some("1") || *NATIVE.get_or_init(is_native)
}

fn every() -> impl Iterator<Item = Setup> {
    let wanted = |(_, variation): &(usize, &Variation)| variation.4 != "dc" || has_dc();
    VARIATIONS.iter().enumerate().filter(wanted).map(|(i, &(pes, depth, cq, qps, path, nics, connect))| {
        let (ordering, relaxed) = if i % 3 == 0 { ("out_of_order", "on") } else { ("auto", "auto") };
        let record = if i % 4 == 1 { "off" } else { "auto" };
        let dc_above = if path == "dc" { "0" } else { "auto" };
        let (path, group) = match path {
            "mixed" => ("p2p", 2),
            "dc" => ("nic", 0),
            path => (path, 0),
        };
        Setup::new(pes)
            .with("sq_depth", depth)
            .with("cq", cq)
            .with("qps_per_peer", qps)
            .with("peer_path", path)
            .with("p2p_group", group)
            .with("nics_per_pe", nics)
            .with("dc_above", dc_above)
            .with("dcis", 2)
            .with("connect", connect)
            .with("ordering", ordering)
            .with("relaxed_ordering", relaxed)
            .with("doorbell_record", record)
    })
}

/// Returns settings of jobs with an even number of PEs.
pub(crate) fn even() -> impl Iterator<Item = Setup> {
    all().filter(|setup| setup.pes() % 2 == 0)
}

/// Returns the settings in which peers reach windows in host memory. On several GPUs they need the NIC for that.
pub(crate) fn with_host_windows() -> impl Iterator<Item = Setup> {
    let gpus = Setup::new(2).run(|pe| Ok(pe.gpu()));
    let several = gpus[0] != gpus[1];
    all().filter(move |setup| !(several && setup.config().peer_path == PeerPath::P2p))
}
