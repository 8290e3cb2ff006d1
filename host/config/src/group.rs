//! The groups into which settings are sorted in the documentation and by `rushmem info`.

/// A group of related settings, for the documentation and `rushmem info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Number of PEs of a job, and how they find each other.
    Job,
    /// The symmetric heap and scratch memory.
    Memory,
    /// NICs and QPs.
    Network,
    /// Paths to peers.
    Peers,
    /// Deadlines of calls.
    Deadlines,
    /// Launches of native kernels.
    Launch,
    /// Logs, traces, statistics and the communication sanitizer.
    Diagnosis,
    /// The software ConnectX.
    SoftNic,
    /// Settings of one PE. The launcher sets them.
    PerPe,
}

impl Group {
    /// All groups, in the order of the table.
    pub const ALL: [Group; 9] = [
        Group::Job,
        Group::Memory,
        Group::Network,
        Group::Peers,
        Group::Deadlines,
        Group::Launch,
        Group::Diagnosis,
        Group::SoftNic,
        Group::PerPe,
    ];

    /// Returns the heading of the group in the documentation and in `rushmem info`.
    pub fn title(self) -> &'static str {
        match self {
            Group::Job => "Job and bootstrap",
            Group::Memory => "Memory",
            Group::Network => "Network",
            Group::Peers => "Peer paths",
            Group::Deadlines => "Deadlines",
            Group::Launch => "Launch of native kernels",
            Group::Diagnosis => "Diagnosis",
            Group::SoftNic => "Software ConnectX",
            Group::PerPe => "Set by the launcher",
        }
    }
}
