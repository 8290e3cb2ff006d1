//! Suggestions for misspelt names.

/// Returns the optimal string alignment distance: the number of insertions, deletions, substitutions and swaps of
/// neighbours.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (above[j] + 1).min(row[j - 1] + 1).min(above[j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

/// Returns the name in `known` that `name` most likely means, if one is close: it differs in a third of its characters at
/// most. Of several such names, returns the first one.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_ascii_lowercase();
    let distances = known.into_iter().map(|known| (distance(&lower, &known.to_ascii_lowercase()), known));
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= name.len().max(known.len()) / 3).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("heap", "heap"), 0);
        assert_eq!(distance("haep", "heap"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

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
