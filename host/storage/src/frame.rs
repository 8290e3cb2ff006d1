//! The frame of a header: magic, version, checksum and length, then a JSON text.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of the format that this build writes and reads.
const VERSION: u32 = 1;

/// Length of what precedes the text, in bytes.
pub(crate) const PRELUDE: usize = 24;

/// Identifies the kind of a file, as its first bytes.
pub(crate) type Magic = [u8; 8];

/// What precedes the text of a frame.
pub(crate) struct Prelude {
    /// CRC-32 of the text.
    pub(crate) checksum: u32,
    /// Length of the text, in bytes.
    pub(crate) length: u64,
}

/// Returns `header` as a frame.
///
/// # Errors
/// The reason why it has no text.
pub(crate) fn encode(magic: Magic, header: &impl Serialize) -> Result<Vec<u8>, String> {
    let text = serde_json::to_vec(header).map_err(|error| error.to_string())?;
    let length = text.len() as u64;
    let checksum = crc32fast::hash(&text).to_le_bytes();
    Ok([&magic[..], &VERSION.to_le_bytes(), &checksum, &length.to_le_bytes(), &text].concat())
}

/// Reads the prelude at the start of `bytes`.
///
/// # Errors
/// The reason why this build cannot read the frame.
pub(crate) fn prelude(magic: Magic, bytes: &[u8]) -> Result<Prelude, String> {
    let Some((start, rest)) = bytes.split_first_chunk::<8>() else { return Err("it is too short".into()) };
    if *start != magic {
        return Err("it does not start as such a file does".into());
    }
    let truncated = || "it is too short".to_string();
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(truncated)?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(format!(
            "it has version {version} of the format, and this build reads version {VERSION}"
        ));
    }
    let (checksum, rest) = rest.split_first_chunk::<4>().ok_or_else(truncated)?;
    let (length, _) = rest.split_first_chunk::<8>().ok_or_else(truncated)?;
    Ok(Prelude { checksum: u32::from_le_bytes(*checksum), length: u64::from_le_bytes(*length) })
}

/// Returns the header in `frame`, which has no bytes after its text.
///
/// # Errors
/// The reason why the frame is refused.
pub(crate) fn decode<T: DeserializeOwned>(magic: Magic, frame: &[u8]) -> Result<T, String> {
    let Prelude { checksum, length } = prelude(magic, frame)?;
    let text = &frame[PRELUDE..];
    if text.len() as u64 != length {
        return Err(format!("its header has {} bytes in place of {length}", text.len()));
    }
    if crc32fast::hash(text) != checksum {
        return Err("the checksum of its header is wrong".into());
    }
    serde_json::from_slice(text).map_err(|error| format!("its header is malformed: {error}"))
}
