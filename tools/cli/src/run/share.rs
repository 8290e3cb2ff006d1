//! The part of a job that one node runs.

use rushmem::bootstrap::Token;
use rushmem::config::SETTINGS;

/// The PEs of a job that run on this node, and how they find the other nodes.
#[derive(Clone)]
pub(super) struct NodeShare {
    pub(super) n_pes: u32,
    /// First PE on this node.
    pub(super) first: u32,
    /// Number of PEs on this node.
    pub(super) count: u32,
    pub(super) node: u32,
    pub(super) nodes: u32,
    /// Address of the job's server, for nodes with a launcher each.
    pub(super) rendezvous: Option<String>,
    pub(super) token: Token,
}

impl NodeShare {
    /// Returns the variables that the launcher sets for a PE. `local` is its rank on this node.
    pub(super) fn variables_of(&self, local: u32, server: &str) -> [(&'static str, String); 8] {
        [
            ("RUSHMEM_PE", (self.first + local).to_string()),
            ("RUSHMEM_N_PES", self.n_pes.to_string()),
            ("RUSHMEM_LOCAL_PE", local.to_string()),
            ("RUSHMEM_LOCAL_PES", self.count.to_string()),
            ("RUSHMEM_NODE", self.node.to_string()),
            ("RUSHMEM_NODES", self.nodes.to_string()),
            ("RUSHMEM_SERVER", server.to_string()),
            ("RUSHMEM_TOKEN", self.token.to_hex()),
        ]
    }
}

/// Returns the names of the variables that a launcher sets for each PE.
pub(super) fn launch_variables() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().filter(|setting| setting.launch).map(|setting| setting.env)
}
