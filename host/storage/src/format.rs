//! The headers of a checkpoint's files, and the places of objects in a part.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::frame::{self, Magic, PRELUDE};

pub(crate) const PART: Magic = *b"RUSHPART";
pub(crate) const MANIFEST: Magic = *b"RUSHMANI";

/// Alignment of the objects in a part and of its length, in bytes. Writes past the page cache need it.
pub(crate) const ALIGN: u64 = 4096;

/// The manifest: which parts make up the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Number of the save that wrote the parts.
    pub(crate) generation: u64,
    /// The part of each PE, by PE number.
    pub(crate) parts: Vec<Part>,
}

/// The part of a PE, as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Length of the file.
    pub(crate) bytes: u64,
    /// CRC-32 of the text of its header, which contains the checksums of the data.
    pub(crate) checksum: u32,
}

/// The header of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) generation: u64,
    pub(crate) pe: u32,
    pub(crate) n_pes: u32,
    /// Number of bytes that each checksum covers. The last chunk of an object may be shorter.
    pub(crate) chunk_bytes: u64,
    pub(crate) objects: Vec<Entry>,
}

/// An object in a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Size of an element.
    pub(crate) element_bytes: u64,
    /// Size of the object.
    pub(crate) bytes: u64,
    pub(crate) checksums: Checksums,
}

/// The CRC-32 of each chunk of an object. In text, each has eight digits, so the length of a header does not depend on
/// their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Checksums(pub(crate) Vec<u32>);

impl From<Checksums> for String {
    fn from(Checksums(all): Checksums) -> String {
        all.iter().map(|checksum| format!("{checksum:08x}")).collect()
    }
}

impl TryFrom<String> for Checksums {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.as_bytes();
        // `from_str_radix` would accept a sign, and upper case would be a second text of the same checksums.
        if !digits.len().is_multiple_of(8) || digits.iter().any(|d| !matches!(d, b'0'..=b'9' | b'a'..=b'f')) {
            return Err("checksums are not groups of eight hexadecimal digits".into());
        }
        let value = |digits: &[u8]| {
            digits.iter().fold(0, |value, &digit| {
                value << 4 | u32::from(if digit < b'a' { digit - b'0' } else { digit - b'a' + 10 })
            })
        };
        Ok(Self(digits.chunks_exact(8).map(value).collect()))
    }
}

/// A piece of an object that one checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Index of the object in the header.
    pub(crate) object: usize,
    /// Index of the chunk in the object.
    pub(crate) index: usize,
    /// Offset of the chunk in the object.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// Offset of the chunk in the file.
    pub(crate) in_file: u64,
}

/// The places of objects in a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) chunks: Vec<Chunk>,
    /// Length of the file.
    pub(crate) bytes: u64,
}

impl Header {
    /// Returns the frame of this header.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        frame::encode(PART, self)
    }

    /// Returns the places of the objects, if the header takes up `header_bytes` bytes.
    ///
    /// # Errors
    /// The reason why no part has such a header.
    pub(crate) fn layout(&self, header_bytes: u64) -> Result<Layout, String> {
        const TOO_LARGE: &str = "its objects are too large";
        if self.chunk_bytes == 0 || self.pe >= self.n_pes {
            return Err("its header contradicts itself".into());
        }
        let aligned = |bytes: u64| bytes.checked_next_multiple_of(ALIGN).ok_or(TOO_LARGE);
        let mut begin = aligned(header_bytes)?;
        let mut chunks = Vec::new();
        for (object, entry) in self.objects.iter().enumerate() {
            // Before anything is allocated for the chunks.
            if entry.bytes.div_ceil(self.chunk_bytes) != entry.checksums.0.len() as u64 {
                return Err(format!("it has {} checksums for `{}`", entry.checksums.0.len(), entry.name));
            }
            let end = begin.checked_add(entry.bytes).ok_or(TOO_LARGE)?;
            for index in 0..entry.checksums.0.len() {
                let at = index as u64 * self.chunk_bytes;
                let bytes = self.chunk_bytes.min(entry.bytes - at);
                chunks.push(Chunk { object, index, at, bytes, in_file: begin + at });
            }
            begin = aligned(end)?;
        }
        Ok(Layout { chunks, bytes: begin })
    }

    /// Reads a header and the places of its objects.
    ///
    /// # Errors
    /// The reason why the header is refused.
    pub(crate) fn decode(frame: &[u8]) -> Result<(Self, Layout), String> {
        let header: Self = frame::decode(PART, frame)?;
        let names: BTreeSet<&str> = header.objects.iter().map(|entry| &*entry.name).collect();
        if names.len() != header.objects.len() {
            return Err("it has two objects of one name".into());
        }
        let layout = header.layout(frame.len() as u64)?;
        Ok((header, layout))
    }
}

impl Manifest {
    /// Returns the content of the manifest's file.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        frame::encode(MANIFEST, self)
    }

    /// Reads the content of a manifest's file.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        frame::decode(MANIFEST, bytes)
    }
}

/// Checks that `bytes` are refused, or are a header or manifest that encodes to one with the same meaning. The bytes
/// are also checked as the text of a header and a manifest. For fuzzing.
///
/// # Panics
/// If they are not.
pub fn check_any_bytes(bytes: &[u8]) {
    check_frame(bytes);
    for magic in [PART, MANIFEST] {
        let length = (bytes.len() as u64).to_le_bytes();
        let checksum = crc32fast::hash(bytes).to_le_bytes();
        check_frame(&[&magic[..], &1_u32.to_le_bytes(), &checksum, &length, bytes].concat());
    }
}

fn check_frame(bytes: &[u8]) {
    if let Ok((header, layout)) = Header::decode(bytes) {
        let again = header.encode().expect("a header has a text");
        let (same, other) = Header::decode(&again).expect("a header that was read can be read again");
        assert_eq!(same, header);
        assert_eq!(other.chunks.len(), layout.chunks.len());
        let end = layout.chunks.last().map_or(0, |last| last.in_file + last.bytes);
        assert!(end <= layout.bytes && PRELUDE as u64 <= layout.bytes);
    }
    if let Ok(manifest) = Manifest::decode(bytes) {
        let again = manifest.encode().expect("a manifest has a text");
        assert_eq!(Manifest::decode(&again).as_ref(), Ok(&manifest));
    }
}
