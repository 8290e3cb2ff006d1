//! The headers of files, with any content.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::check_any_bytes;
use crate::format::{Checksums, Entry, Header, Manifest, Part};

fn header(chunk_bytes: u64, objects: &BTreeMap<String, (u64, Vec<u32>)>) -> Header {
    let entry = |(name, (element_bytes, checksums)): (&String, &(u64, Vec<u32>))| {
        // The last chunk may be shorter.
        let short = if checksums.len() > 1 { chunk_bytes / 2 } else { 0 };
        let bytes = checksums.len() as u64 * chunk_bytes - short;
        Entry {
            name: name.clone(),
            element_bytes: *element_bytes,
            bytes,
            checksums: Checksums(checksums.clone()),
        }
    };
    Header { generation: 7, pe: 1, n_pes: 2, chunk_bytes, objects: objects.iter().map(entry).collect() }
}

proptest! {
    #[test]
    fn header_is_read_as_it_was_written(
        chunk_bytes in 1_u64..1 << 40,
        objects in prop::collection::btree_map(".*", (any::<u64>(), prop::collection::vec(any::<u32>(), 0..5)), 0..5),
    ) {
        let header = header(chunk_bytes, &objects);
        let frame = header.encode().unwrap();
        let (read, layout) = Header::decode(&frame).unwrap();
        prop_assert_eq!(&read, &header);
        // Chunks follow each other, each object starts a page, and together they are the objects.
        let mut end = frame.len() as u64;
        for chunk in &layout.chunks {
            let begin = if chunk.index == 0 { end.next_multiple_of(4096) } else { end };
            prop_assert_eq!((chunk.in_file, chunk.at), (begin, chunk.index as u64 * chunk_bytes));
            end = begin + chunk.bytes;
        }
        prop_assert_eq!(layout.bytes, end.next_multiple_of(4096));
        let sum: u64 = layout.chunks.iter().map(|chunk| chunk.bytes).sum();
        prop_assert_eq!(sum, header.objects.iter().map(|entry| entry.bytes).sum::<u64>());
        // Checksums do not move the data.
        let mut other = header.clone();
        other.objects.iter_mut().for_each(|entry| entry.checksums.0.fill(u32::MAX));
        prop_assert_eq!(other.encode().unwrap().len(), frame.len());
    }
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let objects = BTreeMap::from([("x".to_owned(), (8, vec![1, 2, 3]))]);
    let why = |change: fn(&mut Header)| {
        let mut header = header(64, &objects);
        change(&mut header);
        Header::decode(&header.encode().unwrap()).unwrap_err()
    };
    assert_eq!(why(|header| header.chunk_bytes = 0), "its header contradicts itself");
    assert_eq!(why(|header| header.pe = 2), "its header contradicts itself");
    assert_eq!(why(|header| header.objects[0].bytes = 1000), "it has 3 checksums for `x`");
    assert_eq!(
        why(|header| header.objects.push(header.objects[0].clone())),
        "it has two objects of one name"
    );
    let huge = |header: &mut Header| {
        header.chunk_bytes = u64::MAX / 2;
        header.objects[0].bytes = u64::MAX;
    };
    assert_eq!(why(huge), "its objects are too large");
}

#[test]
fn any_bytes_are_refused_or_a_header() {
    let objects =
        BTreeMap::from([("x".to_owned(), (8, vec![1, 0xabcd_ef01])), ("y".to_owned(), (1, vec![]))]);
    let part = header(64, &objects).encode().unwrap();
    let parts = vec![Part { bytes: 4096, checksum: 5 }, Part { bytes: 1, checksum: u32::MAX }];
    let manifest = Manifest { generation: 3, parts }.encode().unwrap();
    let texts = [part[24..].to_vec(), manifest[24..].to_vec()];
    let messages = [part, manifest].into_iter().chain(texts);
    rushmem_corpus::target!("..", "checkpoint").messages(messages).run(20_000, check_any_bytes);
}
