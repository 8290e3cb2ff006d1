//! The groups into which settings are sorted in the documentation and by `rushmem info`.

/// A group of related settings, for the documentation and `rushmem info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Settings of the PEs of a job and of how they find each other.
    Job,
    /// Settings of the symmetric heap and of scratch memory.
    Memory,
    /// Settings of NICs and QPs.
    Network,
    /// Settings of the paths to other PEs, such as P2P.
    Peers,
    /// Settings of the deadlines of calls.
    Deadlines,
    /// Settings of launches of native kernels.
    Launch,
    /// Settings of logs, traces, statistics and the communication sanitizer.
    Diagnosis,
    /// Settings of the software ConnectX.
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
