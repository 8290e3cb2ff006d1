//! The heaps of the PEs of a node, which each of them keeps for processes that replace lost PEs.
//!
//! The memory of a lost PE exists as long as another PE has it mapped. The process that replaces the PE takes the memory
//! over, so the mappings of the others stay valid, also for kernels that are running. It gets the heaps of the whole node
//! from any PE of it.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use rushmem_bootstrap::{Bootstrap, Token};
use rushmem_config::Config;
use rushmem_error::{Error, Result};
use rushmem_machine::ExportedMemory;

use super::fd_server::{self, FdServer};
use super::nodes::Mapping;
use super::{ExportedHeap, node_id};

/// Time limit for the answer of a PE, of which a stopped one gives none.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The heaps that the PEs of a node have mapped, by PE.
#[derive(Default)]
pub(super) struct NodeHeaps(pub(super) BTreeMap<u32, ExportedMemory>);

/// Returns the name under which the PE that exported a heap as `name` serves the heaps of its node.
fn name_for_node(name: &str) -> String {
    format!("{name}-node")
}

impl NodeHeaps {
    /// Serves the heaps, from a PE that exported its own as `name`, on a node with `pes` PEs.
    ///
    /// # Errors
    /// The errors of [`FdServer::open`].
    pub(super) fn serve(&self, name: &str, token: &Token, pes: u32) -> Result<FdServer> {
        let files = self.0.values().flat_map(|heap| heap.files.iter().cloned()).collect();
        FdServer::open(&name_for_node(name), files, token.clone(), pes)
    }

    /// Gets the heaps of the node of this PE, which replaces a lost one, from another PE that has mapped them. Returns `None`
    /// if no other PE had mapped the heap of the lost one. `heaps` and `mappings` are what all PEs have exchanged.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no PE of the node has the heaps any more, or if this process runs on another node.
    pub(super) fn fetch(
        config: &Config,
        bootstrap: &dyn Bootstrap,
        heaps: &[ExportedHeap],
        mappings: &[Mapping],
    ) -> Result<Option<Self>> {
        let me = bootstrap.pe();
        let unavailable = |why: String| {
            let what = format!("the heap that PE {me} had before it was lost, and that others have mapped,");
            Error::Unavailable { what, why }
        };
        let (Some(mine), Some(mapping)) = (heaps.get(me as usize), mappings.get(me as usize)) else {
            return Ok(None);
        };
        if mapping.pes().is_empty() {
            return Err(unavailable("its node has no common mapping".into()));
        }
        let mut others = mapping.pes().iter().copied().filter(|&pe| pe != me).peekable();
        if others.peek().is_none() {
            return Ok(None);
        }
        if mine.node_id != node_id(config) {
            return Err(unavailable("it is on another node, where the process must start".into()));
        }
        let token = bootstrap.token().ok_or_else(|| unavailable("the job has no token".into()))?;
        let mut reasons = Vec::new();
        for pe in others {
            match fetch_from(pe, heaps, mappings, token) {
                Ok(found) if found.0.contains_key(&me) => return Ok(Some(found)),
                Ok(_) => reasons.push(format!("PE {pe} has not mapped it")),
                Err(error) => reasons.push(format!("PE {pe} does not pass it on: {error}")),
            }
        }
        Err(unavailable(reasons.join(", and ")))
    }
}

/// Gets the heaps of a node from PE `from` of it.
fn fetch_from(
    from: u32,
    heaps: &[ExportedHeap],
    mappings: &[Mapping],
    token: &Token,
) -> io::Result<NodeHeaps> {
    let missing = || io::Error::other("its heap is not known");
    let exported = |pe: u32| heaps.get(pe as usize).ok_or_else(missing);
    let files_of = |pe: u32| exported(pe)?.files.as_ref().map_err(|why| io::Error::other(why.clone()));
    let pes = mappings.get(from as usize).ok_or_else(missing)?.pes();
    let count = pes.iter().map(|&pe| files_of(pe).map(|(count, _)| count)).sum::<io::Result<usize>>()?;
    let mut files =
        fd_server::fetch(&name_for_node(&exported(from)?.name), count, token, ANSWER_TIMEOUT)?.into_iter();
    let mut found = NodeHeaps::default();
    for &pe in pes {
        let (count, layout) = files_of(pe)?;
        let files = files.by_ref().take(*count).collect();
        found.0.insert(pe, ExportedMemory { layout: layout.clone(), files });
    }
    Ok(found)
}
