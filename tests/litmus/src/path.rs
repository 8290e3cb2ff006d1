//! The paths of operations: through P2P, one NIC or several, with and without injected faults.

use rushmem::config::Config;

/// The faults of the adversary: it often does everything that a ConnectX may do.
pub const ADVERSARY: &str = "skip_qp=0.3 stall=0.1 stall_us=300 split=0.5 late=0.3 late_us=100 completion_delay=0.2 \
                             completion_delay_us=20 loose_atomic=0.5";

/// Returns the settings of the environment, and adds the settings that all jobs of this suite share.
///
/// # Panics
/// If the environment has an invalid setting.
pub fn config() -> Config {
    let mut config = Config::load().expect("the settings of this suite's environment");
    // The timeout suits a busy machine. Only a failing test waits so long.
    for (key, value) in [("heap_bytes", "8MiB"), ("timeout", "60s"), ("exclusive_qps", "2")] {
        config.set(key, value).expect("a setting of this suite");
    }
    config
}

/// The settings of a job, and the placement of roles on its PEs.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The name in reports.
    pub name: &'static str,
    /// PEs of the job: 1, or one for each of three roles.
    pub pes: u32,
    /// Whether tests for several PEs also run with all roles on one PE. A PE reaches itself by another path.
    pub folded: bool,
    /// Settings.
    pub settings: &'static [(&'static str, &'static str)],
    /// Whether the NIC injects faults.
    pub adversary: bool,
}

const fn path(
    name: &'static str,
    pes: u32,
    folded: bool,
    settings: &'static [(&'static str, &'static str)],
) -> Path {
    Path { name, pes, folded, settings, adversary: false }
}

/// All paths, without the adversary.
pub const PATHS: &[Path] = &[
    path("own memory", 1, true, &[]),
    path("own memory through the NIC", 1, true, &[("peer_path", "nic"), ("cq", "collapsed")]),
    path("NIC, 1 queue", 3, true, &[("peer_path", "nic")]),
    path("NIC, 3 queues", 3, false, &[("peer_path", "nic"), ("qps_per_peer", "3"), ("sq_depth", "8")]),
    path(
        "NIC, 1 queue, collapsed CQ",
        3,
        false,
        &[("peer_path", "nic"), ("cq", "collapsed"), ("sq_depth", "2")],
    ),
    path("P2P peers", 3, false, &[("peer_path", "p2p")]),
    path("2 P2P peers, 1 by NIC", 3, true, &[("peer_path", "p2p"), ("p2p_group", "2")]),
    path("2 NICs", 3, false, &[("peer_path", "nic"), ("nics_per_pe", "2")]),
    path(
        "2 NICs, 2 queues each",
        3,
        false,
        &[("nics_per_pe", "2"), ("qps_per_peer", "2"), ("peer_path", "nic")],
    ),
];

impl Path {
    /// Returns the same path with the adversary.
    pub const fn with_adversary(self) -> Self {
        Self { adversary: true, ..self }
    }

    /// Returns the name in reports.
    pub fn title(&self) -> String {
        format!("{}{}", self.name, if self.adversary { ", adversary" } else { "" })
    }

    /// Returns the settings of its jobs.
    ///
    /// # Panics
    /// If the environment has an invalid setting.
    pub fn config(&self, seed: u64) -> Config {
        let mut config = config();
        let mut set = |key: &str, value: &str| config.set(key, value).expect("a setting of a path");
        set("pes", &self.pes.to_string());
        // PEs take turns anyway. More threads than cores would only make the turns longer.
        set("native_workers", if self.pes == 1 { "2" } else { "1" });
        for (key, value) in self.settings {
            set(key, value);
        }
        if self.adversary {
            set("softnic_fault", &format!("seed={seed} {ADVERSARY}"));
        }
        config
    }
}
