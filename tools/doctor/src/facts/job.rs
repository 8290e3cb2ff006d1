//! What the PEs of a job reported.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::check::Verdict;

/// What the PEs of a job reported.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct JobFacts {
    /// The reports of all PEs on PE 0, and none on the others. `None` if no report was exchanged.
    pub(crate) nodes: Option<Vec<NodeReport>>,
    /// What the NICs of each PE say of its QPs to the others, after the puts.
    pub(crate) qps: Vec<Vec<String>>,
    /// The times of the puts, or the error with which the job ended.
    pub(crate) outcome: Result<String, String>,
}

impl JobFacts {
    /// Returns the names of the nodes, in the order of their PEs.
    pub(crate) fn nodes(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.nodes.iter().flatten().map(|report| report.node.as_str()).collect();
        names.dedup();
        names
    }
}

/// What a PE reports about its node: facts to compare, and problems.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct NodeReport {
    pub(crate) node: String,
    pub(crate) facts: BTreeMap<String, String>,
    /// Problems of the node. Empty except on the first PE of a node.
    pub(crate) rows: Vec<Row>,
}

/// A finding in the form in which PEs exchange it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) of: String,
    pub(crate) verdict: Verdict,
    pub(crate) found: String,
    pub(crate) remedy: Option<String>,
}
