//! Finds the known name that a misspelt name was most likely meant to be.

use strsim::osa_distance;

/// Returns the name in `known` that `name` was most likely meant to be, if any differs in at most a third of its
/// characters. The first one wins a tie.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_ascii_lowercase();
    let distances = known.into_iter().map(|known| (osa_distance(&lower, &known.to_ascii_lowercase()), known));
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= name.len().max(known.len()) / 3).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nearest_name() {
        let known = ["RUSHMEM_HEAP", "RUSHMEM_HEAP_BYTES", "RUSHMEM_PES"];
        assert_eq!(nearest("RUSHMEM_HEAPBYTES", known), Some("RUSHMEM_HEAP_BYTES"));
        assert_eq!(nearest("RUSHMEM_PSE", known), Some("RUSHMEM_PES"));
        assert_eq!(nearest("hep_bytes", ["log", "heap_bytes"]), Some("heap_bytes"));
        assert_eq!(nearest("Timeot", ["PeerLost", "Timeout"]), Some("Timeout"));
        assert_eq!(nearest("foo", ["log", "pes"]), None);
        assert_eq!(nearest("foo", []), None);
    }
}
