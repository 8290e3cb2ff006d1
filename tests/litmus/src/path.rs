//! Paths on which litmus tests run: jobs with P2P or with one or more NICs, with and without injected faults.

use rushmem::config::Config;

/// Fault settings of the software ConnectX with which it often does everything that hardware may do.
pub const ADVERSARY: &str = "skip_qp=0.3 stall=0.1 stall_us=300 split=0.5 late=0.3 late_us=100 completion_delay=0.2 \
                             completion_delay_us=20 loose_atomic=0.5";

/// Fault settings that reorder as fabric and PCIe may do: WRITEs of one QP overtake each other, and WRITEs are
/// delivered after their ACK.
pub const REORDERING: &str = "unordered=0.4 posted=0.4";

/// Fault setting for defective firmware: QPs are reported as in order although they are not.
const HIDDEN_ORDER: &str = "hidden_order=1";

/// Fault settings for firmware that relaxes the ordering of strict keys too.
const FORCED: &str = "posted=0.4 force_relaxed=1";

/// Which faults the NICs of a path inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// No faults.
    None,
    /// The faults of [`ADVERSARY`].
    Adversary,
    /// The faults of [`ADVERSARY`] and [`REORDERING`].
    Reordering,
    /// The faults of [`REORDERING`], hidden by the firmware. Correct programs may fail.
    Hidden,
    /// The faults of [`ADVERSARY`] and [`REORDERING`], in a job whose memory keys for data are relaxed.
    Relaxed,
    /// Relaxed memory keys in a job that requests strict ones. Correct programs may fail.
    RelaxedUnasked,
    /// Relaxed memory keys for words in a job that requests relaxed keys for data only. Correct programs may fail.
    RelaxedWords,
}

impl Faults {
    /// Returns the value of the setting `softnic_fault`, or `None` without faults.
    fn setting(self, seed: u64) -> Option<String> {
        match self {
            Self::None => None,
            Self::Adversary => Some(format!("seed={seed} {ADVERSARY}")),
            Self::Reordering | Self::Relaxed => Some(format!("seed={seed} {ADVERSARY} {REORDERING}")),
            Self::Hidden => Some(format!("seed={seed} {REORDERING} {HIDDEN_ORDER}")),
            Self::RelaxedUnasked | Self::RelaxedWords => Some(format!("seed={seed} {FORCED}")),
        }
    }

    /// Returns the value of the setting `relaxed_ordering`.
    const fn relaxed_ordering(self) -> &'static str {
        match self {
            Self::Relaxed | Self::RelaxedWords => "on",
            Self::None | Self::Adversary | Self::Reordering | Self::Hidden | Self::RelaxedUnasked => "off",
        }
    }
}

/// Returns the settings of the environment, plus those that all jobs of this suite share.
///
/// # Panics
/// If the environment has an invalid setting.
pub fn config() -> Config {
    let mut config = Config::load().expect("the settings of this suite's environment");
    // Long enough for a busy machine. Only a failing test waits this long.
    for (key, value) in [("heap_bytes", "8MiB"), ("timeout", "60s"), ("exclusive_qps", "2")] {
        config.set(key, value).expect("a setting of this suite");
    }
    config
}

/// Settings of the job in which litmus tests run, and the placement of their roles on its PEs.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Name of the path in reports.
    pub name: &'static str,
    /// Number of PEs of the job: 1, or one for each of three roles.
    pub pes: u32,
    /// Whether tests for several PEs also run with all roles on one PE, which takes a different path.
    pub folded: bool,
    /// Names and values of the job's settings.
    pub settings: &'static [(&'static str, &'static str)],
    /// Which faults the NICs inject.
    pub faults: Faults,
    /// Whether plain accesses of native kernels are as weakly ordered as on a GPU.
    pub is_weak: bool,
}

const fn path(
    name: &'static str,
    pes: u32,
    folded: bool,
    settings: &'static [(&'static str, &'static str)],
) -> Path {
    Path { name, pes, folded, settings, faults: Faults::None, is_weak: false }
}

/// All paths on which the tests run, without faults.
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

/// The path on which tests run under the sanitizer, which needs P2P peers.
pub const SANITIZED: Path = path("sanitizer", 3, true, &[("peer_path", "p2p")]);

/// Returns the job settings for runs under the sanitizer.
///
/// # Panics
/// If the environment has an invalid setting.
pub fn sanitized() -> Config {
    let mut config = SANITIZED.config(1);
    for (key, value) in [("sanitize", "on"), ("device", "native")] {
        config.set(key, value).expect("a setting of this suite");
    }
    config
}

impl Path {
    /// Returns the same path with the faults of [`ADVERSARY`].
    pub const fn with_adversary(self) -> Self {
        self.with(Faults::Adversary)
    }

    /// Returns the same path with `faults`.
    pub const fn with(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// Returns the same path with native memory as weakly ordered as on a GPU.
    pub const fn with_weak_memory(self) -> Self {
        Self { is_weak: true, ..self }
    }

    /// Returns the name of the path in reports, with its faults.
    pub fn title(&self) -> String {
        let faults = match self.faults {
            Faults::None => "",
            Faults::Adversary => ", adversary",
            Faults::Reordering => ", reordering",
            Faults::Hidden => ", hidden order",
            Faults::Relaxed => ", relaxed keys",
            Faults::RelaxedUnasked => ", relaxed keys that were not asked for",
            Faults::RelaxedWords => ", relaxed keys for words",
        };
        let weak = if self.is_weak { ", weak memory" } else { "" };
        format!("{}{faults}{weak}", self.name)
    }

    /// Returns the settings of the path's jobs.
    ///
    /// # Panics
    /// If the environment has an invalid setting.
    pub fn config(&self, seed: u64) -> Config {
        let mut config = config();
        let mut set = |key: &str, value: &str| config.set(key, value).expect("a setting of a path");
        set("pes", &self.pes.to_string());
        // Native PEs take turns, and more threads than cores would only make the turns longer.
        set("native_workers", if self.pes == 1 { "2" } else { "1" });
        for (key, value) in self.settings {
            set(key, value);
        }
        set("weak_memory", if self.is_weak { "on" } else { "off" });
        set("relaxed_ordering", self.faults.relaxed_ordering());
        if let Some(faults) = self.faults.setting(seed) {
            set("softnic_fault", &faults);
        }
        config
    }
}
