//! Divides the PEs of a job into nodes: sets of PEs that have all mapped each other's heaps.

/// The ranks of the PEs whose heaps a PE has mapped, itself included, in ascending order. Empty if atomics by their
/// processors are not atomic with each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping(Vec<u32>);

impl Mapping {
    pub(super) fn of(reached: impl Iterator<Item = bool>) -> Self {
        Self((0..).zip(reached).filter(|(_, reached)| *reached).map(|(pe, _)| pe).collect())
    }

    pub(super) fn pes(&self) -> &[u32] {
        &self.0
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        self.0.iter().flat_map(|pe| pe.to_le_bytes()).collect()
    }

    /// Decodes the mapping sent by another PE. Malformed bytes yield an empty mapping, which leaves that PE alone on
    /// its node.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        if rest.is_empty() {
            Self(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
        } else {
            Self::default()
        }
    }
}

/// Returns the node of each PE, as the lowest rank on that node. PEs share a node only if all of them have exactly the
/// same mapping; any other PE is alone on its node.
pub(super) fn nodes_of(all: &[Mapping]) -> Vec<u32> {
    // "Has mapped" need not be an equivalence relation: mapping can fail in one direction, or for one PE only, and
    // such a PE must not use processor atomics. "Has the same mapping" is one. All PEs compute it from the same
    // allgather, so they agree on the nodes.
    let agrees = |mapping: &Mapping, pe: u32| all.get(pe as usize) == Some(mapping);
    let node = |(pe, mapping): (u32, &Mapping)| match mapping.0.first() {
        Some(&first) if mapping.0.contains(&pe) && mapping.0.iter().all(|&other| agrees(mapping, other)) => {
            first
        }
        _ => pe,
    };
    (0..).zip(all).map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pes_of_a_node_have_all_mapped_each_other() {
        let mapping = |pes: &[u32]| Mapping(pes.to_vec());
        let nodes = |all: &[&[u32]]| nodes_of(&all.iter().map(|pes| mapping(pes)).collect::<Vec<_>>());
        assert_eq!(nodes(&[&[0, 1], &[0, 1], &[2, 4], &[3], &[2, 4]]), [0, 0, 2, 3, 2]);
        // PE 1 has not mapped PE 2, and PE 3 has an empty mapping.
        assert_eq!(nodes(&[&[0, 1, 2], &[0, 1], &[0, 1, 2], &[]]), [0, 1, 2, 3]);
        assert_eq!(nodes(&[&[0, 9], &[0, 1]]), [0, 1]);
    }

    #[test]
    fn mappings_round_trip() {
        let mapping = Mapping::of([true, false, true].into_iter());
        assert_eq!(Mapping::decode(&mapping.encode()), mapping);
        assert_eq!(Mapping::decode(&[1, 2, 3]), Mapping::default());
    }
}
