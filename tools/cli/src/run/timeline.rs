//! The timeline file of a job: when the job has finished, the parts that this node's PEs wrote are joined into one
//! file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rushmem::bootstrap::Pes;
use rushmem_trace::part_of;

use super::share::NodeShare;
use crate::error::Error;
use crate::trace::{Joined, all_parts, join};

/// The timeline file of a job, and the PEs of this node that write parts of it.
pub(super) struct Timeline {
    file: PathBuf,
    pes: Range<u32>,
    node: u32,
    nodes: u32,
}

impl Timeline {
    /// Prepares the timeline `file`. Removes the parts of earlier jobs, which would otherwise be joined with the new
    /// ones.
    ///
    /// # Errors
    /// - [`Error::Environment`]: a part cannot be removed, or the file cannot be written.
    pub(super) fn begin(file: PathBuf, share: &NodeShare) -> Result<Self, Error> {
        let NodeShare { first, count, node, nodes, .. } = *share;
        if node == 0 {
            rushmem_base::check_writable(&file).map_err(|error| {
                Error::Environment(format!("cannot write the timeline {}: {error}", file.display()))
            })?;
        }
        let timeline = Self { file, pes: first..first + count, node, nodes };
        remove_parts(&timeline.file, (nodes > 1).then(|| timeline.pes.clone()))?;
        Ok(timeline)
    }

    /// Joins the parts of this node's PEs on node 0, and leaves them in place on other nodes. Returns a sentence for
    /// the user.
    ///
    /// # Errors
    /// The errors of [`join`].
    pub(super) fn end(&self) -> Result<String, Error> {
        let Self { file, pes, node, nodes } = self;
        let name = file.display();
        if *node > 0 {
            let (pes, first) = (Pes(pes.clone().collect()), part_of(file, pes.start));
            let what = format!("the timelines of {pes} are in {} and the files after it", first.display());
            return Ok(format!("{what}; `rushmem trace` on node 0 joins them with {name}"));
        }
        let Joined { pes, missing } = join(file, pes.clone())?;
        let left = match missing.0.len() {
            0 => String::new(),
            1 => format!("; {missing} has left no timeline"),
            _ => format!("; {missing} have left no timeline"),
        };
        let others = match nodes {
            1 => String::new(),
            _ => format!("; the parts of other nodes stay there, and `rushmem trace -o {name}` joins them"),
        };
        if pes.0.is_empty() {
            return Ok(format!("{name} is not written{left}{others}"));
        }
        Ok(format!("{name} has the timeline of {pes}, and ui.perfetto.dev opens it{left}{others}"))
    }
}

/// Removes the parts of earlier timelines that `pes` wrote, or all.
///
/// # Errors
/// - [`Error::Environment`]: a part cannot be removed.
pub(super) fn remove_parts(file: &Path, pes: Option<Range<u32>>) -> Result<(), Error> {
    for (pe, part) in all_parts(file)? {
        if pes.as_ref().is_none_or(|pes| pes.contains(&pe)) {
            std::fs::remove_file(&part).map_err(|error| {
                Error::Environment(format!(
                    "cannot remove {}, a part of an earlier timeline: {error}",
                    part.display()
                ))
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rushmem::bootstrap::Token;
    use rushmem_trace::Trace;

    use super::*;

    fn share(node: u32, nodes: u32) -> NodeShare {
        let token = Token::from_hex(&"ab".repeat(32)).unwrap();
        NodeShare { n_pes: 4, first: 2 * node, count: 2, node, nodes, rendezvous: None, token }
    }

    #[test]
    fn other_nodes_keep_their_parts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t");
        let write = |pe: u32| Trace::default().write(std::fs::File::create(part_of(&file, pe)).unwrap());
        (0..4).for_each(|pe| write(pe).unwrap());
        let timelines = [0, 1].map(|node| Timeline::begin(file.clone(), &share(node, 2)).unwrap());
        assert!(all_parts(&file).unwrap().is_empty());
        write(1).unwrap();
        write(2).unwrap();
        let [first, second] = timelines.map(|timeline| timeline.end().unwrap());
        assert!(first.contains("/t has the timeline of PE 1, and ui.perfetto.dev opens it"), "{first}");
        assert!(first.contains("; PE 0 has left no timeline; the parts of other nodes stay"), "{first}");
        assert!(second.contains("timelines of PEs 2-3 are in") && second.contains("/t.pe2"), "{second}");
        assert_eq!(all_parts(&file).unwrap(), [(2, part_of(&file, 2))]);
    }

    #[test]
    fn job_without_parts_writes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t");
        let said = Timeline::begin(file.clone(), &share(0, 1)).unwrap().end().unwrap();
        assert!(said.ends_with("/t is not written; PEs 0-1 have left no timeline"), "{said}");
        assert!(!file.exists());
    }
}
